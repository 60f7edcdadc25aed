"""How the events of a typed channel become records at a producer, and its records events again at a consumer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from echannel_ray import errors
from echannel_ray.core.kinds import BLOCK, RECORD, Block, token_of, typed, wire_kind
from echannel_ray.core.messages import Definition
from echannel_ray.endpoint.definitions import open_channel
from echannel_ray.formats.buffers import is_frozen
from echannel_ray.formats.events import OVERHEAD_BYTES, encode
from echannel_ray.records import known
from echannel_ray.records.arrow import batch_block, batch_format
from echannel_ray.records.layouts import format_of_dtype
from echannel_ray.records.reader import Reader
from echannel_ray.records.sources import part_of_block
from echannel_ray.records.untyped_reader import UntypedReader
from echannel_ray.records.validators import validator_of
from echannel_ray.records.writer import Writer, block_of
from echannel_ray.schemas import schema, types

if TYPE_CHECKING:
    from echannel_ray.endpoint.process_endpoint import ProcessEndpoint

Encoded = tuple[int, Any, int]
Data = bytes | memoryview

# Of a block: packs of this size keep all processes on the way busy, and a window holds many.
BLOCK_BYTES = 240 << 10
# Of one in a segment: what it costs besides its copy is the same for any size. A little less than a power of two, since
# the arena's head takes some of it; and a window holds two.
SEGMENT_BLOCK_BYTES = (4 << 20) - (64 << 10)


def open_more(
    endpoint: ProcessEndpoint, definition: Definition, event_type: Any, *formats: schema.Format
) -> Definition:
    """Have the channel know the fields of a type and formats; `TypeMismatch` where the type does not go with it."""
    declared = types.describe(event_type) if event_type is not None else None
    listed = known.listed(*formats)
    return open_channel(
        endpoint, definition.channel, declared=declared, formats=listed, incarnation=definition.incarnation
    )


class RecordEncoder:
    """Encodes the records of one producer of a typed channel; any number of threads may use it.

    A class or dtype that comes for the first time is compared with the channel's type and made known to its manager: so
    whoever gets such records can ask for their format.
    """

    def __init__(
        self,
        endpoint: ProcessEndpoint,
        definition: Definition,
        event_type: Any,
        validate: bool,
        output: dict[str, Any] | None = None,
    ) -> None:
        """`output` is the type of a derived channel that has one of its own: that stays as it is."""
        self._endpoint = endpoint
        self.definition = definition
        self._output = output
        self._validate = validate
        self.record = types.certain_of(self._type_schema)
        # By classes of events: the kind, what writes it, and what each is accounted for; 0: that varies. Producers that
        # are armed write by these themselves.
        self.writers: dict[type, tuple[int, Callable[[Any], bytes], int]] = {}
        self.sizes: dict[int, int] = {}  # of records of a fixed layout, by their kinds
        self._kinds: dict[Any, int] = {}  # of arrays by their dtypes, and of record batches by their schemas
        # Of records of NumPy's, one by one: their class, and by their dtypes the kind, and what each is accounted for.
        self._array_class: Any = None
        self._array_records: dict[Any, tuple[int, int]] = {}
        self._foreign: set[Any] = set()  # dtypes of what modulators emitted that is no record of the channel
        if event_type is not None:
            types.check_producer(definition.channel, self._type_schema, event_type)
        self._own_class = event_type if isinstance(event_type, type) else None
        if self._own_class is not None:
            self._learn(self._own_class)

    @property
    def _type_schema(self) -> dict[str, Any]:
        found = self._output or self.definition.type_schema
        assert found is not None
        return found

    def encode(self, event: Any) -> Encoded:
        """The event as (kind, payload, size to account for)."""
        found = self.writers.get(type(event))
        if found is None:
            return self._unusual(event)
        kind, write, size = found
        data = write(event)
        return kind, data, size or len(data) + OVERHEAD_BYTES

    def ready(self, event: Any) -> None:
        """Have ready what is needed to encode such an event: that may ask a manager, so not under a lock."""
        if self._validate or type(event) not in self.writers:
            self.encode(event)

    def may_ask(self, event: Any) -> bool:
        """Whether `emitted` may ask a manager about such an event, and so must not be called under a lock."""
        return _is_array_record(event) and event.dtype not in self._kinds and event.dtype not in self._foreign

    def takes(self, event: Any) -> bool:
        """Whether such an event is known to be a record."""
        return type(event) in self.writers

    def emitted(self, event: Any) -> Encoded:
        """What a modulator emitted: a record if it is one, else anything."""
        if type(event) in self.writers:
            return self.encode(event)
        if _is_array_record(event) and event.dtype not in self._foreign:
            try:
                return self.encode(event)
            except errors.TypeMismatch:
                self._foreign.add(event.dtype)
        return encode(event)

    def record_kind(self, event: Any) -> int | None:
        """The kind of a record that is an array of no dimensions, or an element of one; None of all else."""
        return typed(RECORD, self._token_of_array(event.dtype)) if _is_array_record(event) else None

    def _unusual(self, event: Any) -> Encoded:
        if type(event) is self._array_class:
            known = self._array_records.get(event.dtype)
            if known is not None:
                return known[0], bytes(event), known[1]
        if _is_array_record(event):
            kind = typed(RECORD, self._token_of_array(event.dtype))
            if type(event) is event.dtype.type:  # and no array without dimensions
                self._array_class = type(event)
                self._array_records[event.dtype] = kind, self.sizes[kind]
            return kind, event.tobytes(), self.sizes[kind]
        if isinstance(event, Mapping):
            self.writers[type(event)] = self._writer(None)
        else:
            self._learn(type(event))
        return self.encode(event)

    def _learn(self, event_class: type) -> None:
        try:
            types.schema_of(event_class)
        except TypeError:
            raise self._mismatch(event_class.__qualname__) from None
        self.writers[event_class] = self._writer(event_class)

    def _schema_of(self, event_type: Any) -> schema.RecordType:
        try:
            return types.schema_of(event_type)
        except TypeError as error:
            channel = self.definition.channel
            message = f"channel {channel!r} can't have such records: {error}"
            raise errors.TypeMismatch(message, channel=channel, field=None) from None

    def _mismatch(self, got: str) -> errors.TypeMismatch:
        channel = self.definition.channel
        fields = ", ".join(self.record.names)
        return errors.TypeMismatch(
            f"channel {channel!r} is typed, and {got} is no record: publish an instance of its type, another class "
            f"or a dict with its fields ({fields}), or use a channel without a type",
            channel=channel,
            field=None,
            got=got,
        )

    def _writer(self, event_class: type | None) -> tuple[int, Callable[[Any], bytes], int]:
        record = self.record if event_class is None else types.schema_of(event_class)
        writer = Writer(event_class, record)
        self.make_known(event_class, writer.format)
        kind = typed(RECORD, writer.format.token)
        size = 0
        if writer.format.layout is not None:
            size = self.sizes[kind] = writer.format.layout.itemsize + OVERHEAD_BYTES
        if not self._validate or (event_class is None and self._own_class is None):
            return kind, writer.write, size
        validate = validator_of(event_class or self._own_class)
        made = Reader(self._own_class, types.schema_of(self._own_class)) if event_class is None else None

        def write_valid(event: Any) -> bytes:
            data = writer(event)
            validate(event if made is None else made.of_mapping(event))
            return data

        return kind, write_valid, size

    def make_known(self, event_type: Any, format: schema.Format) -> None:  # noqa: A002
        """Have the manager know a format in which records leave, and, of a type, that they are the channel's."""
        definition = self.definition
        if format.token not in definition.formats:
            declared = event_type if self._output is None else None
            self.definition = definition = open_more(self._endpoint, definition, declared, format)
        if event_type is not None:
            types.check_producer(definition.channel, self._type_schema, event_type)

    # ---- many at a time ----

    @staticmethod
    def kept(block: Data) -> Data:
        """A block that nobody can change: a copy, where somebody could."""
        return block if type(block) is bytes or is_frozen(memoryview(block)) else bytes(block)

    @staticmethod
    def parts(kind: int, block: Data, count: int) -> list[tuple[Data, int]]:
        """A block as shorter ones, with how many records each has; as it is, where they have no layout."""
        if _known(token_of(kind)).encoding != schema.LAYOUT:
            return [(block, count)]
        size = len(block) // count
        step = max(1, BLOCK_BYTES // size) * size
        pieces = [block[at : at + step] for at in range(0, len(block), step)]
        return [(piece, len(piece) // size) for piece in pieces]

    def each(self, kind: int, block: Any, count: int) -> Iterator[Encoded]:
        """The records of a block, one by one."""
        for payload_kind, payload in split(kind, block, count):
            yield payload_kind, payload, len(payload) + OVERHEAD_BYTES

    def blocks(self, events: Any, block_bytes: int = BLOCK_BYTES) -> Iterator[tuple[int, Data, int]] | None:
        """A structured array or record batch as (kind, bytes, count), in pieces of this length; None where it is
        neither, and has to be published event by event. Only `bytes` are ours: all else is for the moment.
        """
        blocks = None
        if getattr(getattr(events, "dtype", None), "names", None):
            blocks = self._array_blocks(events, block_bytes)
        elif hasattr(events, "to_pylist") and hasattr(events, "schema"):
            blocks = self._batch_blocks(events)
        elif hasattr(events, "to_records"):
            raise self._mismatch("a DataFrame (try its `to_records(index=False)`)")
        return self._valid(blocks) if blocks is not None and self._validate and self._own_class is not None else blocks

    def _valid(self, blocks: Iterator[tuple[int, Data, int]]) -> Iterator[tuple[int, Data, int]]:
        """The blocks, each record compared with the channel's class: that takes making it."""
        reader = Reader(self._own_class, types.schema_of(self._own_class))
        validate = validator_of(self._own_class)
        for kind, data, count in blocks:
            for row in reader.rows(_known(token_of(kind)), data, count):
                validate(row)
            yield kind, data, count

    def _array_blocks(self, array: Any, block_bytes: int) -> Iterator[tuple[int, Data, int]]:
        kind = typed(BLOCK, self._token_of_array(array.dtype))
        size = array.dtype.itemsize
        block = block_of(array)
        step = max(1, block_bytes // size) * size
        for at in range(0, len(block), step):
            piece = block[at : at + step]
            yield kind, piece, len(piece) // size

    def _token_of_array(self, dtype: Any) -> int:
        token = self._kinds.get(dtype)
        if token is None:
            format = format_of_dtype(dtype, self._schema_of(dtype))  # noqa: A001
            self.make_known(dtype, format)
            token = self._kinds[dtype] = format.token
            self.sizes[typed(RECORD, token)] = dtype.itemsize + OVERHEAD_BYTES
        return token

    def _batch_blocks(self, batch: Any) -> Iterator[tuple[int, Data, int]]:
        key = bytes(batch.schema.serialize())  # schemas are equal whatever their metadata say
        token = self._kinds.get(key)
        if token is None:
            format = batch_format(batch.schema, self._schema_of(batch.schema))  # noqa: A001
            self.make_known(batch.schema, format)
            token = self._kinds[key] = format.token
        format = _known(token)  # noqa: A001
        pieces = batch.to_batches() if hasattr(batch, "to_batches") else [batch]
        for piece in pieces:
            each_bytes = max(1, piece.nbytes // (piece.num_rows or 1))
            step = max(1, BLOCK_BYTES // each_bytes)
            for at in range(0, piece.num_rows, step):
                part = piece.slice(at, step)
                yield typed(BLOCK, token), bytes(batch_block(part, format)), part.num_rows


class EmittedRecords:
    """What one inline modulator emits, as events that leave: records, wherever it is that.

    A mapping has no class that would tell: it is a record by the names of its fields, if they are those of the
    channel's type or of what the modulator was given, which may be the output of E-code.
    """

    def __init__(self, encoder: RecordEncoder, is_of_channel: bool) -> None:
        """`is_of_channel`: what it gets is of the channel's type. May ask a manager, as `gets` may."""
        self._encoder = encoder
        self._by_names: dict[frozenset[str], Writer] = {}
        self._seen: set[int] = set()
        self._usual = self._learn(encoder.record) if is_of_channel else None
        self._names = frozenset(encoder.record.names)
        self._needed = frozenset(field.name for field in encoder.record.fields if field.default is None)

    def gets(self, kind: int) -> None:
        """Have ready what is needed for events of this kind, which the modulator is about to be given."""
        token = token_of(kind)
        if token and token not in self._seen:
            self._learn(_known(token).record)
            self._seen.add(token)

    def _learn(self, record: schema.RecordType) -> Writer:
        names = frozenset(record.names)
        writer = self._by_names.get(names)
        if writer is None:
            writer = Writer(None, record)
            self._encoder.make_known(None, writer.format)
            self._by_names[names] = writer
        return writer

    def encode(self, event: Any) -> Encoded:
        """What an emitted event is on the wire: its kind, data and size in memory. Asks no manager about a mapping."""
        if not isinstance(event, Mapping):
            return self._encoder.emitted(event)
        names = frozenset(event)
        writer = self._by_names.get(names)
        if writer is None and self._needed <= names <= self._names:
            writer = self._usual
        if writer is not None:
            try:
                data = writer.write(event)
                return typed(RECORD, writer.format.token), data, len(data) + OVERHEAD_BYTES
            except errors.NotSerialisable:
                pass
        return encode(event)


def _is_array_record(event: Any) -> bool:
    return bool(getattr(getattr(event, "dtype", None), "names", None)) and not getattr(event, "ndim", 1)


def split(kind: int, block: Any, count: int) -> Iterator[tuple[int, bytes]]:
    """The records of a block one by one: as they are where they have a layout, else written anew."""
    token = token_of(kind)
    format = _known(token)  # noqa: A001
    if format.encoding == schema.LAYOUT:
        size = len(block) // count
        for at in range(0, len(block), size):
            yield typed(RECORD, token), bytes(block[at : at + size])
        return
    write = Writer(None, format.record)
    known.learn(write.format)
    for row in Reader(None, format.record).rows(format, block, count):
        yield typed(RECORD, write.format.token), write(row)


def objects_of(kind: int, payloads: Sequence[Any], count: int) -> list[Any]:
    """Records as modulators see them where there are no objects: by field names."""
    format = _known(token_of(kind))  # noqa: A001
    reader = Reader(None, format.record)
    if wire_kind(kind) == BLOCK:
        return reader.rows(format, payloads[0], count)
    return reader.events(format, payloads)


def _known(token: int) -> schema.Format:
    found = known.known(token)
    assert found is not None  # this process has made them
    return found


class RecordReader:
    """Reads the events of one subscription of a typed channel, in the form that it asked for."""

    def __init__(
        self, endpoint: ProcessEndpoint, channel: str, incarnation: int, reader: Reader | UntypedReader
    ) -> None:
        self._endpoint = endpoint
        self._channel = channel
        self._incarnation = incarnation
        self._reader = reader
        self.makes_batches = reader.batches is not None
        self.takes_any = not self.makes_batches and isinstance(reader, UntypedReader)  # what is no record, as it is

    def is_same(self, event: Any) -> bool:
        """Whether the consumer would get an equal object of the same type: then it gets the object itself."""
        return not self.makes_batches and self._reader.is_target(event)

    def knows(self, kind: int) -> bool:
        """Whether the format is known, so that `read` need not ask for it."""
        return known.known(token_of(kind)) is not None

    def read(self, kind: int, events: Any) -> list[Any]:
        """Events as they came (a list of payloads, or a `Block`) as what the handler gets: events, or one batch."""
        format = self._format(token_of(kind))  # noqa: A001
        reader = self._reader
        if wire_kind(kind) == BLOCK:
            assert isinstance(events, Block)
            data, count = events.data, len(events)
            if count < events.count:
                data = part_of_block(format, data, events.count, events.start, events.stop)
            if self.makes_batches:
                return [reader.batch_of_block(format, data, count)]
            return reader.rows(format, data, count)
        return [reader.batch(format, events)] if self.makes_batches else reader.events(format, events)

    def _format(self, token: int) -> schema.Format:
        found = known.known(token)
        if found is None:
            open_channel(self._endpoint, self._channel, incarnation=self._incarnation)
            found = known.known(token)
        if found is None:
            raise errors.NotSerialisable(
                f"records of an unknown format came on channel {self._channel!r}: its producer is of another version"
            )
        return found

    def convert(self, event: Any) -> Any:
        """What came as something else, such as a dict that a modulator emitted: a record if it has the fields."""
        if isinstance(event, Mapping) and not self._reader.is_target(event):
            try:
                return self._reader.of_mapping(event)
            except (errors.NotSerialisable, ValueError):
                return event
        return event
