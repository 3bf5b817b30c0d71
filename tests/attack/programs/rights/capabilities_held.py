# tries: finds capabilities in any of its sets
# stopped by: capabilities

status = dict(line.split(":\t", 1) for line in open("/proc/self/status"))
for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
    if int(status[name], 16):
        got(name, status[name].strip())
for number in range(64):
    try:
        if syscall("prctl", 23, number, 0, 0, 0) == 1:
            got("in the bounding set:", number)
    except OSError:
        break
