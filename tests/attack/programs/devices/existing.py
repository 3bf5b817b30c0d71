# tries: opens devices of the host that are often left in sight
# stopped by: mount_namespace

import glob
for path in (
    "/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg", "/dev/sda", "/dev/vda", "/dev/nvme0n1", "/dev/dm-0", "/dev/loop-control", "/dev/loop0", "/dev/kvm",
    "/dev/net/tun", "/dev/fuse", "/dev/vsock", "/dev/vhost-net", "/dev/vhost-vsock", "/dev/dri/card0", "/dev/nvidia0", "/dev/uinput", "/dev/input/event0", "/dev/snd",
    "/dev/rtc0", "/dev/watchdog", "/dev/hwrng", "/dev/hpet", "/dev/console", "/dev/tty0", "/dev/tty1", "/dev/vcs", "/dev/ttyS0", "/dev/mapper/control", "/dev/btrfs-control",
    "/dev/userfaultfd", "/dev/cpu/0/msr", "/dev/ppp", "/dev/vfio/vfio", "/dev/udmabuf", "/dev/dma_heap/system", "/dev/snapshot", "/dev/sg0", "/dev/mei0", "/dev/tpm0",
):
    if os.path.isdir(path):
        got("there is", path)
    else:
        attempt(f"opened {path}", lambda: os.open(path, os.O_RDONLY | os.O_NONBLOCK))
known = {"null", "zero", "full", "random", "urandom", "tty", "shm", "pts", "ptmx", "fd", "stdin", "stdout", "stderr", "core", "mqueue"}
extra = set(os.listdir("/dev")) - known
if extra:
    got("devices", sorted(extra))
