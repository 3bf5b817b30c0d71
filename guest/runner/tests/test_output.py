"""Output: exact bytes, at once, in order, and never mistaken for protocol."""

import pytest


def test_every_write_reaches_the_pipe_at_once(session):
    session.begin("import sys, os\nsys.stdout.write('half')\nos.read(0, 1) or None\nwhile True: pass")
    session.wait_for_output("half")


def test_prints_of_both_streams_keep_their_order(run):
    o = run("import sys\nfor i in range(50):\n    print(i, file=sys.stderr if i % 2 else sys.stdout)")
    assert [int(line) for _, text in o.merged for line in text.split()] == list(range(50))


def test_output_of_children_keeps_its_place(run):
    code = (
        "import os, sys\nprint('out 1')\nprint('err 1', file=sys.stderr)\nprint('out 2')\n"
        "os.system('echo child out; echo child err >&2')\nprint('out 3')\nraise ValueError('last')"
    )
    o = run(code)
    assert o.stdout == "out 1\nout 2\nchild out\nout 3\n"
    whole = "".join(text for _, text in o.merged)
    places = [whole.index(t) for t in ("out 1", "err 1", "out 2", "child out", "child err", "out 3", "ValueError")]
    assert places == sorted(places)


def test_a_display_stands_between_the_prints_around_it(run):
    o = run("print('before')\ndisplay({'a': 1})\nprint('after')")
    assert [kind for kind, _ in o.merged] == ["stdout", "display", "stdout"]


def test_alternating_writers_are_not_slowed_down_without_bound(session):
    o = session.cell("import sys\nfor i in range(6000):\n    print(i, file=sys.stderr if i % 2 else sys.stdout)")
    assert o.stdout.count("\n") == o.stderr.count("\n") == 3000
    syncs = sum(kind == "sync" for kind, _ in o.log)
    assert 100 < syncs < 6000


def test_half_an_emoji_is_replaced_not_an_error(session):
    assert session.cell("print('cut \\ud83d here')").stdout == "cut ? here\n"
    assert session.cell("'cut \\ud83d here'").result == "cut \ufffd here"
    error = session.cell("raise ValueError('bad \\udcff byte')").error
    assert error["type"] == "ValueError" and "byte" in error["message"]
    assert session.cell("import sys; sys.stderr.write('x\\ud83d');").stderr == "x\\ud83d"


def test_text_outside_ascii_is_utf8(run):
    assert run("print('café 🍸 👩\u200d👩\u200d👧 日本 ẞ')").stdout == "café 🍸 👩\u200d👩\u200d👧 日本 ẞ\n"


def test_output_below_python_arrives(run):
    code = (
        "import ctypes, os, subprocess, sys\nlibc = ctypes.CDLL(None)\nprint('py 1')\n"
        "libc.printf(b'c %d\\n', ctypes.c_int(2)); libc.fflush(None)\nos.write(1, b'fd 3\\n')\n"
        "subprocess.run(['echo', 'child 4'])\n"
        "subprocess.Popen([sys.executable, '-c', 'print(6)'], stdout=sys.stdout).wait()\nprint(sys.stdout.fileno())"
    )
    assert run(code).stdout == "py 1\nc 2\nfd 3\nchild 4\n6\n1\n"


def test_text_left_in_c_buffers_is_flushed_at_the_end(run):
    assert run("import ctypes\nctypes.CDLL(None).puts(b'buffered')").stdout == "buffered\n"


def test_bytes_can_be_written_to_the_buffer(run):
    o = run("import sys\nsys.stdout.buffer.write(b'\\xff\\x00raw\\n')\nprint('after')")
    assert b"".join(d for k, d in o.log if k == "stdout") == b"\xff\x00raw\nafter\n"


def test_a_wrapped_stdout_is_flushed_at_the_end(run):
    o = run("import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8')\nprint('wrapped')")
    assert o.stdout == "wrapped\n"


@pytest.mark.parametrize("how", ["sys.stdout.close()", "sys.stdout = None", "sys.stdout = open('/dev/null', 'w')", "del sys.stdout", "sys.stdout.detach()"])
def test_the_next_execution_has_its_streams_back(session, how):
    assert session.cell(f"import sys\n{how}").error is None
    assert session.cell("print('back')").stdout == "back\n"


def test_streams_can_be_reconfigured_and_replaced_like_python_s_own(run):
    code = (
        "import sys, io, contextlib\nsys.stdout.reconfigure(encoding='utf-8', line_buffering=True)\n"
        "with contextlib.redirect_stdout(io.StringIO()) as f:\n    print('caught')\n"
        "print(f.getvalue().strip(), sys.stdout.encoding, sys.stdout.isatty(), sys.__stdout__ is sys.stdout)"
    )
    assert run(code).stdout == "caught utf-8 False True\n"


def test_megabytes_without_a_newline_arrive_whole(session):
    o = session.cell("import sys\nsys.stdout.write('x' * 3_000_000);\nprint('|end')")
    assert len(o.stdout) == 3_000_005 and o.stdout.endswith("|end\n")


def test_a_pipe_made_non_blocking_loses_nothing(session):
    o = session.cell("import os\nos.set_blocking(1, False)\nprint('y' * 2_000_000)")
    assert o.error is None and len(o.stdout) == 2_000_001


def test_text_that_looks_like_protocol_is_text(run):
    o = run("import os\nos.write(1, b'\\0\\0\\0\\2\\x15{}')\nprint('</txt><result>{}')\n21 * 2")
    assert o.result == 42 and o.stdout == "\0\0\0\2\x15{}</txt><result>{}\n"


def test_input_reads_standard_input_and_ends(run):
    o = run("who = input('Name? ')\nn = int(input())\nprint(f'{who}:{n + 1}')", stdin=b"Ada\n42\n")
    assert o.stdout == "Name? Ada:43\n"
    o = run("print('asking')\nwho = input('Name? ')\nprint('hi', who)")
    assert o.error["type"] == "EOFError" and "stdin" in o.error["hint"] and o.stdout == "asking\nName? "


def test_getpass_never_waits_for_a_terminal(run):
    assert run("import getpass\ngetpass.getpass()").error["type"] == "EOFError"
    assert run("import getpass\ngetpass.getpass('pw ')", stdin=b"s3\n").result == "s3"


def test_warnings_and_logging_go_to_stderr_as_in_a_script(run):
    code = (
        "import logging, warnings\nlogging.basicConfig(level=logging.INFO)\nlogging.info('loaded %d rows', 3)\n"
        "warnings.warn('old option', DeprecationWarning)\nlen(logging.root.handlers)"
    )
    o = run(code)
    assert "loaded 3 rows" in o.stderr and "<code>:4: DeprecationWarning: old option" in o.stderr
    assert o.result == 1 and o.status == 0


def test_a_syntax_warning_is_shown_once(run):
    assert run("x = '\\d'\nprint(x)").stderr.count("invalid escape") <= 1
    assert run("x = 1\nprint(x is 1)").stderr.count("SyntaxWarning") == 1


def test_output_of_shell_commands_is_in_order(run):
    o = run("print('a')\n!echo b; echo err >&2\nprint('c')")
    assert o.stdout == "a\nb\nc\n" and o.stderr == "err\n"


def test_threads_write_while_the_main_thread_displays(session):
    code = (
        "import sys, threading\ndef work():\n    for i in range(200):\n        print('t', file=sys.stderr)\n"
        "threads = [threading.Thread(target=work) for _ in range(4)]\n[t.start() for t in threads]\n"
        "for i in range(50):\n    display(i)\n[t.join() for t in threads];"
    )
    o = session.cell(code)
    assert len(o.displays) == 50 and o.stderr.count("t") == 800


def test_a_signal_handler_may_print_in_the_middle_of_anything(session):
    code = (
        "import signal, sys, time\nn = 0\ndef tick(*_):\n    global n\n    n += 1\n    print('tick', file=sys.stderr)\n    display(n)\n"
        "signal.signal(signal.SIGALRM, tick)\nsignal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)\n"
        "end = time.monotonic() + 1\nwhile time.monotonic() < end:\n    print('out')\n    display('main')\n"
        "signal.setitimer(signal.ITIMER_REAL, 0)\nn > 10"
    )
    o = session.cell(code)
    assert o.error is None and o.result is True


def test_clear_output_and_updates_do_not_crash(run):
    code = (
        "from IPython.display import clear_output, display, HTML\nclear_output()\nclear_output(wait=True)\n"
        "h = display('x', display_id='d')\nh.update('y')\ndisplay(HTML('<b>z</b>'))"
    )
    o = run(code)
    assert o.error is None and len(o.displays) == 3 and o.displays[2]["mime"]["text/html"] == "<b>z</b>"
