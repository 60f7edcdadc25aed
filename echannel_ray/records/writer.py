"""Events of typed channels as bytes, by code that is made once for each class of events.

The code that is made takes events as they should be. Where anything is unusual it gives up, and the encoders look
again (`encoders.py`): they take what is nearly right, such as an int for a float, and say which field is wrong.
"""

from __future__ import annotations

import keyword
import reprlib
import struct
from collections.abc import Callable
from typing import Any, Final

from echannel_ray.errors import NotSerialisable
from echannel_ray.records import class_hints, flat, layouts
from echannel_ray.records.arrow import batch_format
from echannel_ray.records.class_hints import GENERIC
from echannel_ray.records.encoders import WIRE_ENCODE, encoder_of, flattened, has_attributes, record_encoder
from echannel_ray.records.scalars import Encoder, UnfitValue
from echannel_ray.schemas import schema
from echannel_ray.schemas.declarations import schema_of, source_of
from echannel_ray.schemas.schema import Format, RecordType

Write = Callable[[Any], bytes]


class Writer:
    """Makes bytes of the events of one class (a dataclass, pydantic model or Struct); of mappings, without a class."""

    def __init__(self, event_class: type | None, record: RecordType) -> None:
        self.format: Format = rows_format(record)
        annotation = GENERIC if event_class is None else event_class
        self._slow = record_encoder(record, annotation, _row)
        self._name = "record" if event_class is None else event_class.__qualname__
        packed = flat.struct_of(self.format.layout, record) if self.format.layout else None
        self._packed = packed
        self._record = record
        self.write: Write = _Source(packed is not None).writer(record, annotation, packed, self._again)

    def __call__(self, event: Any) -> bytes:
        """The event as bytes; `NotSerialisable` where a field's value is not of its type. (`write` is faster.)"""
        return self.write(event)

    def _again(self, event: Any) -> bytes:
        try:
            values = self._slow(event)
            if self._packed is None:
                return WIRE_ENCODE(values)
            return self._packed.pack(*flattened(self._record, values))
        except UnfitValue as unfit:
            raise _refusal(self._name, unfit.path, unfit.needed, unfit.value) from None
        except (TypeError, ValueError, OverflowError, RecursionError, struct.error) as error:
            message = f"a {self._name} can't be an event: {error}. Publish plain values of the types of its fields"
            raise NotSerialisable(message, type=self._name, reason=str(error), path=None) from error


def _refusal(name: str, path: str, needed: str, value: Any) -> NotSerialisable:
    """The error for a field whose value is not what it has to be."""
    shown = reprlib.repr(value)  # which goes neither deep nor far
    shown = shown if len(shown) <= 60 else f"{shown[:57]}…"
    field = f"field {path!r} has" if path else "it has"
    reason = f"{field} to be {needed}, and is {shown} ({type(value).__name__})"
    message = f"a {name} can't be an event: {reason}. Give it such a value, or change the type of the channel"
    return NotSerialisable(message, type=name, reason=reason, path=path or None)


def format_of(event_type: Any) -> Format:
    """The format in which events of this type travel: of a class, a dtype or a `pyarrow.Schema`."""
    record = schema_of(event_type)
    source = source_of(event_type)
    if source == "numpy":
        return layouts.format_of_dtype(event_type, record)
    return batch_format(event_type, record) if source == "arrow" else rows_format(record)


def rows_format(record: RecordType) -> Format:
    """The format of records one by one."""
    if schema.is_fixed(record):
        return layouts.format_of_dtype(layouts.natural(record), record)
    return Format(record, schema.MSGPACK)


def _row(record: RecordType, annotation: Any) -> Encoder:
    """What makes the msgpack form of a nested record: made code first, the slow way where that gives up."""
    slow = record_encoder(record, annotation, _row)
    return _Source(is_flat=False).row(record, annotation, slow)


_USUAL: Final[dict[type, str]] = {
    schema.Bool: "bool", schema.Float: "float", schema.Text: "str", schema.Bytes: "bytes", schema.Int: "int",
}  # fmt: skip
_GIVE_UP: Final = "raise Unusual"


class _Unusual(Exception):
    """Made code has met what it is not made for."""


class _Source:
    """The text of a function that takes the fields of one record, line by line."""

    def __init__(self, is_flat: bool) -> None:
        self.is_flat = is_flat  # for `struct`, which checks numbers itself
        self.lines: list[str] = []
        self.names: dict[str, Any] = {"Unusual": _Unusual, "flattened": flattened}

    def writer(
        self, record: RecordType, annotation: Any, packed: struct.Struct | None, again: Callable[[Any], bytes]
    ) -> Write:
        values = ", ".join(self._fields(record, annotation, "event"))
        self.names["finish"] = WIRE_ENCODE if packed is None else packed.pack
        return self._function(f"finish({values})" if packed else f"finish(({values},))", again)

    def row(self, record: RecordType, annotation: Any, again: Encoder) -> Encoder:
        values = "".join(f"{value}, " for value in self._fields(record, annotation, "event"))
        return self._function(f"({values})", again)

    def _function(self, result: str, again: Callable[[Any], Any]) -> Callable[[Any], Any]:
        self.names["again"] = again
        body = "\n".join(f"  {line}" for line in [*self.lines, f"return {result}"])
        text = f"def write(event):\n try:\n{body}\n except Exception:\n  pass\n return again(event)"
        exec(text, self.names)
        return self.names["write"]  # type: ignore[no-any-return]

    def _fields(self, record: RecordType, annotation: Any, owner: str) -> list[str]:
        is_class = has_attributes(annotation)
        hints = class_hints.hints_of(annotation)
        if not is_class:
            self.lines.append(f"if len({owner}) != {len(record.fields)}: {_GIVE_UP}")
        values = []
        for field in record.fields:
            is_name = field.name.isidentifier() and not keyword.iskeyword(field.name)
            access = f"{owner}[{field.name!r}]" if not is_class else f"{owner}.{field.name}"
            if is_class and not is_name:
                access = f"getattr({owner}, {field.name!r})"
            values.append(self._value(field.type, hints.get(field.name, GENERIC), access))
        return values

    def _value(self, type_: schema.Type, annotation: Any, access: str) -> str:
        """Lines that check a value where nothing else will, and the expression for it."""
        if self.is_flat and isinstance(type_, schema.Int | schema.Float):
            return access
        variable = f"v{len(self.lines)}"
        self.lines.append(f"{variable} = {access}")
        if isinstance(type_, schema.RecordType):
            nested = ", ".join(self._fields(type_, class_hints.record_class(annotation), variable))
            return nested if self.is_flat else f"({nested},)"
        usual = _USUAL.get(type(type_))
        encode = f"x{len(self.lines)}"
        self.names[encode] = encoder_of(type_, annotation, _row)
        if self.is_flat and not isinstance(type_, schema.Bool):
            return self._flat(type_, variable, encode)
        if type_ in _UNCHECKED:
            self.lines.append(f"if type({variable}) is not {usual}: {variable} = {encode}({variable})")
        elif type_ == schema.Int():
            self.lines.append(
                f"if type({variable}) is not int or not {-(2**63)} <= {variable} < {2**63}: "
                f"{variable} = {encode}({variable})"
            )
        else:
            self.lines.append(f"{variable} = {encode}({variable})")
        return variable

    def _flat(self, type_: schema.Type, variable: str, encode: str) -> str:
        match type_:
            case schema.Array(item=schema.Int() | schema.Float(), shape=(length,)):
                # Of another length it would be made up for by another array that is too long.
                self.lines.append(
                    f"if type({variable}) is not list or len({variable}) != {length}: {variable} = {encode}({variable})"
                )
                return f"*{variable}"
        if isinstance(type_, schema.Text | schema.Complex | schema.Array):
            self.names[f"t{encode}"] = type_
            return f"*flattened(t{encode}, {encode}({variable}))"
        return f"{encode}({variable})"


_UNCHECKED: Final = frozenset({schema.Bool(), schema.Float(), schema.Text(), schema.Bytes()})


def block_of(array: Any) -> memoryview:
    """The bytes of the records of an array, where they are if they lie one behind the other; a record alone is one."""
    import numpy as np

    if isinstance(array, np.ma.MaskedArray):
        raise NotSerialisable("an array with a mask can't be events: fill it in, by its `filled()`", path=None)
    records = np.ascontiguousarray(array)
    if records.ndim != 1:
        raise NotSerialisable(
            f"an array of the shape {records.shape} can't be events: use one of one dimension", path=None
        )
    return records.view(np.uint8).data.toreadonly()
