"""Texts and bytes as native code compares them: in place, whatever their size and byte order.

NULs at the end don't count, be they what fills a field's place or part of a constant: the shorter text is compared as
if NULs followed it.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

from echannel_ray.programs import tree
from echannel_ray.programs.native_state import param_at
from echannel_ray.programs.places import Place
from echannel_ray.programs.program import Type
from echannel_ray.programs.tree import Expression

if TYPE_CHECKING:
    from echannel_ray.programs.expressions import Expressions

_MAX_UNROLLED_BYTES: Final = 64
_NATIVE: Final = f"utf-32-{'le' if sys.byteorder == 'little' else 'be'}"
_FOREIGN: Final = f"utf-32-{'be' if sys.byteorder == 'little' else 'le'}"


class _Text(NamedTuple):
    """Operands: where it is and how many units it has. `place`: of a field."""

    pointer: str
    units: str
    place: Place | None = None

    @property
    def swap(self) -> str:
        return "true" if self.place is not None and self.place.is_foreign else "false"


def equal_texts(scope: Expressions, left: Expression, right: Expression) -> str:
    """Whether two texts are equal, as an operand."""
    for one, other in ((left, right), (right, left)):
        if isinstance(one, tree.Choice):
            # The one that is chosen is compared: a value of two machine words for a text would serve nothing else.
            pairs = [(each, other) if one is left else (other, each) for each in (one.then, one.otherwise)]
            choices = [functools.partial(equal_texts, scope, *pair) for pair in pairs]
            return scope.emitter.choose(scope.value(one.condition), "i1", choices)
    if isinstance(left, tree.Const) and isinstance(right, tree.Const):
        return "true" if _encoded(left.value, False) == _encoded(right.value, False) else "false"
    for one, other in ((left, right), (right, left)):
        if isinstance(one, tree.Const) and isinstance(other, tree.Load):
            place, pointer = scope.pointer(other.leaf, other.indices, other.where)
            if place.dtype.itemsize <= _MAX_UNROLLED_BYTES:
                return _equal_constant(scope, place, pointer, one.value)
            return _equal(scope, _constant(scope, one), _field(place, pointer))
    return _equal(scope, _text(scope, left), _text(scope, right))


def _equal_constant(scope: Expressions, place: Place, pointer: str, value: object) -> str:
    """The field's bytes compared with those that it had if it were equal, eight at a time."""
    wanted = _encoded(value, place.is_foreign)
    size = place.dtype.itemsize
    if len(wanted) > size:
        return "false"
    wanted = wanted.ljust(size, b"\0")
    result, at, emitter = "true", 0, scope.emitter
    while at < size:
        width = next(each for each in (8, 4, 2, 1) if each <= size - at)
        part = int.from_bytes(wanted[at : at + width], sys.byteorder)
        loaded = emitter.put(f"load i{8 * width}, ptr {emitter.shifted(pointer, at)}, align 1")
        same = emitter.put(f"icmp eq i{8 * width} {loaded}, {part}")
        result = same if result == "true" else emitter.put(f"and i1 {result}, {same}")
        at += width
    return result


def _text(scope: Expressions, expression: Expression) -> _Text:
    emitter = scope.emitter
    match expression:
        case tree.Const():
            return _constant(scope, expression)
        case tree.Load(_, leaf, indices, where):
            return _field(*scope.pointer(leaf, indices, where))
        case tree.Param(_, slot):
            pointer = emitter.put(f"load ptr, ptr {emitter.shifted('%state', param_at(slot))}, align 1")
            units = emitter.put(f"load i64, ptr {emitter.shifted('%state', param_at(slot) + 8)}, align 1")
            return _Text(pointer, units)
    raise NotImplementedError(f"{expression} is no text that has a place")


def _field(place: Place, pointer: str) -> _Text:
    unit = 4 if place.dtype.kind == "U" else 1
    return _Text(pointer, str(place.dtype.itemsize // unit), place)


def _constant(scope: Expressions, constant: tree.Const) -> _Text:
    data = _encoded(constant.value, False)
    units = len(data) // (4 if constant.type is Type.TEXT else 1)
    return _Text(scope.emitter.module.constant(data or b"\0"), str(units))


def _equal(scope: Expressions, a: _Text, b: _Text) -> str:
    emitter = scope.emitter
    bits = 8 if any(each.place is not None and each.place.dtype.kind != "U" for each in (a, b)) else 32
    operands = [f"ptr {a.pointer}", f"i64 {a.units}", f"i1 {a.swap}", f"ptr {b.pointer}", f"i64 {b.units}"]
    return emitter.call(f"equal_{bits}", "i1", *operands, f"i1 {b.swap}")


def _encoded(value: object, is_foreign: bool) -> bytes:
    """The text's bytes without NULs at the end."""
    if isinstance(value, str):
        return value.rstrip("\0").encode(_FOREIGN if is_foreign else _NATIVE, "surrogatepass")
    assert isinstance(value, bytes)
    return value.rstrip(b"\0")
