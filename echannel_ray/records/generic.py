"""Records for consumers that have no class for them."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import msgspec
from typing_extensions import override


class Record(dict[str, Any]):
    """Field values by name, `record["price"]` or `record.price`; nested records are such too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"a record has no field {name!r}: it has {', '.join(self) or 'none'}") from None

    @override
    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    @override
    def __delattr__(self, name: str) -> None:
        try:
            del self[name]
        except KeyError:
            raise AttributeError(f"a record has no field {name!r}") from None

    @override
    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]

    @override
    def __repr__(self) -> str:
        return f"Record({', '.join(f'{name}={value!r}' for name, value in self.items())})"

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        # The default would look for `__getstate__` and the like among the fields.
        return Record, (dict(self),)


def as_record(value: Any) -> Any:
    """Dicts as records, those inside too; all else as it is."""
    if isinstance(value, list):
        return [as_record(each) for each in value]
    if not isinstance(value, dict):
        return value
    return Record({str(name): as_record(each) for name, each in value.items()})


def as_plain(value: Any) -> Any:
    """A record of whatever kind (instances of event classes, array records) as dicts of its fields, also in lists and
    dicts; all else as it is.
    """
    if isinstance(value, dict):
        return {key: as_plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [as_plain(each) for each in value]
    fields = _fields_of(value)
    return value if fields is None else {name: as_plain(each) for name, each in fields.items()}


def _fields_of(value: Any) -> dict[str, Any] | None:
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    pydantic = sys.modules.get("pydantic.main")
    if pydantic is not None and isinstance(value, pydantic.BaseModel):
        return dict(value.__dict__)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.void) and value.dtype.names:
        return {name: value[name].item() if value[name].ndim == 0 else value[name] for name in value.dtype.names}
    return None
