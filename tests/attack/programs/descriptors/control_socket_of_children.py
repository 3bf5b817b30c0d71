# tries: reaches the control socket from a program that it starts
# stopped by: descriptors

import subprocess
script = "import os, stat\nfor n in range(3, 256):\n    try:\n        if stat.S_ISSOCK(os.fstat(n).st_mode): print('GOT', n)\n    except OSError: pass"
print(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, close_fds=False).stdout, end="")
if os.fork() == 0:
    for number in range(3, 256):
        try:
            import stat
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                got("a fork holds the socket", number)
        except OSError:
            pass
    os._exit(0)
os.wait()
