"""A gateway's client: what programs outside the cluster use to write to channels and to read from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from echannel_ray import errors
from echannel_ray.gateway import commands
from echannel_ray.gateway.address import Endpoint
from echannel_ray.gateway.client_connection import ClientConnection
from echannel_ray.gateway.commands import ChannelInfo
from echannel_ray.gateway.flight import flight
from echannel_ray.gateway.outgoing_batches import OutgoingBatches
from echannel_ray.gateway.patience import Patience
from echannel_ray.logs.entries import Chosen, Committed, WriteAttempt
from echannel_ray.logs.files import Files

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
_MAX_BATCH_BYTES: Final = 1 << 20


class GatewayClient:
    """A client of one gateway, for any number of threads; also a context manager. It may be used across a fork.

    All but `publish` may be repeated without harm, and is: a gateway that went away has `patience_seconds` to come
    back. Then calls raise `Disconnected`. So does `publish` at once, unless it may repeat rows.
    """

    def __init__(self, endpoint: str | Endpoint, patience_seconds: float = 30.0) -> None:
        self.endpoint = endpoint if isinstance(endpoint, Endpoint) else Endpoint.parse(endpoint)
        self._connection = ClientConnection(self.endpoint)
        self._patience_seconds = patience_seconds

    def __enter__(self) -> GatewayClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; calls in progress go on, and there will be no others."""
        self._connection.close()

    def channel(
        self, name: str, schema: pa.Schema | None = None, retain: Mapping[str, Any] | None = None
    ) -> ChannelInfo:
        """Open a channel; with a schema it is made where there is none, typed by it and with that retention."""
        data = None if schema is None else schema.serialize().to_pybytes()
        asked = commands.Open(name, data, None if retain is None else dict(retain))
        opened = self._ask(asked, commands.Opened)
        return ChannelInfo(opened.name, _schema(opened.schema), opened.is_retained, opened.is_on_disk, opened.log)

    def publish(self, name: str, batches: Iterable[pa.RecordBatch], may_repeat: bool = False) -> int:
        """Publish rows at once, and wait until they are acknowledged; how many there were.

        After `Disconnected` an unknown part of them was published: only the caller can know whether to do it again.
        With `may_repeat`, what was not acknowledged is sent again, so rows may come twice after a restart. The channel
        should be retained on disk then: elsewhere what was acknowledged may have gone with the gateway.
        """
        outgoing = OutgoingBatches(batches, _MAX_BATCH_BYTES)
        patience = Patience(self._patience_seconds if may_repeat else 0)
        self._put_all(outgoing, lambda first: commands.Publish(name), patience)
        return outgoing.rows

    def stage(
        self, name: str, place: WriteAttempt, batches: Iterable[pa.RecordBatch], max_batch_bytes: int = _MAX_BATCH_BYTES
    ) -> int:
        """Keep rows at the gateway, safely when this returns, until a commit: how many entries, for `Chosen`."""
        outgoing = OutgoingBatches(batches, max_batch_bytes)
        patience = Patience(self._patience_seconds)
        self._put_all(outgoing, lambda first: commands.Stage(name, place, first), patience)
        return outgoing.acknowledged

    def stage_files(self, name: str, place: WriteAttempt, files: Files) -> int:
        """Stage rows in Parquet files, which consumers have to be able to read where they are."""
        return self._ask(commands.StageFiles(name, place, files.paths, files.rows), int)

    def commit(self, name: str, write: str, chosen: Sequence[Chosen]) -> Committed:
        """Append what was staged at these places to the log, all or nothing and once."""
        return self._ask(commands.Commit(name, write, tuple(chosen)), Committed)

    def abort(self, name: str, write: str) -> bool:
        """Forget what was staged for a write, and refuse what still comes; False where it was committed."""
        return self._ask(commands.Abort(name, write), bool)

    def is_committed(self, name: str, write: str) -> bool:
        """Whether this write was committed."""
        return self._ask(commands.IsCommitted(name, write), bool)

    def is_aborted(self, name: str, write: str) -> bool:
        """Whether this write was aborted, or its lease has ended: then it needs another name."""
        return self._ask(commands.IsAborted(name, write), bool)

    def staged_bytes(self, name: str) -> int:
        """How many bytes wait for a commit."""
        return self._ask(commands.StagedBytes(name), int)

    def offsets(self, name: str) -> dict[str, tuple[int, int]]:
        """The offset of the first event of each log of the channel, and that behind its last one."""
        return self._ask(commands.Offsets(name), dict[str, tuple[int, int]])

    def read(self, name: str, log: str, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """The rows of a range of a log, in batches of about a megabyte."""
        patience = Patience(self._patience_seconds)
        at, seen = start, 0  # all before `at` was yielded, and so many rows from there
        while at < stop:
            skip = seen
            try:
                for batch, behind in self._get(commands.Read(name, log, at, stop)):
                    patience.renew()
                    rest = batch.slice(skip)
                    skip -= batch.num_rows - rest.num_rows
                    seen += rest.num_rows
                    if behind is not None:
                        at, seen, skip = behind, 0, 0
                    if rest.num_rows:
                        yield rest
                return
            except errors.Disconnected as error:
                patience.wait(error)

    def group(self, name: str, group: str, start: str, lease_seconds: float) -> dict[str, int]:
        """Where a group is in each log; a new one begins at `start` ("earliest" or "latest"). Until the lease ends,
        which each call renews, nothing is forgotten that the group has not acknowledged.
        """
        return self._ask(commands.Group(name, group, start, lease_seconds), dict[str, int])

    def acknowledge(self, name: str, group: str, marks: Mapping[str, int], lease_seconds: float) -> None:
        """Tell that a group has done with all before these offsets."""
        self._ask(commands.Acknowledge(name, group, dict(marks), lease_seconds), type(None))

    def _ask(self, command: commands.Command, answer: type[T]) -> T:
        fl = flight()
        patience = Patience(self._patience_seconds)
        action = fl.Action(commands.ACTION, commands.encode(command))
        while True:
            try:
                with self._connection.call() as caller:
                    (result,) = caller.client.do_action(action, caller.options)
                return msgspec.json.decode(result.body.to_pybytes(), type=answer)
            except errors.Disconnected as error:
                patience.wait(error)

    def _put_all(
        self, outgoing: OutgoingBatches, command: Callable[[int], commands.Publish | commands.Stage], patience: Patience
    ) -> None:
        """Send all, on streams that begin with the command for the number of their first batch."""
        while outgoing.schema is not None:
            first = outgoing.acknowledged
            try:
                self._put(command(first), outgoing)
            except errors.Disconnected as error:
                if outgoing.acknowledged > first:
                    patience.renew()
                patience.wait(error)

    def _put(self, command: commands.Publish | commands.Stage, outgoing: OutgoingBatches) -> None:
        descriptor = flight().FlightDescriptor.for_command(commands.encode(command))
        # What is staged has numbers of its own; what is published is counted anew on each stream.
        counted_from = 0 if isinstance(command, commands.Stage) else outgoing.acknowledged
        with self._connection.call() as caller:
            writer, reader = caller.client.do_put(descriptor, outgoing.schema, caller.options)
            outgoing.send(writer, reader, counted_from)
        if not outgoing.is_done:
            raise errors.Disconnected("the gateway ended a stream before it had acknowledged all: call again")

    def _get(self, command: commands.Read) -> Iterator[tuple[pa.RecordBatch, int | None]]:
        ticket = flight().Ticket(commands.encode(command))
        with self._connection.call() as caller:
            reader = caller.client.do_get(ticket, caller.options)
            try:
                for chunk in reader:
                    behind = chunk.app_metadata
                    yield chunk.data, None if behind is None else int(behind.to_pybytes())
            finally:
                reader.cancel()  # where the caller wants no more of it


def _schema(data: bytes | None) -> pa.Schema | None:
    import pyarrow as pa

    return None if data is None else pa.ipc.read_schema(pa.py_buffer(data))
