"""The output of a transformation: its leaves, what they are at first, and the values by names that they become."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, Final

from echannel_ray.formats import plain
from echannel_ray.programs.arithmetic import NARROWED
from echannel_ray.programs.program import ZEROS, Leaf, Program, Type
from echannel_ray.programs.tree import copies
from echannel_ray.schemas.schema import Array, Bool, Bytes, Complex, Field, Float, Int, Optional, RecordType, Text

MAX_ITEMS: Final = 1_000_000
MISSING: Final = object()  # no value that can be written down: whoever makes the record has its default


def leaf_of(path: tuple[str, ...], shape: tuple[int | None, ...], type_: Any) -> Leaf | None:
    """The leaf of a number; None where the type is none."""
    match type_:
        case Bool():
            return Leaf(path, shape, Type.BOOL, 1)
        case Int(64, False):
            return Leaf(path, shape, Type.UNSIGNED, 64, False)
        case Int(bits, signed):
            return Leaf(path, shape, Type.INT, bits, signed)
        case Float(bits):
            return Leaf(path, shape, Type.FLOAT, bits)
    return None


@functools.lru_cache(256)
def program_outputs(output: RecordType) -> tuple[Leaf, ...]:
    """The leaves of an output that programs can store numbers in, in order: at fixed places, in records and arrays."""
    return tuple(_leaves(output, (), ()))


def _leaves(type_: Any, path: tuple[str, ...], shape: tuple[int, ...]) -> Iterator[Leaf]:
    match type_:
        case RecordType(fields):
            for field in fields:
                yield from _leaves(field.type, (*path, field.name), shape)
        case Array(item, lengths):
            yield from _leaves(item, path, shape + lengths)
        case _:
            leaf = leaf_of(path, shape, type_)
            if leaf is not None:
                yield leaf


def copied(program: Program) -> tuple[tuple[str, ...], ...]:
    """The fields of the output that `Copy` sets, in the order of the program."""
    return tuple(dict.fromkeys(copy.target for copy in copies(program.body)))


def zero_of(field: Field) -> Any:
    """What a field is that a program does not set: its default or zero; `MISSING` where it has neither."""
    if field.default is not None:
        return plain.decode(field.default)
    return _zero(field.type)


def _zero(type_: Any) -> Any:
    match type_:
        case Bool() | Int() | Float():
            return ZEROS[leaf_of((), (), type_).type]  # type: ignore[union-attr]
        case Complex():
            return 0j
        case Text(chars) if chars is not None:
            return ""
        case Bytes(size, padded) if size is not None:
            return b"" if padded else bytes(size)
        case Optional():
            return None
        case Array(item, shape):
            zero = _zero(item)
            return MISSING if zero is MISSING else _filled(lambda: _zero(item), shape)
        case RecordType(fields):
            zeros = {field.name: zero_of(field) for field in fields}
            return MISSING if any(zero is MISSING for zero in zeros.values()) else zeros
    return MISSING


def _filled(make: Callable[[], Any], shape: tuple[int, ...]) -> Any:
    return [_filled(make, shape[1:]) for _ in range(shape[0])] if shape else make()


def first_values(output: RecordType) -> list[Any]:
    """What the leaves of an output are before a program runs."""
    return [_first(output, leaf) for leaf in program_outputs(output)]


def check_output(output: RecordType) -> str | None:
    """What is wrong with an output, which whoever sends a program declares: its size, or a default; None if nothing."""
    count = sum(_count(field.type) for field in output.fields)
    if count > MAX_ITEMS:
        return f"an output has at most {MAX_ITEMS} items, and this one {count}"
    for leaf in program_outputs(output):
        try:
            is_declared = _is_like(_first(output, leaf), leaf, leaf.shape)
        except (ValueError, TypeError, OverflowError, KeyError, IndexError):
            is_declared = False
        if not is_declared:
            return f"the default of output.{'.'.join(leaf.path)} is not what the field is declared to be"
    return None


def _count(type_: Any) -> int:
    match type_:
        case Array(item, shape):
            return math.prod(shape) * _count(item) if min(shape, default=1) >= 0 else MAX_ITEMS + 1
        case RecordType(fields):
            return sum(_count(field.type) for field in fields)
        case Text(int(size)) | Bytes(int(size)):
            return 1 + size
    return 1


def _is_like(value: Any, leaf: Leaf, shape: tuple[int | None, ...]) -> bool:
    if shape:
        return type(value) is list and len(value) == shape[0] and all(_is_like(each, leaf, shape[1:]) for each in value)
    if leaf.type in (Type.INT, Type.UNSIGNED):
        low, high = leaf.limits
        return type(value) is int and low <= value <= high
    return type(value) is (bool if leaf.type is Type.BOOL else float)


def _first(output: RecordType, leaf: Leaf) -> Any:
    """What one leaf is at first: as the outermost field that has a default says."""
    zero = _filled(lambda: ZEROS[leaf.type], leaf.shape)  # type: ignore[arg-type]
    record = output
    for depth, name in enumerate(leaf.path, 1):
        field = record.field(name)
        assert field is not None
        if field.default is None and isinstance(field.type, RecordType):
            record = field.type
            continue
        value = zero_of(field)
        return zero if value is MISSING else _typed(_picked(value, leaf.path[depth:], zero), leaf)
    return zero


def _typed(value: Any, leaf: Leaf) -> Any:
    """A default as the leaf has it: that of a floating point field may be written as a whole number."""
    if isinstance(value, list):
        return [_typed(each, leaf) for each in value]
    return NARROWED[leaf.bits](float(value)) if leaf.type is Type.FLOAT else value


def fresh(items: list[Any], dimensions: int) -> list[Any]:
    """A copy of nested lists."""
    return [fresh(each, dimensions - 1) for each in items] if dimensions > 1 else items[:]


def _picked(value: Any, path: tuple[str, ...], zero: Any) -> Any:
    """What lies at a path; a part that a default leaves out is zero."""
    value = value.tolist() if hasattr(value, "tolist") else value  # of NumPy
    if isinstance(value, dict):
        return _picked(value[path[0]], path[1:], zero) if path and path[0] in value else zero
    if isinstance(value, list | tuple):
        zeros = zero if isinstance(zero, list) and len(zero) == len(value) else [zero] * len(value)
        return [_picked(each, path, part) for each, part in zip(value, zeros, strict=True)]
    return value


def assembler(program: Program) -> Callable[[list[Any], Callable[[tuple[str, ...]], Any]], dict[str, Any]]:
    """What makes values by field names of what a run gave, and of the fields of the event (by path) that it copies."""
    assert program.output is not None
    template, leaves, targets = _named(program.output), program_outputs(program.output), copied(program)

    def assemble(values: list[Any], field_of: Callable[[tuple[str, ...]], Any]) -> dict[str, Any]:
        output: dict[str, Any] = _renewed(template)
        for leaf, value in zip(leaves, values[: len(leaves)], strict=True):
            _place(output, leaf.path, value)
        for target, source in zip(targets, values[len(leaves) :], strict=True):
            if source is not None:
                _place(output, target, field_of(source))
        return output

    return assemble


def _renewed(value: Any) -> Any:
    """A copy of dicts and lists, however nested."""
    if type(value) is dict:
        return {name: _renewed(each) for name, each in value.items()}
    return [_renewed(each) for each in value] if type(value) is list else value


def _named(record: RecordType) -> dict[str, Any]:
    zeros = {field.name: zero_of(field) for field in record.fields}
    named: dict[str, Any] = {}
    for field in record.fields:
        zero = zeros[field.name]
        if zero is not MISSING:
            named[field.name] = zero
        elif isinstance(field.type, RecordType):
            named[field.name] = _named(field.type)
    return named


def _place(into: Any, path: tuple[str, ...], value: Any) -> None:
    """Put a value at a path, through the arrays on the way."""
    if isinstance(into, list):
        for part, each in zip(into, value, strict=True):
            _place(part, path, each)
    elif len(path) == 1:
        into[path[0]] = value
    else:
        _place(into.setdefault(path[0], {}), path[1:], value)
