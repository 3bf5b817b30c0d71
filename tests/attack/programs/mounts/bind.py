# tries: binds a folder to another place, writable
# stopped by: seccomp, capabilities

os.makedirs("/tmp/bound", exist_ok=True)
for source in (b"/usr", b"/", b"/proc", b"/data", b"/proc/1/root"):
    what = passes("mount", source, b"/tmp/bound", None, 4096, None)
    if what:
        got("bound", source, what)
