"""Forks of a preloaded interpreter: each is like a cold start, and unlike every other fork."""

import json
import os
import re

import pytest

from conftest import PRELOADED, has
from host import ForkedHost, Host, Zygote

# Random state

SOURCES = {
    "random": "import random\nrandom.random()",
    "random of random": "import random\nrandom.Random().random()",
    "secrets": "import secrets\nsecrets.token_hex()",
    "system random": "import random\nrandom.SystemRandom().random()",
    "urandom": "import os\nos.urandom(16).hex()",
    "uuid1": "import uuid\nstr(uuid.uuid1())",
    "uuid1 clock sequence": "import uuid\nuuid._generate_time_safe = uuid._UuidCreate = None\nuuid.uuid1().clock_seq, uuid.getnode()",
    "uuid4": "import uuid\nstr(uuid.uuid4())",
    "openssl": "import ssl\nssl.RAND_bytes(16).hex()",
    "temporary names": "import tempfile\nnext(tempfile._get_candidate_names())",
    "semaphore names": "import multiprocessing.synchronize as s\nnext(s.SemLock._rand)",
    "authentication key": "import multiprocessing\nbytes(multiprocessing.current_process().authkey).hex()",
    "numpy, legacy": "import numpy as np\nnp.random.rand(3).tolist()",
    "numpy, normal": "import numpy as np\nnp.random.randn()",
    "numpy, generator": "import numpy as np\nnp.random.default_rng().random()",
    "pandas": "import pandas as pd\npd.Series(range(10**6)).sample(3).tolist()",
    "scipy": "from scipy import stats\nstats.norm.rvs(size=3).tolist()",
    "scipy, discrete": "from scipy import stats\nstats.randint.rvs(0, 2**60)",
    "scipy, multivariate": "from scipy import stats\nstats.multivariate_normal.rvs([0, 0]).tolist()",
    "scikit-learn": "from sklearn.utils import check_random_state\ncheck_random_state(None).randint(2**31, size=4).tolist()",
    "sympy": "import sympy.core.random as r\nr.rng.random()",
    "sympy, assumptions": "import sympy.core.random as r\nr._assumptions_rng.random()",
    "sympy, dummies": "import sympy\nsympy.Dummy('x').dummy_index",
}
PACKAGES = {"numpy": "numpy", "pandas": "pandas", "scipy": "scipy", "scikit-learn": "sklearn", "sympy": "sympy"}


@pytest.fixture(scope="module")
def generous(tmp_path_factory):
    """A zygote that has loaded whatever this interpreter has that may hold random state."""
    modules = (
        *PRELOADED, "ssl", "uuid", "tempfile", "secrets", "sympy", "sklearn.ensemble", "scipy.stats.sampling", "scipy.stats.qmc", "joblib",
        "plotly.graph_objects", "requests", "concurrent.futures", "asyncio",
    )  # fmt: skip
    zygote = Zygote(tmp_path_factory.mktemp("generous"), [m for m in modules if has(m.split(".")[0])])
    assert zygote.is_ready, zygote.errors()
    assert zygote.errors() == ""
    yield zygote
    zygote.close()


@pytest.fixture
def sibling(generous, workspace):
    """sibling(code) -> Outcome of another child of the same zygote."""

    def sibling(code):
        with ForkedHost(generous, workspace) as host:
            return host.script(code)

    return sibling


@pytest.mark.parametrize("name", SOURCES)
def test_a_forked_child_never_repeats_random_numbers(sibling, name, needs_module):
    needs_module(*(package for word, package in PACKAGES.items() if name.split(",")[0] == word))
    outcomes = [sibling(SOURCES[name]) for _ in range(3)]
    assert all(o.error is None for o in outcomes), outcomes[0].stderr
    assert len({str(o.result) for o in outcomes}) == 3


def test_siblings_share_no_generator_that_python_can_find(sibling):
    # A generator held where no list of ours knows it: default arguments, classes, compiled modules.
    code = (
        "import gc, hashlib, random, sys\ngc.unfreeze()\nstates = []\nbits = sys.modules.get('numpy.random')\n"
        "for o in gc.get_objects():\n"
        "    if isinstance(o, random.Random) and not isinstance(o, random.SystemRandom):\n        states.append(repr(o.getstate()))\n"
        "    if bits and isinstance(o, bits.BitGenerator):\n        states.append(repr(o.state).replace('\\n', '') + str(getattr(o.state['state'], 'get', dict)('key', [0])[:9]))\n"
        "[hashlib.md5(s.encode()).hexdigest() for s in states]"
    )
    first, second = sibling(code).result, sibling(code).result
    assert len(first) == len(second) > 0 and not set(first) & set(second)


def test_a_seed_gives_the_numbers_it_gives_everywhere(forked, workspace, needs_module):
    needs_module("numpy", "scipy")
    code = (
        "import random, numpy as np\nfrom scipy import stats\nrandom.seed(1)\nnp.random.seed(2)\n"
        "[random.random(), random.gauss(0, 1), *np.random.rand(2).tolist(), *np.random.randn(3).tolist(), stats.norm.rvs(), np.random.default_rng(3).random()]"
    )
    assert forked(code).result == cold(workspace, code).result


# Like a cold start


def cold(workspace, code, stdin=b"", **fields):
    with Host(workspace, stdin) as host:
        return host.script(code, **fields)


LOOKS = r"""
import decimal, gc, importlib, locale, logging, os, resource, signal, sys, threading, traceback, warnings
for _name in MODULES:
    importlib.import_module(_name)
def _numbers(status):
    lines = (line.split(':', 1) for line in open(status))
    return {k: int(v, 16) & 0x7fffffff for k, v in lines if k in ('SigPnd', 'ShdPnd', 'SigBlk', 'SigIgn', 'SigCgt')}
def _matplotlib():
    import matplotlib, matplotlib.pyplot as plt, matplotlib.units
    return [sorted((k, repr(v)) for k, v in matplotlib.rcParams.items()), plt.get_fignums(), len(matplotlib.units.registry), matplotlib.get_backend()]
def _options():
    import numpy, pandas
    return [numpy.get_printoptions(), numpy.geterr(), pandas.describe_option(_print_desc=False)]
{
    "argv": sys.argv, "orig_argv": [os.path.basename(a) for a in sys.orig_argv], "path": sys.path, "flags": list(sys.flags),
    "meta_path": [type(f).__name__ for f in sys.meta_path], "hooks": len(sys.path_hooks), "environ": sorted(os.environ.items()), "cwd": os.getcwd(),
    "filters": sorted(map(repr, warnings.filters)), "first filters": list(map(repr, warnings.filters[-5:])), "once": len(warnings.onceregistry),
    "registries": sorted(n for n, m in sys.modules.items() if any(k != 'version' for k in getattr(m, '__warningregistry__', None) or ())),
    "log": [logging.root.level, len(logging.root.handlers), logging.lastResort.level],
    "signals": [[s.name, str(signal.getsignal(s))] for s in sorted(signal.valid_signals()) if isinstance(s, signal.Signals)],
    "status": _numbers('/proc/self/status'), "limits": [resource.getrlimit(n) for n in range(10)], "nice": os.nice(0),
    "recursion": [sys.getrecursionlimit(), sum(1 for _ in traceback.walk_stack(None))],
    "switch": sys.getswitchinterval(), "digits": sys.get_int_max_str_digits(), "tracing": [sys.gettrace(), sys.getprofile(), threading.stack_size()],
    "decimal": str(decimal.getcontext()), "locale": [locale.setlocale(locale.LC_ALL), locale.getlocale()], "encoding": [sys.getfilesystemencoding(), sys.stdout.encoding],
    "gc": [gc.isenabled(), gc.get_threshold(), gc.get_debug()], "threads": [t.name for t in threading.enumerate()],
    "main thread": [threading.main_thread().native_id == threading.get_native_id(), threading.main_thread().ident == threading.get_ident()],
    "next thread": threading.Thread().name, "descriptors": sorted(f for f in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + f)),
    "streams": [[s.name, s.encoding, s.errors, s.seekable(), s is o, s.fileno()] for s, o in
                ((sys.stdin, sys.__stdin__), (sys.stdout, sys.__stdout__), (sys.stderr, sys.__stderr__))],
    "namespace": sorted(n for n in globals() if not n.startswith('_name')), "builtins": len(dir(__builtins__)), "main": repr(sys.modules['__main__'])[:20],
    "shell": [get_ipython().execution_count, [str(p) for p in _dh], get_ipython().starting_dir, {k: len(v) for k, v in get_ipython().events.callbacks.items()}],
    "excepthook": [sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__, hasattr(sys, 'ps1'), hasattr(sys, 'last_value')],
    "multiprocessing": ORIGINAL, "matplotlib": MATPLOTLIB, "options": OPTIONS, "temporary": sorted(os.listdir(os.environ['TMPDIR'])),
}
"""


def looks(modules):
    """Code whose result is what users can see of their interpreter, once these modules are imported."""
    original = "__import__('multiprocessing.process').process.ORIGINAL_DIR" if "multiprocessing.synchronize" in modules else "None"
    code = LOOKS.replace("MODULES", repr(modules)).replace("ORIGINAL", original)
    code = code.replace("MATPLOTLIB", "_matplotlib()" if "matplotlib.pyplot" in modules else "None")
    return code.replace("OPTIONS", "_options()" if "pandas" in modules else "None")


def test_a_forked_child_looks_like_a_cold_start(workspace):
    zygote = Zygote(workspace, ["json"])
    try:
        with ForkedHost(zygote, workspace) as host:
            found = host.script(looks([]), max_result_bytes=10**7)
    finally:
        zygote.close()
    expected = cold(workspace, looks([]), max_result_bytes=10**7)
    assert found.error is None and found.stderr == expected.stderr == ""
    differences(found.result, expected.result)


def test_a_forked_child_looks_like_a_cold_start_that_has_imported_the_same(workspace):
    modules = [m for m in PRELOADED if has(m.split(".")[0])]
    # Started elsewhere: what it noted of its directory is not the child's.
    zygote = Zygote("/", modules, env={"TMPDIR": str(workspace) + "-tmp"})
    try:
        assert zygote.is_ready and zygote.errors() == ""
        with ForkedHost(zygote, workspace) as host:
            found = host.script(looks(modules), max_result_bytes=10**7)
    finally:
        zygote.close()
    expected = cold(workspace, looks(modules), max_result_bytes=10**7)
    assert found.error is None and found.stderr == expected.stderr
    differences(found.result, expected.result)


def differences(found, expected):
    different = [f"{k}: {v} instead of {expected[k]}" for k, v in found.items() if v != expected[k]]
    assert not different, "\n".join(different)


def test_users_do_not_see_that_modules_are_loaded(forked, needs_module):
    needs_module("pandas")
    assert forked("[n for n in ('pd', 'np', 'plt', 'sns', 'pandas', 'io', 'df') if n in globals()]").result == []
    o = forked("len(pd.DataFrame({'a': [1]}))")
    assert o.result == 1 and [w["code"] for w in o.warnings] == ["auto_import"]


SAME = {
    "value and output": "print('a')\n{'x': [1, 2.5]}",
    "plot": "import matplotlib.pyplot as plt\nprint('a')\nplt.plot([1, 4, 9], label='$x^2$')\nplt.legend()\nplt.show()\nprint('b')",
    "open figure": "import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nax.bar(['a', 'b'], [1, 2]);",
    "figure as value": "import matplotlib.pyplot as plt\nfig = plt.figure()\nfig",
    "seaborn": "import seaborn as sns, pandas as pd\nsns.lineplot(pd.DataFrame({'x': [1, 2, 3], 'y': [3, 1, 2]}), x='x', y='y');",
    "dates": "import pandas as pd, matplotlib.pyplot as plt\nplt.plot(pd.date_range('2024-01-01', periods=3), [1, 2, 3]);",
    "plot of a frame": "import pandas as pd\npd.DataFrame({'a': [1, 2, 3]}).plot();",
    "frame": "import pandas as pd\ndf = pd.DataFrame({'a': [1, 2], 'b': ['x', None]}, index=['p', 'q'])\ndf",
    "description": "import io, pandas as pd\nprint(pd.read_csv(io.StringIO('a,b\\n1,2\\n3,4\\n')).describe())",
    "array": "import numpy as np\nnp.arange(6).reshape(2, 3) / 7",
    "error": "def f():\n    raise ValueError('x')\nf()",
    "error of a library": "import pandas as pd\npd.DataFrame({'a': [1]})['b']",
    "syntax error": "for x in\n",
    "warning": "import warnings\nwarnings.warn('once', DeprecationWarning)\nwarnings.warn('twice')",
    "warning of numpy": "import numpy as np\nnp.log(np.array([0.0, 1.0]))",
    "input": "name = input('Name? ')\nprint('hi', name, input())",
    "end of input": "input()\ninput()\ninput()",
    "exit": "import sys\nprint('x')\nsys.exit(7)",
    "exit with a message": "import sys\nsys.exit('no')",
    "threads": "import threading\nt = [threading.Thread(target=print, args=(n,)) for n in range(2)]\n[(x.start(), x.join()) for x in t]\n[x.name for x in t]",
    "exit functions": "import atexit\natexit.register(print, 'bye')\n1",
    "logging": "import logging\nlogging.warning('w')\nlogging.basicConfig(level='INFO', format='%(message)s')\nlogging.info('i')",
    "asyncio": "import asyncio\nasync def f():\n    return asyncio.current_task().get_name()\n[asyncio.run(f()), await f()]",
    "event loop": "import asyncio\ntry:\n    asyncio.get_event_loop().close()\n    print('made')\nexcept RuntimeError as e:\n    print(e)",
    "processes": "import multiprocessing as mp\ndef f(n): return n * n\nwith mp.Pool(2) as p: print(p.map(f, [1, 2, 3]), mp.current_process().name)",
    "names of processes": "import multiprocessing as mp\np = mp.Process(target=print, args=('in',)); p.start(); p.join()\np.name, p.exitcode",
    "subprocess": "import subprocess\nprint(subprocess.run(['cat'], input='x', capture_output=True, text=True).stdout)\nsubprocess.run(['echo', 'y']).returncode",
    "rich objects": "class T:\n    def _repr_html_(self): return '<b>t</b>'\ndisplay(T(), [1])\nT()",
    "printers": "get_ipython().display_formatter.formatters['text/html'].for_type(int, lambda n: f'<i>{n}</i>')\n5",
    "magics": "%env X=1\n!echo $X\n%time 2",
    "handler": "def handler(input):\n    return input",
    "source of classes": "import inspect\nclass A:\n    x = 1\ninspect.getsource(A)",
    "pickles": "import pickle\nclass A: pass\ntype(pickle.loads(pickle.dumps(A()))) is A",
}


CHANCE = re.compile(r"0x[0-9a-f]{6,}|(?<=pid=)\d+|(?<=parent=)\d+|(?<=stopped )\d{6,}|(?<=Wall time: ).*?s\b|(?<=CPU times: ).*?(?=\\n)")
"""Addresses, process ids and times, as they stand in texts."""


@pytest.mark.parametrize("name", SAME)
def test_a_forked_child_gives_what_a_cold_start_gives(forked, workspace, name, needs_module):
    code = SAME[name]
    needs_module(*(m for m in ("numpy", "pandas", "matplotlib", "seaborn") if f"import {m}" in code or f", {m}" in code))
    fields = {"stdin": b"Ada\nLovelace\n", "has_input": "def handler" in code, "input": [1]}
    outcomes = [forked(code, **fields), cold(workspace, code, **fields)]
    a, b = [json.loads(CHANCE.sub("N", json.dumps([o.stdout, o.stderr, o.status, [d["mime"] for d in o.displays], o.frame]))) for o in outcomes]
    assert a == b


def test_figures_work_whether_matplotlib_was_loaded_before_or_is_now(forked, workspace, needs_module):
    needs_module("matplotlib")
    code = "import matplotlib.pyplot as plt\nplt.plot([1])\nprint('a')\nplt.show()\nprint('b')"
    zygote = Zygote(workspace, ["json"])
    try:
        with ForkedHost(zygote, workspace) as host:
            late = host.script("import sys\nassert 'matplotlib' not in sys.modules\n" + code)
    finally:
        zygote.close()
    for o in (late, forked(code)):
        assert [k for k, _ in o.merged] == ["stdout", "display", "stdout"] and len(o.images) == 1


def test_standard_input_may_be_a_file(zygote, workspace):
    (workspace / "in.txt").write_text("one\ntwo\n")
    with open(workspace / "in.txt") as file, ForkedHost(zygote, workspace, stdin=file) as host:
        assert host.script("import sys\n[sys.stdin.seekable(), input(), sys.stdin.read()]").result == [True, "one", "two\n"]


# Processes


def test_the_ready_frame_names_the_child(zygote, workspace):
    with ForkedHost(zygote, workspace) as host:
        assert host.ready["pid"] == host.process.pid != zygote.process.pid
        assert host.script("import os\nos.getpid()").result == host.process.pid


def test_a_child_of_the_user_s_fork_still_abandons_the_wire(forked):
    code = (
        "import os\nr, w = os.pipe()\npid = os.fork()\nif pid == 0:\n    try: os.fstat(3); os.write(w, b'open')\n    except OSError: os.write(w, b'closed')\n"
        "    display('from the child')\n    print('child')\n    1 / 0\nelse:\n    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])\n"
        "    display('from the parent')\n[os.read(r, 9).decode(), status]"
    )
    o = forked(code)
    assert o.result == ["closed", 1] and o.stdout == "child\n" and "ZeroDivisionError" in o.stderr and o.error is None
    assert [d["mime"]["text/plain"] for d in o.displays][0] == "'from the parent'" and len(o.displays) == 2


def test_a_session_in_a_forked_child_keeps_its_variables(zygote, workspace):
    with ForkedHost(zygote, workspace) as host:
        host.cell("x = 1")
        assert host.cell("x + 1").result == 2 and host.cell("1/0").error["type"] == "ZeroDivisionError" and host.cell("x").result == 1


TIME_ZONE = (
    "import atexit, datetime, os, subprocess, threading, time\nthere = [os.environ['K'], os.environ['TZ']]\n"
    "shown = [time.tzname[0], datetime.datetime.fromtimestamp(0).hour, time.localtime(0).tm_hour]\n"
    "child = subprocess.run('echo $K; date -d @0 +%H', shell=True, capture_output=True, text=True).stdout.split()\n"
    "end = lambda who: print(who, os.environ.get('K'), time.localtime(0).tm_hour)\natexit.register(end, 'exit')\n"
    "threading.Thread(target=lambda: (time.sleep(0.2), end('thread'))).start()\n"
    "[there, shown, child]"
)


def test_the_environment_of_a_request_holds_from_the_first_line_to_the_last_exit_function(forked, workspace):
    env = {"K": "v", "TZ": "Asia/Tokyo"}
    for o in (forked(TIME_ZONE, env=env), cold(workspace, TIME_ZONE, env=env)):
        assert o.result == [["v", "Asia/Tokyo"], ["JST", 9, 9], ["v", "09"]], o.stderr
        assert o.stdout == "thread v 9\nexit v 9\n"


def test_a_time_zone_belongs_to_one_execution_of_a_session(zygote, workspace):
    code = "import time\ntime.localtime(0).tm_hour"
    with ForkedHost(zygote, workspace) as host:
        before = host.cell(code).result
        assert host.cell(code, env={"TZ": "Asia/Tokyo"}).result == 9
        assert host.cell(code).result == before


def test_forks_leave_nothing_in_the_zygote(zygote, workspace):
    def holds():
        folder = f"/proc/{zygote.process.pid}"
        files = sorted((fd, os.readlink(f"{folder}/fd/{fd}")) for fd in os.listdir(f"{folder}/fd"))
        return files, len(os.listdir(f"{folder}/task")), os.readlink(f"{folder}/cwd")

    code = "import os, tempfile, threading\nf = open('made', 'w')\nos.environ['X'] = '1'\nos.chdir('/')\nthreading.Thread(target=print).start()"
    before = holds()
    for _ in range(20):
        with ForkedHost(zygote, workspace) as host:
            assert host.script(code).error is None
    assert holds() == before and zygote.errors() == ""


def test_siblings_do_not_see_each_other(forked):
    forked("import builtins, sys, json, os\nbuiltins.leak = sys.leak = json.leak = 1\nos.environ['LEAK'] = '1'\nsys.path.append('/leak')")
    code = "import builtins, sys, json, os\n[hasattr(builtins, 'leak'), hasattr(sys, 'leak'), hasattr(json, 'leak'), 'LEAK' in os.environ, '/leak' in sys.path]"
    assert forked(code).result == [False] * 5


def test_the_clock_of_the_log_starts_with_the_child(forked):
    assert forked("import logging\nlogging.makeLogRecord({}).relativeCreated").result < 60_000
    code = "import logging, time\n(time.time_ns() - logging._startTime) / 1e9 if isinstance(logging._startTime, int) else time.time() - logging._startTime"
    assert 0 <= forked(code).result < 5


# The zygote


@pytest.fixture
def made(tmp_path):
    """made(*modules, source) -> Zygote; `source` is the text of a module `odd` that it can import."""
    zygotes = []

    def made(*modules, source=""):
        folder = tmp_path / "lib"
        folder.mkdir(exist_ok=True)
        (folder / "odd.py").write_text(source)
        zygotes.append(Zygote(tmp_path, modules, env={"PYTHONPATH": str(folder)}))
        return zygotes[-1]

    yield made
    for zygote in zygotes:
        zygote.close()


def test_a_module_that_is_missing_costs_one_line(made):
    zygote = made("no_such_module", "json")
    assert zygote.is_ready and zygote.errors() == "zygote: no_such_module is not preloaded: No module named 'no_such_module'\n"


@pytest.mark.parametrize("source", ["1 / 0", "raise SystemExit(3)", "def f(:", "raise ValueError('two\\nlines')"])
def test_a_module_that_cannot_be_imported_costs_one_line(made, source):
    zygote = made("odd", source=source)
    assert zygote.is_ready and zygote.errors().startswith("zygote: odd is not preloaded: ") and zygote.errors().count("\n") == 1


def test_a_module_that_starts_a_thread_is_named_and_ends_the_zygote(made):
    zygote = made("json", "odd", source="import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()")
    assert not zygote.is_ready and zygote.process.wait(20) == 1
    assert zygote.errors() == "zygote: 2 threads, which a fork would lose; started by: odd\n"


def test_a_thread_that_a_module_had_for_a_moment_has_taken_no_name(made, workspace):
    zygote = made("odd", source="import threading\nt = threading.Thread(target=int)\nt.start()\nt.join()")
    with ForkedHost(zygote, workspace) as host:
        assert host.script("import threading\nthreading.Thread().name").result == "Thread-1"


def test_a_file_left_open_is_named_and_ends_the_zygote(made):
    zygote = made("odd", source="f = open(__file__)")
    assert not zygote.is_ready and zygote.process.wait(20) == 1
    assert zygote.errors().startswith("zygote: files left open") and "odd.py" in zygote.errors() and zygote.errors().count("\n") == 1


def test_what_a_module_prints_at_its_import_stays_with_the_zygote(made, workspace):
    zygote = made("odd", source="import sys\nprint('hello', file=sys.stderr)")
    with ForkedHost(zygote, workspace) as host:
        assert (host.script("print('x')").stderr, zygote.errors()) == ("", "hello\n")


def test_a_warm_up_that_fails_costs_one_line(made):
    zygote = made("odd", source="import sys, types\nsys.modules['sklearn.linear_model'] = types.ModuleType('fake')")
    assert zygote.is_ready and zygote.errors().startswith("zygote: a warm-up failed (") and zygote.errors().count("\n") == 1


def test_the_zygote_leaves_when_its_host_is_gone(made):
    zygote = made("json")
    zygote.control.close()
    assert zygote.process.wait(20) == 0


def test_warm_ups_leave_no_files(tmp_path):
    zygote = Zygote(tmp_path, [m for m in PRELOADED if has(m.split(".")[0])])
    zygote.close()
    assert os.listdir(tmp_path) == [] and os.listdir(str(tmp_path) + "-tmp") == []
