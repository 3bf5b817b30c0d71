"""IPython's display machinery, ending at the wire.

`display(obj)`, a result and a figure all become one display frame: a bundle of forms by mimetype, strict JSON, bounded.
"""

import binascii

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.formatters import DisplayFormatter

from . import tables, text, wire
from .values import plain_json

TEXT_LIMIT = 64_000
PLAIN = "text/plain"
MARKDOWN = "text/markdown"
_TEXT_ONLY = {bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset}
_KEPT_PLAIN = 10_000


class Publisher:
    """Sends bundles to the host, each after everything printed before it."""

    def __init__(self, connection, streams, warn):
        self._wire, self._streams, self._warn = connection, streams, warn
        self.max_bytes = 16_000_000

    def publish(self, bundle, metadata, last=False):
        """Send one display and wait until the host has placed it; the `last` of a session's execution goes with its result, unwaited for."""
        mime = {}
        for kind, data in bundle.items():
            if data is not None:
                mime[text.cut(str(kind), 200)] = _wire_form(str(kind), data)
        if not mime:
            return
        self._bound(mime)
        self._streams.flush()
        send = self._wire.send_later if last else self._wire.send_and_wait
        send(wire.DISPLAY, {"mime": mime, "metadata": plain_json(metadata or {})})

    def _bound(self, mime):
        """Drop the largest forms until the rest fits; plain text is shortened instead, so that something is left."""
        if isinstance(mime.get(PLAIN), str):
            mime[PLAIN] = text.cut(mime[PLAIN], TEXT_LIMIT)
        sizes = {kind: _size(data) for kind, data in mime.items()}
        dropped = []
        while sum(sizes.values()) > self.max_bytes and sizes:
            largest = max(sizes, key=sizes.get)
            if largest == PLAIN and len(sizes) == 1:
                mime[PLAIN] = text.cut(mime[PLAIN], min(_KEPT_PLAIN, self.max_bytes // 4))
                return
            dropped.append(f"{largest} ({sizes.pop(largest)} bytes)")
            del mime[largest]
        if dropped:
            mime.setdefault(PLAIN, "<display too large>")
            self._warn("display_truncated", f"left out of a display, too large: {', '.join(dropped)}")


def _wire_form(kind, data):
    if isinstance(data, (bytes, bytearray)):
        return binascii.b2a_base64(bytes(data), newline=False).decode("ascii")
    if isinstance(data, str):
        return str.__str__(data)
    if kind.endswith("json"):
        return plain_json(data)
    return text.bounded_repr(data, TEXT_LIMIT)


def _size(data):
    if isinstance(data, str):
        return len(data)
    if isinstance(data, dict):
        return sum(len(k) + 4 + _size(v) for k, v in data.items())
    if isinstance(data, list):
        return 2 + sum(map(_size, data))
    return 8


class Formatter(DisplayFormatter):
    """IPython's formatter with figures first and with plain text that is Python's repr, bounded."""

    figures = None
    markdown_rows = None
    """Rows of a table to give as Markdown too; None where nobody has asked for that."""

    def __init__(self, **options):
        super().__init__(**options)
        rich = [f for kind, f in self.formatters.items() if kind != PLAIN]
        rich += [self.mimebundle_formatter, self.ipython_display_formatter]
        self._printers = [printers for f in rich for printers in (f.type_printers, f.deferred_printers)]
        """What users have registered: printers of types that cannot carry methods such as `_repr_html_`."""

    def format(self, obj, include=None, exclude=None):
        """(bundle, metadata) of an object, as IPython defines it."""
        if type(obj) in _TEXT_ONLY and not (include or exclude or any(self._printers)):
            return {PLAIN: text.bounded_repr(obj, TEXT_LIMIT)}, {}
        forms = self.figures.forms_of(obj) if self.figures is not None else None
        bundle, about = forms or (None, {})
        metadata = {}
        if bundle is None:
            skipped = {PLAIN, *(exclude or ())}
            if include and not set(include) - {PLAIN}:
                bundle = {}
            else:
                # Plain text is ours: IPython's pretty printer breaks lines where repr does not.
                bundle, metadata = super().format(obj, include=include, exclude=skipped)
                if not bundle and self._shows_itself(obj):
                    return {}, {}
                if "image/png" in bundle:
                    bundle.pop("image/jpeg", None)  # PIL offers the same picture twice
            bundle.setdefault(PLAIN, text.bounded_repr(obj, TEXT_LIMIT))
            if self.markdown_rows is not None and MARKDOWN not in bundle:
                shown = tables.to_markdown(obj, self.markdown_rows)
                if shown is not None:
                    bundle[MARKDOWN] = shown
        keep = {k: v for k, v in bundle.items() if (not include or k in include) and k not in (exclude or ())}
        return keep, {**{k: v for k, v in metadata.items() if k in keep}, **(about if keep else {})}

    def _shows_itself(self, obj):
        return hasattr(type(obj), "_ipython_display_")


class ShellPublisher(DisplayPublisher):
    """Receives what IPython.display publishes."""

    publisher = None

    def publish(self, data, metadata=None, source=None, *, transient=None, update=False, **kwargs):
        """One display; an update of an earlier one is a new one, because nothing sent can be taken back."""
        extra = {"display_id": transient["display_id"]} if transient and "display_id" in transient else {}
        self.publisher.publish(data, {**(metadata or {}), **extra})

    def clear_output(self, wait=False):
        """Output that has been sent stays."""


class ShellDisplayHook(DisplayHook):
    """The value of an expression in a nested run (`%%capture`, `get_ipython().run_cell`)."""

    def __call__(self, result=None):
        """Publish the value unless it is None."""
        if result is not None:
            bundle, metadata = self.shell.display_formatter.format(result)
            self.shell.display_pub.publish(bundle, metadata)
