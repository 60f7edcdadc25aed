"""What a gateway asks, for both of its ports: done with the logs of this node, those of the others, and producers."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import typing_extensions

from echannel_ray.client.channels import encoder_of, fields_of, look_up, open_typed, retains
from echannel_ray.client.production import produce
from echannel_ray.core.messages import Definition, LogAddress
from echannel_ray.endpoint.definitions import keep_definition, open_channel
from echannel_ray.endpoint.process_endpoint import ProcessEndpoint
from echannel_ray.endpoint.record_codec import Encoded, RecordEncoder, open_more
from echannel_ray.gateway.commands import ChannelInfo
from echannel_ray.gateway.event_encoder import EventEncoder, entries_of, plainly_encoded
from echannel_ray.gateway.feeds import DerivedChannel, Feed, Feeds
from echannel_ray.ids import check_channel_name
from echannel_ray.logs.columns import ColumnReader, ColumnWriter, record_of_channel, schema_of_channel
from echannel_ray.logs.entries import Chosen, Committed, Entry, Missing, NewEntry, WriteAttempt
from echannel_ray.logs.files import Files, file_entry
from echannel_ray.options import retention_from
from echannel_ray.producers.publisher import Publisher
from echannel_ray.records import known
from echannel_ray.retained import log_calls
from echannel_ray.retained.hosted_log import HostedLog
from echannel_ray.retained.remote import RemoteLogs
from echannel_ray.schemas import schema as schemas
from echannel_ray.schemas import types
from echannel_ray.schemas.type_texts import record_named
from echannel_ray.transport.connection import Connection

if TYPE_CHECKING:
    import pyarrow as pa

# A write that nobody has heard of for so long is given up, and what was staged for it.
LEASE_SECONDS: Final = 3600.0
_MOST_SCHEMAS: Final = 64


class _KnownLogs(RemoteLogs):
    """Logs of a channel in which the log host takes part: it is told where they are, if a little late."""

    @typing_extensions.override
    def address_of(self, log: str) -> LogAddress | None:
        with self._endpoint.lock:
            membership = self._endpoint.memberships.get(self._channel)
        if membership is not None and membership.incarnation == self._incarnation and not membership.deleted:
            for address in membership.logs:
                if address.log == log:
                    return address
        return super().address_of(log)


class _Opened:
    """A channel that clients have opened, as the backend knows it."""

    def __init__(self, endpoint: ProcessEndpoint, definition: Definition) -> None:
        self.definition = definition
        self.logs = _KnownLogs(endpoint, definition.channel, definition.incarnation)
        self.publisher: Publisher | None = None
        self.records: EventEncoder | None = None  # of events one by one
        self._writers: dict[bytes, ColumnWriter] = {}  # by the schemas that came

    @cached_property
    def schema(self) -> pa.Schema | None:
        """Of record batches; it is looked at when there are some, since not every type has columns."""
        return schema_of_channel(self.definition)

    def revised(self, definition: Definition) -> None:
        """Take in a definition to which formats or fields were added."""
        self.definition = definition
        vars(self).pop("schema", None)  # it is looked at again

    def fitted(self, schema: pa.Schema) -> pa.Schema:
        """The schema without its "may be null" where the channel's fields may not be: that is a matter of each row."""
        import pyarrow as pa  # not above: only who has a schema needs it

        type_schema = self.definition.type_schema
        if type_schema is None:
            return schema
        record = types.record_of(type_schema)
        certain = {field.name for field in record.fields if not isinstance(field.type, schemas.Optional)}
        return pa.schema([field.remove_metadata() if field.name in certain else field for field in schema])

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


class GatewayBackend:
    """What one gateway does, in the process of its concentrator. Any thread may call it, and may have to wait.

    Errors: `errors.EChannelError` (a channel of another type, say), `LookupError`, `ValueError`, `entries.Missing`
    where what is to be read is gone, `entries.NotStaged` where a commit names what is not there.
    """

    def __init__(
        self,
        endpoint: ProcessEndpoint,
        hosted_log: Callable[[str], HostedLog],
        connect: Callable[[ProcessEndpoint], Connection],
    ) -> None:
        """`hosted_log` opens a channel's log at this node, `connect` gives another link to its concentrator."""
        self._endpoint = endpoint
        self._hosted_log = hosted_log
        self._feeds = Feeds(endpoint.namespace, endpoint.node, connect)
        self._opened: dict[str, _Opened] = {}
        self._lock = threading.Lock()

    # ---- channels ----

    def channel(
        self, name: str, schema: pa.Schema | None = None, retain: Mapping[str, Any] | None = None
    ) -> ChannelInfo:
        """Open a channel. With a schema it is made where there is none, typed by it and with that retention; one that
        is there has to go with the schema (`TypeMismatch`). Without one it has to be there (`LookupError`).
        """
        definition = look_up(self._endpoint, name)
        # An untyped channel takes records of any type.
        declares = schema is not None and (definition is None or definition.type_schema is not None)
        if schema is not None:
            if definition is not None:
                schema = self._take(definition).fitted(schema)
            definition = open_typed(self._endpoint, name, schema, retain=retention_from(retain), declares=declares)
        if definition is None:
            raise _missing(name)
        opened = self._known(definition)
        if declares:
            types.check_producer(name, definition.type_schema, schema)
        elif schema is not None:
            opened.schema = schema
        retention = definition.options.get("retain")
        log = "" if retention is None else self._hosted_log(name).store.log
        return ChannelInfo(name, opened.schema, retention is not None, bool(retention and retention["disk"]), log)

    def _take(self, definition: Definition) -> _Opened:
        with self._lock:
            opened = self._opened.get(definition.channel)
            if opened is None or opened.definition.incarnation != definition.incarnation:
                opened = self._opened[definition.channel] = _Opened(self._endpoint, definition)
            elif opened.definition.revision < definition.revision:
                opened.revised(definition)
            return opened

    def _found(self, name: str) -> _Opened:
        opened = self._opened.get(name)
        if opened is None or self._is_former(opened.definition):
            definition = look_up(self._endpoint, name)
            if definition is None:
                raise _missing(name)
            opened = self._known(definition)
        return opened

    def _known(self, definition: Definition) -> _Opened:
        return self._take(keep_definition(self._endpoint, definition))

    def _is_former(self, definition: Definition) -> bool:
        """Whether the channel was deleted since."""
        with self._endpoint.lock:
            membership = self._endpoint.memberships.get(definition.channel)
        return membership is not None and (membership.deleted or membership.incarnation != definition.incarnation)

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
        if writer.format.token not in opened.definition.formats:
            opened.definition = open_more(self._endpoint, opened.definition, None, writer.format)
            opened.schema = opened.schema or schema_of_channel(opened.definition)

    def schema(self, name: str) -> pa.Schema | None:
        """The schema of the channel's events, as `read` gives them; None: it is untyped."""
        opened = self._found(name)
        if opened.schema is None:
            opened.schema = schema_of_channel(self._refreshed(opened))
        return opened.schema

    def publish(self, name: str, batch: pa.RecordBatch) -> None:
        """Publish rows at once; waits while there is no room."""
        opened = self._found(name)
        if retains(opened.definition):
            self._hosted_log(name).append([self._entry(name, batch)])
        else:
            self._publisher(opened).publish_many(opened.writer(batch.schema).fitting(batch))

    def _publisher(self, opened: _Opened) -> Publisher:
        with self._lock:
            if opened.publisher is not None and not opened.publisher.stream.deleted:
                return opened.publisher
            # The concentrator has to know the channel, to report our producer to a manager that was restarted.
            definition = self._refreshed(opened)
            opened.publisher = produce(self._endpoint, definition, encoder_of(self._endpoint, definition))
            return opened.publisher

    def drain(self, name: str) -> None:
        """Wait until what was published here is acknowledged (on a retained channel: logged)."""
        publisher = self._found(name).publisher
        if publisher is not None:
            publisher.drain()

    def stage(self, name: str, place: WriteAttempt, number: int, batch: pa.RecordBatch | Files) -> None:
        """Keep rows until they are committed: entry `number`, from 0, of that place. The same number again is ignored,
        as is what comes for a write that was committed or aborted.
        """
        self._hosted_log(name).store.stage(place, number, self._entry(name, batch), LEASE_SECONDS, time.time())

    def commit(self, name: str, write: str, chosen: Sequence[Chosen]) -> Committed:
        """Append what was staged at these places to the log, ordered by partition, all or nothing; forget what else was
        staged for this write. A write that was committed before changes nothing: `repeated`.
        """
        return self._hosted_log(name).commit(write, chosen)

    def abort(self, name: str, write: str) -> bool:
        """Forget what was staged for a write, and refuse what still comes; nothing where it was committed (False)."""
        return self._hosted_log(name).store.abort(write, time.time())

    def outcome(self, name: str, write: str) -> str | None:
        """What became of a write, "committed" or "aborted" (by the end of its lease, too); None: nothing yet."""
        return self._hosted_log(name).store.outcome(write)

    def staged_bytes(self, name: str) -> int:
        """How many bytes wait for a commit."""
        return self._hosted_log(name).store.staged_bytes

    # ---- what goes out ----

    def offsets(self, name: str) -> dict[str, tuple[int, int]]:
        """The offset of the first event of each log of the channel, and that behind its last one."""
        self._hosted_log(name)  # what was published by clients only has no log before
        logs = self._found(name).logs
        return {address.log: logs.extent(address.log) for address in logs.addresses()}

    def read(self, name: str, log: str, start: int, stop: int, max_bytes: int) -> tuple[list[pa.RecordBatch], int]:
        """Rows of a log from `start`, up to about so many bytes but at least one batch, none from `stop` on; and the
        offset behind the last of them. Batches have the channel's schema.
        """
        opened = self._found(name)
        schema = self.schema(name)
        if schema is None:
            return [], start
        reader = ColumnReader(
            schema, record_of_channel(opened.definition, schema), lambda token: self._format(opened, token)
        )
        return reader.taken(log, self._entries(name, log, start, stop, max_bytes), start, stop, max_bytes)

    def _entries(self, name: str, log: str, start: int, stop: int, max_bytes: int) -> list[Entry]:
        store = self._hosted_log(name).store
        if store.log == log:
            return store.read(start, max_bytes, stop)
        return self._found(name).logs.entries(log, start, stop, max_bytes)

    def _format(self, opened: _Opened, token: int) -> schemas.Format | None:
        if known.known(token) is None:
            known.learn_all(self._refreshed(opened).formats)
        return known.known(token)

    def _refreshed(self, opened: _Opened) -> Definition:
        opened.definition = open_more(self._endpoint, opened.definition, None)
        return opened.definition

    # ---- groups ----

    def group(self, name: str, group: str, start: str, lease_seconds: float) -> dict[str, int]:
        """Where a group is in each log. A new one begins at `start` ("earliest" or "latest"). Until the lease ends,
        which each call renews, nothing is forgotten that the group has not acknowledged.
        """
        self._hosted_log(name)
        logs = self._found(name).logs
        return {
            address.log: logs.ask(address.log, log_calls.Hold(name, address.log, group, start, lease_seconds)).start
            for address in logs.addresses()
        }

    def acknowledge(self, name: str, group: str, marks: Mapping[str, int], lease_seconds: float) -> None:
        """Note that a group has done with all before these offsets, and renew its lease."""
        logs = self._found(name).logs
        here = {address.log for address in logs.addresses()}
        for log in marks.keys() & here:
            with contextlib.suppress(Missing):  # it is lost: nothing is held there any more
                logs.ask(log, log_calls.Hold(name, log, group, marks[log], lease_seconds))

    # ---- events ----

    def open(self, name: str, fields: Mapping[str, str] | None) -> dict[str, Any]:
        """What clients are told of a channel. With fields it is made where there is none, with these (or untyped,
        where there are none). `LookupError` where there is no such channel, `TypeMismatch` where it is another one.
        """
        check_channel_name(name)
        if fields is None:
            definition = self._found(name).definition
        else:
            declared = types.described(record_named(fields)) if fields else None
            definition = self._known(open_channel(self._endpoint, name, declared=declared)).definition
        return {"channel": name, "fields": fields_of(definition), "is_retained": retains(definition)}

    def publish_events(self, name: str, events: Sequence[Any]) -> None:
        """Publish plain data; waits for room. All are looked at first: `NotSerialisable` where one is no event here."""
        opened = self._found(name)
        encoded = self._encode(opened, events)  # all of them before the first is published
        if retains(opened.definition):
            self._hosted_log(name).append(entries_of(encoded, time.time()))
            return
        publisher = self._publisher(opened)
        for event, each in zip(events, encoded, strict=True):
            publisher.publish_encoded(event, None, each)

    def _encode(self, opened: _Opened, events: Sequence[Any]) -> list[Encoded]:
        definition = opened.definition
        if definition.type_schema is None:
            return [plainly_encoded(event) for event in events]
        if opened.records is None:
            opened.records = EventEncoder(RecordEncoder(self._endpoint, definition, None, False))
        return [opened.records.encode(event) for event in events]

    def subscribe(
        self, name: str, derived: DerivedChannel | None, group: str | None, start: str | None, wake: Callable[[], None]
    ) -> Feed:
        """Consume a channel, or what is derived from it. `wake` is called, by any thread, when events are there."""
        return self._feeds.subscribe(self._found(name).definition, derived, group, start, wake)

    def derive(
        self, name: str, source: str, params: Mapping[str, bool | int | float], output: Mapping[str, str] | None
    ) -> DerivedChannel:
        """A derived channel by the text of an E-code program; `ModulatorRefused` says what is wrong with it."""
        return self._feeds.derive(self._found(name).definition, source, params, output)

    def close(self) -> None:
        """End all subscriptions, and let go whoever waits for a log host that is away."""
        self._feeds.close()
        for opened in self._opened.values():
            opened.logs.close()


def _missing(name: str) -> LookupError:
    return LookupError(f"there is no channel {name!r}: create it with a type, or write to it first")
