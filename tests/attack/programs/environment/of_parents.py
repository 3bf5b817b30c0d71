# tries: reads the environments of its parents
# stopped by: process_1, pid_namespace

pid = os.getppid()
for _ in range(20):
    for leaf in ("environ", "cmdline"):
        try:
            text = read(f"/proc/{pid}/{leaf}")
        except OSError:
            continue
        for secret in secrets_in(text):
            got(leaf, "of", pid, secret)
        if leaf == "environ" and text:
            got("the environment of", pid)
        # Nothing of the host's folders.
        if leaf == "cmdline" and b"/" in text and pid == 1:
            got("a path of the host", text)
    if pid <= 1:
        break
    pid = int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1])
