# tries: has the kernel write a record of every process into a file of its own
# stopped by: seccomp, user_namespace

open("/tmp/acct", "w").close()
if what := passes("acct", b"/tmp/acct"):
    got("acct", what)
