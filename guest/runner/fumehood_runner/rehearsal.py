"""Programs that a preloaded interpreter runs before it forks, so that no child has to be the first.

They go the whole way, from an execute frame to a result frame, on a socket and pipes of their own. What they warm: caches,
regular expressions, lazy imports, and the interpreter's specialised bytecode, whose counters would else be written in every child,
on pages that have to be copied for it. What they leave behind is undone: a child looks as if nothing had run.
"""

import contextlib
import dataclasses
import json
import linecache
import os
import socket
import sys
import warnings
from collections.abc import Callable

from . import text, wire
from .execute import Request

_READ_SIZE = 1 << 20


@dataclasses.dataclass
class WarmUp:
    """One program, run if `needs` is loaded; `why` says what a child saves, `after` lets go of what must not be inherited."""

    needs: str | None
    why: str
    code: str
    times: int = 3
    fails: bool = False
    after: Callable = lambda: None


def _leave_pyplot():
    # Fonts read their files as they are used, and forks would share the place where each of them reads.
    sys.modules["matplotlib.font_manager"]._get_font.cache_clear()
    sys.modules["matplotlib.mathtext"].MathTextParser._parse_cached.cache_clear()
    # Its first figure has chosen the backend and left a hook in the shell.
    pyplot = sys.modules["matplotlib.pyplot"]
    pyplot.uninstall_repl_displayhook()
    pyplot._backend_mod = None


# No program may start a thread, set an option, import what its user has not asked for, or count where users can see it
# (names of threads and of asyncio's tasks).
WARM_UPS = (
    WarmUp(None, "the runner's own way, often enough for the interpreter to specialise it", "print('x')\n1 + 1", 40),
    WarmUp(
        None, "values in results, standard error, json",
        "import json, sys\nprint('x', file=sys.stderr)\njson.loads(json.dumps({'a': [1, 2.5, None, True, 'x'], 'b': {'c': []}}))", 10,
    ),
    WarmUp(None, "tracebacks and hints", "def f(x):\n    return 1 / x\n\nf(0)", 10, fails=True),
    WarmUp(
        "numpy", "kernels chosen for the processor, linear algebra, the text of arrays",
        "import numpy as np\na = np.random.default_rng(0).normal(size=(8, 8))\nprint(np.linalg.inv(a @ a.T).mean(axis=0))\na",
    ),
    WarmUp(
        "pandas", "parsers, dtypes, group-by, the text and HTML of tables",
        "import io\nimport pandas as pd\ndf = pd.read_csv(io.StringIO('k,d,n,x\\na,2024-01-01,1,1.5\\nb,2024-01-02,2,\\na,2024-01-03,3,2.5\\n'))\n"
        "df['d'] = pd.to_datetime(df['d'])\nprint(df.describe(), df.groupby('k').agg({'x': ['mean', 'sum']}), df.x.isna().sum())\n"
        "df.sort_values('x').merge(df[df.n > 1], on='k', how='left')",
    ),
    WarmUp(
        "matplotlib.pyplot", "the font list, the parser of mathematical text, the renderer, writing a PNG",
        "import matplotlib.pyplot as plt\nfig, ax = plt.subplots(1, 2)\nax[0].plot([1, 2, 3], [1, 4, 9], label='y')\nax[0].set_title('$x^2$')\n"
        "ax[0].legend()\nax[1].bar(['a', 'b'], [1, 2])\nax[1].scatter([0, 1], [1, 2])\nfig.tight_layout()\nplt.show()",
        after=_leave_pyplot,
    ),
    WarmUp(
        "seaborn", "the semantics of its plots, which the first one works out",
        "import seaborn as sns, pandas as pd\ndf = pd.DataFrame({'k': ['a', 'b', 'a'], 'v': [1.0, 2.0, 3.0]})\nsns.barplot(df, x='k', y='v');",
        after=_leave_pyplot,
    ),
    WarmUp(
        "scipy.stats", "the machinery of distributions and tests",
        "from scipy import stats\nstats.norm.rvs(size=3)\nstats.norm.cdf(1.0)\nprint(stats.ttest_ind([1.0, 2.0, 3.0], [2.0, 3.0, 5.0]).pvalue)",
    ),
    WarmUp(
        "sklearn.linear_model", "validation of parameters and data, which every estimator shares",
        "import numpy as np\nfrom sklearn.linear_model import LinearRegression\nX = np.arange(10.0).reshape(-1, 1)\nprint(LinearRegression().fit(X, X[:, 0]).predict(X)[:2])",
    ),
)  # fmt: skip


def rehearse(runner):
    """Run every warm-up whose modules are loaded. Gives a line for each that failed."""
    failures = []
    with _scratch_descriptors() as output, _undone():
        for warm_up in WARM_UPS:
            if warm_up.needs is None or warm_up.needs in sys.modules:
                failures += _failures(runner, warm_up, output)
    return failures


def _failures(runner, warm_up, output):
    try:
        try:
            _repeat(runner, warm_up, output)
        finally:
            warm_up.after()
    except Exception as e:
        return [f"a warm-up failed ({warm_up.why}): {text.class_name(e)}: {text.message_of(e)}"]
    return []


def _repeat(runner, warm_up, output):
    for _ in range(warm_up.times):
        error = _play(runner, warm_up.code)
        with contextlib.suppress(BlockingIOError):
            os.read(output, _READ_SIZE)
        if error is not None and not warm_up.fails:
            raise RuntimeError(f"{error['type']}: {error['message']}")


def _play(runner, code):
    """The error of one program, run as the first one of a child, or None."""
    here = list(sys.path)
    host, guest = socket.socketpair()
    with host, guest:
        runner.attach(guest.fileno())
        try:
            # Acknowledged before it is sent: nobody could answer while the program runs.
            host.sendall(wire.encode_frame(wire.ACK, {"seq": 1_000}))
            host.sendall(wire.encode_frame(wire.EXECUTE, {"id": "exe_1", "code": code, "mode": "cell"}))
            runner.execute(runner.wire.receive()[1])
        finally:
            runner.detach()
            sys.path[:] = here
        return _last_frame(host)["error"]


def _last_frame(host):
    data = host.recv(_READ_SIZE)
    while len(data) > (end := 5 + int.from_bytes(data[:4], "big")):
        data = data[end:]
    return json.loads(data[5:])


@contextlib.contextmanager
def _scratch_descriptors():
    """0, 1 and 2 are pipes, as in a sandbox, and then what they were. Gives the end where output can be read."""
    kept = [os.dup(fd) for fd in range(3)]
    output, written = os.pipe()
    nothing, closed = os.pipe()
    os.close(closed)
    os.set_blocking(output, False)
    try:
        for fd, scratch in enumerate((nothing, written, written)):
            os.dup2(scratch, fd)
        yield output
    finally:
        for fd, old in enumerate(kept):
            os.dup2(old, fd)
        for fd in (*kept, output, written, nothing):
            os.close(fd)


@contextlib.contextmanager
def _undone():
    """What a program of the user's changes in the interpreter is as it was."""
    arguments, main, lines = sys.argv, sys.modules["__main__"], dict(linecache.cache)
    warned = [namespace for namespace in _namespaces() if "__warningregistry__" in namespace]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.argv = arguments
        sys.modules["__main__"] = main
        linecache.cache.clear()
        linecache.cache.update(lines)
        for namespace in _namespaces():
            if not any(namespace is w for w in warned):
                namespace.pop("__warningregistry__", None)


def _namespaces():
    candidates = (getattr(module, "__dict__", None) for module in list(sys.modules.values()))
    return [namespace for namespace in candidates if type(namespace) is dict]
