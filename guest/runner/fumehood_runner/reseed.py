"""What a forked child must not share with its siblings: random state, and what modules noted of the process at their import.

Each step is called with one module, if that is loaded; steps import nothing and cost microseconds. Only the first comes
from the interpreter's own fork handlers too. Process ids tell a child nothing: they may be equal in all of them.

Nothing to do for what asks the kernel each time (os.urandom, secrets, random.SystemRandom, uuid.uuid4) and for
`numpy.random.default_rng()`, made by the caller. Shared for good: the seed of `hash`, and the layout of memory.
"""

import ctypes
import gc
import itertools
import os
import sys
import time

_SEED_BYTES = 32
_TWISTER_BYTES = 624 * 4
_FROM_THE_SYSTEM = 2**64
"""numpy's entropy from the operating system has 128 bits; seeds that somebody wrote into code are smaller."""


class Reseed:
    """Made once everything is imported, called in each child. Called before the fork as well it proves that every step works."""

    def __init__(self):
        self._pid = os.getpid()
        self._numpy = _numpy_steps()

    def __call__(self):
        """Make this process differ from its siblings. A step that fails raises: a child that repeats another must not run."""
        for name, step in STEPS:
            module = sys.modules.get(name)
            if module is not None:
                step(module)
        for step in self._numpy:
            step()
        if os.getpid() == self._pid:
            _openssl()


def _numpy_steps():
    """A step for each unseeded bit generator of numpy, also where no name reaches it: in default arguments and compiled modules."""
    bits = sys.modules.get("numpy.random.bit_generator")
    if bits is None:
        return []
    mtrand = sys.modules["numpy.random.mtrand"]
    legacy = mtrand._rand._bit_generator
    steps = [_twister(legacy)]
    for o in gc.get_objects():
        if isinstance(o, bits.BitGenerator) and o is not legacy and _is_unseeded(o):
            steps.append(_twister(o) if type(o).__name__ == "MT19937" else _other(o))
    # Forgets the normal deviate it may hold back, and the seed sequence, whose offspring would repeat from child to child.
    mtrand._rand.seed()
    return steps


def _is_unseeded(generator):
    entropy = getattr(getattr(generator, "seed_seq", None), "entropy", None)
    return isinstance(entropy, int) and entropy >= _FROM_THE_SYSTEM


def _twister(generator):
    """Its state as it lies in memory, all of it random: seeding goes through a hundred pages of numpy, this through one.

    In place: numpy.random's functions and every distribution of scipy.stats hold the same generator.
    """
    address = generator.ctypes.state_address

    def step(size=_TWISTER_BYTES, memmove=ctypes.memmove, urandom=os.urandom):
        memmove(address, urandom(size), size)

    step()
    before = generator.state["state"]["key"].tobytes()
    step()
    after = generator.state["state"]["key"].tobytes()
    if len(after) != _TWISTER_BYTES or any(before[n:n + 64] == after[n:n + 64] for n in range(0, _TWISTER_BYTES, 64)):
        raise RuntimeError("numpy keeps the state of MT19937 in another way than expected")
    return step


def _other(generator):
    if type(generator).__name__ not in ("PCG64", "PCG64DXSM"):
        return lambda: setattr(generator, "state", type(generator)().state)
    name = type(generator).__name__

    def step():
        state, increment = (int.from_bytes(os.urandom(16), "little") for _ in range(2))
        generator.state = {
            "bit_generator": name, "state": {"state": state, "inc": increment | 1}, "has_uint32": 0, "uinteger": 0,
        }  # fmt: skip

    return step


def _openssl():
    # OpenSSL reseeds by itself when the process id has changed, and only then.
    ssl = sys.modules.get("_ssl")
    if ssl is not None:
        ssl.RAND_add(os.urandom(_SEED_BYTES), float(_SEED_BYTES))


def _random(random):
    random.seed()


def _sympy_random(random):
    random.rng.seed()
    random._assumptions_rng.seed()


def _sympy_dummy(symbol):
    dummy = symbol.Dummy
    dummy._prng.seed()
    dummy._base_dummy_index = dummy._prng.randint(10**6, 9 * 10**6)


def _uuid(uuid):
    for name in ("_node", "_last_timestamp", "_last_timestamp_v6", "_last_timestamp_v7"):
        if hasattr(uuid, name):
            setattr(uuid, name, None)


def _threading(threading):
    # Its identity it gets from the interpreter's fork handlers, the kernel's number for it not from those of every version.
    threading.main_thread()._set_native_id()
    # What was loaded may have started one for a moment: matplotlib does while it looks for fonts.
    threading._counter = itertools.count(1).__next__


def _tempfile(tempfile):
    tempfile._name_sequence = tempfile.tempdir = None


def _multiprocessing(process):
    main = process._current_process
    main._config["authkey"] = process.AuthenticationString(os.urandom(_SEED_BYTES))
    main._config.pop("tempdir", None)
    process._process_counter = itertools.count(1)
    process._children = set()
    process.ORIGINAL_DIR = os.getcwd()


def _semaphore_names(synchronize):
    synchronize.SemLock._rand = synchronize.tempfile._RandomNameSequence()


def _joblib(helpers):
    if hasattr(helpers, "_rand"):
        helpers._rand = helpers.tempfile._RandomNameSequence()


def _logging(logging):
    # `relativeCreated` counts from here.
    logging._startTime = time.time_ns() if isinstance(logging._startTime, int) else time.time()


STEPS = (
    ("random", _random),
    ("sympy.core.random", _sympy_random),
    ("sympy.core.symbol", _sympy_dummy),
    ("uuid", _uuid),
    ("threading", _threading),
    ("tempfile", _tempfile),
    ("multiprocessing.process", _multiprocessing),
    ("multiprocessing.synchronize", _semaphore_names),
    ("joblib._multiprocessing_helpers", _joblib),
    ("logging", _logging),
)
"""(module, step), in this order."""
