# tries: opens files and folders of the host by their full paths
# stopped by: mount_namespace

for path in (FACTS.readable, FACTS.writable):
    attempt(f"read {path}", read, path)
    attempt(f"appended to {path}", lambda: open(path, "ab").write(b"x"))
    attempt(f"removed {path}", os.unlink, path)
attempt(f"listed {FACTS.folder}", os.listdir, FACTS.folder)
attempt("made a file beside them", lambda: open(FACTS.folder + "/made", "x"))
