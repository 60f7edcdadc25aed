"""The schema of a declared event type, whichever of the five kinds it is of.

Nothing here imports NumPy, pyarrow or pydantic: who passes one of their types has imported them.
"""

from __future__ import annotations

import sys
from typing import Any, Final, Literal

from echannel_ray.schemas import schema
from echannel_ray.schemas.annotations import record_of
from echannel_ray.schemas.column_types import record_of_arrow, record_of_dtype
from echannel_ray.schemas.members import kind_of

Source = Literal["pydantic", "dataclass", "struct", "numpy", "arrow"]

_ADVICE: Final = (
    "an event type is a pydantic model, a dataclass, a msgspec.Struct, a NumPy structured dtype or a pyarrow.Schema; "
    "for any other events leave it out, and the channel is untyped"
)


def schema_of(event_type: Any) -> schema.RecordType:
    """What records of this type are made of; TypeError where it is none, naming the field that is to blame."""
    source = source_of(event_type)
    make = record_of_dtype if source == "numpy" else record_of_arrow if source == "arrow" else record_of
    record = make(event_type)
    if not record.fields:
        raise TypeError(f"{event_type!r} can't be an event type, since it has no fields: {_ADVICE}")
    return record


def source_of(event_type: Any) -> Source:
    """The kind of a declared type; TypeError where it is none."""
    if isinstance(event_type, type):
        kind = kind_of(event_type)
        if kind in ("pydantic", "dataclass", "struct"):
            return kind
        raise TypeError(f"the class {event_type.__qualname__} can't be an event type: {_ADVICE}")
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(event_type, numpy.dtype):
        _check_dtype(event_type)
        return "numpy"
    pyarrow = sys.modules.get("pyarrow")
    if pyarrow is not None and isinstance(event_type, pyarrow.Schema):
        return "arrow"
    raise TypeError(f"{event_type!r} can't be an event type: {_ADVICE}")


def _check_dtype(dtype: Any) -> None:
    _check_places(dtype)
    if dtype.names and not dtype.itemsize:
        raise TypeError(f"the dtype {dtype} can't be an event type, since its records have no bytes: {_ADVICE}")
    if not dtype.names:
        raise TypeError(f"the dtype {dtype} can't be an event type, since it has no fields: {_ADVICE}")


def _check_places(dtype: Any) -> None:
    """Each field has a place of its own."""
    end = 0
    for name in sorted(dtype.names or (), key=lambda name: int(dtype.fields[name][1])):
        inner, offset = dtype.fields[name][:2]
        if offset < end:
            raise TypeError(f"field {name!r} of the dtype {dtype} lies where another one does: give it its own place")
        end = offset + inner.itemsize
        _check_places(inner.base)
