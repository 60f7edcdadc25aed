"""What a gateway does with each command: the rules, and the backend's answers as bytes and streams."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from echannel_ray import errors
from echannel_ray.gateway import commands
from echannel_ray.gateway.commands import ChannelInfo
from echannel_ray.gateway.counts import Counts
from echannel_ray.gateway.flight import pieces_of
from echannel_ray.logs.files import Files

if TYPE_CHECKING:
    import pyarrow as pa

    from echannel_ray.gateway.backend import GatewayBackend

# Flight reads a batch whole before it can be looked at. What is larger is refused then, since it would be kept.
MAX_BATCH_BYTES: Final = 64 << 20
# A client waits with so many batches at most (`outgoing_batches.MAX_UNACKNOWLEDGED`): this has to be well below that.
ACKNOWLEDGE_EVERY: Final = 4
_READ_BYTES: Final = 1 << 20


class Service:
    """What one gateway's commands do. Any thread calls its methods, after the command's rights were checked."""

    def __init__(self, backend: GatewayBackend, counts: Counts) -> None:
        self._backend = backend
        self._counts = counts

    def take(self, command: commands.Publish | commands.Stage, batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
        """Publish or stage what comes; yields what is to be acknowledged: by number, all before it is done."""
        number = command.first if isinstance(command, commands.Stage) else 0
        acknowledged = number
        for batch in batches:
            self._check(batch)
            if isinstance(command, commands.Stage):
                self._backend.stage(command.channel, command.place, number, batch)
            elif batch.num_rows:
                self._backend.publish(command.channel, batch)
            self._counts.add("in", batch)
            number += 1
            if number - acknowledged >= ACKNOWLEDGE_EVERY:
                acknowledged = number
                yield number
        if isinstance(command, commands.Publish):
            self._backend.drain(command.channel)
        yield number

    @staticmethod
    def _check(batch: pa.RecordBatch) -> None:
        # The buffers are the client's: lengths and offsets inside may point anywhere.
        batch.validate(full=True)
        if batch.nbytes > MAX_BATCH_BYTES:
            raise ValueError(
                f"a batch of {batch.nbytes} bytes came, and at most {MAX_BATCH_BYTES} are taken: send slices of it"
            )

    def schema(self, channel: str) -> pa.Schema:
        """The schema of what is read; `NotSerialisable` where there is none."""
        found = self._backend.schema(channel)
        if found is None:
            raise errors.NotSerialisable(
                f"channel {channel!r} has no type, so its events can't be columns: create it with one, as in "
                "`ec.channel(name, SomeClass)`",
                path=None,
                channel=channel,
            )
        return found

    def read(self, command: commands.Read) -> Iterator[tuple[pa.RecordBatch, int | None]]:
        """Rows of a range in pieces of about a megabyte; with some, the offset behind them."""
        at = command.start
        while at < command.stop:
            batches, behind = self._backend.read(command.channel, command.log, at, command.stop, _READ_BYTES)
            if behind <= at:
                raise ValueError(
                    f"log {command.log} of channel {command.channel!r} ends at {at}, and rows up to {command.stop} "
                    "were asked for: ask for what `offsets` says"
                )
            pieces = list(pieces_of(batches, _READ_BYTES))
            for number, piece in enumerate(pieces, 1):
                self._counts.add("out", piece)
                yield piece, behind if number == len(pieces) else None
            at = behind

    def answer(self, command: commands.Command) -> Any:
        """The backend's answer to any other command, as plain data."""
        backend, name = self._backend, command.channel
        match command:
            case commands.Open():
                return _opened(backend.channel(name, _schema(command.schema), command.retain))
            case commands.StageFiles():
                return self._stage_files(command)
            case commands.Commit():
                return backend.commit(name, command.write, command.chosen)
            case commands.Abort():
                return backend.abort(name, command.write)
            case commands.IsCommitted():
                return backend.outcome(name, command.write) == "committed"
            case commands.IsAborted():
                return backend.outcome(name, command.write) == "aborted"
            case commands.StagedBytes():
                return backend.staged_bytes(name)
            case commands.Offsets():
                return backend.offsets(name)
            case commands.Group():
                return backend.group(name, command.group, command.start, command.lease_seconds)
            case commands.Acknowledge():
                return backend.acknowledge(name, command.group, command.marks, command.lease_seconds)
        raise ValueError(f"a {type(command).__name__} comes with a stream, and is no action")

    def _stage_files(self, command: commands.StageFiles) -> int:
        if len(command.paths) != len(command.rows):
            raise ValueError(f"there are {len(command.paths)} files, and numbers of rows for {len(command.rows)}")
        for number, (path, rows) in enumerate(zip(command.paths, command.rows, strict=True)):
            self._backend.stage(command.channel, command.place, number, Files((path,), (rows,)))
        return len(command.paths)


def _schema(data: bytes | None) -> pa.Schema | None:
    if data is None:
        return None
    import pyarrow as pa

    try:
        schema = pa.ipc.read_schema(pa.py_buffer(data))
        if not schema.names:
            raise ValueError("a channel's type has to have a field: this schema has none")
        return schema
    except (pa.ArrowException, OSError, EOFError) as error:
        raise ValueError(f"this is no Arrow schema: {error}") from None


def _opened(info: ChannelInfo) -> commands.Opened:
    schema = None if info.schema is None else info.schema.serialize().to_pybytes()
    return commands.Opened(info.name, schema, info.is_retained, info.is_on_disk, info.log)
