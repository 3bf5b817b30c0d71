"""Well-known aliases that generated code uses and forgets to import."""

import importlib.util
import re
import symtable
import warnings

ALIASES = {"pd": "pandas", "np": "numpy", "plt": "matplotlib.pyplot", "sns": "seaborn"}
_MENTION = re.compile(r"\b(?:" + "|".join(ALIASES) + r")\b")


def missing(source, filename, namespace):
    """[(alias, module)] used as global names, bound nowhere in the source nor the namespace, and installed."""
    mentioned = set(_MENTION.findall(source)) - set(namespace)
    if not mentioned:
        return []  # the usual case costs one scan of the text
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the compiler repeats its syntax warnings here
            table = symtable.symtable(source, filename, "exec")
    except Exception:
        return []  # top-level await outside IPython's reading, or no Python at all
    used, bound = set(), set()
    _collect(table, used, bound)
    return [(n, ALIASES[n]) for n in ALIASES if n in mentioned & used - bound and _installed(ALIASES[n])]


def _collect(table, used, bound):
    top = table.get_type() in ("module", getattr(symtable, "SymbolTableType", None) and symtable.SymbolTableType.MODULE)
    for symbol in table.get_symbols():
        name = symbol.get_name()
        if name not in ALIASES:
            continue
        if top or symbol.is_declared_global():
            if symbol.is_assigned() or symbol.is_imported():
                bound.add(name)
        if symbol.is_referenced() and (top or symbol.is_global()):
            used.add(name)
    for child in table.get_children():
        _collect(child, used, bound)


def _installed(module):
    try:
        return importlib.util.find_spec(module.split(".")[0]) is not None
    except Exception:
        return False
