"""The process: forks, threads, signals, the end of a script, sessions, start-up."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from host import PYTHON, SETTLE, SHUTDOWN, START, Host


def test_ready_names_version_and_process(session):
    assert session.ready["version"] == 1 and session.ready["pid"] == session.process.pid
    assert re.fullmatch(r"3\.\d+\.\d+", session.ready["python"])


def test_the_result_comes_last(run):
    assert [kind for kind, _ in run("print('x')\n7").log][-1] == "result"


def test_a_forked_child_never_sends_frames(run):
    code = (
        "import os, sys\npid = os.fork()\nif pid == 0:\n    print('child')\n    display('from child')\n    print('e', file=sys.stderr)\n"
        "else:\n    print(os.waitpid(pid, 0)[1])\n    display('parent')\n7"
    )
    o = run(code)
    assert o.stdout == "child\n0\n" and o.result == 7
    assert [d["mime"]["text/plain"] for d in o.displays] == ["'parent'", "7"]


@pytest.mark.parametrize("end, status", [("pass", 0), ("1/0", 1), ("sys.exit(5)", 5), ("os._exit(6)", 6), ("sys.exit('x')", 1)])
def test_a_forked_child_ends_with_its_own_status(session, end, status):
    o = session.cell(f"import os, sys\nst = None\npid = os.fork()\nif pid == 0:\n    {end}\nelse:\n    st = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])\nst")
    assert o.result == status
    assert session.cell("1").result == 1


def test_a_child_forked_below_python_never_sends_frames(run):
    code = "import ctypes, os\npid = ctypes.CDLL(None).fork()\nif pid == 0:\n    display('child')\nelse:\n    os.waitpid(pid, 0)\npid > 0"
    o = run(code)
    assert o.result is True and len(o.displays) == 1


def test_a_child_does_not_hold_the_control_socket(session):
    code = "r, w = os.pipe()\nif os.fork() == 0:\n    try: os.fstat(3); os.write(w, b'open')\n    except OSError: os.write(w, b'closed')\n    os._exit(0)\nos.read(r, 9)"
    assert session.cell("import os\n" + code).result["base64"] == "Y2xvc2Vk"


def test_multiprocessing_works_with_functions_of_the_code(run):
    code = (
        "import multiprocessing as mp, os\ndef square(n):\n    return n * n, os.getpid()\nif __name__ == '__main__':\n"
        "    with mp.Pool(3) as pool:\n        out = pool.map(square, range(6))\n    print(sorted(v for v, _ in out), os.getpid() not in {p for _, p in out})"
    )
    o = run(code)
    assert o.stdout == "[0, 1, 4, 9, 16, 25] True\n" and o.stderr == ""


def test_spawned_processes_find_the_code_too(run):
    code = (
        "import multiprocessing as mp\ndef square(n):\n    return n * n\nif __name__ == '__main__':\n"
        "    with mp.get_context('spawn').Pool(1) as pool:\n        print(pool.map(square, range(3)))"
    )
    assert run(code).stdout == "[0, 1, 4]\n"


def test_process_pools_and_thread_pools_work(run):
    code = (
        "from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor\ndef f(n): return n + 1\n"
        "with ProcessPoolExecutor(2) as p, ThreadPoolExecutor(2) as t:\n    out = [*p.map(f, [1, 2]), *t.map(f, [3])]\nout"
    )
    assert run(code).result == [2, 3, 4]


def test_a_script_waits_for_threads_and_runs_exit_functions_before_its_result(run):
    code = (
        "import atexit, threading, time\natexit.register(lambda: print('atexit'))\n"
        "def work():\n    time.sleep(0.2)\n    print('thread')\nthreading.Thread(target=work).start()\nprint('main')\n3"
    )
    o = run(code)
    assert o.stdout == "main\nthread\natexit\n" and o.result == 3 and o.log[-1][0] == "result"


def test_a_daemon_thread_does_not_hold_the_script(run):
    assert run("import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n3").result == 3


def test_an_error_in_a_thread_is_shown_and_is_not_the_script_s(run):
    o = run("import threading\ndef work():\n    1/0\nt = threading.Thread(target=work); t.start(); t.join()\n5")
    assert o.result == 5 and "ZeroDivisionError" in o.stderr


def test_an_exit_function_that_fails_does_not_cost_the_result(run):
    o = run("import atexit\n@atexit.register\ndef bad(): raise ValueError('at exit')\n5")
    assert o.result == 5 and o.exit_code == 0 and o.status == 0
    assert "at exit" in o.stderr


def test_os_exit_ends_without_a_result(workspace):
    with Host(workspace) as host:
        o = host.run_to_exit("import os\nprint('x')\nos._exit(4)")
    assert o.frame == {} and o.status == 4 and o.stdout == "x\n"


def test_a_crash_keeps_the_output_so_far(workspace):
    with Host(workspace) as host:
        o = host.run_to_exit("import ctypes\nprint('about to crash')\nctypes.string_at(0)")
    assert o.status == -signal.SIGSEGV and o.stdout == "about to crash\n"


@pytest.mark.parametrize("body", ["while True: pass", "import time; time.sleep(60)", "import asyncio; await asyncio.sleep(60)", "import subprocess; subprocess.run(['sleep', '60'])"])
def test_an_interrupt_ends_the_code_and_keeps_the_variables(session, body):
    session.cell("kept = 7")
    session.begin(f"print('up')\n{body}")
    session.wait_for_output("up")
    os.kill(session.process.pid, signal.SIGINT)
    o = session.finish(10)
    assert o.error["type"] == "KeyboardInterrupt" and o.exit_code == 1
    assert session.cell("kept").result == 7


def test_each_execution_of_a_session_has_its_own_input_and_folder(session, tmp_path):
    two = "import os\n(input(), input(), os.getcwd())"
    assert session.cell(two, stdin="a\nb\nc\n", cwd=str(tmp_path)).result == ["a", "b", str(tmp_path)]
    o = session.cell("try: input()\nexcept EOFError: print('eof')\nos.getcwd()")
    assert o.stdout == "eof\n" and o.result != str(tmp_path)
    # What code does to its standard input is undone.
    session.cell("import sys; sys.stdin.close(); os.close(0)")
    assert session.cell("input()", stdin="again").result == "again"
    child = "import subprocess; subprocess.run(['cat'], capture_output=True, text=True).stdout"
    assert session.cell(child, stdin="for a child").result == "for a child"
    assert session.cell("os.chdir('/'); 1").result == 1
    assert session.cell("os.getcwd()").result == "/", "where code went itself it stays"


def test_an_interrupt_that_the_host_calls_settled_does_nothing(session):
    session.cell("1")
    for _ in range(20):
        os.kill(session.process.pid, signal.SIGINT)
    session.send(SETTLE, {})
    assert session.cell("2").result == 2


def test_an_interrupt_that_comes_before_its_code_strikes_it_and_no_other(session):
    session.cell("x = 1")
    os.kill(session.process.pid, signal.SIGINT)
    o = session.cell("x = 2\nwhile True: pass")
    assert o.error["type"] == "KeyboardInterrupt"
    assert session.cell("x in (1, 2)").result is True


def test_an_interrupt_that_strikes_while_one_is_reported_ends_the_execution_and_not_the_interpreter(session):
    # The report is where they strike: the first, and that of what struck it.
    session.cell("import fumehood_runner.execute as e, signal\nreport, left = e.Execution.report, [1, 2]\ndef again(self, exception):\n    left.pop()\n    if not left: e.Execution.report = report\n    raise KeyboardInterrupt\nkept = 3")
    o = session.cell("e.Execution.report = again\nraise KeyboardInterrupt", env={"OWN": "1"})
    assert o.error["type"] == "KeyboardInterrupt" and o.exit_code == 1
    assert session.cell("kept").result == 3
    assert session.cell("import os\nos.environ.get('OWN')").result is None, "its environment was its own"


def test_a_flood_of_interrupts_ends_executions_and_never_the_interpreter(session):
    session.cell("kept = 3")
    code = f"import os, signal\nwhile True: os.kill({session.process.pid}, signal.SIGINT)"
    flood = subprocess.Popen([sys.executable, "-c", code])
    try:
        for _ in range(6):
            # Nothing else ends it.
            outcome = session.cell("while True: pass")
            assert (outcome.kind, outcome.error["type"]) == ("exception", "KeyboardInterrupt")
    finally:
        flood.kill()
        flood.wait()
    session.send(SETTLE, {})
    assert session.cell("kept").result == 3


def test_the_default_interrupt_handler_is_in_place(run):
    assert run("import signal\nsignal.getsignal(signal.SIGINT) is signal.default_int_handler").result is True


def test_interrupts_at_any_moment_never_break_the_protocol(session):
    code = (
        "import sys, time\nend = time.monotonic() + 1\nprint('up')\nwhile time.monotonic() < end:\n    try:\n"
        "        while time.monotonic() < end:\n            display(1)\n            print(2, file=sys.stderr)\n            print(3)\n"
        "    except KeyboardInterrupt: pass"
    )
    for _ in range(4):  # an interrupt outside the try ends one early; that is a fair result too
        session.send(SETTLE, {})
        session.begin(code)
        session.wait_for_output("up")
        end = time.monotonic() + 30
        while time.monotonic() < end and not any(k == 21 for k, _ in session.frames):
            os.kill(session.process.pid, signal.SIGINT)
            session.pump(0.001)
        assert session.finish().kind in ("ok", "exception")
    session.send(SETTLE, {})
    assert session.cell("1").result == 1


def test_an_alarm_set_by_a_script_does_not_cost_its_result(run):
    code = "import signal\ndef strike(*_): raise TimeoutError('late')\nsignal.signal(signal.SIGALRM, strike)\nsignal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)\n"
    for _ in range(5):
        o = run(code + "try:\n    for _ in range(10000): pass\nexcept TimeoutError: pass\n5")
        assert o.kind in ("ok", "exception") and o.frame


def test_user_handlers_survive_to_the_next_execution(session):
    session.cell("import signal\nhits = []\nsignal.signal(signal.SIGINT, lambda *_: hits.append(1));")
    assert session.cell("import os\nos.kill(os.getpid(), signal.SIGINT)\nlen(hits)").result == 1


BREAKERS = [
    "import json\njson.dumps = json.loads = None\njson.JSONEncoder.encode = None",
    "import builtins\nbuiltins.print = builtins.len = builtins.repr = builtins.isinstance = None",
    "import os\nos.write = os.read = os.getpid = None",
    "import sys\nfor m in list(sys.modules):\n    if m.startswith(('fumehood', 'json', 'os')): del sys.modules[m]",
    "import os\nos.close(1); os.close(2)",
    "import sys\nsys.modules.clear()",
    "import linecache\nlinecache.clearcache()",
    "import sys\nsys.path.clear(); sys.meta_path.clear()",
    "globals().clear()",
    "import os, signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 30))",
    "import threading\nthreading._shutdown = None",
    "import time\ntime.monotonic = None",
    "import gc, io\nfor o in gc.get_objects():\n    if type(o) is io.TextIOWrapper: o.close()",
]


@pytest.mark.parametrize("code", BREAKERS)
def test_a_result_comes_whatever_the_code_breaks(run, code):
    o = run(code)
    assert o.frame and o.status is not None


def test_the_runner_leaves_when_the_control_socket_is_gone(workspace):
    with Host(workspace) as host:
        host.control.close()
        assert host.process.wait(20) == 70
        host.control = __import__("socket").socket()


def test_shutdown_ends_like_a_script(session):
    session.cell("import atexit\natexit.register(lambda: print('bye'));")
    session.log = []
    session.send(SHUTDOWN, {})
    assert session.wait_exit() == 0
    assert ("stdout", b"bye\n") in session.log


def test_state_survives_errors_exits_and_syntax_errors(session):
    session.cell("items = ['a', 'b']")
    assert session.cell("for it in items\n    pass").error["type"] == "SyntaxError"
    assert session.cell("1/0").error["type"] == "ZeroDivisionError"
    assert session.cell("import sys; sys.exit(3)").exit_code == 3
    assert session.cell("items.append('c'); len(items)").result == 3


def test_random_numbers_are_free_to_differ(run):
    assert run("import random\nrandom.random()").result != run("import random\nrandom.random()").result


def test_the_home_directory_is_never_written(run, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    assert run("%env X=1\n!true\n%time 1", env={"HOME": str(home)}).error is None
    assert list(home.iterdir()) == []


def test_nothing_heavy_is_imported_by_a_cold_start(workspace):
    heavy = "('asyncio', 'ssl', 'multiprocessing', 'pandas', 'numpy', 'email', 'jedi', 'prompt_toolkit', 'sqlite3', 'ctypes')"
    code = f"import sys\n[m for m in {heavy} if m in sys.modules]"
    ipython = subprocess.run(
        [PYTHON, "-c", f"import IPython.core.interactiveshell, sys; print([m for m in {heavy} if m in sys.modules])"],
        capture_output=True, text=True,
    )  # fmt: skip
    with Host(workspace) as host:
        assert set(host.script(code).result) <= set(eval(ipython.stdout))


def test_the_library_folder_is_not_on_the_import_path(run):
    assert run("import sys\n[p for p in sys.path if 'guest/runner' in p]").result == []


def test_imports_compile_under_this_interpreter():
    root = os.path.dirname(os.path.abspath(START))
    subprocess.run([PYTHON, "-B", "-c", f"import sys; sys.path.insert(0, {root!r}); import fumehood_runner.main"], check=True)
    assert sys.version_info >= (3, 11)
