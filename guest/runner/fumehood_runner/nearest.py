"""What there is in the place of what is missing: the nearest names of files, modules, columns and attributes, in few words."""

import os

from . import text
from .values import is_a

LISTED = 20
_MOST_CANDIDATES = 2_000
_MOST_ENTRIES = 5_000
_MOST_DEPTH = 5
_LISTED_CHARACTERS = 600


def nearest(name, candidates, most=3, likeness=0.6):
    """Those of `candidates`, text, that look like `name`, the most alike first; other cases and spaces count little."""
    import difflib  # here: hardly any execution needs it

    plain = {}
    for candidate in candidates:
        if len(plain) == _MOST_CANDIDATES:
            break
        plain.setdefault(_plain(candidate[:100]), candidate)
    found = difflib.get_close_matches(_plain(name[:100]), list(plain), most, likeness)
    return [plain[key] for key in found]


def _plain(name):
    return "".join(c for c in name.casefold() if c not in " _-\t\ufeff")


def listed(names, quote=False):
    """Names in a row, not too many, with how many are left out."""
    names = list(names)
    shown, left = [], _LISTED_CHARACTERS
    for name in names[:LISTED]:
        name = text.bounded_repr(name, 80) if quote else text.cut(name, 80)
        left -= len(name) + 2
        if left < 0 and shown:
            break
        shown.append(name)
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return ", ".join(shown) + more


def holds(folder):
    """What is in a folder, as the end of a sentence; hidden files are not named."""
    names = sorted(n for n in os.listdir(folder) if not n.startswith("."))
    return f"holds: {listed(names)}" if names else "is empty"


def files_like(path):
    """Paths of files that may be meant by one that does not exist, relative to the working directory where they are below it."""
    wanted = os.path.basename(os.path.normpath(path))
    if not wanted:
        return []
    below = list(_below("."))
    same = [p for p in below if _plain(os.path.basename(p)) == _plain(wanted)]
    folder = os.path.dirname(path)
    beside = [os.path.join(folder, n) for n in os.listdir(folder)] if folder and os.path.isdir(folder) else []
    return same[:3] or _like(wanted, beside) or _like(wanted, below)


def _like(wanted, paths):
    """Paths whose names look like it; the ending, which many share, does not count."""
    by_stem = {}
    for path in paths:
        by_stem.setdefault(os.path.splitext(os.path.basename(path))[0], path)
    return [by_stem[stem] for stem in nearest(os.path.splitext(wanted)[0], by_stem, likeness=0.7)]


def _below(folder):
    """Files below a folder, the nearest first, not too many."""
    seen = 0
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        if here.count(os.sep) >= _MOST_DEPTH:
            folders[:] = []
        for name in sorted(names):
            yield os.path.normpath(os.path.join(here, name))
        seen += len(names) + len(folders) + 1
        if seen > _MOST_ENTRIES:
            return


def labels_near(exception):
    """(owner, what, labels) where a label was looked for in vain, from the frames of pandas or polars; None if it was not theirs."""
    frames = []
    tb = exception.__traceback__
    while tb is not None:
        frames.append(tb.tb_frame)
        tb = tb.tb_next
    index = table = None
    for frame in reversed(frames):
        if str(frame.f_globals.get("__name__", "")).split(".")[0] not in ("pandas", "polars"):
            if frame is frames[-1]:
                return None  # the user's own look-up, within a function that pandas calls
            continue
        for value in (frame.f_locals.get("self"), frame.f_locals.get("obj")):
            if index is None and is_a(value, "pandas", "Index"):
                index = value
            elif table is None and (is_a(value, "pandas", "DataFrame") or is_a(value, "polars", "DataFrame")):
                table = value
        if table is not None:
            break
    columns = None if table is None else table.columns
    if index is None:
        return None if columns is None else ("table", "column", list(columns[:_MOST_CANDIDATES]))
    if columns is not None and (index is columns or index.equals(columns)):
        return "table", "column", list(index[:_MOST_CANDIDATES])
    return "series" if table is None else "table", "label", list(index[:_MOST_CANDIDATES])
