"""What annotations of fields mean as types of a schema.

Metadata of `Annotated` is ignored but for one: a NumPy scalar type or dtype says how a value is stored. So
`Annotated[float, np.float32]` is a float of 32 bits, `Annotated[str, np.dtype("U4")]` a text of at most 4 characters,
`Annotated[list[float], np.dtype(("f8", (3,)))]` an array of three numbers. `np.float32` alone is one too.
"""

from __future__ import annotations

import collections
import enum
import sys
import types
import typing
from collections import abc
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple
from uuid import UUID

from echannel_ray.schemas import column_types, schema
from echannel_ray.schemas.members import kind_of, members_of

_NONE: Final = schema.Enum((("None", None),))
_SIMPLE: Final[dict[Any, schema.Type]] = {
    bool: schema.Bool(),
    int: schema.Int(),
    float: schema.Float(),
    complex: schema.Complex(),
    str: schema.Text(),
    bytes: schema.Bytes(),
    bytearray: schema.Bytes(),
    datetime: schema.Timestamp(),
    date: schema.Date(),
    time: schema.Time(),
    timedelta: schema.Duration(),
    Decimal: schema.Decimal(),
    UUID: schema.Uuid(),
    None: _NONE,
    type(None): _NONE,
    Any: schema.Anything(),
    object: schema.Anything(),
}
_PYDANTIC: Final[dict[str, schema.Type]] = {
    **dict.fromkeys(["AwareDatetime", "NaiveDatetime", "PastDatetime", "FutureDatetime"], schema.Timestamp()),
    **dict.fromkeys(["PastDate", "FutureDate"], schema.Date()),
}
_LISTS: Final = frozenset(
    {list, collections.deque, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable, abc.Reversible}
)
_SETS: Final = frozenset({set, frozenset, abc.Set, abc.MutableSet})
_MAPS: Final = frozenset({dict, collections.OrderedDict, collections.defaultdict, abc.Mapping, abc.MutableMapping})
_TRANSPARENT: Final = frozenset({"Required", "ReadOnly", "Final"})
_ADVICE: Final = (
    "Fields are numbers, text, bytes, dates and times, enums, lists, sets, tuples and dicts of such, and nested "
    "dataclasses, models, Structs, NamedTuples and TypedDicts; with `Any` a field takes plain data of every kind"
)
_SMALLEST_INT: Final = -(2**63)
_LARGEST_INT: Final = 2**64 - 1


class _Place(NamedTuple):
    """Whose field is being read. `inside` are the classes and aliases around it, to see where one contains itself."""

    owner: Any
    field: str
    inside: tuple[Any, ...]

    def refusal(self, reason: str, advice: str = _ADVICE) -> TypeError:
        """What is wrong with the field."""
        return TypeError(f"the field {self.field!r} of {self.owner.__qualname__} {reason}. {advice}")


def record_of(cls: Any, inside: tuple[Any, ...] = ()) -> schema.RecordType:
    """The schema of a class that declares fields; TypeError naming the field that has none."""
    inside = (*inside, cls)
    return schema.RecordType(
        tuple(
            schema.Field(
                member.name,
                _type_of(member.annotation, _Place(cls, member.name, inside)),
                member.default,
                member.is_optional,
            )
            for member in members_of(cls)
        )
    )


def _type_of(annotation: Any, place: _Place) -> schema.Type:
    origin = typing.get_origin(annotation)
    if origin is not None:
        return _of_generic(annotation, origin, typing.get_args(annotation), place)
    try:
        simple = _SIMPLE.get(annotation)
    except TypeError:  # no hash: no type either
        simple = None
    if simple is not None:
        return simple
    if annotation in _LISTS or annotation in _SETS or annotation in _MAPS or annotation is tuple:
        return _of_bare(annotation)
    if isinstance(annotation, type):
        return _of_class(annotation, place)
    if hasattr(annotation, "__supertype__"):  # a NewType
        return _type_of(annotation.__supertype__, place)
    if type(annotation).__name__ == "TypeAliasType":
        return _of_alias(annotation, annotation, annotation.__value__, place)
    if isinstance(annotation, typing.TypeVar):
        raise place.refusal(f"has the type variable {annotation} for a type", "Use a type")
    raise place.refusal(f"has a type that can't travel: {annotation}")


def _of_bare(annotation: Any) -> schema.Type:
    anything = schema.Anything()
    if annotation in _SETS:
        return schema.Set(anything)
    return schema.Map(anything, anything) if annotation in _MAPS else schema.List(anything)


def _of_class(cls: type, place: _Place) -> schema.Type:
    if kind_of(cls) is not None:
        if cls in place.inside:
            raise place.refusal(
                f"contains {cls.__qualname__} in itself", "Types are finite: use a list of records that name each other"
            )
        return record_of(cls, place.inside)
    if issubclass(cls, enum.Enum):
        return _of_enum(cls, place)
    numpy = sys.modules.get("numpy")
    if numpy is not None and issubclass(cls, numpy.generic):
        return _of_mark(numpy.dtype(cls), place)
    if numpy is not None and issubclass(cls, numpy.ndarray):
        raise place.refusal("is an array of anything", "Say of what, as in `numpy.typing.NDArray[np.float64]`")
    if cls.__module__ == "pydantic.types" and cls.__name__ in _PYDANTIC:
        return _PYDANTIC[cls.__name__]
    raise place.refusal(f"has a type that can't travel: {cls.__module__}.{cls.__qualname__}")


def _of_enum(cls: type[enum.Enum], place: _Place) -> schema.Type:
    if issubclass(cls, enum.Flag):
        raise place.refusal(f"is {cls.__qualname__}, whose members can be combined", "Declare it as int")
    return _of_members([(member.name, member.value) for member in cls], place)


def _of_members(members: list[tuple[str, Any]], place: _Place) -> schema.Type:
    if not members:
        raise place.refusal("is an enum without members")
    for name, value in members:
        if type(value) not in (bool, int, float, str, type(None)):
            raise place.refusal(
                f"is an enum whose member {name} is {type(value).__qualname__}",
                "Use members that are bool, int, float, str or None",
            )
        if type(value) is int and not _SMALLEST_INT <= value <= _LARGEST_INT:
            raise place.refusal(f"is an enum whose member {name} has more than 64 bits", "Use smaller numbers")
    return schema.Enum(tuple(members))


def _of_generic(annotation: Any, origin: Any, arguments: tuple[Any, ...], place: _Place) -> schema.Type:
    if origin is typing.Annotated:
        return _of_annotated(_type_or_ndarray(arguments[0], place), annotation.__metadata__, place)
    if origin is typing.Union or origin is types.UnionType:
        return _of_union([_type_of(each, place) for each in arguments])
    if origin is typing.Literal:
        return _of_literal(arguments, place)
    if origin is tuple:
        return _of_tuple(arguments, place)
    if not arguments and (origin in _LISTS or origin in _SETS or origin in _MAPS):  # `typing.List`
        return _of_bare(origin)
    if origin in _LISTS:
        return schema.List(_type_of(arguments[0], place))
    if origin in _SETS:
        return schema.Set(_type_of(arguments[0], place))
    if origin in _MAPS:
        return schema.Map(_type_of(arguments[0], place), _type_of(arguments[1], place))
    if type(origin).__name__ == "TypeAliasType":
        return _of_alias(annotation, origin, origin.__value__[arguments], place)
    if getattr(origin, "_name", "") in _TRANSPARENT:
        return _type_of(arguments[0], place)
    numpy = sys.modules.get("numpy")
    if numpy is not None and origin is numpy.ndarray:
        return schema.List(_type_of((*typing.get_args(arguments[-1]), Any)[0], place))
    if kind_of(origin) is not None:
        raise place.refusal(f"is the generic {annotation}", "Use a class of its own, without type variables")
    raise place.refusal(f"has a type that can't travel: {annotation}")


def _of_alias(annotation: Any, alias: Any, value: Any, place: _Place) -> schema.Type:
    if alias in place.inside:
        raise place.refusal(f"contains {annotation} in itself", "Types are finite: use `Any` for plain data")
    return _type_of(value, place._replace(inside=(*place.inside, alias)))


def _of_union(items: list[schema.Type]) -> schema.Type:
    """The type of a union: `None` apart, unions inside it dissolved, and each item once."""
    flat: list[schema.Type] = []
    is_optional = False
    for item in items:
        is_optional |= isinstance(item, schema.Optional) or item == _NONE
        inner = item.item if isinstance(item, schema.Optional) else item
        flat += inner.items if isinstance(inner, schema.Union) else [] if inner == _NONE else [inner]
    flat = list(dict.fromkeys(flat))
    if not flat:
        return _NONE
    if schema.Anything() in flat:
        return schema.Anything()
    merged = flat[0] if len(flat) == 1 else schema.Union(tuple(flat))
    return schema.Optional(merged) if is_optional else merged


def _of_literal(values: tuple[Any, ...], place: _Place) -> schema.Type:
    members = [
        (value.name, value.value) if isinstance(value, enum.Enum) else (repr(value), value)
        for value in values
        if value is not None
    ]
    if len(members) == len(values):
        return _of_members(members, place)
    return _of_union([*([_of_members(members, place)] if members else []), _NONE])


def _of_tuple(arguments: tuple[Any, ...], place: _Place) -> schema.Type:
    if len(arguments) == 2 and arguments[1] is ...:
        return schema.List(_type_of(arguments[0], place))
    return schema.Tuple(tuple(_type_of(each, place) for each in arguments if each != ()))  # `tuple[()]` of 3.10


def _type_or_ndarray(annotation: Any, place: _Place) -> schema.Type:
    numpy = sys.modules.get("numpy")
    if numpy is not None and annotation is numpy.ndarray:
        return schema.List(schema.Anything())
    return _type_of(annotation, place)


def _of_annotated(declared: schema.Type, marks: tuple[Any, ...], place: _Place) -> schema.Type:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return declared
    for mark in marks:
        if isinstance(mark, numpy.dtype):
            return _stored(declared, _of_mark(mark, place), place)
        if isinstance(mark, type) and issubclass(mark, numpy.generic):
            return _stored(declared, _of_mark(numpy.dtype(mark), place), place)
    return declared


def _of_mark(dtype: Any, place: _Place) -> schema.Type:
    try:
        return column_types.type_of_dtype(dtype)
    except column_types.NoType as error:
        raise place.refusal(f"is stored as {dtype}: {error}", "Use another dtype") from None


def _stored(declared: schema.Type, stored: schema.Type, place: _Place) -> schema.Type:
    if isinstance(declared, schema.Optional):
        return schema.Optional(_stored(declared.item, stored, place))
    kind: Any = schema.List if isinstance(stored, schema.Array) else type(stored)
    if isinstance(declared, kind):
        return stored
    raise place.refusal("is stored as something else than it is declared as", "Use a dtype of the same kind")
