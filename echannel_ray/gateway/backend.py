"""What a gateway asks of the concentrator that it belongs to, for both of its ports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from echannel_ray.logs.entries import Chosen, Committed, Place
from echannel_ray.logs.files import Files as Files

if TYPE_CHECKING:
    import pyarrow as pa

    from echannel_ray.runtime.mailbox import Gap, Message


@dataclass(frozen=True)
class ChannelInfo:
    """A channel as clients see it."""

    name: str
    schema: pa.Schema | None  # None: it is untyped
    is_retained: bool
    is_on_disk: bool
    log: str = ""  # of the gateway's own node, where what is published here goes


@dataclass(frozen=True)
class EventChannelInfo:
    """A channel as clients see it."""

    channel: str
    fields: dict[str, str] | None  # names and types; None: it is untyped
    is_retained: bool


class FeedEnded(Exception):
    """Nothing more comes of a subscription."""


class Feed(Protocol):
    """The events of one subscription."""

    def take(self) -> Message | Gap | None:
        """The next one, if there is one. What is told in the place of events is raised; and `FeedEnded` at the end."""

    def settle(self, events: int) -> None:
        """A member of a group has handled so many more; what it has not when this is closed goes to another."""

    def close(self) -> None:
        """End it; it may wait."""


class Derived(Protocol):
    """A derived channel, for as long as it is held."""

    @property
    def name(self) -> str:
        """As `EventChannel.name`."""

    @property
    def parent(self) -> str:
        """The channel that it is derived from."""

    @property
    def fields(self) -> dict[str, str] | None:
        """Of its events."""

    def close(self) -> None:
        """Hold it no more; it may wait."""


class GatewayBackend(Protocol):
    """One per gateway. All of it may be called from any thread, and may wait.

    Errors: `errors.EChannelError` (a channel of another type, say), `LookupError`, `ValueError`, `entries.Missing`
    where what is to be read is gone, `entries.NotStaged` where a commit names what is not there.
    """

    # ---- record batches ----

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

    # ---- events ----

    def open(self, name: str, fields: Mapping[str, str] | None) -> EventChannelInfo:
        """A channel; with fields it is made where there is none, with these (or untyped, where there are none).
        `LookupError` where there is no such channel, `TypeMismatch` where it is another one.
        """

    def publish_events(self, name: str, events: Sequence[Any]) -> None:
        """Publish plain data; waits while there is no room. `NotSerialisable` where one is no event of the channel:
        those before it are published.
        """

    def subscribe(
        self, name: str, derived: Derived | None, group: str | None, start: str | None, wake: Callable[[], None]
    ) -> Feed:
        """Consume a channel, or what is derived from it. `wake` is called, by any thread, when there is something to
        take; it does not wait.
        """

    def derive(
        self, name: str, source: str, params: Mapping[str, bool | int | float], output: Mapping[str, str] | None
    ) -> Derived:
        """A derived channel by the text of an E-code program; `ModulatorRefused` says what is wrong with it."""
