# tries: mounts an overlay over the image, by which files with rights were copied to where they take effect
# stopped by: seccomp, capabilities
# like: CVE-2021-3493, CVE-2023-0386

for folder in ("upper", "work", "merged"):
    os.makedirs(f"/tmp/{folder}", exist_ok=True)
if what := passes("mount", b"overlay", b"/tmp/merged", b"overlay", 0, b"lowerdir=/usr,upperdir=/tmp/upper,workdir=/tmp/work"):
    got("an overlay", what)
