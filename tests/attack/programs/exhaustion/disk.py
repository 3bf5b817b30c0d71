# tries: fills more disk than it may have
# stopped by: disk
# ends: disk_limit
# with: {"limits": {"disk_mb": 16, "memory_mb": 128}}

block = bytes(1 << 20)
with open("/data/big", "wb", buffering=0) as file:
    for number in range(40):
        file.write(block)
        if number > 17:
            got(number, "MiB where 16 are allowed")
