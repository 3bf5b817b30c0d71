# tries: gives files to root and to other users
# stopped by: user_namespace

for place in ("/data", "/tmp", "/dev/shm"):
    path = place + "/gift"
    open(path, "w").close()
    for uid, gid in ((0, 0), (0, -1), (-1, 0), (65534, -1), (1, 1), (700001, 700001)):
        attempt(f"gave {path} to {uid}:{gid}", os.chown, path, uid, gid)
