# tries: crashes, so that the host starts its program for core files with what the sandbox has in memory
# stopped by: rlimits
# like: CVE-2015-1318

import resource, subprocess
pattern = open("/proc/sys/kernel/core_pattern").read()
# A limit of 1 keeps the kernel from starting the helper; 0 only keeps it from writing files.
if pattern.startswith("|") and resource.getrlimit(resource.RLIMIT_CORE) != (1, 1):
    got("a crash starts the host's", pattern)
attempt("raised the limit for core files", lambda: resource.setrlimit(resource.RLIMIT_CORE, (1 << 20, 1 << 20)))
subprocess.run([sys.executable, "-c", "import os; os.kill(os.getpid(), 11)"], cwd="/data")
if any(name.startswith("core") for name in os.listdir("/data")):
    got("a core file", os.listdir("/data"))
