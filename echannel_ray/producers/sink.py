"""Where a producer's events go: to consumers (`consumer_sink`), or into a log (`retained.log_sink`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from echannel_ray.compilation import mypyc_attr
from echannel_ray.endpoint.record_codec import BLOCK_BYTES

if TYPE_CHECKING:
    from echannel_ray.core.messages import Membership
    from echannel_ray.core.streams import SenderStream
    from echannel_ray.core.windows import Blocker
    from echannel_ray.derived.branch import Branch
    from echannel_ray.endpoint.deadlines import GivenTimeout
    from echannel_ray.endpoint.process_endpoint import ProcessEndpoint
    from echannel_ray.endpoint.record_codec import RecordEncoder
    from echannel_ray.producers.outlet import Encoded, Outlet
    from echannel_ray.producers.pending_deliveries import PendingDelivery
    from echannel_ray.producers.publisher import Publisher


@mypyc_attr(allow_interpreted_subclasses=True)
class Sink:
    """One per producer, which asks it for all that depends on where its events go."""

    __slots__ = ("encode", "endpoint", "is_halted", "lock", "publisher", "records", "stream")

    def __init__(self, publisher: Publisher) -> None:
        self.publisher = publisher
        self.is_halted = False  # while consumers go over to other modulators
        self.endpoint: ProcessEndpoint = publisher.endpoint
        self.stream: SenderStream = publisher.stream
        self.records: RecordEncoder | None = publisher.records
        self.encode: Callable[[Any], Encoded] = publisher.encode
        self.lock = publisher.endpoint.lock

    def modulated(self) -> Iterable[Branch]:
        """The modulators that work here, each with the way on of what it passes."""
        return ()

    # ---- publishing; without the endpoint's lock ----

    def publish(self, event: Any, timeout: GivenTimeout = None) -> bool:
        """What `Producer.publish` promises."""
        raise NotImplementedError

    def deliver(self, event: Any, timeout: GivenTimeout = None) -> PendingDelivery:
        """What `Producer.deliver` promises."""
        raise NotImplementedError

    def attempt(self, event: Any, encoded: Encoded | None, deliver: bool) -> tuple[Any, int]:
        """Publish if there is room: the outcome, or None and the size for which there is none."""
        raise NotImplementedError

    def publish_block(self, kind: int, data: Any, count: int) -> bool:
        """Publish records that are one behind the other in memory; waits while there is no room."""
        raise NotImplementedError

    def placed(self, encoded: Encoded) -> Encoded:
        """The same event in a segment, if it is large and can be there."""
        return encoded

    def placed_block(self, data: Any) -> Any:
        """The bytes of a block likewise."""
        return data

    def expect_loans(self) -> None:
        """Arrays were loaned: from now on look for them among the events."""

    @property
    def block_bytes(self) -> int:
        """How long blocks of records should be."""
        return BLOCK_BYTES

    def segment_destinations(self) -> frozenset[int] | None:
        """Who would look at an event in a segment; None where it would go otherwise."""
        return None

    def needs_bytes(self, event: Any) -> bool:
        """Whether somebody gets the event as bytes."""
        raise NotImplementedError

    def drain(self, timeout: GivenTimeout) -> None:
        """What `Producer.drain` promises."""
        raise NotImplementedError

    # ---- under the endpoint's lock ----

    def blockers(self, size: int) -> list[Blocker]:
        """Who holds up an event of this size."""
        raise NotImplementedError

    def outlets(self) -> Iterable[Outlet]:
        """All that what is published may go out by."""
        return ()

    def absorb(self) -> bool:
        """Take in what was published without asking. Whether there was anything."""
        return False

    def is_young(self, now: float) -> bool:
        """Whether what was published without asking, if anything, belongs to a pack that need not leave yet."""
        return False

    def has_little(self, armed: int) -> bool:
        """Whether so little came since the last tick that each event should be looked at, and leave at once."""
        return False

    def see_off(self, now: float) -> None:
        """What was taken in at a tick leaves, or when its time has come."""

    def disarm(self) -> bool:
        """Have the next event ask first. Whether it would not have."""
        return False

    def apply(self, membership: Membership) -> None:
        """The consumers of the channel have changed."""
        raise NotImplementedError

    def counters(self) -> dict[str, Any]:
        """What has gone this way so far."""
        raise NotImplementedError

    def gauges(self) -> dict[str, Any]:
        """What is so now; behind `counters`."""
        return {}

    def leave(self) -> None:
        """The producer is closed."""

    # ---- without it ----

    def advance(self) -> object:
        """Send what has left, where the endpoint's lock is in the way of that."""

    def close(self) -> None:
        """The producer has left."""
