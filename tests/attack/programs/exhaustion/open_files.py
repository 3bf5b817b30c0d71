# tries: opens files without end
# stopped by: rlimits
# holds: true
# with: {"limits": {"open_files": 64}}

taken = []
try:
    while len(taken) < 5000:
        taken.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
if len(taken) > 64:
    got(len(taken), "files where 64 are allowed")
hold()
