"""Start one runner in this process: `python -u -B start.py`, with the control socket at descriptor 3.

The library's own folder is on `sys.path` only while the package is imported, so that the user's code finds
nothing there by accident; the package imports its remaining modules through its own `__path__`.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
CONTROL_FD = 3


def load():
    """The package's main module."""
    # Python put the script's folder first; the runner puts the working directory there before user code runs.
    if sys.path and os.path.abspath(sys.path[0]) == HERE:
        del sys.path[0]
    sys.path.insert(0, HERE)
    try:
        from fumehood_runner import main
    finally:
        sys.path.remove(HERE)
    return main


if __name__ == "__main__":
    load().serve(CONTROL_FD)
