"""Bytes of typed channels as events, in the terms of each consumer.

A reader belongs to one subscription. For each format that comes it makes a plan once: how the bytes become values, and
how these become records of the class that was asked for. Where sender and consumer agree, little is left of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from echannel_ray.formats.packs import Undecodable
from echannel_ray.records import generic
from echannel_ray.records.batches import NumpyColumns, columns_of
from echannel_ray.records.class_hints import GENERIC
from echannel_ray.records.makers import maker_of
from echannel_ray.records.sources import Block, nester_of, values_of_many, values_of_one
from echannel_ray.records.writer import Writer
from echannel_ray.schemas.schema import Format, RecordType


class _Plan(NamedTuple):
    """How records of one format become events: they are read one by one or by the block, and then made."""

    read_one: Callable[[Any], Any]
    make_one: Callable[[Any], Any]
    read_rows: Callable[[Block, int], Any]
    make_row: Callable[[Any], Any]


class Reader:
    """Makes events of what comes in, for one subscription: of the `target` that it asked for, whose schema is `record`.

    `target` is a class of events, a dtype, a `pyarrow.Schema`, or None for a `RecordType` of each event. With `batches`
    ("numpy" or "arrow") a block becomes one array or record batch; `ValueError` where such records can't be columns.
    """

    def __init__(self, target: Any, record: RecordType, batches: str | None = None) -> None:
        self.batches = batches
        self._record = record
        self._class = target if isinstance(target, type) else GENERIC
        self._columns = columns_of(target, record, batches) if batches is not None else None
        is_dtype = not isinstance(target, type) and hasattr(target, "newbyteorder")
        self._arrays = NumpyColumns(target, record) if is_dtype else None
        self._plans: dict[Format, _Plan] = {}
        self._last: tuple[Format | None, _Plan | None] = (None, None)

    def events(self, format: Format, payloads: Sequence[bytes]) -> list[Any]:  # noqa: A002
        """An event of each payload, with an `Undecodable` in the place of one that is none."""
        try:
            plan = self._plan(format)
        except Exception as error:
            return [Undecodable(error, payload) for payload in payloads]
        if self._arrays is not None and len(payloads) > 1:
            try:
                return list(self._arrays.of_payloads(format, payloads))  # one conversion for all
            except Exception:
                pass  # which of them it was, is seen one by one
        read, make = plan.read_one, plan.make_one
        events: list[Any] = []
        for payload in payloads:
            try:
                events.append(make(read(payload)))
            except Exception as error:
                events.append(Undecodable(error, payload))
        return events

    def rows(self, format: Format, block: Block, count: int) -> list[Any]:  # noqa: A002
        """An event of each record of a block, in the same way; `ValueError` where it is no block of so many."""
        plan = self._plan(format)
        make = plan.make_row
        events: list[Any] = []
        for values in plan.read_rows(block, count):
            try:
                events.append(make(values))
            except Exception as error:
                events.append(Undecodable(error, values))
        return events

    def batch(self, format: Format, payloads: Sequence[bytes]) -> Any:  # noqa: A002
        """One array or record batch of payloads of a record each; `ValueError` where one is none."""
        assert self._columns is not None
        return _checked(self._columns.of_payloads, format, payloads)

    def batch_of_block(self, format: Format, block: Block, count: int) -> Any:  # noqa: A002
        """One array or record batch of a block; without a copy where it is as it was asked for."""
        assert self._columns is not None
        return _checked(self._columns.of_block, format, block, count)

    def is_target(self, event: Any) -> bool:
        """Whether an event is already of the type that was asked for."""
        if self._arrays is not None:
            return self._arrays.has(event)
        if self._class is GENERIC:
            return type(event) is generic.Record and tuple(event) == self._record.names
        return type(event) is self._class

    def of_mapping(self, fields: Mapping[str, Any]) -> Any:
        """An event with these values of its fields; `NotSerialisable` naming the one that does not fit."""
        write = Writer(None, self._record)
        (event,) = self.events(write.format, [write(fields)])
        if isinstance(event, Undecodable):
            raise event.error
        return event

    def _plan(self, format: Format) -> _Plan:  # noqa: A002
        last, plan = self._last
        if format is last and plan is not None:  # the hash of a format takes longer than an event
            return plan
        plan = self._plans.get(format)
        if plan is None:
            plan = self._plans[format] = self._made(format)
        self._last = format, plan
        return plan

    def _made(self, format: Format) -> _Plan:  # noqa: A002
        if self._arrays is not None:
            return _of_arrays(self._arrays, format)
        make = maker_of(format.record, self._record, self._class)
        nest = nester_of(format)
        make_row = make if nest is None else lambda values: make(nest(values))
        return _Plan(values_of_one(format), make, values_of_many(format), make_row)


def _checked(make: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return make(*arguments)
    except ValueError:
        raise
    except Exception as error:  # of whichever library
        raise ValueError(f"records that came can't be a batch: {error}") from error


def _of_arrays(arrays: NumpyColumns, format: Format) -> _Plan:  # noqa: A002
    """The plan for a dtype: events are the elements of the arrays that blocks become."""

    def read_one(payload: Block) -> Any:
        return arrays.of_payloads(format, (payload,))[0]

    def read_rows(block: Block, count: int) -> Any:
        try:
            return arrays.of_block(format, block, count)
        except OverflowError:  # of one record, which is not to take the others with it
            size = len(block) // count
            return [block[start : start + size] for start in range(0, len(block), size)]

    def make_row(record: Any) -> Any:
        return read_one(record) if isinstance(record, bytes | bytearray | memoryview) else record

    return _Plan(read_one, lambda record: record, read_rows, make_row)
