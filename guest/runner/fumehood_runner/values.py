"""Python values as JSON: the public encoding of `result`.

As they are: None, bool, str, finite float, int within +-(2**53 - 1), list, and dict whose keys are str, int, float, bool or
None (written as `json.dumps` writes them: 1 is "1", True is "true", None is "null", nan is "NaN"). Tuples, also named
ones, become arrays. Numpy scalars are like Python's. `pandas.NA` is null. Lone surrogates in text become U+FFFD.

Everything else is an object with a "$type":

    float      value: "nan", "inf" or "-inf"
    int        value: decimal digits, or "0x..." beyond 4,000 digits
    complex    real, imag: each an encoded float
    decimal    value: text                     fraction   value: "1/3"
    bytes      base64, size, truncated         (bytes, bytearray)
    datetime   value: ISO 8601                 (datetime, pandas.Timestamp, numpy.datetime64; "NaT" for a missing one)
    date       value: ISO 8601                 time       value: ISO 8601
    timedelta  value: ISO 8601 duration, seconds: number or null ("NaT" and null for a missing one)
    uuid, path value: text
    enum       class, name, value: encoded
    set        value: array, sorted if its elements can be   (set, frozenset)
    dict       items: [[key, value], ...]      keys that collide or are of another type, or a dict with a key "$type"
    ndarray    dtype, shape, data: nested arrays (of a scalar for 0-d), truncated: true if data holds only the beginning
    index      dtype, shape, data, truncated   (pandas.Index)
    dataframe  shape: [rows, columns], class   (pandas, polars; its content is in `dataframe` if it is the result itself)
    series     shape: [n], name, dtype         (pandas, polars)
    object     class: "module.Class", repr     anything else; repr is bounded
    cycle      a container inside itself
    truncated  reason: "size" or "depth"; with it, where known: size (elements, characters), value (beginning of a text)

A list, set or dict cut for size ends with a "truncated" element. Encoding never raises, whatever the object's methods
do, except KeyboardInterrupt.
"""

import binascii
import itertools
import math
import sys

from . import text

MAX_SAFE_INT = 2**53 - 1
MAX_DEPTH = 60
_MAX_DECIMAL_BITS = 13_000  # below 4,000 digits, inside Python's limit on int to str
_BYTES_LIMIT = 256_000
_REPR_LIMIT = 2_000
_NODE_COST = 8


def loaded(module, name):
    """Attribute `name` of `module` if the user's code has imported it, else None. Never imports anything."""
    try:
        return vars(sys.modules[module]).get(name)
    except Exception:
        return None


def is_a(obj, module, *names):
    """isinstance against classes of a module that may not be loaded."""
    for name in names:
        cls = loaded(module, name)
        if isinstance(cls, type) and issubclass(type(obj), cls):
            return True
    return False


def encode(obj, max_bytes=1_000_000):
    """(JSON value, truncated) for `obj`."""
    encoder = Encoder(max_bytes)
    return encoder.encode(obj), encoder.truncated


def iso_duration(days, seconds, microseconds):
    """ISO 8601 text of a timedelta's three fields."""
    total = (days * 86_400 + seconds) * 1_000_000 + microseconds
    sign, total = ("-" if total < 0 else ""), abs(total)
    total, micro = divmod(total, 1_000_000)
    minutes, sec = divmod(total, 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    fraction = f".{micro:06d}".rstrip("0") if micro else ""
    return f"{sign}P{day}DT{hour}H{minute}M{sec}{fraction}S"


def plain_json(obj, depth=0):
    """Strict JSON out of what a library calls JSON (a display's data): NaN is null, unknown objects are text."""
    if depth > MAX_DEPTH:
        return None
    if obj is None or obj is True or obj is False:
        return obj
    if text.is_kind(obj, str):
        return str.__str__(obj)
    if text.is_kind(obj, int):
        return int.__pos__(obj) if -MAX_SAFE_INT <= obj <= MAX_SAFE_INT else float(obj) if obj.bit_length() < 1000 else None
    if text.is_kind(obj, float):
        return float.__pos__(obj) if math.isfinite(obj) else None
    if text.is_kind(obj, dict):
        return {text.cut(str(k), 10_000): plain_json(v, depth + 1) for k, v in dict.items(obj)}
    if text.is_kind(obj, (list, tuple)):
        return [plain_json(v, depth + 1) for v in obj]
    if is_a(obj, "numpy", "generic", "ndarray"):
        return plain_json(obj.tolist(), depth + 1)
    return text.bounded_repr(obj, _REPR_LIMIT)


class Encoder:
    """One encoding with its budget of output bytes."""

    def __init__(self, max_bytes):
        self.left = max_bytes
        self.truncated = False
        self._open = set()

    def encode(self, obj, depth=0):
        """The JSON value of `obj`."""
        try:
            return self._encode(obj, depth)
        except KeyboardInterrupt:
            raise
        except RecursionError:
            return self._cut("depth")
        except BaseException:
            # A class with hostile methods. Its repr is bounded and guarded.
            return self._object(obj)

    def _encode(self, obj, depth):
        self.left -= _NODE_COST
        if self.left < 0:
            return self._cut("size")
        if obj is None or obj is True or obj is False:
            return obj
        kind = type(obj)
        if kind is str:
            return self._text(obj)
        if kind is int:
            return self._int(obj)
        if kind is float:
            return self._float(obj)
        if issubclass(kind, (list, tuple, dict, set, frozenset)):
            return self._container(obj, depth)
        if self._is_enum(obj):
            return self._enum(obj, depth)
        if is_a(obj, "numpy", "generic"):
            return self._numpy_scalar(obj, depth)
        if issubclass(kind, str):
            return self._text(str.__str__(obj))
        if issubclass(kind, int):
            return self._int(int.__pos__(obj))
        if issubclass(kind, float):
            return self._float(float.__pos__(obj))
        if issubclass(kind, complex):
            return {"$type": "complex", "real": self._float(obj.real), "imag": self._float(obj.imag)}
        if issubclass(kind, (bytes, bytearray)):
            return self._bytes(obj)
        special = self._standard_library(obj) or self._scientific(obj)
        if special is not None:
            return None if special is _NULL else special
        return self._object(obj)

    # Scalars

    def _text(self, value):
        if len(value) > self.left:
            kept = value[: max(0, self.left)]
            self.left = 0
            self.truncated = True
            return {"$type": "truncated", "reason": "size", "size": len(value), "value": kept}
        self.left -= len(value)
        return value

    def _int(self, value):
        if -MAX_SAFE_INT <= value <= MAX_SAFE_INT:
            return value
        bits = value.bit_length()
        if bits // 3 > self.left:
            return self._cut("size", size=bits)
        digits = str(value) if bits <= _MAX_DECIMAL_BITS else hex(value)
        self.left -= len(digits)
        return {"$type": "int", "value": digits}

    def _float(self, value):
        self.left -= 16
        if math.isfinite(value):
            return value
        return {"$type": "float", "value": "nan" if value != value else "inf" if value > 0 else "-inf"}

    def _bytes(self, value):
        keep = max(0, min(len(value), _BYTES_LIMIT, self.left * 3 // 4))
        cut = keep < len(value)
        self.truncated |= cut
        data = binascii.b2a_base64(bytes(memoryview(value)[:keep]), newline=False).decode("ascii")
        self.left -= len(data)
        return {"$type": "bytes", "base64": data, "size": len(value), "truncated": cut}

    def _is_enum(self, obj):
        return is_a(obj, "enum", "Enum")

    def _enum(self, obj, depth):
        value = self.encode(obj._value_, depth + 1)
        return {"$type": "enum", "class": text.class_name(obj, True), "name": text.cut(str(obj._name_), 1_000), "value": value}

    def _standard_library(self, obj):
        if is_a(obj, "decimal", "Decimal"):
            return self._tag("decimal", str(obj))
        if is_a(obj, "fractions", "Fraction"):
            return self._tag("fraction", f"{obj.numerator}/{obj.denominator}")
        if is_a(obj, "datetime", "datetime"):
            return self._tag("datetime", obj.isoformat())
        if is_a(obj, "datetime", "date"):
            return self._tag("date", obj.isoformat())
        if is_a(obj, "datetime", "time"):
            return self._tag("time", obj.isoformat())
        if is_a(obj, "datetime", "timedelta"):
            return self._timedelta(obj)
        if is_a(obj, "uuid", "UUID"):
            return self._tag("uuid", str(obj))
        if is_a(obj, "pathlib", "PurePath"):
            return self._tag("path", str(obj))
        return None

    def _tag(self, name, value):
        self.left -= len(value) + 16
        return {"$type": name, "value": text.cut(value, 20_000)}

    def _timedelta(self, obj):
        value = iso_duration(obj.days, obj.seconds, obj.microseconds)
        return {"$type": "timedelta", "value": value, "seconds": obj.total_seconds()}

    # Containers

    def _container(self, obj, depth):
        if depth >= MAX_DEPTH:
            return self._cut("depth")
        if id(obj) in self._open:
            return {"$type": "cycle"}
        self._open.add(id(obj))
        try:
            # The base classes' methods: a subclass may override its own with anything.
            if text.is_kind(obj, dict):
                return self._dict(obj, depth)
            if text.is_kind(obj, list):
                return self._array(list.__iter__(obj), list.__len__(obj), depth)
            if text.is_kind(obj, tuple):
                return self._array(tuple.__iter__(obj), tuple.__len__(obj), depth)
            return self._set(obj, depth)
        finally:
            self._open.discard(id(obj))

    def _array(self, elements, size, depth):
        out = []
        for n, element in enumerate(elements):
            if self.left < _NODE_COST:
                out.append(self._cut("size", size=size - n))
                break
            out.append(self.encode(element, depth + 1))
        return out

    def _set(self, obj, depth):
        base = set if text.is_kind(obj, set) else frozenset
        elements, size = base.__iter__(obj), base.__len__(obj)
        if size * _NODE_COST < self.left:
            elements = list(elements)
            try:
                elements.sort()  # Python shuffles text anew in every process; equal sets should look equal
            except Exception:
                pass
        return {"$type": "set", "value": self._array(iter(elements), size, depth)}

    def _dict(self, obj, depth):
        size = dict.__len__(obj)
        out, plain, left = {}, True, self.left
        for key, value in dict.items(obj):
            if self.left < _NODE_COST:
                # The mark would look like user data under a plain key: the tagged form has room for it.
                plain = False
                break
            name = self._key(key)
            if name is None or name in out or name == "$type":
                plain = False
                break
            self.left -= len(name)
            out[name] = self.encode(value, depth + 1)
        if plain and len(out) == size:
            return out
        self.left = left
        pairs = []
        for n, (key, value) in enumerate(dict.items(obj)):
            if self.left < 2 * _NODE_COST:
                pairs.append(self._cut("size", size=size - n))
                break
            pairs.append([self.encode(key, depth + 1), self.encode(value, depth + 1)])
        return {"$type": "dict", "items": pairs}

    def _key(self, key):
        if is_a(key, "numpy", "generic"):
            key = key.item()
        if key is None:
            return "null"
        if key is True or key is False:
            return "true" if key else "false"
        if text.is_kind(key, str):
            name = str.__str__(key)
            if not name.isascii():
                # Two keys that differ only in lone surrogates must not collide later.
                name = name.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
            return name if len(name) <= self.left else None
        if text.is_kind(key, int):
            return str(int.__pos__(key)) if key.bit_length() < _MAX_DECIMAL_BITS else None
        if text.is_kind(key, float):
            value = float.__pos__(key)
            if math.isfinite(value):
                return repr(value)
            return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
        return None

    # numpy, pandas, polars

    def _numpy_scalar(self, obj, depth):
        if is_a(obj, "numpy", "datetime64"):
            return self._tag("datetime", str(obj))
        if is_a(obj, "numpy", "timedelta64"):
            seconds = obj / loaded("numpy", "timedelta64")(1, "ns") / 1e9
            if seconds != seconds:
                return {"$type": "timedelta", "value": "NaT", "seconds": None}
            micro = round(float(seconds) * 1e6)
            return {"$type": "timedelta", "value": iso_duration(0, 0, micro), "seconds": float(seconds)}
        value = obj.item()
        if is_a(value, "numpy", "generic"):
            value = complex(value) if is_a(value, "numpy", "complexfloating") else float(value)
        return self._encode(value, depth)

    def _scientific(self, obj):
        if is_a(obj, "numpy", "ndarray"):
            return self._ndarray(obj)
        if loaded("pandas", "NA") is obj:
            return _NULL
        if is_a(obj, "pandas", "DataFrame") or is_a(obj, "polars", "DataFrame"):
            return {"$type": "dataframe", "shape": [int(n) for n in obj.shape], "class": text.class_name(obj, True)}
        if is_a(obj, "pandas", "Series") or is_a(obj, "polars", "Series"):
            name = None if obj.name is None else text.cut(str(obj.name), 1_000)
            return {"$type": "series", "shape": [len(obj)], "name": name, "dtype": str(obj.dtype)}
        if is_a(obj, "pandas", "Index"):
            return self._array_like("index", obj, [len(obj)], lambda n: obj[:n].tolist())
        return None

    def _ndarray(self, obj):
        if obj.ndim == 0:
            return {"$type": "ndarray", "dtype": str(obj.dtype), "shape": [], "data": self.encode(obj[()]), "truncated": False}
        shape = [int(n) for n in obj.shape]
        return self._array_like("ndarray", obj, shape, lambda n: obj[:n].tolist() if obj.dtype.kind not in "mM" else list(obj[:n]))

    def _array_like(self, name, obj, shape, head):
        per_row = math.prod(shape[1:]) or 1
        rows = max(0, min(shape[0], self.left // (per_row * 20)))
        cut = rows < shape[0]
        self.truncated |= cut
        data = self.encode(head(rows))
        return {"$type": name, "dtype": str(obj.dtype), "shape": shape, "data": data, "truncated": cut}

    # The rest

    def _object(self, obj):
        shown = text.bounded_repr(obj, max(60, min(_REPR_LIMIT, self.left)))
        self.left -= len(shown)
        return {"$type": "object", "class": text.class_name(obj, True), "repr": shown}

    def _cut(self, reason, **more):
        self.truncated = True
        return {"$type": "truncated", "reason": reason, **more}


_NULL = object()
"""Marks "encoded as null" where None means "not of this kind"."""


def first(elements, n):
    """The first n elements as a list."""
    return list(itertools.islice(elements, n))
