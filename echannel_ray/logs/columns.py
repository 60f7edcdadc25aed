"""Arrow's record batches as entries of a log, and entries of a typed channel as record batches, however they came."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from echannel_ray.core.kinds import BLOCK, RECORD
from echannel_ray.core.messages import Definition
from echannel_ray.errors import NotSerialisable, TypeMismatch
from echannel_ray.logs.entries import FILE, Entry, Missing, NewEntry
from echannel_ray.records import known
from echannel_ray.records.arrow import arrow_schema, plain_batch, plain_type
from echannel_ray.records.arrow_types import schema_of_record
from echannel_ray.records.reader import Reader
from echannel_ray.records.writer import format_of
from echannel_ray.schemas import types
from echannel_ray.schemas.schema import ARROW, Format, RecordType

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final = frozenset({RECORD, BLOCK, FILE})  # kinds of entries that can become rows
_payloads = msgspec.msgpack.Decoder(list[bytes]).decode


class ColumnWriter:
    """Makes entries of batches of one schema; any thread may use it."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self.format: Format = format_of(schema)
        known.learn(self.format)

    def entry(
        self, batch: pa.RecordBatch, producer: str, sequence: int, published_at: float, as_bytes: bool = True
    ) -> NewEntry:
        """The rows of a batch as one entry; `TypeMismatch` where it has another schema, `NotSerialisable` for a null
        where there is to be a value. For readers in this process the batch itself does, in the place of bytes.
        """
        data: Any = plain_batch(self.fitting(batch), self.format)
        if as_bytes:
            data = data.serialize().to_pybytes()
        return NewEntry(batch.num_rows, BLOCK, self.format.token, data, producer, sequence, published_at)

    def fitting(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with our schema, whose metadata say where nulls may be."""
        import pyarrow as pa

        if set(batch.schema.names) != set(self._schema.names):
            raise _mismatch(self._schema, batch.schema)
        columns = []
        for field in self._schema:
            column = batch.column(field.name)
            if column.type != field.type:
                if plain_type(column.type) != plain_type(field.type):  # dictionaries may come and go
                    raise _mismatch(self._schema, batch.schema)
                column = column.cast(field.type)
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


class ColumnReader:
    """Makes batches of one schema of the entries of a channel whose type is `record`. Not thread-safe."""

    def __init__(
        self, schema: pa.Schema, record: RecordType, formats: Callable[[int], Format | None] = known.known
    ) -> None:
        """`formats` finds a format by its token."""
        self._schema = schema
        self._formats = formats
        self._reader = Reader(schema, record, batches="arrow")

    def batches(self, entry: Entry, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """The events of an entry that lie between two offsets, as rows; nothing is read before it is asked for.

        `ValueError` where they are not what the entry says, `OSError` where they are in a file that is gone.
        """
        if entry.kind == FILE:
            from echannel_ray.logs.files import batches_of_file  # which is made with this module

            for batch in batches_of_file(entry, start, stop):
                yield self._cast(batch)
            return
        begin, end = max(start, entry.first), min(stop, entry.next)
        if begin < end:
            yield self._batch(entry).slice(begin - entry.first, end - begin)

    def taken(
        self, log: str, entries: Sequence[Entry], start: int, stop: int, max_bytes: int
    ) -> tuple[list[pa.RecordBatch], int]:
        """Rows of a log between two offsets, up to about so many bytes, and the offset behind the last of them.

        `Missing` where they are in a file that is gone.
        """
        batches: list[pa.RecordBatch] = []
        behind, size = start, 0
        for entry in entries:
            try:
                for batch in self.batches(entry, start, stop):
                    batches.append(batch)
                    behind += batch.num_rows
                    size += batch.nbytes
                    if size >= max_bytes:
                        return batches, behind
            except FileNotFoundError:
                raise Missing(log, entry.first, entry.next) from None
        return batches, behind

    def _batch(self, entry: Entry) -> pa.RecordBatch:
        if entry.kind not in (RECORD, BLOCK):
            raise NotSerialisable(
                "events of no type can't be rows of a batch: create the channel with a type, as in "
                "`ec.channel(name, SomeClass)`",
                path=None,
            )
        format = self._formats(entry.token)  # noqa: A001
        if format is None:
            raise NotSerialisable(
                f"events {entry.first} to {entry.next - 1} are of a format that nobody knows any more: was the channel "
                "deleted and made again?",
                path=None,
            )
        if entry.kind == BLOCK:
            return self._reader.batch_of_block(format, entry.data, entry.count)
        return self._reader.batch(format, _payloads(entry.data))

    def _cast(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            return batch.select(self._schema.names).cast(self._schema)
        except (KeyError, ValueError) as error:
            raise ValueError(f"a file does not have the columns of its channel: {error}") from None


def _mismatch(wanted: pa.Schema, found: pa.Schema) -> TypeMismatch:
    names = [name for name in dict.fromkeys([*wanted.names, *found.names]) if _type(wanted, name) != _type(found, name)]
    differing = [f"{name!r} ({_type(found, name)} in place of {_type(wanted, name)})" for name in names]
    return TypeMismatch(
        f"a batch of other columns than the channel's can't be published: {', '.join(differing)}. Cast it to the "
        "channel's schema",
        field=names[0] if names else None,
    )


def _type(schema: pa.Schema, name: str) -> str:
    index = schema.get_field_index(name)
    return "nothing" if index < 0 else str(schema.field(index).type)


def schema_of_channel(definition: Definition) -> pa.Schema | None:
    """A channel's type as Arrow has it; of an untyped one what it was written with, if that was columns."""
    formats = [found for token in definition.formats if (found := known.known(token)) is not None]
    # Without what producers have added since: not all records have that.
    record = types.certain_of(definition.type_schema) if definition.type_schema else None
    for each in formats:
        if each.encoding == ARROW and record in (None, each.record):
            return arrow_schema(each.arrow)
    return schema_of_record(record) if record is not None else None


def record_of_channel(definition: Definition, schema: pa.Schema) -> RecordType:
    """What records of a channel are to be read as, for columns of this schema: the channel's own type says more."""
    return types.certain_of(definition.type_schema) if definition.type_schema else format_of(schema).record
