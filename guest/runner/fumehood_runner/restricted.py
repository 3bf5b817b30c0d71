"""Few builtins and few modules, for templates that want plain calculations.

A convenience, no boundary: who tries gets at everything else in this interpreter, and finds the sandbox around it. It keeps code that was meant to
calculate from doing something else by mistake, and says so in words.
"""

import builtins

CLOSED = ("open", "exec", "eval", "compile", "input", "breakpoint", "help")
"""Builtins that read files, run text as code, or ask."""

_GONE = ("get_ipython", "__loader__", "__spec__", "copyright", "credits", "license")

MODULES = frozenset(
    """
    __future__ abc array base64 binascii bisect calendar cmath collections contextlib copy csv dataclasses datetime decimal difflib enum fractions
    functools graphlib hashlib heapq html itertools json keyword math numbers operator pprint random re secrets statistics string struct textwrap time
    types typing unicodedata uuid zlib zoneinfo
    """.split()
)
"""Modules of the standard library that touch neither files nor the network nor processes."""

_import = builtins.__import__


def restricted_builtins():
    """The `__builtins__` of code that calculates: those of now, with what is closed saying so."""
    table = {name: value for name, value in vars(builtins).items() if name not in _GONE}
    table.update({name: _closed(name) for name in CLOSED})
    table["__import__"] = _import_some
    return table


def allows(module):
    """Whether code may import this module."""
    return module.partition(".")[0] in MODULES


def _closed(name):
    def closed(*_args, **_kwargs):
        raise NameError(f"{name}() is closed here: this template restricts Python's builtins; use another template if the code needs it")

    closed.__name__ = closed.__qualname__ = name
    return closed


def _import_some(name, globals=None, locals=None, fromlist=(), level=0):
    if level or not isinstance(name, str) or not allows(name):
        known = ", ".join(sorted(m for m in MODULES if not m.startswith("_")))
        raise ImportError(f"import of {name!r} is closed here: this template restricts imports to {known}")
    return _import(name, globals, locals, fromlist, level)
