"""What an execution leaves in the user's namespace, in a line per variable."""

import time
import types

from . import text
from .values import is_a

REPR_LIMIT = 200
_TIME_LIMIT_S = 1.0
_HIDDEN_TYPES = (
    types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, type,
)  # fmt: skip
_ARRAY_PACKAGES = ("numpy", "pandas", "polars", "scipy", "torch", "tensorflow", "jax", "xarray", "pyarrow", "cupy")


def snapshot(namespace, limit, hidden=()):
    """{name: {type, shape, repr}} of the user's data: no modules, functions, classes or underscored names."""
    out = {}
    deadline = time.monotonic() + _TIME_LIMIT_S
    for name, value in list(namespace.items()):
        if len(out) >= limit:
            break
        if not isinstance(name, str) or name.startswith("_") or name in hidden or text.is_kind(value, _HIDDEN_TYPES):
            continue
        try:
            out[name] = {
                "type": text.class_name(value),
                "shape": _shape(value),
                "repr": _shown(value) if time.monotonic() < deadline else f"<{text.class_name(value, True)}>",
            }
        except KeyboardInterrupt:
            raise
        except BaseException:
            out[name] = {"type": text.class_name(value), "shape": None, "repr": f"<{text.class_name(value, True)}>"}
    return out


def _shape(value):
    # Only for known libraries: asking an unknown object for an attribute may run anything.
    if text.module_of(type(value)).split(".")[0] not in _ARRAY_PACKAGES:
        return None
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and all(isinstance(n, int) for n in shape):
        return [int(n) for n in shape]
    return None


def _shown(value):
    if is_a(value, "pandas", "DataFrame") or is_a(value, "polars", "DataFrame"):
        # The repr of a frame is expensive and its first 200 characters say little.
        rows, columns = value.shape
        names = ", ".join(str(c) for c in list(value.columns[:20]))
        return text.cut(f"<{rows} rows x {columns} columns: {names}>", REPR_LIMIT)
    return text.bounded_repr(value, REPR_LIMIT)
