"""From submitted text to code objects, with the semantics of a script.

Plain Python is compiled as it stands, in one piece, so that an error anywhere in it is found before anything runs and line
numbers are the user's. Only text that is not Python goes through IPython's transformations (`!cmd`, `%magic`, `%%cell`).
The last statement, if it is an expression, is compiled apart: its value is the value of the program.
"""

import __future__

import ast
import inspect
import linecache
import warnings

_FUTURE_FLAGS = 0
for _name in __future__.all_feature_names:
    _FUTURE_FLAGS |= getattr(__future__, _name).compiler_flag
_CO_COROUTINE = inspect.CO_COROUTINE

# Private references: user code may replace builtins.
_compile, _exec, _eval = compile, exec, eval


class Sources:
    """Every text run in this interpreter, so that a traceback can show lines of any of them."""

    def __init__(self):
        self._lines = {}
        self._submitted = {}

    def register(self, filename, source):
        """Make `source` known and return the name to compile it under: `filename`, or a variant if another text has it."""
        name, n = filename, 1
        while self._submitted.get(name, source) != source:
            n += 1
            name = f"{filename[:-1]} {n}>" if filename.endswith(">") else f"{filename} {n}"
        self._submitted[name] = source
        self.rewrite(name, source)
        return name

    def rewrite(self, name, python):
        """Show these lines for a name: the source as it really runs, after IPython's transformations."""
        # Lines as the parser and linecache see them: str.splitlines splits at more characters, and traceback counts on
        # a newline at the end of each line when it places its markers.
        lines = python.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._lines[name] = [line + "\n" for line in (lines if lines[-1] else lines[:-1])]
        self._publish(name)

    def __contains__(self, filename):
        return filename in self._lines

    def refresh(self):
        """Put the lines back into linecache: user code may have cleared it."""
        for name in self._lines:
            self._publish(name)

    def alias(self, path, filename):
        """Let inspect find classes of `__main__`, which it looks up by the module's `__file__`."""
        lines = self._lines[filename]
        linecache.cache[path] = (sum(map(len, lines)), None, lines, path)

    def _publish(self, name):
        lines = self._lines[name]
        # No modification time: linecache.checkcache keeps such entries.
        linecache.cache[name] = (sum(map(len, lines)), None, lines, name)


class Program:
    """Compiled user code: `body`, then `value` (None if the last statement is no expression or ends with ';')."""

    def __init__(self, body, value, value_name, flags):
        self._body, self._value = body, value
        self.value_name = value_name
        """The last expression's text if it is one name, else None."""
        self.future_flags = flags
        codes = [c for c in (body, value) if c is not None]
        self.needs_loop = any(c.co_flags & _CO_COROUTINE for c in codes)

    def run(self, namespace):
        """Run without an event loop; the value of the last expression."""
        if self._body is not None:
            _exec(self._body, namespace)
        return None if self._value is None else _eval(self._value, namespace)

    async def run_async(self, namespace):
        """The same with top-level await. All of it runs in the loop, so that tasks made before the first await work."""
        if self._body is not None:
            waiting = _eval(self._body, namespace)
            if self._body.co_flags & _CO_COROUTINE:
                await waiting
        if self._value is None:
            return None
        value = _eval(self._value, namespace)
        return await value if self._value.co_flags & _CO_COROUTINE else value


def parse(source, filename, transform, flags=0):
    """(tree, source as Python). Raises what Python raises for source that is none."""
    flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            tree = _compile(source, filename, "exec", flags, dont_inherit=True)
        except SyntaxError as error:
            tree, failure = None, error
    if tree is not None:
        for w in caught:
            warnings.warn_explicit(w.message, w.category, w.filename, w.lineno)
        return tree, source
    python = _transformed(source, transform)
    if python is None:
        raise failure.with_traceback(None) from None
    return _compile(python, filename, "exec", flags, dont_inherit=True), python


def _transformed(source, transform):
    """IPython's reading of the source, None if that changes nothing. Leading blank lines stay, for the line numbers."""
    try:
        python = transform(source)
    except SyntaxError:
        return None
    lead = len(source) - len(source.lstrip("\n"))
    python = "\n" * lead + python.lstrip("\n")
    return None if python.rstrip() == source.rstrip() else python


def compile_program(tree, source, filename, flags=0):
    """The Program of a parsed source. `flags` are future statements of earlier executions of a session."""
    flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    statements = list(tree.body)
    expression = None
    if statements and isinstance(statements[-1], ast.Expr):
        if not _ends_with_semicolon(source, statements[-1]):
            expression = statements.pop().value
    body = value = None
    if statements:
        module = ast.Module(statements, tree.type_ignores)
        body = _compile(module, filename, "exec", flags, dont_inherit=True)
        flags |= body.co_flags & _FUTURE_FLAGS
    if expression is not None:
        value = _compile(ast.Expression(expression), filename, "eval", flags, dont_inherit=True)
    name = expression.id if isinstance(expression, ast.Name) else None
    return Program(body, value, name, flags & _FUTURE_FLAGS)


def _ends_with_semicolon(source, statement):
    # Column offsets count bytes of UTF-8; lines are separated as the parser separates them, not as str.splitlines does.
    lines = source.encode("utf-8", "surrogatepass").replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    return lines[statement.end_lineno - 1][statement.end_col_offset:].lstrip(b" \t\f)").startswith(b";")
