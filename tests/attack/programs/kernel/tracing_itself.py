# tries: has a child traced, by which calls are changed after a filter has seen them
# stopped by: seccomp

child = os.fork()
if child == 0:
    if what := passes("ptrace", 0, 0, 0, 0):
        got("PTRACE_TRACEME", what)
    os._exit(0)
os.waitpid(child, 0)
