"""What a retained channel holds, as a Ray Dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from echannel_ray.core.messages import Definition, LookUpChannel
from echannel_ray.errors import EventsMissing, NotSerialisable
from echannel_ray.formats.packs import Undecodable
from echannel_ray.ids import check_channel_name
from echannel_ray.logs.columns import COLUMNS, ColumnReader, record_of_channel, schema_of_channel
from echannel_ray.logs.entries import Entry, Missing
from echannel_ray.logs.positions import Position
from echannel_ray.records import known
from echannel_ray.retained.entry_events import events_of
from echannel_ray.retained.remote import RemoteLogs
from echannel_ray.session import endpoint_for

if TYPE_CHECKING:
    import pyarrow as pa
    import ray.data

_FETCH_BYTES: Final = 4 << 20
_ITEM: Final = "item"  # the column of events that are no records, as in Ray's own datasets
_LEAST_EVENTS: Final = 10_000  # a task for fewer costs more than it reads


@dataclass(frozen=True)
class LogRange:
    """Events of a log that one task reads."""

    log: str
    start: int
    stop: int


def read_dataset(
    channel: str,
    *,
    namespace: str | None = None,
    start: str | Position = "earliest",
    stop: Position | None = None,
    parallelism: int = -1,
) -> ray.data.Dataset:
    """What the logs of a retained channel hold now, from `start` and up to `stop`, as a Dataset that tasks read in
    parallel (`parallelism` of them, or as many as Ray sees fit).

    Records of a typed channel are its rows; on an untyped one dicts are, and other events are in a column "item".
    """
    from ray.data import read_datasource

    check_channel_name(channel)
    if start != "earliest" and not isinstance(start, Position):
        raise ValueError(f'start is "earliest" or a Position, not {start!r}')
    endpoint = endpoint_for(namespace)
    definition = endpoint.requests.ask(LookUpChannel(channel))
    if definition is None:
        raise LookupError(f"there is no channel {channel!r} in namespace {endpoint.namespace!r}: create it first")
    if "retain" not in definition.options:
        raise ValueError(f"channel {channel!r} keeps nothing: create it with retain=echannel_ray.Retention()")
    logs = RemoteLogs(endpoint, channel, definition.incarnation)
    wanted = []
    for address in logs.addresses():
        first, behind = logs.extent(address.log)
        begin = first if isinstance(start, str) else dict(start.marks).get(address.log, 0)  # no mark: it came after
        end = behind if stop is None else min(behind, dict(stop.marks).get(address.log, first))
        if begin < first:
            raise _missing(channel, Missing(address.log, begin, first))
        if begin < end:
            wanted.append(LogRange(address.log, begin, end))
    source = _source(endpoint.namespace, definition, wanted)
    blocks = parallelism if parallelism > 0 else None
    dataset: ray.data.Dataset = read_datasource(source, override_num_blocks=blocks)
    return dataset


def _source(namespace: str, definition: Definition, wanted: Sequence[LogRange]) -> Any:
    """A datasource of Ray Data; its class is made here, since Ray Data takes long to import."""
    from ray.data import Datasource, ReadTask
    from ray.data.block import BlockMetadata

    class EChannelDatasource(Datasource):
        @override
        def estimate_inmemory_data_size(self) -> int | None:
            return None  # logs know their sizes as they are stored

        @override
        def get_read_tasks(
            self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
        ) -> list[Any]:
            return [
                ReadTask(
                    partial(_read, namespace, definition, part),
                    BlockMetadata(part.stop - part.start, None, None, None),
                    per_task_row_limit=per_task_row_limit,
                )
                for part in split(wanted, parallelism)
            ]

    return EChannelDatasource()  # type: ignore[no-untyped-call]


def split(wanted: Sequence[LogRange], parallelism: int) -> list[LogRange]:
    """The parts cut anew into about so many of equal size."""
    total = sum(part.stop - part.start for part in wanted)
    step = max(_LEAST_EVENTS, -(-total // max(1, parallelism)))
    return [
        LogRange(part.log, at, min(at + step, part.stop))
        for part in wanted
        for at in range(part.start, part.stop, step)
    ]


def _read(namespace: str, definition: Definition, part: LogRange) -> Iterator[pa.Table]:
    """The tables of a part; runs in a task."""
    import pyarrow as pa

    known.learn_all(definition.formats)
    logs = RemoteLogs(endpoint_for(namespace), definition.channel, definition.incarnation)
    # An untyped channel has the schema of the columns that were written, if any were.
    schema = schema_of_channel(definition)
    reader = ColumnReader(schema, record_of_channel(definition, schema)) if schema is not None else None
    at = part.start
    while at < part.stop:
        try:
            entries = logs.entries(part.log, at, part.stop, _FETCH_BYTES)
        except Missing as missing:
            raise _missing(definition.channel, missing) from None
        for entry in entries:
            if reader is not None and entry.kind in COLUMNS:
                yield from map(_table, reader.batches(entry, at, part.stop))
            else:
                yield pa.Table.from_pylist([*_rows(entry, at, part.stop)])
        at = entries[-1].next


def _table(batch: pa.RecordBatch) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_batches([batch])


def _rows(entry: Entry, start: int, stop: int) -> Iterator[dict[str, Any]]:
    kind, events = events_of(entry, start, stop)
    if kind:
        raise NotSerialisable("columns were published to an untyped channel: create it with their type", path=None)
    for event in events:
        if isinstance(event, Undecodable):
            raise event.error
        yield event if isinstance(event, dict) else {_ITEM: event}


def _missing(channel: str, missing: Missing) -> EventsMissing:
    last = None if missing.next is None else missing.next - 1
    return EventsMissing(
        f"events {missing.first} to {'?' if last is None else last} of log {missing.log} of channel {channel!r} are "
        'gone: read from "earliest" on, or retain more',
        channel=channel, log=missing.log, first=missing.first, last=last,
    )  # fmt: skip
