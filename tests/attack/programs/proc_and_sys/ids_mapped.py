# tries: maps further users of the host into its namespace
# stopped by: user_namespace

for name, text in (("uid_map", "0 0 4294967295"), ("uid_map", "1000 0 1"), ("gid_map", "0 0 1"), ("setgroups", "allow")):
    for pid in ("self", "1"):
        attempt(f"wrote {name} of {pid}", lambda: os.write(os.open(f"/proc/{pid}/{name}", os.O_WRONLY), text.encode()))
mapped = sum(int(line.split()[2]) for line in open("/proc/self/uid_map"))
if mapped != 1:
    got(mapped, "users of the host are mapped", open("/proc/self/uid_map").read())
