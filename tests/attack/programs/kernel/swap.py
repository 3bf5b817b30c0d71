# tries: gives the machine a swap file, or takes swap away
# stopped by: seccomp, user_namespace

open("/tmp/swap", "wb").write(bytes(4096 * 16))
for name in ("swapon", "swapoff"):
    if what := passes(name, b"/tmp/swap", 0):
        got(name, what)
