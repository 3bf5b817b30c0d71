"""Start a preloaded interpreter that forks: `python -u -B zygote.py LIBRARY CONTROL_FD MODULE...`.

LIBRARY forks and confines, and talks to the host over CONTROL_FD; what it promises is written in the library. Each MODULE is
imported ahead. In a forked child this goes on where `start.py` does, with a runner that is ready.
"""

import ctypes
import sys

library, control_fd, *modules = sys.argv[1:]
native = ctypes.PyDLL(library)
# Before anything large is imported: it takes over where memory comes from. Without it forks are slower, not different.
if native.fumehood_zygote_init() != 0:
    print("zygote: this interpreter takes no memory from the library", file=sys.stderr)

import start

# What a cold start shows to whoever looks.
sys.orig_argv[sys.orig_argv.index(sys.argv[0]):] = sys.argv[:] = [start.__file__]
del sys.modules["start"]
main = start.load()

from fumehood_runner import preload

# Returns in children only.
runner = preload.fork_from(native, int(control_fd), modules)
main.serve(start.CONTROL_FD, runner)
