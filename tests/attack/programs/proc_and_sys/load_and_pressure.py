# tries: registers for the machine's memory pressure, which makes work in the kernel for everybody
# stopped by: user_namespace

for kind in ("memory", "cpu", "io"):
    attempt(f"a trigger on {kind}", lambda: os.write(os.open(f"/proc/pressure/{kind}", os.O_RDWR), b"some 500000 1000000\0"))
