"""Start a preloaded interpreter that forks: `python -u -B zygote.py LIBRARY CONTROL_FD MODULE...`.

LIBRARY forks and confines, and talks to the host over CONTROL_FD; what it promises is written in the library. Each MODULE is
imported ahead. In a forked child this goes on where `start.py` does, with a runner that is ready.
"""

import ctypes
import os
import sys

library, control_fd, *modules = sys.argv[1:]
native = ctypes.PyDLL(library)
# Before anything large is imported: it takes over where memory comes from. Without it forks are slower, not different.
if native.fumehood_zygote_init() != 0:
    print("zygote: this interpreter takes no memory from the library", file=sys.stderr)

HERE = os.path.dirname(os.path.abspath(__file__))
START = os.path.join(HERE, "start.py")
CONTROL_FD = 3

# What a cold start shows to whoever looks.
sys.orig_argv[sys.orig_argv.index(sys.argv[0]):] = sys.argv[:] = [START]
if sys.path and os.path.abspath(sys.path[0]) == HERE:
    del sys.path[0]
sys.path.insert(0, HERE)
try:
    from fumehood_runner import main, preload
finally:
    sys.path.remove(HERE)

# Returns in children only.
runner = preload.fork_from(native, int(control_fd), modules)
main.serve(CONTROL_FD, runner)
