"""The calls of a producer that has loaned arrays: what is published is given up first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

from typing_extensions import override

if TYPE_CHECKING:
    from echannel_ray.producers.pending_deliveries import PendingDelivery
    from echannel_ray.producers.publisher import Publisher


class PublishingCalls(Protocol):
    """What publishes: a `Publisher`, or what goes around one."""

    def publish(self, event: Any, timeout: float | None = None) -> bool:
        """What `Producer.publish` promises; so do the others."""

    def publish_many(self, events: Iterable[Any]) -> bool:
        """Many at once."""

    def deliver(self, event: Any, timeout: float | None = None) -> PendingDelivery:
        """One, and who handles it answers."""

    async def apublish(self, event: Any, timeout: float | None = None) -> bool:
        """One, in a coroutine."""


class LoanedCalls(PublishingCalls):
    """Around the calls of a producer, from its first loan on: before that none of them has to ask."""

    def __init__(self, publisher: Publisher, calls: PublishingCalls) -> None:
        self._give_up = publisher.give_up
        self._calls = calls

    @override
    def publish(self, event: Any, timeout: float | None = None) -> bool:
        self._give_up(event)
        return self._calls.publish(event, timeout)

    @override
    def publish_many(self, events: Iterable[Any]) -> bool:
        self._give_up(events)
        return self._calls.publish_many(events)

    @override
    def deliver(self, event: Any, timeout: float | None = None) -> PendingDelivery:
        self._give_up(event)
        return self._calls.deliver(event, timeout)

    @override
    async def apublish(self, event: Any, timeout: float | None = None) -> bool:
        self._give_up(event)
        return await self._calls.apublish(event, timeout)
