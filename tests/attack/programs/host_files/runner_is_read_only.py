# tries: changes the program that runs every customer's code, and what Python loads at its start
# stopped by: read_only, landlock, user_namespace

import site, sysconfig
for path in ("/opt/fumehood/runner", sysconfig.get_path("purelib"), sysconfig.get_path("stdlib"), os.path.dirname(sys.executable), "/usr/lib/python3/dist-packages", "/usr/local/lib"):
    attempt(f"made a file in {path}", lambda: open(path + "/sitecustomize.py", "x"))
    attempt(f"a .pth in {path}", lambda: open(path + "/zz.pth", "x"))
    for folder, _, names in os.walk(path):
        for name in names[:3]:
            attempt(f"opened {name}", lambda: os.open(os.path.join(folder, name), os.O_RDWR))
        break
