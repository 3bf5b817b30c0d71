# tries: opens memory, descriptors and root folders of whatever other processes it sees
# stopped by: pid_namespace, user_namespace

for pid in others():
    for leaf in ("mem", "maps", "environ", "exe", "cwd", "root", "fd"):
        path = f"/proc/{pid}/{leaf}"
        attempt(path, os.listdir if leaf == "fd" else os.readlink if leaf in ("exe", "cwd", "root") else lambda path: read(path, 8), path)
