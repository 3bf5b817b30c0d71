"""Text of bounded size and cost out of objects that promise neither."""

import itertools

# Private references: user code may replace these names in builtins.
_repr, _len, _type = repr, len, type
_module_of, _attribute_of = type.__dict__["__module__"].__get__, type.__getattribute__

_CHEAP_NODES = 5_000
_CHEAP_CHARACTERS = 200_000
_BIG_FIELD = 20_000


def is_kind(obj, classes):
    """isinstance by the real type: an object's `__class__` may lie or raise."""
    return issubclass(_type(obj), classes)


def module_of(cls):
    """Name of the module of a class, "" if it has none; a metaclass is not asked."""
    try:
        module = _module_of(cls)
    except Exception:
        return ""
    return module if is_kind(module, str) else ""


def cut(text, limit):
    """`text`, or its beginning and a note of what is missing."""
    if _len(text) <= limit:
        return text
    note = f"... [{_len(text) - limit} more characters]"
    return text[: max(0, limit)] + note if limit > 60 else text[: max(0, limit - 3)] + "..."


def class_name(obj, qualified=False):
    """Name of the object's class, even if a metaclass lies or raises."""
    cls = _type(obj)
    try:
        name = type.__dict__["__qualname__" if qualified else "__name__"].__get__(cls)
        if not qualified:
            return name
        module = module_of(cls)
        return f"{module}.{name}" if module and module != "builtins" else name
    except Exception:
        return "object"


def message_of(exception, limit=10_000):
    """str(exception), or a substitute if that raises."""
    try:
        return cut(str.__str__(str(exception)), limit)
    except KeyboardInterrupt:
        raise
    except BaseException as e:
        return f"<message unavailable: __str__ raised {class_name(e)}>"


def bounded_repr(obj, limit):
    """repr(obj) cut to about `limit` characters, without building the repr of something giant first."""
    try:
        if _is_cheap(obj):
            return cut(_plain_repr(obj), limit)
        writer = _Writer(limit)
        try:
            writer.add(obj, 0)
        except _Full:
            writer.parts.append("...")
        return "".join(writer.parts)
    except RecursionError:
        return f"<{class_name(obj, True)} object, too deeply nested>"


def _plain_repr(obj):
    try:
        return str.__str__(_repr(obj))
    except (KeyboardInterrupt, RecursionError):
        raise
    except BaseException as e:
        return f"<{class_name(obj, True)} object, its __repr__ raised {class_name(e)}>"


_SCALARS = (bool, float, complex, _type(None), _type(Ellipsis))
_SIZED = (list, tuple, dict, set, frozenset, str, bytes, bytearray)
_VIEWS = (_type({}.keys()), _type({}.values()), _type({}.items()))
_BUILTIN_REPRS = {list.__repr__, tuple.__repr__, dict.__repr__, set.__repr__, frozenset.__repr__}


def _is_cheap(obj):
    """Whether the builtin repr of `obj` can be afforded: few elements, little text, no field of unknown size."""
    nodes, characters, seen = 0, 0, set()
    stack = [obj]
    while stack:
        item = stack.pop()
        nodes += 1
        kind = _type(item)
        if kind in _SCALARS:
            continue
        if kind is str or kind is bytes or kind is bytearray:
            characters += _len(item)
        elif kind is int:
            if item.bit_length() > 10_000:
                return False
        elif is_kind(item, (list, tuple, set, frozenset, dict)):
            if id(item) in seen:
                continue
            seen.add(id(item))
            size = _size_of(item)
            if nodes + size > _CHEAP_NODES:
                return False
            stack.extend(_elements(item))
        elif _has_big_field(item):
            return False
        if nodes > _CHEAP_NODES or characters > _CHEAP_CHARACTERS:
            return False
    return True


def _size_of(container):
    for base in (list, tuple, dict, set, frozenset):
        if is_kind(container, base):
            return base.__len__(container)
    return 0


def _elements(container):
    if is_kind(container, dict):
        return itertools.chain(dict.keys(container), dict.values(container))
    for base in (list, tuple, set, frozenset):
        if is_kind(container, base):
            return base.__iter__(container)
    return ()


def _has_big_field(obj):
    """A giant container of another type, or an instance that holds one and will probably print it all (dataclasses do)."""
    kind = _type(obj)
    if (kind in _VIEWS or module_of(kind) in ("collections", "array")) and _safe_len(obj) > _BIG_FIELD:
        return True
    try:
        fields = object.__getattribute__(obj, "__dict__")
    except Exception:
        return False
    for value in itertools.islice(fields.values() if _type(fields) is dict else (), 100):
        if _type(value) in _SIZED and _len(value) > _BIG_FIELD:
            return True
    return False


def _safe_len(obj):
    try:
        return _len(obj)
    except Exception:
        return 0


class _Full(Exception):
    """The limit has been reached."""


class _Writer:
    """Writes like repr, element by element, until the limit is reached."""

    def __init__(self, limit):
        self.parts, self.left, self.open = [], limit, set()

    def put(self, text):
        if _len(text) > self.left:
            self.parts.append(text[: self.left])
            self.left = 0
            raise _Full
        self.parts.append(text)
        self.left -= _len(text)

    def add(self, obj, depth):
        kind = _type(obj)
        if kind in (str, bytes, bytearray):
            self.put(_repr(obj[: self.left + 1]))
        elif kind is int and obj.bit_length() > 10_000:
            self.put(hex(obj) if obj.bit_length() < 4 * self.left else f"<int of {obj.bit_length()} bits>")
        elif _attribute_of(kind, "__repr__") in _BUILTIN_REPRS:
            self._container(obj, depth)
        elif is_kind(obj, dict):
            self.put(class_name(obj) + "(")
            self._items(obj, depth, "{", "}")
            self.put(")")
        elif (kind in _VIEWS or module_of(kind) in ("collections", "array")) and _safe_len(obj) > _BIG_FIELD:
            self.put(class_name(obj) + "(")
            self._sequence(obj, depth, "[", "]")
            self.put(")")
        elif _has_big_field(obj):
            self.put(f"<{class_name(obj, True)} object at {id(obj):#x}>")
        else:
            self.put(_plain_repr(obj))

    def _container(self, obj, depth):
        if is_kind(obj, dict):
            self._items(obj, depth, "{", "}")
        elif is_kind(obj, list):
            self._sequence(obj, depth, "[", "]")
        elif is_kind(obj, tuple):
            self._sequence(obj, depth, "(", ",)" if _size_of(obj) == 1 else ")")
        elif not _size_of(obj):
            self.put(_plain_repr(obj))
        elif _type(obj) is set:
            self._sequence(obj, depth, "{", "}")
        else:
            self._sequence(obj, depth, class_name(obj) + "({", "})")

    def _sequence(self, obj, depth, start, end):
        with_elements = _elements(obj) if is_kind(obj, (list, tuple, set, frozenset)) else iter(obj)
        self._group(obj, depth, start, end, with_elements, self.add)

    def _items(self, obj, depth, start, end):
        def pair(item, depth):
            self.add(item[0], depth)
            self.put(": ")
            self.add(item[1], depth)

        self._group(obj, depth, start, end, iter(dict.items(obj)), pair)

    def _group(self, obj, depth, start, end, elements, add):
        if id(obj) in self.open or depth > 50:
            self.put(start + "..." + end)
            return
        self.open.add(id(obj))
        self.put(start)
        for n, element in enumerate(elements):
            if n:
                self.put(", ")
            add(element, depth + 1)
        self.put(end)
        self.open.discard(id(obj))
