# tries: opens shared memory of neighbours that lies in /dev/shm, and watches for more
# stopped by: mount_namespace

from multiprocessing import shared_memory
for name in ("secret", "psm_neighbour", "fumehood"):
    attempt(f"opened {name}", lambda: shared_memory.SharedMemory(name))
import stat
about = os.stat("/dev/shm")
names = [name for name in os.listdir("/dev/shm")]
if names:
    got("files", names)
