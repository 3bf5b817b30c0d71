# tries: gets the processor's ports for input and output
# stopped by: seccomp, user_namespace
# needs: x86_64

if what := passes("iopl", 3):
    got("iopl", what)
if what := passes("ioperm", 0x80, 1, 1):
    got("ioperm", what)
