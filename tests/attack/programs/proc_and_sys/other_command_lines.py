# tries: finds secrets in arguments and environments of other processes
# stopped by: pid_namespace
# like: judge0#564

for pid in others():
    for leaf in ("cmdline", "environ", "status", "cgroup", "mountinfo", "maps"):
        try:
            text = read(f"/proc/{pid}/{leaf}", 1 << 20)
        except OSError:
            continue
        for secret in secrets_in(text):
            got(leaf, "of", pid, secret)
        if leaf == "environ":
            got("the environment of", pid)
        elif leaf == "cmdline" and text:
            got("the arguments of", pid, text[:100])
