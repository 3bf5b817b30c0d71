"""One short sentence that helps the writer of the code, often a language model, past a common mistake."""

import errno
import os
import sys

from . import text
from .names import ALIASES

_DISTRIBUTIONS = {
    "cv2": "opencv-python", "yaml": "pyyaml", "sklearn": "scikit-learn", "PIL": "pillow", "bs4": "beautifulsoup4",
    "skimage": "scikit-image", "dateutil": "python-dateutil", "docx": "python-docx", "pptx": "python-pptx",
    "dotenv": "python-dotenv", "Crypto": "pycryptodome", "fitz": "pymupdf", "serial": "pyserial", "jwt": "pyjwt",
    "attr": "attrs", "OpenSSL": "pyopenssl", "psycopg2": "psycopg2-binary", "MySQLdb": "mysqlclient", "usb": "pyusb",
}  # fmt: skip
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
_LISTED_FILES = 20

NO_NETWORK = (
    "this sandbox has no network: nothing outside can be reached. Use files in the working directory, "
    "or data written into the code"
)


def hint_for(exception, network=False):
    """A hint for an uncaught exception, or None. Never raises."""
    try:
        return _hint(exception, network)
    except Exception:
        return None


def _hint(exception, network):
    if isinstance(exception, ModuleNotFoundError):
        return _module(exception, network)
    if not network and _is_network(exception):
        return NO_NETWORK
    if isinstance(exception, NameError):
        return _name(exception)
    if isinstance(exception, MemoryError):
        return "the memory limit of this sandbox was reached: work in chunks, use smaller types, or ask for a higher memory limit"
    if isinstance(exception, EOFError) and "EOF when reading" in text.message_of(exception):
        return "standard input is empty or used up: nobody can type here, so pass the text as stdin or set the value in the code"
    if isinstance(exception, RecursionError):
        return "a function calls itself without an end: check its stopping condition, or use a loop"
    if isinstance(exception, UnicodeDecodeError):
        return f"the data is not {exception.encoding}: name its encoding, for example encoding='gbk', 'utf-8-sig' or 'latin-1'"
    if isinstance(exception, OSError):
        return _os(exception)
    if isinstance(exception, RuntimeError):
        return _runtime(text.message_of(exception))
    return None


def _module(exception, network):
    name = (exception.name or "").split(".")[0]
    if not name:
        return None
    distribution = _DISTRIBUTIONS.get(name)
    called = f"{name} (package {distribution})" if distribution else name
    if os.path.exists(name + ".py") or os.path.isdir(name):
        return f"{exception.name} was not found although {name} exists in the working directory: check sys.path and the module's name"
    if network:
        return f"{called} is not installed in this sandbox"
    return f"{called} is not installed in this sandbox and cannot be installed from inside: there is no network. Use an installed package"


def _name(exception):
    name = getattr(exception, "name", None) or ""
    if name in ALIASES:
        return f"add: import {ALIASES[name]} as {name}"
    if name in sys.stdlib_module_names and not name.startswith("_"):
        return f"add: import {name}"
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
    if number == errno.ENOENT:
        return _missing_file(exception)
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


def _missing_file(exception):
    name = exception.filename
    if _raised_in(exception, "subprocess.py") and isinstance(name, str) and "/" not in name:
        return f"the program {text.cut(name, 100)} is not installed in this sandbox"
    directory = os.getcwd()
    names = sorted(n for n in os.listdir(directory) if not n.startswith("."))
    if not names:
        return f"the working directory ({directory}) is empty: upload the file or create it first"
    listed = ", ".join(text.cut(n, 80) for n in names[:_LISTED_FILES])
    more = f" and {len(names) - _LISTED_FILES} more" if len(names) > _LISTED_FILES else ""
    return f"the working directory ({directory}) holds: {listed}{more}"


def _raised_in(exception, basename):
    tb = exception.__traceback__
    while tb is not None:
        if os.path.basename(tb.tb_frame.f_code.co_filename) == basename:
            return True
        tb = tb.tb_next
    return False


def _is_network(exception):
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
