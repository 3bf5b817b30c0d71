"""One execution: prepare, run the user's code, collect what it leaves, report.

The user's code may do anything to this interpreter, so each step after it stands alone: a step that fails costs its own
part of the answer and leaves a warning. An interrupt ends the user's code or the collecting, never the report.
"""

import dataclasses
import inspect
import os
import sys
import tempfile
import time
from typing import Any

import _signal

from IPython.core.interactiveshell import ExecutionInfo, ExecutionResult

from . import names, process, programs, restricted, source, tables, text, values, variables, wire
from .display import PLAIN, TEXT_LIMIT, Publisher
from .errors import ErrorReport
from .figures import PNG, Figures, choose_backend
from .imports import AfterImport, getpass_from_stdin, prefer_fork, spawn_from
from .shell import Shell, new_main_module
from .streams import Streams

MAIN_FILE = "main.py"
"""`__file__` is this name in the working directory, where no such file need exist: code that looks for data next to
itself finds the working directory. The name in tracebacks is the one the host gave."""


@dataclasses.dataclass
class Request:
    """The payload of an execute frame."""

    id: str = ""
    code: str = ""
    filename: str = "<code>"
    mode: str = "script"
    has_input: bool = False
    input: Any = None
    result_var: str | None = None
    preview_rows: int = 10
    markdown: bool = False
    env: dict | None = None
    cwd: str | None = None
    stdin: str = ""
    stdin_pipe: bool = False
    program: dict | None = None
    network: bool = False
    restricted: bool = False
    max_variables: int = 100
    max_result_bytes: int = 1_000_000
    max_display_bytes: int = 16_000_000

    @classmethod
    def from_json(cls, payload):
        """Unknown fields are ignored, absent or null ones get their default."""
        return cls(**{k: v for k, v in payload.items() if k in _FIELDS and (v is not None or k == "input")})


_FIELDS = frozenset(f.name for f in dataclasses.fields(Request))


class Runner:
    """Everything that lives as long as the process: the wire, the shell and its namespace, the known sources.

    Made in a process that may still fork; `attach` is called in the one that is to run the user's code.
    """

    def __init__(self):
        self.wire = wire.Wire()
        self.pid = None
        self.streams = Streams(self.wire)
        self.sources = source.Sources()
        self.interrupts = process.Interrupts()
        self.future_flags = 0
        self.current = None
        self.first = True
        """No execution has begun yet."""
        self.main_module = new_main_module()
        self.shell = Shell.create(self.main_module)
        self.publisher = Publisher(self.wire, self.streams, self.warn)
        self.figures = Figures(self.publisher.publish, self.warn)
        self.shell.display_formatter.figures = self.figures
        self.shell.display_pub.publisher = self.publisher
        self.shell.on_error = self._shell_error
        self._first_namespace = dict(self.namespace)
        self._loop = None
        self.builtins = process.Builtins()
        choose_backend()
        AfterImport(
            {
                **self.figures.hooks(),
                "multiprocessing.context": prefer_fork,
                "multiprocessing.spawn": spawn_from(self._write_main),
                "getpass": getpass_from_stdin,
            }
        ).install()

    def attach(self, control_fd):
        """Take over what is this process's own: its id, its working directory, its standard input, the control socket."""
        self.pid = process.getpid()
        self.shell.in_directory(os.getcwd())
        self.streams.install()
        self.wire.open(control_fd)

    def detach(self):
        """Undo `attach` and what executions left in this object, whose first execution is still to come."""
        self.close_loop()
        self.wire.close()
        self.streams.forget()
        self.sources = source.Sources()
        self.pid = self.current = None
        self.future_flags = 0
        self.first = True
        self.shell.execution_count = 1
        self.namespace.clear()
        self.namespace.update(self._first_namespace)

    @property
    def namespace(self):
        """The user's globals."""
        return self.main_module.__dict__

    def execute(self, payload):
        """Run one execute request to its result frame. In mode `script` this does not return."""
        request = Request.from_json(payload)
        execution = Execution(self, request)
        self.current = execution
        try:
            result = execution.run()
        except (KeyboardInterrupt, Exception) as e:
            # The next interrupt could strike at the entry of any function of Python's, so the first step is one of C's, during which one more can.
            try:
                _signal.pthread_sigmask(_signal.SIG_BLOCK, _INTERRUPT)
            except KeyboardInterrupt:
                pass
            self.interrupts.refuse()
            _signal.pthread_sigmask(_signal.SIG_UNBLOCK, _INTERRUPT)
            if isinstance(e, KeyboardInterrupt):
                # One that struck while the one before it was being reported.
                result = execution.interrupted(e)
            else:
                # A fault of the runner, or user code that broke it on purpose. Whoever waits still gets an answer.
                result = _broken(request, e)
        finally:
            self.interrupts.refuse()
            if request.mode != "script":
                # A script's threads and exit functions are still to come, and have its environment.
                execution.restore_environment()
        if request.mode == "script":
            self._end_script(result)
        self.wire.attached = False
        self.wire.send(wire.RESULT, result)
        self.current = None

    def shutdown(self):
        """Leave as a script leaves."""
        self.close_loop()
        process.run_exit_functions()
        self.streams.flush()
        process.leave(0)

    def _end_script(self, result):
        # Threads and exit functions belong to the script: they print, and may be interrupted, before it is over.
        self.interrupts.allow()
        try:
            self.close_loop()
            process.run_exit_functions()
        except KeyboardInterrupt:
            pass
        self.interrupts.refuse()
        self._leave_if_forked(None)
        self.streams.flush()
        process.flush_c_streams()
        self.wire.attached = False
        self.wire.send(wire.RESULT, result)
        process.leave(result["exit_code"])

    def warn(self, code, message):
        """Tell the host of something that is no error."""
        if self.current is not None:
            self.current.warn(code, message)

    def call_user(self, function):
        """(value, exception) of running user code here. A child it forked never comes back."""
        value = exception = None
        try:
            value = function()
        except BaseException as e:
            exception = e
        self._leave_if_forked(exception)
        return value, exception

    def run_in_loop(self, coroutine):
        """Run a coroutine in the loop that all executions of this process share."""
        if self._loop is None:
            import asyncio  # brings ssl; most executions never need it

            self._loop = asyncio.Runner()
        return self._loop.run(coroutine)

    def close_loop(self):
        """Cancel what still runs in the loop, as asyncio.run does at its end."""
        loop, self._loop = self._loop, None
        if loop is not None:
            try:
                loop.close()
            except Exception:
                pass

    def _leave_if_forked(self, exception):
        """A child of the user's os.fork() that reaches the end of the code ends like a script; the parent reports."""
        if process.getpid() == self.pid:
            return
        status = 0
        if isinstance(exception, SystemExit):
            status, message = process.exit_code_of(exception)
            self.streams.write_error(message or "")
        elif exception is not None:
            status = 1
            filename = self.current.filename if self.current else ""
            self.streams.write_error(ErrorReport(exception, self.sources, filename).text)
        process.run_exit_functions()
        self.streams.flush()
        process.leave(status)

    def _shell_error(self, exception):
        """A magic such as %run reports the error of code that it ran."""
        if self.current is not None:
            self.current.report(exception)

    def _write_main(self):
        """A file with the code now running, for children that import the main module anew."""
        if self.current is None or self.current.python is None:
            return None
        handle, path = tempfile.mkstemp(".py", "main-")
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as f:
            f.write(self.current.python)
        self.shell.tempfiles.append(path)
        return path


_INTERRUPT = frozenset({_signal.SIGINT})


class Execution:
    """One run of one text."""

    def __init__(self, runner, request):
        self._runner, self._request = runner, request
        self.filename = request.filename
        self.python = None
        """The code as Python, once it has been parsed."""
        self.warnings = []
        self._program = None
        self._value = None
        self._handled = False
        self._failure = None
        self._report = None
        self._saved_env = {}
        self._saved_cwd = None

    def warn(self, code, message):
        """A warning frame, repeated in the result."""
        warning = {"code": code, "message": text.cut(message, 2_000)}
        self.warnings.append(warning)
        self._runner.wire.send(wire.WARNING, warning)

    def report(self, exception):
        """Write an exception's traceback to descriptor 2, once, and make it this execution's error."""
        if self._report is None or self._report.exception is not exception:
            self._report = ErrorReport(exception, self._runner.sources, self.filename, self._request.network)
            self._runner.streams.write_error(self._report.text)

    def run(self):
        """The result frame's payload."""
        runner, request = self._runner, self._request
        runner.publisher.max_bytes = request.max_display_bytes
        runner.shell.display_formatter.markdown_rows = request.preview_rows if request.markdown else None
        if request.stdin_pipe and runner.wire.descriptors:
            runner.streams.give_pipe(runner.wire.descriptors.popleft())
        else:
            runner.streams.give_input(request.stdin)
        runner.streams.install()
        runner.wire.attached = True
        parts = _no_parts()
        exit_code, kind = 1, "exception"
        try:
            if request.program:
                status, self._failure = runner.call_user(self._run_other)
                exit_code, kind = (status, "exit") if self._failure is None else self._verdict()
            else:
                runner.interrupts.allow()
                self._value, self._failure = runner.call_user(self._prepare_and_run)
                if request.mode == "script":
                    process.disarm_timers()
                exit_code, kind = self._verdict()
            self._collect(parts, kind)
        except KeyboardInterrupt as e:
            # Interrupted while collecting: a limit struck, and the answer says so.
            runner.interrupts.refuse()
            exit_code, kind = 1, "exception"
            self.report(e)
        runner.interrupts.refuse()
        return self._result(exit_code, kind, parts)

    def interrupted(self, exception):
        """The result frame's payload when nothing is left but to say that it was interrupted."""
        self._report = None
        self.report(exception)
        return self._result(1, "exception", _no_parts())

    def _result(self, exit_code, kind, parts):
        self._runner.streams.flush()
        process.flush_c_streams()
        error = self._report.to_json() if kind == "exception" and self._report else None
        self._program = self._value = self._failure = self._report = None
        about = {"id": self._request.id, "exit_code": exit_code, "kind": kind}
        return {**about, **parts, "error": error, "warnings": self.warnings}

    # Before and during the user's code

    def _prepare_and_run(self):
        runner, request = self._runner, self._request
        self._enter_environment()
        runner.sources.refresh()
        self.filename = runner.sources.register(request.filename, request.code)
        tree, self.python = source.parse(request.code, self.filename, runner.shell.transform_cell, runner.future_flags)
        if self.python != request.code:
            # Tracebacks show what really runs; the user's own lines are the same.
            runner.sources.rewrite(self.filename, self.python)
        self._program = source.compile_program(tree, self.python, self.filename, runner.future_flags)
        runner.future_flags = self._program.future_flags
        namespace = runner.namespace
        namespace["__file__"] = os.path.join(os.getcwd(), MAIN_FILE)
        runner.sources.alias(namespace["__file__"], self.filename)
        self._import_missing(namespace)
        handler = namespace.get("handler")
        shell = runner.shell
        with shell.builtin_trap:
            self._tell_shell("pre_execute")
            self._tell_shell("pre_run_cell", self._info)
            runner.builtins.reapply()
            if request.restricted:
                namespace["__builtins__"] = restricted.restricted_builtins()
            try:
                value = self._run_program(namespace)
                if request.has_input:
                    value = self._call_handler(namespace, handler, value)
            finally:
                if request.restricted:
                    # What was defined has them; what comes next may be another's.
                    namespace.pop("__builtins__", None)
                runner.builtins.restore()
                if process.getpid() == runner.pid:
                    # Past the observers of this number, of which there are none: they take longer than most cells.
                    shell._trait_values["execution_count"] = shell.execution_count + 1
                    self._tell_shell("post_execute")
                    self._tell_shell("post_run_cell", lambda: ExecutionResult(self._info()))
        return value

    def _run_other(self):
        """The exit code of a program that is not Python."""
        self._enter_environment()
        request, runner = self._request, self._runner
        early = runner.interrupts.take_early()
        return programs.Program(**request.program).run(runner.streams.write_error, early)

    def _tell_shell(self, event, about=None):
        """Call whoever has registered for an event of IPython's; hardly anybody has."""
        events = self._runner.shell.events
        if events.callbacks[event]:
            events.trigger(event, *([] if about is None else [about()]))

    def _info(self):
        return ExecutionInfo(self._request.code, False, True, True, None)

    def _run_program(self, namespace):
        if self._program.needs_loop:
            return self._runner.run_in_loop(self._program.run_async(namespace))
        return self._program.run(namespace)

    def _call_handler(self, namespace, before, value):
        """Function mode: handler(input), if this code defines a handler."""
        handler = namespace.get("handler")
        if handler is None or handler is before or not callable(handler):
            self.warn("input_unused", "input was given, but the code defines no function named handler")
            return value
        self._handled = True
        value = handler(self._request.input)
        if inspect.isawaitable(value):
            return self._runner.run_in_loop(_awaited(value))
        return value

    def _enter_environment(self):
        request = self._request
        for name, value in (request.env or {}).items():
            self._saved_env[name] = os.environ.get(name)
            os.environ[name] = str(value)
        if "TZ" in (request.env or {}):
            # Read when the interpreter starts, which may have been before anybody asked for this.
            time.tzset()
        if request.cwd is not None:
            self._saved_cwd = os.getcwd()
            os.chdir(request.cwd)
        # Where Python has the script's folder. Executions of a session keep what earlier ones put before it.
        here = os.getcwd()
        if self._runner.first or (request.cwd is not None and here not in sys.path):
            sys.path.insert(0, here)
        self._runner.first = False
        sys.argv = [request.filename]
        sys.modules["__main__"] = self._runner.main_module

    def restore_environment(self):
        """Undo what was this execution's own: variables and folder."""
        for name, value in self._saved_env.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if "TZ" in self._saved_env:
            time.tzset()
        if self._saved_cwd is not None:
            try:
                os.chdir(self._saved_cwd)
            except OSError:
                pass  # the code removed it

    def _import_missing(self, namespace):
        for alias, module in names.missing(self.python, self.filename, namespace):
            if self._request.restricted and not restricted.allows(module):
                continue
            try:
                __import__(module)
                namespace[alias] = sys.modules[module]
            except Exception:
                continue  # the user's own NameError says more
            self.warn("auto_import", f"{alias} is used but never imported: `import {module} as {alias}` was run first")

    # After it

    def _verdict(self):
        failure = self._failure
        if isinstance(failure, SystemExit):
            status, message = process.exit_code_of(failure)
            if message:
                self._runner.streams.write_error(message)
            return status, "exit"
        if failure is not None:
            self._announce(failure)
            return 1, "exception"
        return (1, "exception") if self._report is not None else (0, "ok")

    def _announce(self, failure):
        """As the interpreter would: through sys.excepthook if the user has set one, else the traceback."""
        hook = sys.excepthook
        if hook is not sys.__excepthook__ and not (self._report and self._report.exception is failure):
            self._report = ErrorReport(failure, self._runner.sources, self.filename, self._request.network)
            _, broken = self._runner.call_user(lambda: hook(type(failure), failure, failure.__traceback__))
            if broken is None:
                return
            self._report = None
        self.report(failure)

    def _collect(self, parts, kind):
        runner, request = self._runner, self._request
        value, var_name = (None, "result") if kind == "exception" else self._chosen_value()
        if value is not None and not self._step("result_display", lambda: self._display(value)):
            self._step("result_text", lambda: self._display_as_text(value))
        self._step("figures", runner.figures.show_open)
        if value is not None:
            self._step("result", lambda: parts.update(result=self._encoded(value)))
            parts["dataframe"] = tables.describe(
                value, var_name, request.preview_rows, request.max_result_bytes, self.warn, request.markdown
            )
        self._step("variables", lambda: parts.update(variables=self._variables()))

    def _chosen_value(self):
        """(value, name for `dataframe`) of the result."""
        wanted = self._request.result_var
        if self._handled:
            return self._value, "result"
        if wanted is None:
            return self._value, (self._program.value_name if self._program else None) or "result"
        if wanted in self._runner.namespace:
            return self._runner.namespace[wanted], wanted
        self.warn("result_var_undefined", f"the code defines no variable named {wanted}")
        return None, wanted

    def _display(self, value):
        runner = self._runner
        bundle, metadata = runner.shell.display_formatter.format(value)
        if bundle:
            # A script's threads and exit functions are still to come, and print what they like.
            last = self._request.mode != "script"
            runner.publisher.publish(bundle, {**metadata, "kind": "result"}, last)
        if PNG in bundle or PLAIN in bundle:
            runner.figures.close(value)

    def _display_as_text(self, value):
        shown = text.bounded_repr(value, TEXT_LIMIT)
        self._runner.publisher.publish({PLAIN: shown}, {"kind": "result"})

    def _encoded(self, value):
        limit = self._request.max_result_bytes
        encoded, truncated = values.encode(value, limit)
        if len(wire.encode_text(wire.to_json(encoded))) > 2 * limit:
            # The budget counts roughly; this is the end of its tolerance.
            encoded, truncated = {"$type": "truncated", "reason": "size", "value": text.bounded_repr(value, limit // 4)}, True
        if truncated:
            self.warn("result_truncated", f"the result exceeds {limit} bytes or its depth limit; it was cut")
        return encoded

    def _variables(self):
        hidden = (*self._runner.shell.user_ns_hidden, "get_ipython")
        return variables.snapshot(self._runner.namespace, self._request.max_variables, hidden)

    def _step(self, what, function):
        """Whether one part of the report worked; it runs methods of the user's objects, which may raise, exit or fork."""
        _, failure = self._runner.call_user(function)
        if isinstance(failure, KeyboardInterrupt):
            raise failure
        if failure is not None:
            self.warn(f"{what}_failed", f"{text.class_name(failure)}: {text.message_of(failure, 500)}")
        return failure is None


def _no_parts():
    """What an execution leaves when nothing of it could be collected."""
    return {"result": None, "dataframe": None, "variables": {}}


def _broken(request, exception):
    error = {
        "type": "RunnerError", "message": f"{text.class_name(exception)}: {text.message_of(exception, 500)}", "line": None,
        "traceback": [], "hint": "the code changed the interpreter so that its result could not be collected", "errno": None,
    }  # fmt: skip
    return {
        "id": request.id, "exit_code": 1, "kind": "exception", **_no_parts(), "error": error, "warnings": [],
    }  # fmt: skip


async def _awaited(awaitable):
    return await awaitable
