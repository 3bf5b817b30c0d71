# tries: has links, pipes, sockets and devices collected as files
# stopped by: judge
# like: CVE-2024-28185
# with: {"collect": ["**/*", "link*", "*.csv"]}
# answer: {"artifacts": [], "outcome": "exited"}

import socket
os.symlink("/etc/passwd", "link.csv")
os.symlink(FACTS.readable, "host.csv")
os.symlink("/proc/self/environ", "environ.csv")
os.symlink("/", "root")
os.symlink("..", "up")
os.symlink("loop.csv", "loop.csv")
os.mkfifo("pipe.csv")
os.mkdir("folder.csv")
socket.socket(socket.AF_UNIX).bind("socket.csv")
