"""What arrives for a subscription: runs of events, each with the source that it comes from.

A source is a stream of another process, a producer of the same process, or a log. Whoever handles a run asks its source
for all that the three do differently, and tells it what became of the run: once, by `close_run` or by `release`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from typing_extensions import NamedTuple

if TYPE_CHECKING:
    from echannel_ray.core.credit import Reception

AS_GIVEN: Final = -1  # in the place of a kind: objects of this process, which the handler gets as they are


class Reports(Protocol):
    """What a process tells the producers of others: its endpoint does."""

    def run_handled(self, reception: Reception, mark: int, delivery: int, outcome: bytes) -> None:
        """A stream was handled up to `mark`; its last event was perhaps a delivered one."""

    def release(self, reception: Reception, delivery: int) -> None:
        """Let whoever delivered an event wait no longer: nobody handles it."""


class Source(Protocol):
    """Where runs come from, and who is told what became of them."""

    @property
    def producer(self) -> str:
        """Who published the events, as messages and gaps name it."""

    def position(self, run: Arrival[Source], count: int) -> object:
        """Where to go on behind the first so many events of a run; None where nothing can be read again."""

    def close_run(self, run: Arrival[Source], outcome: bytes, reports: Reports) -> None:
        """Note that all of a run is done with. The outcome says what went wrong with its last event, or nothing."""

    def release(self, run: Arrival[Source], handled: int, reports: Reports) -> None:
        """Note that nobody will handle a run but for its first events: whoever delivered it need not wait."""


SourceT = TypeVar("SourceT", bound=Source, covariant=True)


class Arrival(NamedTuple, Generic[SourceT]):
    """A run of events for one subscription, in order. A gap has no events: it stands for `first` to `gap_last`."""

    source: SourceT
    first: int  # the sequence number of the first event
    events: Any  # a list, or a `Block`
    mark: int  # the run's place at its source, which alone reads it
    size_bytes: int
    redelivered: bool
    delivery: int  # under which somebody waits for the outcome of the last event; 0: nobody does
    gap_last: int = 0
    published_at: float = 0.0
    version: int = 0  # of the handler that is to get them
    kind: int = 0
