"""Which types can stand for which: whether every value of one arrives unchanged as the other.

Records match field by field, by name. What the target does not know is ignored, and what it may do without (a field
with a default) need not come: so a type can be extended while those who know its former shape go on.

For types without such defaults the rule is transitive. With them it is not, since a field that is dropped on the way
and one that is filled in by default are not the same: so the two ends are compared, never steps in between.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from echannel_ray.schemas import schema
from echannel_ray.schemas.type_texts import type_text

# Up to which power of two a float of so many bits has all whole numbers.
_EXACT_BITS: Final = {16: 11, 32: 24, 64: 53}
_UNITS: Final = ("W", "D", "h", "m", "s", "ms", "us", "ns")
_MIDNIGHT: Final = schema.Timestamp("D", "")


class _Misfit(NamedTuple):
    """Why values don't fit, and where inside."""

    reason: str
    path: str = ""

    def inside(self, step: str) -> _Misfit:
        """The same misfit, seen from outside."""
        return _Misfit(self.reason, step + self.path)


def lossless(source: schema.Type, target: schema.Type) -> str | None:
    """Why some value of `source` can't arrive unchanged as a `target`; None where all can."""
    misfit = _misfit(source, target)
    if misfit is None:
        return None
    return f"at {misfit.path.lstrip('.')}: {misfit.reason}" if misfit.path else misfit.reason


def _misfit(source: Any, target: Any) -> _Misfit | None:
    if source == target or isinstance(target, schema.Anything):
        return None
    if isinstance(source, schema.Optional):
        return _misfit(source.item, target) if _takes(target, None) else _partly(source, target)
    if isinstance(source, schema.Union):
        return next((misfit for each in source.items if (misfit := _misfit(each, target))), None)
    if isinstance(source, schema.Enum):
        return None if all(_takes(target, value) for _, value in source.members) else _partly(source, target)
    if isinstance(target, schema.Optional):
        return _misfit(source, target.item)
    if isinstance(target, schema.Union):
        is_one = any(_misfit(source, each) is None for each in target.items)
        return None if is_one else _Misfit(other_kind(source, target))
    rule = _RULES.get((type(source), type(target)))
    return rule(source, target) if rule is not None else _Misfit(other_kind(source, target))


def other_kind(source: schema.Type, target: schema.Type) -> str:
    """The reason where two types have nothing in common."""
    return f"{type_text(source)} is no {type_text(target)}"


def _partly(source: schema.Type, target: schema.Type) -> _Misfit:
    return _Misfit(f"not every {type_text(source)} fits {type_text(target)}")


def _takes(target: Any, value: bool | int | float | str | None) -> bool:
    """Whether this value of an enum, or None, fits the target."""
    match target:
        case schema.Anything():
            return True
        case schema.Optional():
            return value is None or _takes(target.item, value)
        case schema.Union():
            return any(_takes(each, value) for each in target.items)
        case schema.Enum():
            # With their types, and NaN as itself: 1, 1.0 and True are three values.
            return any((type(each), repr(each)) == (type(value), repr(value)) for _, each in target.members)
        case schema.Bool():
            return type(value) is bool
        case schema.Int():
            low = -(2 ** (target.bits - 1)) if target.signed else 0
            return type(value) is int and low <= value < low + 2**target.bits
        case schema.Float():
            if type(value) is float:
                return target.bits == 64
            return type(value) is int and abs(value) <= 2 ** _EXACT_BITS[target.bits]
        case schema.Text():
            # NumPy's texts, which have a size, lose NULs at their end.
            if not isinstance(value, str) or target.chars is None:
                return isinstance(value, str)
            return len(value) <= target.chars and not value.endswith("\0")
    return False


_Rule = Callable[[Any, Any], "_Misfit | None"]


def _where(test: Callable[[Any, Any], bool]) -> _Rule:
    return lambda source, target: None if test(source, target) else _partly(source, target)


def _int_fits(source: schema.Int, target: schema.Int) -> bool:
    if source.signed == target.signed:
        return source.bits <= target.bits
    return target.signed and source.bits < target.bits


def _int_fits_float(source: schema.Int, target: schema.Float) -> bool:
    return source.bits - source.signed <= _EXACT_BITS[target.bits]


def _text_fits(source: schema.Text, target: schema.Text) -> bool:
    return target.chars is None or (source.chars is not None and source.chars <= target.chars)


def _bytes_fit(source: schema.Bytes, target: schema.Bytes) -> bool:
    if target.padded and not source.padded:
        return False  # NULs at the end would be lost
    if target.size is None or source.size is None:
        return target.size is None
    if target.padded:
        return source.size <= target.size
    return not source.padded and source.size == target.size  # or NULs would be added


def _moment_fits(source: schema.Timestamp | schema.Date, target: schema.Timestamp | schema.Date) -> bool:
    # A day is its midnight, without a zone.
    first = _MIDNIGHT if isinstance(source, schema.Date) else source
    second = _MIDNIGHT if isinstance(target, schema.Date) else target
    is_zone_kept = second.zone is None or (first.zone is not None and bool(first.zone) == bool(second.zone))
    return is_zone_kept and _unit_fits(first, second)


def _unit_fits(source: Any, target: Any) -> bool:
    return _UNITS.index(source.unit) <= _UNITS.index(target.unit)


def _decimal_fits(source: schema.Decimal, target: schema.Decimal) -> bool:
    if target.precision is None or target.scale is None:
        return True
    if source.precision is None or source.scale is None:
        return False
    return source.scale <= target.scale and source.precision - source.scale <= target.precision - target.scale


def _item_misfit(source: schema.Type, target: Any) -> _Misfit | None:
    misfit = _misfit(source, target.item)
    return misfit and misfit.inside("[]")


def _array_misfit(source: schema.Array, target: schema.Array) -> _Misfit | None:
    if source.shape[0] != target.shape[0]:
        return _partly(source, target)
    return _misfit(schema.row_of(source), schema.row_of(target))


def _tuple_misfit(source: schema.Tuple, target: schema.Tuple | schema.List) -> _Misfit | None:
    if isinstance(target, schema.Tuple):
        if len(source.items) != len(target.items):
            return _partly(source, target)
        targets = target.items
    else:
        targets = (target.item,) * len(source.items)
    for i, (each, wanted) in enumerate(zip(source.items, targets, strict=True)):
        misfit = _misfit(each, wanted)
        if misfit is not None:
            return misfit.inside(f"[{i}]")
    return None


def _map_misfit(source: schema.Map, target: schema.Map) -> _Misfit | None:
    key = _misfit(source.key, target.key)
    if key is not None:
        return key.inside("[key]")
    value = _misfit(source.value, target.value)
    return value and value.inside("[value]")


def _record_misfit(source: schema.RecordType, target: schema.RecordType) -> _Misfit | None:
    for wanted in target.fields:
        given = source.field(wanted.name)
        if given is None and not wanted.is_optional:
            return _Misfit(f"the field {wanted.name!r} ({type_text(wanted.type)}) is missing")
        misfit = _misfit(given.type, wanted.type) if given is not None else None
        if misfit is not None:
            return misfit.inside(f".{wanted.name}")
    return None


_RULES: Final[dict[tuple[type, type], _Rule]] = {
    (schema.Int, schema.Int): _where(_int_fits),
    (schema.Int, schema.Float): _where(_int_fits_float),
    (schema.Float, schema.Float): _where(lambda source, target: source.bits <= target.bits),
    (schema.Complex, schema.Complex): _where(lambda source, target: source.bits <= target.bits),
    (schema.Text, schema.Text): _where(_text_fits),
    (schema.Bytes, schema.Bytes): _where(_bytes_fit),
    (schema.Timestamp, schema.Timestamp): _where(_moment_fits),
    (schema.Date, schema.Timestamp): _where(_moment_fits),
    (schema.Timestamp, schema.Date): _where(_moment_fits),
    (schema.Time, schema.Time): _where(_unit_fits),
    (schema.Duration, schema.Duration): _where(_unit_fits),
    (schema.Decimal, schema.Decimal): _where(_decimal_fits),
    (schema.Array, schema.Array): _array_misfit,
    (schema.Array, schema.List): lambda source, target: _item_misfit(schema.row_of(source), target),
    (schema.List, schema.List): lambda source, target: _item_misfit(source.item, target),
    (schema.Set, schema.Set): lambda source, target: _item_misfit(source.item, target),
    (schema.Set, schema.List): lambda source, target: _item_misfit(source.item, target),
    (schema.Tuple, schema.Tuple): _tuple_misfit,
    (schema.Tuple, schema.List): _tuple_misfit,
    (schema.Map, schema.Map): _map_misfit,
    (schema.RecordType, schema.RecordType): _record_misfit,
}
