"""One short sentence that helps the writer of the code, often a language model, past a common mistake."""

import errno
import os
import re
import sys
from importlib.machinery import PathFinder

from . import text
from .names import ALIASES
from .nearest import files_like, holds, labels_near, listed, nearest
from .values import is_a, loaded

_DISTRIBUTIONS = {
    "cv2": "opencv-python", "yaml": "pyyaml", "sklearn": "scikit-learn", "PIL": "pillow", "bs4": "beautifulsoup4",
    "skimage": "scikit-image", "dateutil": "python-dateutil", "docx": "python-docx", "pptx": "python-pptx",
    "dotenv": "python-dotenv", "Crypto": "pycryptodome", "fitz": "pymupdf", "serial": "pyserial", "jwt": "pyjwt",
    "attr": "attrs", "OpenSSL": "pyopenssl", "psycopg2": "psycopg2-binary", "MySQLdb": "mysqlclient", "usb": "pyusb",
    "git": "gitpython", "magic": "python-magic", "Levenshtein": "python-levenshtein", "faiss": "faiss-cpu", "wx": "wxpython",
    "Bio": "biopython", "umap": "umap-learn", "hdf5": "h5py", "google": "google-api-python-client", "telegram": "python-telegram-bot",
    "slugify": "python-slugify", "multipart": "python-multipart", "jose": "python-jose", "win32com": "pywin32", "osgeo": "gdal",
}  # fmt: skip
_INSTEAD = {
    "cv2": ("PIL", "scipy.ndimage"), "skimage": ("PIL", "scipy.ndimage"), "imageio": ("PIL",), "bs4": ("lxml.html", "html.parser"),
    "lxml": ("xml.etree.ElementTree",), "altair": ("plotly", "matplotlib"), "bokeh": ("plotly", "matplotlib"), "plotnine": ("seaborn",),
    "pyecharts": ("plotly", "matplotlib"), "wordcloud": ("matplotlib",), "xlsxwriter": ("openpyxl",), "xlwt": ("openpyxl",),
    "pyxlsb": ("openpyxl",), "xgboost": ("sklearn.ensemble",), "lightgbm": ("sklearn.ensemble",), "catboost": ("sklearn.ensemble",),
    "tensorflow": ("sklearn.neural_network",), "torch": ("sklearn.neural_network",), "keras": ("sklearn.neural_network",),
    "prophet": ("statsmodels.api",), "pmdarima": ("statsmodels.api",), "fbprophet": ("statsmodels.api",), "duckdb": ("sqlite3", "polars"),
    "pandasql": ("sqlite3",), "sqlalchemy": ("sqlite3",), "dask": ("polars", "pandas"), "modin": ("pandas",), "pyspark": ("polars", "pandas"),
    "cudf": ("pandas",), "orjson": ("json",), "ujson": ("json",), "simplejson": ("json",), "chardet": ("charset_normalizer",),
    "pendulum": ("dateutil",), "arrow": ("dateutil",), "nltk": ("sklearn.feature_extraction.text",), "jieba": ("re",),
}  # fmt: skip
"""What does much the same, where the image has it."""
_GONE = {
    ("DataFrame", "append"): "pd.concat([df, other])", ("Series", "append"): "pd.concat([s, other])",
    ("DataFrame", "iteritems"): ".items()", ("Series", "iteritems"): ".items()", ("DataFrame", "applymap"): ".map(function)",
    ("DataFrame", "ix"): ".loc or .iloc", ("Series", "ix"): ".loc or .iloc", ("DataFrame", "as_matrix"): ".to_numpy()",
    ("DataFrame", "lookup"): ".loc", ("DataFrame", "mad"): "(df - df.mean()).abs().mean()", ("DataFrame", "swapaxes"): ".transpose()",
    ("Series", "ravel"): ".to_numpy()", ("Series", "is_monotonic"): ".is_monotonic_increasing",
}  # fmt: skip
"""What pandas had once and code still uses."""
_NOT_TEXT = (
    (b"PK\x03\x04", "a zip file, as Excel's .xlsx are: pd.read_excel"), (b"\xd0\xcf\x11\xe0", "an old Excel file: pd.read_excel"),
    (b"\x1f\x8b", "compressed with gzip: compression='gzip'"), (b"PAR1", "a Parquet file: pd.read_parquet"), (b"%PDF", "a PDF file"),
    (b"\x89PNG", "a picture: PIL.Image.open"), (b"\xff\xd8\xff", "a picture: PIL.Image.open"), (b"SQLite format 3", "an SQLite database: sqlite3"),
    (b"\x89HDF", "an HDF5 file: pd.read_hdf"), (b"BZh", "compressed with bzip2: compression='bz2'"), (b"ARROW1", "a Feather file: pd.read_feather"),
)  # fmt: skip
_NETWORK_ERRNOS = {
    errno.ECONNREFUSED, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL, errno.ETIMEDOUT,
    errno.EAFNOSUPPORT,
}  # fmt: skip
_NETWORK_CLASSES = {
    "gaierror", "herror", "URLError", "ConnectionError", "ConnectTimeout", "ConnectError", "NewConnectionError",
    "MaxRetryError", "NameResolutionError", "ConnectTimeoutError", "ClientConnectorError", "ClientConnectorDNSError",
    "ClientConnectionError", "ConnectionRefusedError", "RemoteDisconnected", "ProxyError", "APIConnectionError",
}  # fmt: skip
_NETWORK_PACKAGES = {
    "socket", "_socket", "urllib", "urllib3", "requests", "httpx", "httpcore", "aiohttp", "http", "openai", "anthropic",
    "websocket", "websockets",
}  # fmt: skip
_MOST = 1_200

NO_NETWORK = (
    "this sandbox has no network: nothing outside can be reached. Use files in the working directory, "
    "or data written into the code"
)


def hint_for(exception, network=False):
    """A hint for an uncaught exception, or None. Never raises."""
    try:
        hint = _hint(exception, network)
        return None if hint is None else text.cut(hint, _MOST)
    except BaseException:
        return None  # what it looks at is the user's, and may raise anything


def _hint(exception, network):
    if isinstance(exception, ModuleNotFoundError):
        return _module(exception, network)
    if not network and is_network(exception):
        return NO_NETWORK
    for kind, explain in _KINDS:
        if isinstance(exception, kind):
            hint = explain(exception)
            if hint is not None:
                return hint
    return _by_name(exception)


def _module(exception, network):
    whole = exception.name or ""
    name = whole.split(".")[0]
    if not name:
        return None
    if os.path.exists(name + ".py") or os.path.isdir(name):
        return f"{whole} was not found although {name} exists in the working directory: check sys.path and the module's name"
    if name != whole and _is_installed(name):
        parent = whole.rpartition(".")[0]
        near = nearest(whole.rpartition(".")[2], _submodules(parent))
        return f"{name} is installed, but has no module {whole}" + (f"; nearest: {listed(f'{parent}.{n}' for n in near)}" if near else "")
    distribution = _DISTRIBUTIONS.get(name)
    called = f"{name} (package {distribution})" if distribution else name
    instead = [module for module in _INSTEAD.get(name, ()) if _is_installed(module.split(".")[0])]
    near = [] if distribution or instead else nearest(name, _top_modules(), most=1, likeness=0.8)
    hint = f"{called} is not installed in this sandbox"
    if near:
        return f"{hint}; did you mean {near[0]}?"
    if not network:
        hint += " and cannot be installed from inside: there is no network. Whoever runs the server can add it to the image"
    return f"{hint}. Installed and similar: {', '.join(instead)}" if instead else hint if network else f"{hint}. Use an installed package"


def _is_installed(name):
    return name in sys.modules or name in sys.stdlib_module_names or PathFinder.find_spec(name) is not None


def _top_modules():
    import pkgutil

    names = {*sys.stdlib_module_names, *(m.name for m in pkgutil.iter_modules())}
    return sorted(n for n in names if not n.startswith("_"))


def _submodules(package):
    import pkgutil

    path = getattr(sys.modules.get(package), "__path__", ())
    return [m.name for m in pkgutil.iter_modules(path) if not m.name.startswith("_")]


def _import(exception):
    """A name that a module has not."""
    module = sys.modules.get(exception.name or "")
    found = re.search(r"cannot import name '([^']+)'", text.message_of(exception))
    if module is None or not found:
        return None
    name = found[1]
    if module.__name__ == "collections" and hasattr(sys.modules.get("collections.abc"), name):
        return f"write: from collections.abc import {name}"
    return _hidden_library(module) or _near_attribute(name, module.__name__, dir(module))


def _hidden_library(module):
    path = getattr(module, "__file__", None)
    if isinstance(path, str) and os.path.dirname(os.path.abspath(path)) == os.getcwd() and _elsewhere(module.__name__):
        return f"{os.path.basename(path)} in the working directory hides the library {module.__name__}: give that file another name"
    return None


def _elsewhere(name):
    here = os.getcwd()
    rest = [place for place in sys.path if os.path.abspath(place or ".") != here]
    return name in sys.stdlib_module_names or PathFinder.find_spec(name, rest) is not None


def _attribute(exception):
    obj, name = exception.obj, exception.name
    if not name:
        return None
    if obj is None:
        return (
            f"the value is None, which has no {name}: functions that change something in place return None "
            "(list.sort, inplace=True), and so do searches that find nothing"
        )
    if text.is_kind(obj, type(sys)):
        return _hidden_library(obj) or _near_attribute(name, obj.__name__, dir(obj))
    kind = "DataFrame" if is_a(obj, "pandas", "DataFrame") else "Series" if is_a(obj, "pandas", "Series") else None
    if (kind, name) in _GONE:
        return f"pandas {loaded('pandas', '__version__')} has no {kind}.{name} any more; write {_GONE[kind, name]}"
    if kind == "DataFrame":
        columns = [c for c in obj.columns[:2_000] if isinstance(c, str)]
        near = nearest(name, columns)
        if near:
            return f"the table has no column or method {name}; nearest columns: {listed(near, quote=True)}"
    return _near_attribute(name, text.class_name(obj), dir(type(obj)))


def _near_attribute(name, owner, names):
    near = nearest(name, (n for n in names if not n.startswith("_")), likeness=0.65)
    return f"{owner} has no {name}; nearest: {listed(near)}" if near else None


def _key(exception):
    """A label that a table has not, or an environment variable."""
    if _raised_in(exception, "<frozen os>") or _raised_in(exception, "os.py"):
        return "that environment variable is not set in this sandbox; `env` of the request sets some"
    found = labels_near(exception)
    if found is None:
        return None
    owner, what, labels = found
    wanted = exception.args[0] if exception.args else ""
    quoted = re.findall("""['"]([^'"]*)['"]""", wanted) if isinstance(wanted, str) else []
    wanted = quoted[0] if quoted else wanted
    # As text: a label 2024 is not found as '2024', nor the other way round.
    near = nearest(str(wanted), {str(label): label for label in labels})
    by_text = {str(label): label for label in reversed(labels)}
    hint = f"the {owner} has no {what} {text.bounded_repr(wanted, 80)}"
    if near:
        hint += f"; nearest: {listed((by_text[n] for n in near), quote=True)}"
        if str(wanted).strip() == near[0].strip() and isinstance(by_text[near[0]], str) and by_text[near[0]] != wanted:
            hint += " (with spaces: df.columns = df.columns.str.strip() removes them)"
    return f"{hint}; {what}s: {listed(labels, quote=True)}" if labels else f"{hint}: it has none"


def _type(exception):
    message = text.message_of(exception, 1_000)
    if "fillna() got an unexpected keyword argument 'method'" in message:
        return "write .ffill() or .bfill() instead of fillna(method=...)"
    return None


def _name(exception):
    if type(exception).__name__ == "UndefinedVariableError":
        found = labels_near(exception)
        name = re.search(r"name '([^']+)'", text.message_of(exception, 1_000))
        if found is None or name is None:
            return None
        near = nearest(name[1], [str(label) for label in found[2]])
        return f"the table has no column {name[1]}; " + (f"nearest: {listed(near, quote=True)}; " if near else "") + (
            f"columns: {listed(found[2], quote=True)}. A variable of the code is written @{name[1]}"
        )  # fmt: skip
    name = getattr(exception, "name", None) or ""
    if name in ALIASES:
        return f"add: import {ALIASES[name]} as {name}"
    if name in sys.stdlib_module_names and not name.startswith("_"):
        return f"add: import {name}"
    if name in ("true", "false", "null"):
        return f"Python writes {dict(true='True', false='False', null='None')[name]}"
    return None


def _memory(exception):
    return "the memory limit of this sandbox was reached: work in chunks, use smaller types, or ask for a higher memory limit"


def _end_of_input(exception):
    if "EOF when reading" not in text.message_of(exception):
        return None
    return "standard input is empty or used up: nobody can type here, so pass the text as stdin or set the value in the code"


def _recursion(exception):
    return "a function calls itself without an end: check its stopping condition, or use a loop"


def _decoding(exception):
    data = _read_by_pandas(exception) or exception.object
    if exception.start < 64:
        for magic, what in _NOT_TEXT:
            if data.startswith(magic):
                return f"this is no text but {what}"
    fitting = [name for name in _encodings_of(data) if name != exception.encoding]
    if fitting:
        return f"the data is not {exception.encoding}; it can be read as {' or '.join(fitting)}: name one, for example encoding='{fitting[0]}'"
    return f"the data is not {exception.encoding}: name its encoding, for example encoding='gbk', 'utf-8-sig' or 'latin-1'"


_SAMPLE = 1 << 16


def _read_by_pandas(exception):
    """The beginning of the file that pandas was to read: the exception only has the field that it could not."""
    tb = exception.__traceback__
    while tb is not None:
        path = tb.tb_frame.f_locals.get("filepath_or_buffer")
        if isinstance(path, str) and os.path.isfile(path):
            with open(path, "rb") as f:
                return f.read(_SAMPLE + 1)
        tb = tb.tb_next
    return None



def _encodings_of(data):
    """Encodings in which all of the data has a meaning, the likely ones first."""
    sample = bytes(data[:_SAMPLE])
    if sample.startswith((b"\xff\xfe", b"\xfe\xff")):
        return ["utf-16"]
    found = []
    for name in ("utf-8", "gbk", "gb18030", "big5", "shift_jis", "euc_kr", "cp1251", "cp1252"):
        try:
            read = sample.decode(name)
        except UnicodeDecodeError as e:
            # The sample may end within a character.
            if len(data) <= _SAMPLE or e.start < len(sample) - 4:
                continue
            read = sample[: e.start].decode(name)
        doubt = _doubt(read, name)
        if doubt is not None and not (name == "gb18030" and (2, "gbk") in found):  # which has the same characters, and more
            found.append((doubt, name))
    # In the encodings of one byte each nearly everything has a meaning.
    found.sort(key=lambda f: f[0])
    return [name for _, name in found if not name.startswith("cp") or found[0][1].startswith("cp")][:3]


def _doubt(read, name):
    """How unlikely text beyond ASCII is in this encoding, None for impossible: letters are likely, and those of its language more so."""
    odd = [c for c in read if c > "\x7f"]
    letters = sum(c.isalpha() or "\u3000" <= c <= "\u303f" or "\uff01" <= c <= "\uff5e" for c in odd)
    if not odd or letters < 0.7 * len(odd):
        return None
    if name == "utf-8":
        return 0
    if name.startswith("cp"):
        mostly = len(odd) > 0.5 * sum(map(str.isalpha, read))
        return 5 if mostly == (name == "cp1251") else 6
    # A single accent between the letters of a word is no ideograph.
    if len(odd) < 2 or re.search("[a-z][\u3400-\u9fff\uac00-\ud7a3\uf900-\ufaff](?:[a-z]|\\b)", read):
        return None
    if name == "shift_jis":
        return 1 if sum("\u3040" <= c <= "\u30ff" for c in odd) > 0.2 * len(odd) else 4
    if name == "euc_kr":
        # A few characters of Chinese look like it too.
        return 1 if len(odd) > 5 and sum("\uac00" <= c <= "\ud7a3" for c in odd) > 0.9 * len(odd) else 4
    return {"gbk": 2, "big5": 3}.get(name, 5)


def _encoding(exception):
    return f"{text.bounded_repr(exception.object[exception.start:exception.end], 40)} cannot be written as {exception.encoding}: open the file with encoding='utf-8'"


def _time(exception):
    return "a time limit that the code itself set ran out; that of the sandbox is timeout_ms of the request"


_LIBRARY_HINTS = {
    ("pandas", "EmptyDataError"): "the file has no columns to read: it is empty, or was not written to the end (close it, or use `with`)",
    ("pandas", "ParserError"): (
        "the lines have not as many fields as the first ones: look at the first lines of the file, then name the separator (sep=';' or '\\t'), "
        "the lines to skip (skiprows=) or on_bad_lines='skip'"
    ),
    ("zipfile", "BadZipFile"): "the file is no zip file, as .xlsx are: perhaps it is a .csv (pd.read_csv) or an old .xls (engine='xlrd')",
    ("subprocess", "TimeoutExpired"): "a time limit that the code itself set ran out; that of the sandbox is timeout_ms of the request",
    ("subprocess", "CalledProcessError"): "the program failed: its own message is on standard error, or in exception.stderr if that was captured",
}


def _by_name(exception):
    """For classes of libraries that may not be loaded."""
    if text.class_name(exception) == "ColumnNotFoundError":
        return _key(exception)
    for cls in type(exception).__mro__:
        hint = _LIBRARY_HINTS.get((text.module_of(cls).split(".")[0], cls.__name__))
        if hint:
            return hint
    message = text.message_of(exception, 1_000)
    if "Excel file format cannot be determined" in message:
        return "the file is no Excel file: perhaps it is a .csv (pd.read_csv)"
    if text.class_name(exception) == "JSONDecodeError" and message.startswith("Extra data"):
        return "there are several JSON values: read them line by line, or with pd.read_json(path, lines=True)"
    return None


def _runtime(message):
    if "start new thread" in message:
        return _PROCESS_LIMIT
    if "asyncio.run() cannot be called" in message:
        return "code with a top-level await already runs in an event loop: write `await main()` instead of `asyncio.run(main())`"
    return None


_PROCESS_LIMIT = "the process limit of this sandbox was reached (threads count too): start fewer processes or threads at a time"


def _os(exception):
    number = exception.errno
    if number is None:
        return _without_number(text.message_of(exception, 1_000))
    if number == errno.ENOENT:
        return _missing_file(exception)
    if number == errno.EISDIR:
        path = _path_of(exception)
        return f"{path} is a folder, not a file; it {holds(path)}" if path else "this is a folder, not a file"
    if number == errno.ENOTDIR:
        return "a part of this path is a file, not a folder"
    if number == errno.EEXIST:
        return "it exists already: for folders use os.makedirs(path, exist_ok=True), for files another name or mode 'w'"
    if number in (errno.EROFS, errno.EACCES, errno.EPERM):
        if exception.filename is None:
            return "the sandbox does not allow this operation"
        return "this place cannot be used from inside the sandbox: write to the working directory or /tmp"
    if number in (errno.ENOSPC, errno.EDQUOT):
        return "the disk limit of this sandbox was reached: delete files, write less, or ask for a higher disk limit"
    if number == errno.EFBIG:
        return "the file would exceed the file size limit of this sandbox: write smaller files"
    if number == errno.EAGAIN and isinstance(exception, BlockingIOError):
        return _PROCESS_LIMIT
    if number == errno.ENOMEM:
        return "the memory limit of this sandbox was reached"
    if number in (errno.EMFILE, errno.ENFILE):
        return "too many open files: close them, or open them with `with`"
    return None


def _without_number(message):
    if "non-existent directory" in message:
        return "the folder of this file does not exist: make it first with os.makedirs(folder, exist_ok=True)"
    style = re.match(r"'([^']+)' is not a valid package style", message)
    if style:
        near = nearest(style[1].rpartition("-")[2], getattr(sys.modules.get("matplotlib.style"), "available", ()), likeness=0.4)
        near = [n for n in near if style[1].split("-")[0] in n] or near
        return f"this matplotlib has no style of that name; nearest: {listed(near)}" if near else None
    return None


def _path_of(exception):
    name = exception.filename
    return os.fsdecode(name) if isinstance(name, (str, bytes, os.PathLike)) else None


def _missing_file(exception):
    path = _path_of(exception)
    if _raised_in(exception, "subprocess.py") and path is not None and "/" not in path:
        return f"the program {text.cut(path, 100)} is not installed in this sandbox"
    directory = os.getcwd()
    hints = []
    if path:
        hints = _about_path(path)
        near = files_like(path.replace("\\", "/"))
        if near:
            hints.append(f"did you mean {listed(near)}?")
        folder = os.path.dirname(path)
        if folder and os.path.isdir(folder) and not os.path.samefile(folder, directory):
            hints.append(f"the folder {text.cut(folder, 100)} {holds(folder)}")
    where = f"the working directory ({directory})"
    held = holds(directory)
    hints.append(f"{where} is empty: upload the file or create it first" if held == "is empty" else f"{where} {held}")
    return "; ".join(hints)


def _about_path(path):
    if re.match(r"[A-Za-z]+://", path):
        return ["this opens files, not addresses"]
    if re.match(r"[A-Za-z]:[\\/]|/Users/|/home/(?!sandbox/)|~", path):
        return ["this is a path of another machine, or one that nobody has expanded"]
    folder = os.path.dirname(path)
    if folder and not os.path.isdir(folder):
        return [f"the folder {text.cut(folder, 100)} does not exist: to write there, make it first with os.makedirs(folder, exist_ok=True)"]
    return []


def _raised_in(exception, basename):
    tb = exception.__traceback__
    while tb is not None:
        if os.path.basename(tb.tb_frame.f_code.co_filename) == basename:
            return True
        tb = tb.tb_next
    return False


def is_network(exception):
    """The exception or one it came from says that a connection or a name look-up failed."""
    seen = set()
    queue = [exception]
    while queue and len(seen) < 30:
        e = queue.pop()
        if e is None or id(e) in seen:
            continue
        seen.add(id(e))
        if isinstance(e, OSError) and e.errno in _NETWORK_ERRNOS:
            return True
        for cls in type(e).__mro__:
            if cls.__name__ in _NETWORK_CLASSES and str(cls.__module__).split(".")[0] in _NETWORK_PACKAGES | {"builtins"}:
                return True
        if isinstance(e, TimeoutError) and _raised_in(e, "socket.py"):
            return True
        queue += [e.__cause__, e.__context__, getattr(e, "reason", None) if isinstance(e, OSError) else None]
        queue += list(e.exceptions) if isinstance(e, BaseExceptionGroup) else []
        queue = [q for q in queue if isinstance(q, BaseException)]
    return False


_KINDS = (
    (ImportError, _import), (KeyError, _key), (AttributeError, _attribute), (NameError, _name), (TypeError, _type),
    (MemoryError, _memory), (EOFError, _end_of_input), (RecursionError, _recursion), (UnicodeDecodeError, _decoding),
    (UnicodeEncodeError, _encoding), (TimeoutError, _time), (OSError, _os), (RuntimeError, lambda e: _runtime(text.message_of(e))),
)  # fmt: skip
"""The first that knows something."""
