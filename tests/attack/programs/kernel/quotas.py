# tries: reads and sets the quotas of the host's file system
# stopped by: seccomp

# Q_SYNC of everything is open to everybody where nothing forbids it.
for command in (0x80000100, 0x80000700 | 0):
    if what := passes("quotactl", command, b"/dev/vda", 0, None):
        got("quotactl", what)
