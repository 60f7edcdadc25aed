"""What a gateway asks, done with the logs of this node, those of the others, and ordinary producers."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from echannel_ray.gateway.hosting import ChannelInfo, Files
from echannel_ray.logs.columns import ColumnReader, ColumnWriter, record_of_channel, schema_of_channel
from echannel_ray.logs.entries import Chosen, Committed, Entry, Missing, NewEntry, Place
from echannel_ray.logs.files import file_entry
from echannel_ray.options import as_dict, packing_of, retention_from
from echannel_ray.protocol.messages import (
    Definition,
    LogAddress,
    LookUpChannel,
    OpenChannel,
    RegisterProducer,
)
from echannel_ray.records import known
from echannel_ray.records.writing import format_of
from echannel_ray.retained import calls
from echannel_ray.retained.keeper import Keeper, Kept
from echannel_ray.retained.remote import RemoteLogs
from echannel_ray.runtime.endpoint import Endpoint
from echannel_ray.runtime.publisher import Publisher
from echannel_ray.runtime.typed import RecordEncoder
from echannel_ray.schemas import schema as schemas
from echannel_ray.schemas import types

if TYPE_CHECKING:
    import pyarrow as pa

# A write that nobody has heard of for so long is given up, and what was staged for it.
LEASE_SECONDS: Final = 3600.0
_WINDOW_BYTES: Final = 8 << 20
_MOST_SCHEMAS: Final = 64


class _KnownLogs(RemoteLogs):
    """Logs of a channel in which the keeper takes part: it is told where they are."""

    def addresses(self) -> tuple[LogAddress, ...]:
        """See `RemoteLogs`."""
        with self._endpoint.lock:
            membership = self._endpoint.memberships.get(self._channel)
        if membership is None or membership.incarnation != self._incarnation or membership.deleted:
            return super().addresses()
        return membership.logs


class _Opened:
    """A channel that clients have opened."""

    def __init__(self, endpoint: Endpoint, definition: Definition) -> None:
        self.definition = definition
        self.logs = _KnownLogs(endpoint, definition.channel, definition.incarnation)
        self.schema = schema_of_channel(definition)
        self.publisher: Publisher | None = None
        self._writers: dict[bytes, ColumnWriter] = {}  # by the schemas that came

    def fitted(self, schema: pa.Schema) -> pa.Schema:
        """The schema without its "may be null" where the channel's fields may not be: that is a matter of each row."""
        type_schema = self.definition.type_schema
        if type_schema is None:
            return schema
        record = types.record_of(type_schema)
        certain = {field.name for field in record.fields if not isinstance(field.type, schemas.Optional)}
        return pyarrow().schema([field.remove_metadata() if field.name in certain else field for field in schema])

    def writer(self, schema: pa.Schema) -> ColumnWriter:
        """What makes entries of batches with this schema; `TypeMismatch` where these are no records of the channel."""
        key = schema.serialize().to_pybytes()
        writer = self._writers.get(key)
        if writer is None:
            fitted = self.fitted(schema)
            if self.definition.type_schema is not None:
                types.check_producer(self.definition.channel, self.definition.type_schema, fitted)
            writer = self._writers[key] = ColumnWriter(fitted)
            if len(self._writers) > _MOST_SCHEMAS:
                del self._writers[next(iter(self._writers))]
        return writer


class KeeperHost:
    """What a gateway asks of its concentrator: see `gateway.hosting.Host`."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._endpoint = keeper.endpoint
        self._opened: dict[str, _Opened] = {}
        self._lock = threading.Lock()

    # ---- channels ----

    def channel(
        self, name: str, schema: pa.Schema | None = None, retain: Mapping[str, Any] | None = None
    ) -> ChannelInfo:
        """See `Host`."""
        there = self._definition(name)
        if there is None and schema is None:
            raise LookupError(f"there is no channel {name!r}: create it with a type, or write to it first")
        if there is not None:
            opened = self._take(there)
            if schema is not None and there.type_schema is not None:
                schema = opened.fitted(schema)
        # An untyped channel takes records of any type.
        declares = schema is not None and (there is None or there.type_schema is not None)
        definition = there
        if schema is not None:
            declared = types.describe(schema) if declares else None
            options = as_dict(None, retention_from(retain))
            formats = known.listed(format_of(schema))
            definition = self._endpoint.requests.ask(OpenChannel(name, declared, options, formats))
        assert definition is not None
        self._endpoint.definitions[name] = definition
        known.learn_all(definition.formats)
        opened = self._take(definition)
        if declares:
            types.check_producer(name, definition.type_schema, schema)
        elif schema is not None:
            opened.schema = schema
        retention = definition.options.get("retain")
        log = "" if retention is None else self._kept(name).shelf.store.log
        return ChannelInfo(name, opened.schema, retention is not None, bool(retention and retention["disk"]), log)

    def _definition(self, name: str) -> Definition | None:
        found: Definition | None = self._endpoint.requests.ask(LookUpChannel(name))
        return found

    def _take(self, definition: Definition) -> _Opened:
        with self._lock:
            opened = self._opened.get(definition.channel)
            if opened is None or opened.definition.incarnation != definition.incarnation:
                opened = self._opened[definition.channel] = _Opened(self._endpoint, definition)
            elif opened.definition.revision < definition.revision:
                opened.definition = definition
                opened.schema = schema_of_channel(definition)
            return opened

    def _found(self, name: str) -> _Opened:
        opened = self._opened.get(name)
        if opened is None or self._is_former(opened.definition):
            self.channel(name)
            opened = self._opened[name]
        return opened

    def _is_former(self, definition: Definition) -> bool:
        """Whether the channel was deleted since."""
        with self._endpoint.lock:
            membership = self._endpoint.memberships.get(definition.channel)
        return membership is not None and (membership.deleted or membership.incarnation != definition.incarnation)

    def _kept(self, name: str) -> Kept:
        return self._keeper.kept(name)

    # ---- what comes in ----

    def _entry(self, name: str, rows: pa.RecordBatch | Files) -> NewEntry:
        if isinstance(rows, Files):
            return file_entry(rows, "", 0, time.time())
        opened = self._found(name)
        writer = opened.writer(rows.schema)
        self._make_known(opened, writer)
        return writer.entry(rows, "", 0, time.time())

    def _make_known(self, opened: _Opened, writer: ColumnWriter) -> None:
        """Whoever gets such records has to be able to ask for their format."""
        definition = opened.definition
        if writer.format.token not in definition.formats:
            listed = known.listed(writer.format)
            request = OpenChannel(definition.channel, None, definition.options, listed, definition.incarnation)
            opened.definition = self._endpoint.requests.ask(request)
            opened.schema = opened.schema or schema_of_channel(opened.definition)

    def schema(self, name: str) -> pa.Schema | None:
        """See `Host`."""
        opened = self._found(name)
        if opened.schema is None:
            opened.schema = schema_of_channel(self._refreshed(opened))
        return opened.schema

    def publish(self, name: str, batch: pa.RecordBatch) -> None:
        """See `Host`."""
        opened = self._found(name)
        if "retain" in opened.definition.options:
            kept, entry = self._kept(name), self._entry(name, batch)
            kept.shelf.store.append([entry])
            kept.producer.client_events += entry.count
            kept.producer.client_bytes += len(entry.data)
        else:
            self._publisher(opened).publish_many(opened.writer(batch.schema).fitting(batch))

    def _publisher(self, opened: _Opened) -> Publisher:
        with self._lock:
            if opened.publisher is not None and not opened.publisher.stream.deleted:
                return opened.publisher
            # The concentrator has to know the channel, to report our producer to a manager that was restarted.
            definition = self._refreshed(opened)
            endpoint = self._endpoint
            records = RecordEncoder(endpoint, definition, None, False) if definition.type_schema else None
            publisher = Publisher(
                endpoint, definition.channel, definition.incarnation, "block", _WINDOW_BYTES,
                packing_of(definition.options), records=records,
            )  # fmt: skip
            registered = RegisterProducer(definition.channel, publisher.stream.number, definition.incarnation)
            endpoint.installer.install(endpoint.requests.ask(registered))
            opened.publisher = publisher
            return publisher

    def drain(self, name: str) -> None:
        """See `Host`."""
        publisher = self._found(name).publisher
        if publisher is not None:
            publisher.drain()

    def stage(self, name: str, place: Place, number: int, batch: pa.RecordBatch | Files) -> None:
        """See `Host`."""
        store = self._kept(name).shelf.store
        store.stage(place, number, self._entry(name, batch), LEASE_SECONDS, time.time())

    def commit(self, name: str, write: str, chosen: Sequence[Chosen]) -> Committed:
        """See `Host`."""
        kept = self._kept(name)
        done = kept.shelf.store.commit(write, chosen, time.time())
        if not done.repeated:
            kept.producer.client_events += done.next - done.first
            kept.producer.client_bytes += done.size_bytes
        return done

    def abort(self, name: str, write: str) -> bool:
        """See `Host`."""
        return self._kept(name).shelf.store.abort(write, time.time())

    def is_committed(self, name: str, write: str) -> bool:
        """See `Host`."""
        return self._kept(name).shelf.store.outcome(write) == "committed"

    def is_aborted(self, name: str, write: str) -> bool:
        """See `Host`."""
        return self._kept(name).shelf.store.outcome(write) == "aborted"

    def staged_bytes(self, name: str) -> int:
        """See `Host`."""
        return self._kept(name).shelf.store.staged_bytes

    # ---- what goes out ----

    def offsets(self, name: str) -> dict[str, tuple[int, int]]:
        """See `Host`."""
        self._kept(name)  # what was published by clients only has no log before
        logs = self._found(name).logs
        return {address.log: logs.extent(address.log) for address in logs.addresses()}

    def read(self, name: str, log: str, start: int, stop: int, max_bytes: int) -> tuple[list[pa.RecordBatch], int]:
        """See `Host`."""
        opened = self._found(name)
        schema = self.schema(name)
        if schema is None:
            return [], start
        reader = ColumnReader(
            schema, record_of_channel(opened.definition, schema), lambda token: self._format(opened, token)
        )
        return reader.taken(log, self._entries(name, log, start, stop, max_bytes), start, stop, max_bytes)

    def _entries(self, name: str, log: str, start: int, stop: int, max_bytes: int) -> list[Entry]:
        kept = self._kept(name)
        if kept.shelf.store.log == log:
            return kept.shelf.store.read(start, max_bytes, stop)
        return self._found(name).logs.entries(log, start, stop, max_bytes)

    def _format(self, opened: _Opened, token: int) -> schemas.Format | None:
        if known.known(token) is None:
            known.learn_all(self._refreshed(opened).formats)
        return known.known(token)

    def _refreshed(self, opened: _Opened) -> Definition:
        definition = opened.definition
        request = OpenChannel(definition.channel, None, definition.options, {}, definition.incarnation)
        opened.definition = self._endpoint.requests.ask(request)
        return opened.definition

    # ---- groups ----

    def group(self, name: str, group: str, start: str, lease_seconds: float) -> dict[str, int]:
        """See `Host`."""
        self._kept(name)
        logs = self._found(name).logs
        return {
            address.log: logs.ask(address.log, calls.Hold(name, address.log, group, start, lease_seconds)).start
            for address in logs.addresses()
        }

    def acknowledge(self, name: str, group: str, marks: Mapping[str, int], lease_seconds: float) -> None:
        """See `Host`."""
        logs = self._found(name).logs
        here = {address.log for address in logs.addresses()}
        for log in marks.keys() & here:
            with contextlib.suppress(Missing):  # it is lost: nothing is held there any more
                logs.ask(log, calls.Hold(name, log, group, marks[log], lease_seconds))

    def close(self) -> None:
        """End: who waits for a keeper that is away is let go."""
        for opened in self._opened.values():
            opened.logs.close()


def pyarrow() -> Any:
    """Imported by the first gateway: a concentrator without one does without it."""
    import pyarrow as pa

    return pa
