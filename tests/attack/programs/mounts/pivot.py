# tries: changes its root with pivot_root
# stopped by: seccomp, capabilities

os.makedirs("/tmp/a/b", exist_ok=True)
what = passes("pivot_root", b"/tmp/a", b"/tmp/a/b")
if what:
    got("pivot_root", what)
