# tries: reads the kernel's log, which tells addresses and what others do
# stopped by: user_namespace, mount_namespace

attempt("/proc/kmsg", read, "/proc/kmsg", 64)
attempt("/dev/kmsg", read, "/dev/kmsg", 64)
attempt("wrote /dev/kmsg", lambda: open("/dev/kmsg", "w"))
