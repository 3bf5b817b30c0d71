# tries: hangs up the terminal it has, the host's if there is one
# stopped by: seccomp, capabilities

import signal
signal.signal(signal.SIGHUP, signal.SIG_IGN)
if what := passes("vhangup"):
    got("vhangup", what)
