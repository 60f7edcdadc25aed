"""What comes in as tuples of values, in the order of its schema: one way for each of the three encodings."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeAlias

from echannel_ray.records import flat, layouts, wire_types
from echannel_ray.records.arrow import read_batch
from echannel_ray.records.arrow_rows import rows_of
from echannel_ray.schemas import schema
from echannel_ray.schemas.schema import Format

Block: TypeAlias = bytes | bytearray | memoryview
ReadOne: TypeAlias = Callable[[Block], Any]
ReadMany: TypeAlias = Callable[[Block, int], Iterable[Any]]


def values_of_one(format: Format) -> ReadOne:  # noqa: A002
    """What reads one record by itself."""
    if format.encoding == schema.MSGPACK:
        return wire_types.decoder_of(format.record)
    if format.encoding == schema.LAYOUT:
        native, packed = _native(format)
        nest = flat.nester(format.record)
        unpack = packed.unpack
        if native is None:
            return unpack if nest is None else lambda payload: nest(unpack(payload))
        return lambda payload: (nest or tuple)(unpack(native(payload, 1)))
    return functools.partial(_refuse, "a single record is no record batch")


def values_of_many(format: Format) -> ReadMany:  # noqa: A002
    """What reads a block of records, one behind the other; what `nester_of` makes is still to be applied to each."""
    if format.encoding == schema.LAYOUT:
        native, packed = _native(format)
        return functools.partial(_laid_out, native, packed, layouts.source_dtype(format))
    if format.encoding == schema.ARROW:
        return lambda block, count: rows_of(read_batch(format, block, count), format.record)
    return functools.partial(_refuse, "records in msgpack are no block")


def part_of_block(format: Format, block: Block, count: int, start: int, stop: int) -> Any:  # noqa: A002
    """The records `start` to `stop - 1` of a block, as one that shares its memory; `ValueError` where it is none."""
    if format.encoding == schema.ARROW:
        return read_batch(format, block, count).slice(start, stop - start)
    if format.layout is None:
        _refuse("records in msgpack are no block")
    size = format.layout.itemsize
    _check_size(block, count, size)
    return memoryview(block)[start * size : stop * size]


def travelling_part(format: Format, block: Block, count: int, start: int, stop: int) -> bytes:  # noqa: A002
    """A part of a block as bytes that travel."""
    part = part_of_block(format, block, count, start, stop)
    return bytes(part.serialize() if format.encoding == schema.ARROW else part)


def _refuse(reason: str, *arguments: Any) -> NoReturn:
    raise ValueError(f"what came is not in the form that its format says: {reason}")


def array_of(dtype: Any, block: Block, count: int) -> Any:
    """The records of a block, where they are; `ValueError` where it has another size."""
    import numpy as np

    _check_size(block, count, dtype.itemsize)
    return np.frombuffer(memoryview(block).toreadonly(), dtype)


def _check_size(block: Block, count: int, record_bytes: int) -> None:
    if count < 0 or len(block) != count * record_bytes:
        raise ValueError(f"a block of {count} records has {len(block)} bytes, not {count * record_bytes}")


def _native(format: Format) -> tuple[Callable[[Block, int], bytes] | None, Any]:  # noqa: A002
    """What makes bytes that `struct` can read of those in the format (None: they are), and the `Struct`."""
    dtype = layouts.source_dtype(format)
    assert format.layout is not None  # or `source_dtype` had raised
    packed = flat.struct_of(format.layout, format.record)
    if packed is not None:
        return None, packed
    target = layouts.natural(format.record)
    convert = layouts.conversion(format, target)
    packed = flat.struct_of(layouts.layout_of(target), format.record)
    return lambda block, count: convert(array_of(dtype, block, count)).tobytes(), packed


def _laid_out(native: Any, packed: Any, dtype: Any, block: Block, count: int) -> Iterable[Any]:
    _check_size(block, count, dtype.itemsize)
    return packed.iter_unpack(block if native is None else native(block, count))  # type: ignore[no-any-return]


def nester_of(format: Format) -> Callable[[Any], Any] | None:  # noqa: A002
    """What makes the tuple of a record's values of what was read from a block; None where it is one."""
    return flat.nester(format.record) if format.encoding == schema.LAYOUT else None


def tuples_of(format: Format, block: Block, count: int) -> Iterable[Any]:  # noqa: A002
    """The records of a block as tuples of values."""
    rows = values_of_many(format)(block, count)
    nest = nester_of(format)
    return rows if nest is None else map(nest, rows)
