"""What a forked child must not share with its siblings: random state, and what modules noted of the process at their import.

Each step is called with one module, if that is loaded; steps import nothing and cost microseconds. Only the first comes
from the interpreter's own fork handlers too. Process ids tell a child nothing: they may be equal in all of them.

Nothing to do for what asks the kernel each time (os.urandom, secrets, random.SystemRandom, uuid.uuid4) and for
`numpy.random.default_rng()`, made by the caller. Shared for good: the seed of `hash`, and the layout of memory.
"""

import gc
import itertools
import os
import sys
import time

_SEED_BYTES = 32
_FROM_THE_SYSTEM = 2**64
"""numpy's entropy from the operating system has 128 bits; seeds that somebody wrote into code are smaller."""


class Reseed:
    """Made once everything is imported, called in each child. Called before the fork as well it proves that every step works."""

    def __init__(self):
        self._bit_generators = _unseeded_bit_generators()

    def __call__(self):
        """Make this process differ from its siblings. A step that fails raises: a child that repeats another must not run."""
        for name, step in STEPS:
            module = sys.modules.get(name)
            if module is not None:
                step(module)
        for generator in self._bit_generators:
            _numpy_bits(generator)


def _unseeded_bit_generators():
    """numpy's bit generators that somebody holds, also where no name reaches: default arguments, compiled modules."""
    bits = sys.modules.get("numpy.random.bit_generator")
    if bits is None:
        return []
    legacy = sys.modules["numpy.random.mtrand"]._rand._bit_generator
    return [
        o for o in gc.get_objects()
        if isinstance(o, bits.BitGenerator) and o is not legacy and getattr(o.seed_seq, "entropy", None)
        and isinstance(o.seed_seq.entropy, int) and o.seed_seq.entropy >= _FROM_THE_SYSTEM
    ]  # fmt: skip


def _numpy_bits(generator):
    if hasattr(generator, "_legacy_seeding"):
        generator._legacy_seeding(_numpy_seed())
    else:
        generator.state = type(generator)().state


def _numpy_seed():
    numpy = sys.modules["numpy"]
    return numpy.frombuffer(os.urandom(_SEED_BYTES), numpy.uint32)


def _random(random):
    random.seed()


def _numpy_legacy(mtrand):
    # In place: numpy.random's functions and every distribution of scipy.stats hold this object.
    mtrand._rand.seed(_numpy_seed())


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


def _openssl(ssl):
    # By itself OpenSSL reseeds when the process id has changed, which it need not have.
    ssl.RAND_add(os.urandom(_SEED_BYTES), float(_SEED_BYTES))


def _tempfile(tempfile):
    tempfile._name_sequence = tempfile.tempdir = None


def _multiprocessing(process):
    main = process._current_process
    main._config["authkey"] = process.AuthenticationString(os.urandom(_SEED_BYTES))
    main._config.pop("tempdir", None)
    process._process_counter = itertools.count(1)
    process._children = set()
    process.ORIGINAL_DIR = os.path.abspath(os.getcwd())


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
    ("numpy.random.mtrand", _numpy_legacy),
    ("sympy.core.random", _sympy_random),
    ("sympy.core.symbol", _sympy_dummy),
    ("uuid", _uuid),
    ("_ssl", _openssl),
    ("tempfile", _tempfile),
    ("multiprocessing.process", _multiprocessing),
    ("multiprocessing.synchronize", _semaphore_names),
    ("joblib._multiprocessing_helpers", _joblib),
    ("logging", _logging),
)
"""(module, step), in this order."""
