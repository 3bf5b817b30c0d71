"""A preloaded interpreter up to the fork: a runner that has only to be attached, imported modules, everything warm.

The runner is made before the modules are imported, so that they find what they find in a cold start: its hooks, the shell, the
standard streams. What forks must not inherit, a second thread or an open file, ends the process with a line on standard error.
"""

import gc
import importlib
import os
import sys

from . import rehearsal, text
from .execute import Runner
from .reseed import Reseed

_ARROW_ALLOCATOR = "JE_ARROW_MALLOC_CONF"
"""Where pyarrow's allocator reads its options. By default it starts a thread, which pandas needs for nothing."""


def fork_from(native, host_fd, modules):
    """Preload, serve forks until the host is gone, and return in each child, with a runner to give to `main.serve`.

    `native` has the library's functions (see `zygote.py`).
    """
    runner, reseed = prepare(modules)
    # After the last object has been made: it packs what is there, and gives back how much that is.
    native.fumehood_zygote_settle()
    if native.fumehood_zygote_serve(host_fd) != 0:
        sys.exit("zygote: the library returned without a fork")
    reseed()
    return runner


def prepare(modules):
    """(runner, reseed) of an interpreter that is ready to fork; `reseed` is to be called in each child."""
    # No collection while nearly everything made is there to stay; one at the end.
    gc.disable()
    before = _open_files()
    hidden = _ARROW_ALLOCATOR not in os.environ
    os.environ.setdefault(_ARROW_ALLOCATOR, "background_thread:false")
    runner = Runner()
    threaded = [name for name in modules if _starts_threads(name)]
    if hidden:
        del os.environ[_ARROW_ALLOCATOR]
    for failure in rehearsal.rehearse(runner):
        report(failure)
    reseed = Reseed()
    reseed()
    # What is frozen is never walked by the collector, so no child copies pages for its marks.
    gc.collect()
    _KEPT.append(_fill_holes())
    gc.freeze()
    gc.enable()
    if _threads() != 1:
        sys.exit(f"zygote: {_threads()} threads, which a fork would lose; started by: {', '.join(threaded) or 'a warm-up'}")
    opened = _open_files() - before
    if opened:
        sys.exit(f"zygote: files left open, of which forks would share the position: {', '.join(sorted(map(str, opened)))}")
    return runner, reseed


def report(message):
    """One line for the host's log."""
    print("zygote:", text.cut(" ".join(message.split()), 1_000), file=sys.stderr)


def _starts_threads(name):
    before = _threads()
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as e:
        report(f"{name} is not preloaded: {text.message_of(e)}")
    except BaseException as e:
        report(f"{name} is not preloaded: {text.class_name(e)}: {text.message_of(e)}")
    return _threads() > before


_KEPT = []
"""What stays until the end of the process only to take room."""
_POOL, _POOL_HEADER, _LARGEST, _STEP = 16 << 10, 48, 512, 16
"""How Python manages small blocks: pools of one size each, for every sixteenth byte."""
_MOST_BATCHES = 1_000


def _fill_holes():
    """Objects in every hole that imports have left between others, so that children make theirs side by side on fresh pages.

    Else each of their first objects would lie in another pool, of which up to three pages have to be copied for it.
    """
    filling = []
    for size in range(_STEP, _LARGEST + 1, _STEP):
        count = (_POOL - _POOL_HEADER) // size // 2
        for _ in range(_MOST_BATCHES):
            batch = [None] * count  # at once: a list that grows would take blocks in between
            for n in range(count):
                batch[n] = _object_of(size)
            filling.append(batch)
            places = list(map(id, batch))
            if max(places) - min(places) < (count + 4) * size:
                break  # one after the other, but for what this loop itself needs: a pool without holes
    return filling


def _object_of(size):
    if size == _STEP:
        return object()
    return complex(0, 1) if size == 2 * _STEP else bytes(size - bytes.__basicsize__)


def _open_files():
    """(descriptor, what it is) of each but the one used for this."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.add((int(fd), os.readlink(f"/proc/self/fd/{fd}")))
        except OSError:
            pass
    return found


def _threads():
    return len(os.listdir("/proc/self/task"))
