# tries: has a kill of its own told as one of the kernel's, so that somebody else is blamed
# stopped by: judge
# ends: signaled
# answer: {"outcome": "signaled", "fault": "user"}

os.kill(os.getpid(), 9)
