# tries: writes capabilities onto a program of its own
# stopped by: user_namespace

import shutil
shutil.copy("/usr/bin/id", "/tmp/id")
for version in (b"\x01\x00\x00\x02", b"\x01\x00\x00\x03"):
    value = version + b"\xff\xff\xff\xff" * 4 + bytes(4 if version[3] == 3 else 0)
    attempt("capabilities on a file", lambda: os.setxattr("/tmp/id", "security.capability", value))
for name in ("security.ima", "security.evm", "trusted.overlay.opaque", "trusted.x"):
    attempt(f"the attribute {name}", lambda: os.setxattr("/tmp/id", name, b"\x02\x00\x00\x00"))
