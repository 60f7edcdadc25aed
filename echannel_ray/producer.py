"""The public face of a producer."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from echannel_ray.client.production import end_producer
from echannel_ray.delivery import Delivery
from echannel_ray.endpoint.offload import in_thread
from echannel_ray.endpoint.ownership import OwnedByProcess
from echannel_ray.producers.loans import LoanedCalls, PublishingCalls
from echannel_ray.producers.publisher import Publisher

if TYPE_CHECKING:
    from echannel_ray.tracing import TracedPublisher


class Producer(OwnedByProcess):
    """Publishes events on one channel; made by `EventChannel.producer`. Also a context manager, which closes it.

    Any number of threads may use it.
    """

    _advice = "a producer belongs to its process: pass the channel instead, and call channel.producer() there"

    def __init__(self, publisher: Publisher, traced: TracedPublisher | None = None) -> None:
        self._publisher = publisher
        self._calls: PublishingCalls = publisher if traced is None else traced
        # In the place of the method of this class: another call for each event would be a third of what one costs.
        vars(self)["publish"] = self._calls.publish

    @override
    def __repr__(self) -> str:
        publisher = self._publisher
        closed = " (closed)" if publisher.stream.closed else ""
        return f"<producer {publisher.name} of channel {publisher.channel!r}{closed}>"

    @property
    def name(self) -> str:
        """What `Message.producer` and `Gap.producer` call it."""
        return self._publisher.name

    def publish(self, event: Any, timeout: float | None = None) -> bool:
        """Queue the event for every consumer.

        True when each will get it, False when the overflow policy dropped it for one. Waits (up to `timeout` seconds,
        else `TimeoutError`) while a consumer's window is full and the policy is "block". On a retained channel: while
        the log has no room.
        """
        return self._calls.publish(event, timeout)

    async def apublish(self, event: Any, timeout: float | None = None) -> bool:
        """As `publish`, without holding up the event loop. An event is not published by a call that was cancelled."""
        return await self._calls.apublish(event, timeout)

    def publish_many(self, events: Iterable[Any]) -> bool:
        """Publish each of the events, in order; False when the overflow policy dropped one for a consumer.

        On a typed channel the records of a NumPy structured array or `pyarrow.RecordBatch` travel in blocks: none of
        them becomes an object, and packs are as long as is best for them, whatever the packing degree.
        """
        return self._calls.publish_many(events)

    def loan(self, shape: int | tuple[int, ...], dtype: Any = float) -> Any:
        """An array to be filled and published by this producer, where consumers on this node will look at it.

        To publish it copies nothing. It is given up by that: nobody can write it any more. What is in it at first may
        be anything. Where no shared memory can be had, nobody on this node would see it, or it has less than 64 KB, its
        memory is this process's own.

        It is copied after all where another array of the same memory is there when it is published. Of a memoryview or
        a tensor NumPy does not tell: what was made of it so must not be written any more.
        """
        if not isinstance(self._calls, LoanedCalls):
            self._calls = LoanedCalls(self._publisher, self._calls)
            vars(self)["publish"] = self._calls.publish
        return self._publisher.loan(shape, dtype)

    def deliver(self, event: Any, timeout: float | None = None) -> Delivery:
        """Publish the event at once; the result comes when every consumer's handler has returned.

        Where there is no room for it, this waits as `publish` does (up to `timeout` seconds). In a coroutine the
        delivery waits instead: the event loop goes on.
        """
        return Delivery(self._calls.deliver(event, timeout))

    def drain(self, timeout: float | None = None) -> None:
        """Wait until all published so far has been received by every consumer's process (by groups: handled; on a
        retained channel: logged).
        """
        self._publisher.drain(timeout)

    async def adrain(self, timeout: float | None = None) -> None:
        """As `drain`, without holding up the event loop."""
        await in_thread(partial(self.drain, timeout))

    @override
    def close(self, timeout: float | None = None) -> None:
        """Drain, and leave the channel. A second call does nothing."""
        end_producer(self._publisher, timeout)

    async def aclose(self, timeout: float | None = None) -> None:
        """As `close`, without holding up the event loop."""
        await in_thread(partial(self.close, timeout))
