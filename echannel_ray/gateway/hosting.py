"""What a gateway asks of the concentrator that it belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from echannel_ray.logs.entries import Chosen, Committed, Place
from echannel_ray.logs.files import Files as Files

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class ChannelInfo:
    """A channel as clients see it."""

    name: str
    schema: pa.Schema | None  # None: it is untyped
    is_retained: bool
    is_on_disk: bool
    log: str = ""  # of the gateway's own node, where what is published here goes


class Host(Protocol):
    """All of it may be called from any thread, and may wait.

    Errors: `errors.EChannelError` (a channel of another type, say), `entries.Missing` where what is to be read is gone,
    `entries.NotStaged` where a commit names what is not there.
    """

    def channel(
        self, name: str, schema: pa.Schema | None = None, retain: Mapping[str, Any] | None = None
    ) -> ChannelInfo:
        """Open a channel. With a schema it is made where there is none, typed by it and with that retention; one that
        is there has to go with the schema (`TypeMismatch`). Without one it has to be there (`LookupError`).
        """

    def schema(self, name: str) -> pa.Schema | None:
        """Of the channel's events, as `read` gives them; None: it is untyped."""

    def publish(self, name: str, batch: pa.RecordBatch) -> None:
        """Publish rows at once; waits while there is no room."""

    def drain(self, name: str) -> None:
        """Wait until what was published here is acknowledged (on a retained channel: logged)."""

    def stage(self, name: str, place: Place, number: int, batch: pa.RecordBatch | Files) -> None:
        """Keep rows until they are committed: entry `number`, from 0, of that place. The same number again is ignored,
        as is what comes for a write that was committed or aborted.
        """

    def commit(self, name: str, write: str, chosen: Sequence[Chosen]) -> Committed:
        """Append what was staged at these places to the log, ordered by partition, all or nothing; forget what else was
        staged for this write. A write that was committed before changes nothing: `repeated`.
        """

    def abort(self, name: str, write: str) -> bool:
        """Forget what was staged for a write, and refuse what still comes; nothing where it was committed (False)."""

    def is_committed(self, name: str, write: str) -> bool:
        """Whether this write was committed."""

    def is_aborted(self, name: str, write: str) -> bool:
        """Whether this write was aborted, or its lease has ended: then it needs another name."""

    def staged_bytes(self, name: str) -> int:
        """What waits for a commit."""

    def offsets(self, name: str) -> dict[str, tuple[int, int]]:
        """Of each log of the channel: the offset of its first event, and that behind its last one."""

    def read(self, name: str, log: str, start: int, stop: int, max_bytes: int) -> tuple[list[pa.RecordBatch], int]:
        """Rows of a log from `start`, up to about so many bytes but at least one batch, none from `stop` on; and the
        offset behind the last of them. Batches have the channel's schema.
        """

    def group(self, name: str, group: str, start: str, lease_seconds: float) -> dict[str, int]:
        """Where a group is in each log. A new one begins at `start` ("earliest" or "latest"). Until the lease ends,
        which each call renews, nothing is forgotten that the group has not acknowledged.
        """

    def acknowledge(self, name: str, group: str, marks: Mapping[str, int], lease_seconds: float) -> None:
        """A group has done with all before these offsets."""
