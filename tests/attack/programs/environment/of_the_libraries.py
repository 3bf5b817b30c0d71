# tries: finds the environment that its interpreter was started with, below the one that Python shows
# stopped by: environment

environ = _ctypes.POINTER(_ctypes.c_char_p).in_dll(_libc, "environ")
index = 0
while environ[index]:
    for secret in secrets_in(environ[index]):
        got(secret)
    index += 1
# What lies above the stack stays there whatever the program does to its variables.
for line in open("/proc/self/maps"):
    if line.rstrip().endswith("[stack]"):
        start, end = (int(number, 16) for number in line.split()[0].split("-"))
        with open("/proc/self/mem", "rb") as memory:
            memory.seek(start)
            for secret in secrets_in(memory.read(end - start)):
                got("on the stack", secret)
