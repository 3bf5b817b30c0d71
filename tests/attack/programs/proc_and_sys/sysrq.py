# tries: triggers the key for emergencies, with a letter that only prints help
# stopped by: covered_proc, user_namespace

attempt("wrote sysrq-trigger", lambda: os.write(os.open("/proc/sysrq-trigger", os.O_WRONLY), b"?"))
