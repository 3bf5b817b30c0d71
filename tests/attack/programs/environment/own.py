# tries: finds secrets of the service in its environment
# stopped by: environment
# like: judge0#564

import subprocess
for text in (str(dict(os.environ)), read("/proc/self/environ", 1 << 20), subprocess.run(["env", "-0"], capture_output=True).stdout):
    for secret in secrets_in(text):
        got(secret)
for name in os.environ:
    if name.startswith(("FUMEHOOD", "CANARY", "AWS", "SSH", "SUDO", "DOCKER", "KUBE", "GITHUB", "XDG_RUNTIME", "DBUS", "INVOCATION", "JOURNAL", "NOTIFY", "LISTEN_")):
        got("the variable", name)
