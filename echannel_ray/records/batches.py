"""Whole blocks as one NumPy array or one Arrow record batch, for consumers that take columns."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from typing_extensions import override

from echannel_ray.records import layouts
from echannel_ray.records.arrays_to_arrow import batch_maker
from echannel_ray.records.arrow import adopted, arrow_schema, read_batch
from echannel_ray.records.arrow_rows import batch_of_rows
from echannel_ray.records.arrow_to_arrays import array_maker
from echannel_ray.records.arrow_types import schema_of_record
from echannel_ray.records.class_hints import GENERIC
from echannel_ray.records.makers import maker_of
from echannel_ray.records.sources import Block, array_of, tuples_of, values_of_many, values_of_one
from echannel_ray.records.writer import Writer
from echannel_ray.schemas import schema
from echannel_ray.schemas.column_types import record_of_arrow
from echannel_ray.schemas.extension import lossless
from echannel_ray.schemas.schema import Format, RecordType
from echannel_ray.schemas.type_texts import type_text

ReadBlock: TypeAlias = Callable[[Block, int], Any]


def columns_of(target: Any, record: RecordType, kind: str) -> Columns:
    """What makes batches of the kind; `ValueError` naming the field that has no place in one."""
    if kind == "numpy":
        return NumpyColumns(target if hasattr(target, "newbyteorder") else None, record)
    is_schema = not isinstance(target, type) and hasattr(target, "pandas_metadata")
    return ArrowColumns(target if is_schema else None, record)


def _check_fit(source: RecordType, target: RecordType) -> None:
    """`ValueError` where not every record of the source is one of the target."""
    misfit = lossless(source, target)
    if misfit is not None:
        raise ValueError(f"records that come are not what was asked for: {misfit}")


def _joined(format: Format, payloads: Sequence[Block]) -> bytes:  # noqa: A002
    """Records of a layout one behind the other; `ValueError` where one has another size."""
    assert format.layout is not None
    if any(len(payload) != format.layout.itemsize for payload in payloads):
        raise ValueError(f"a record has another size than its layout's {format.layout.itemsize} bytes")
    return b"".join(payloads)


class Columns(ABC):
    """Makes batches of one kind. Without a copy where a block is as it was asked for."""

    def __init__(self, record: RecordType) -> None:
        self._record = record
        self._last: tuple[Format | None, Any] = (None, None)

    def of_payloads(self, format: Format, payloads: Sequence[Block]) -> Any:  # noqa: A002
        """One batch of payloads of a record each."""
        if format.encoding == schema.LAYOUT:
            return self.of_block(format, _joined(format, payloads), len(payloads))
        read = values_of_one(format)
        return self._of_rows(format, map(read, payloads), len(payloads))

    def of_block(self, format: Format, block: Block, count: int) -> Any:  # noqa: A002
        """One batch of a block of records."""
        last, read = self._last
        if format is not last:  # to find it by its hash takes longer than to convert a record
            _check_fit(format.record, self._record)
            read = self._block_reader(format)
            self._last = format, read
        return read(block, count)

    @abstractmethod
    def _block_reader(self, format: Format) -> ReadBlock:  # noqa: A002
        """What makes a batch of a block of this format."""

    @abstractmethod
    def _of_rows(self, format: Format, rows: Iterable[Any], count: int) -> Any:  # noqa: A002
        """One batch of so many tuples of a record's values."""


class NumpyColumns(Columns):
    """Makes arrays of a dtype; of the natural layout of a schema, where none is given."""

    def __init__(self, dtype: Any, record: RecordType) -> None:
        for field in record.fields:
            if not schema.is_fixed(field.type):
                raise ValueError(
                    f'batches="numpy" needs values of fixed size, and field {field.name!r} is {type_text(field.type)}: '
                    'use batches="arrow", or an event_type without it'
                )
        super().__init__(record)
        self._dtype = layouts.natural(record) if dtype is None else dtype
        self._write = Writer(None, record)

    @override
    def _block_reader(self, format: Format) -> ReadBlock:
        if format.encoding == schema.ARROW:
            columns = record_of_arrow(arrow_schema(format.arrow))
            _check_fit(columns, self._record)  # what the format says of them may be something else
            fill = array_maker(columns, self._record, self._dtype)
            return lambda block, count: fill(read_batch(format, block, count))
        if format.encoding == schema.LAYOUT:
            dtype = layouts.source_dtype(format)
            convert = layouts.conversion(format, self._dtype, self._record)
            return lambda block, count: convert(array_of(dtype, block, count))
        return values_of_many(format)  # which says why it is none

    def has(self, event: Any) -> bool:
        """Whether it is an element of such an array."""
        return getattr(event, "dtype", None) == self._dtype and event.shape == ()

    @override
    def _of_rows(self, format: Format, rows: Iterable[Any], count: int) -> Any:
        make = maker_of(format.record, self._record, GENERIC)
        block = b"".join([self._write(make(values)) for values in rows])
        array = array_of(layouts.natural(self._record), block, count)
        return layouts.conversion(self._write.format, self._dtype)(array)


class ArrowColumns(Columns):
    """Makes record batches of a schema; of the one that fits the records, where none is given."""

    def __init__(self, pa_schema: Any, record: RecordType) -> None:
        super().__init__(record)
        self._schema = schema_of_record(record) if pa_schema is None else pa_schema

    @override
    def _block_reader(self, format: Format) -> ReadBlock:
        if format.encoding == schema.ARROW:
            return functools.partial(self._of_batch, format)
        if format.encoding == schema.LAYOUT:
            dtype = layouts.source_dtype(format)
            make = batch_maker(format.record, self._record, self._schema)
            return lambda block, count: make(array_of(dtype, block, count))
        return values_of_many(format)  # which says why it is none

    def _of_batch(self, format: Format, block: Block, count: int) -> Any:  # noqa: A002
        batch = adopted(read_batch(format, block, count), self._schema)
        # By rows where any column has another type: Arrow's casts differ from `lossless` for nulls, zones and maps.
        return batch if batch is not None else self._of_rows(format, tuples_of(format, block, count), count)

    @override
    def _of_rows(self, format: Format, rows: Iterable[Any], count: int) -> Any:
        make = maker_of(format.record, self._record, GENERIC)
        return batch_of_rows([make(values) for values in rows], self._record, self._schema)
