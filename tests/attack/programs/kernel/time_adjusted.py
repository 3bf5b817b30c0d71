# tries: makes the machine's clock run faster
# stopped by: seccomp

# Without any mode it only tells the state of the clock, which nothing else forbids.
state = (_ctypes.c_long * 64)()
if what := passes("adjtimex", state):
    got("adjtimex", what)
if what := passes("clock_adjtime", 0, state):
    got("clock_adjtime", what)
