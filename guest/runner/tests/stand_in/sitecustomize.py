"""The zygote's native library in miniature: it forks, but confines nothing.

Python imports a module of this name at its start when it is on PYTHONPATH; this one removes that trace of itself and puts an object
in the place of the library that `zygote.py` loads. So the interpreter goes the way it goes under the host, frame by frame.

On its socket: "R" when ready; for each request (a directory to enter, with standard streams and control socket) one child, whose pid
and then wait status come back as two 32-bit integers.
"""

import ctypes
import fcntl
import os
import socket
import sys

NAME = "stand-in"
_path = os.environ["PYTHONPATH"].split(os.pathsep)
_path.remove(os.path.dirname(__file__))
sys.path.remove(os.path.dirname(__file__))
if _path:
    os.environ["PYTHONPATH"] = os.pathsep.join(_path)
else:
    del os.environ["PYTHONPATH"]
_open = ctypes.PyDLL


class StandIn:
    """What `zygote.py` calls. Like the library it runs the interpreter's fork handlers itself, in the child when all is in place."""

    def __init__(self):
        ctypes.PyDLL = _open
        self._program = ctypes.PyDLL(None)

    def fumehood_zygote_init(self):
        return 0

    def fumehood_zygote_settle(self):
        return 0

    def fumehood_zygote_serve(self, fd):
        control = socket.socket(fileno=fd)
        control.send(b"R")
        while True:
            directory, fds, _, _ = socket.recv_fds(control, 4096, 4)
            if not directory:
                os._exit(0)
            self._program.PyOS_BeforeFork()
            pid = self._program.fork()
            if pid == 0:
                control.close()
                _arrange(fds)
                os.setsid()
                os.chdir(directory)
                self._program.PyOS_AfterFork_Child()
                return 0
            self._program.PyOS_AfterFork_Parent()
            for received in fds:
                os.close(received)
            _tell(control, pid)
            _tell(control, os.waitpid(pid, 0)[1])


def _arrange(fds):
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 100) for fd in fds]
    for fd in fds:
        os.close(fd)
    for target, fd in enumerate(high):
        os.dup2(fd, target)
        os.close(fd)


def _tell(control, number):
    control.send(number.to_bytes(4, sys.byteorder, signed=True))


def _load(library, *options, **more):
    return StandIn() if library == NAME else _open(library, *options, **more)


ctypes.PyDLL = _load
