"""Start and loop. Importing this module loads IPython and changes nothing; `serve` takes the process over."""

import sys

from . import wire
from .execute import Runner


def serve(control_fd, runner=None):
    """Serve requests from the control socket until the host shuts this process down. Never returns.

    `runner` is one prepared before a fork (see `preload`); by default one is made.
    """
    if runner is None:
        runner = Runner()
    runner.attach(control_fd)
    version = ".".join(map(str, sys.version_info[:3]))
    runner.wire.send(wire.READY, {"version": 1, "python": version, "pid": runner.pid})
    while True:
        try:
            kind, payload = runner.wire.receive()
        except BaseException:
            # A timer or handler that an earlier execution left behind; there is nobody to tell.
            continue
        if kind == wire.EXECUTE:
            runner.execute(payload)
        elif kind == wire.SETTLE:
            runner.interrupts.take_early()
        elif kind == wire.SHUTDOWN:
            runner.shutdown()
