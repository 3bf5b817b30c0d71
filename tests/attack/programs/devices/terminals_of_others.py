# tries: finds terminals of the host or of other sandboxes
# stopped by: mount_namespace, descriptors

present = [name for name in os.listdir("/dev/pts") if name != "ptmx"]
if present:
    got("terminals", present)
attempt("opened its controlling terminal", lambda: os.open("/dev/tty", os.O_RDWR))
for number in (0, 1, 2):
    if os.isatty(number):
        got("a terminal of the host as descriptor", number)
