"""Start and loop. Importing this module loads IPython and changes nothing; `serve` takes the process over."""

import os
import sys

from . import wire
from .execute import Runner


def serve(control_fd):
    """Serve requests from the control socket until the host shuts this process down. Never returns.

    A preloaded interpreter may import this module, fork, and call `serve` in the child.
    """
    connection = wire.Wire(control_fd)
    runner = Runner(connection)
    version = ".".join(map(str, sys.version_info[:3]))
    connection.send(wire.READY, {"version": 1, "python": version, "pid": os.getpid()})
    while True:
        try:
            kind, payload = connection.receive()
        except BaseException:
            # A timer or handler that an earlier execution left behind; there is nobody to tell.
            continue
        if kind == wire.EXECUTE:
            runner.execute(payload)
        elif kind == wire.SHUTDOWN:
            runner.shutdown()
