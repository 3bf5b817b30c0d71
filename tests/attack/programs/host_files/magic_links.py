# tries: leaves its root by the links of /proc that need no path
# stopped by: mount_namespace
# like: CVE-2026-13201

path = os.open("/", os.O_PATH)
for way in ("/proc/self/root", "/proc/thread-self/root", "/proc/self/cwd", "/dev/fd", f"/proc/self/fd/{path}", f"/proc/self/task/{os.getpid()}/root", "/proc/1/root", "/proc/1/cwd"):
    attempt(f"left by {way}", read, f"{way}/../../..{FACTS.readable}")
    attempt(f"left by {way}", read, way + FACTS.readable)
attempt("opened again what was only a path", lambda: os.open(f"/proc/self/fd/{path}/..{FACTS.readable}", os.O_RDWR))
