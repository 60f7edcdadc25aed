"""The public face of a subscription."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from echannel_ray import errors
from echannel_ray.client.consumption import Consumption
from echannel_ray.consumers.message import Gap, Message
from echannel_ray.consumers.pull_driver import Ended, PullDriver, closed_error
from echannel_ray.endpoint.deadlines import deadline_of, seconds_left
from echannel_ray.endpoint.offload import in_thread
from echannel_ray.endpoint.ownership import OwnedByProcess

if TYPE_CHECKING:
    from echannel_ray.models import SubscriptionStats


# No generators: these would end with the first error, and what is told in the place of events that are gone is no end.
# They hold the subscription: one that is garbage is closed, and `for event in channel.subscribe()` holds nothing else.
class _Messages:
    """The iterable that `Subscription.messages` returns."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._driver = subscription._pull()

    def __iter__(self) -> _Messages:
        return self

    def __next__(self) -> Message | Gap:
        try:
            return self._driver.get(None)
        except Ended:
            raise StopIteration from None


class _Events:
    """The iterator of `for`."""

    def __init__(self, subscription: Subscription) -> None:
        self._messages = _Messages(subscription)
        self._driver = subscription._pull()

    def __iter__(self) -> _Events:
        return self

    def __next__(self) -> Any:
        while True:
            message = next(self._messages)
            if isinstance(message, Message):
                return message.event
            self._driver.inbox.report(message)


class _AsyncEvents:
    """The iterator of `async for`."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._driver = subscription._pull()

    def __aiter__(self) -> _AsyncEvents:
        return self

    async def __anext__(self) -> Any:
        while True:
            try:
                message = await self._driver.aget()
            except Ended:
                raise StopAsyncIteration from None
            if isinstance(message, Message):
                return message.event
            self._driver.inbox.report(message)


class Subscription(OwnedByProcess):
    """One consumer of a channel, made by `EventChannel.subscribe`. It lives until it is closed or its process ends."""

    _advice = "a subscription belongs to its process: pass the channel instead, and call channel.subscribe() there"

    def __init__(self, consumption: Consumption) -> None:
        self._consumption = consumption
        self._endpoint = consumption.endpoint
        self._inbox = consumption.inbox
        if self._inbox.driver.is_pulled:
            # Nobody can ask for its events any more, and producers would wait for it for good.
            weakref.finalize(self, self._endpoint.abandon_later, self._inbox).atexit = False

    @override
    def __repr__(self) -> str:
        state = " (closed)" if self._consumption.closed else ""
        return f"<subscription {self._inbox.number} of channel {self._inbox.channel!r}{state}>"

    # ---- pulling ----

    def get(self, timeout: float | None = None) -> Any:
        """The next event, waiting up to `timeout` seconds (`TimeoutError`). Gaps go to `on_error` (see `messages`)."""
        deadline = deadline_of(timeout)
        while True:
            try:
                message = self._next_message(deadline)
            except Ended:
                raise closed_error(self._inbox.channel) from None
            if isinstance(message, Message):
                return message.event
            self._inbox.report(message)

    def __iter__(self) -> Iterator[Any]:
        return _Events(self)

    def messages(self) -> Iterator[Message | Gap]:
        """Events with what is known about them, and gaps in the places of what was dropped; ends when it is closed."""
        return _Messages(self)

    def __aiter__(self) -> AsyncIterator[Any]:
        return _AsyncEvents(self)

    def _next_message(self, deadline: float | None) -> Message | Gap:
        return self._pull().get(seconds_left(deadline))

    def _pull(self) -> PullDriver:
        driver = self._inbox.driver
        if not isinstance(driver, PullDriver):
            raise TypeError(
                "this subscription has a handler, which gets its events: subscribe() without one to pull them"
            )
        return driver

    # ---- the rest ----

    def reset(
        self, modulator: Any = None, demodulator: Any = None, *, tier: str | None = None, timeout: float | None = None
    ) -> None:
        """Replace the pair of modulator and demodulator; None is none.

        In each producer's order there is one cut: what was published before it passes the old pair, the rest the new
        one. When this fails, the old pair stays.
        """
        self._check_open()
        deadline_of(timeout)  # which raises where it is none
        self._consumption.reset(modulator, demodulator, tier, timeout)

    async def areset(
        self, modulator: Any = None, demodulator: Any = None, *, tier: str | None = None, timeout: float | None = None
    ) -> None:
        """As `reset`, without holding up the event loop."""
        await in_thread(lambda: self.reset(modulator, demodulator, tier=tier, timeout=timeout))

    def drain(self, timeout: float | None = None) -> None:
        """Wait until all that has arrived is handled. In its own handler, which can't wait for itself: not at all."""
        self._check_open()
        deadline = deadline_of(timeout)
        if self._inbox.driver.is_current_thread():
            return
        if not self._endpoint.crew.wait(self._inbox.when_idle(), deadline):
            raise TimeoutError(
                f"{self._inbox.pending} events of {self._inbox.channel!r} not handled within {timeout} s"
            )

    @override
    def close(self) -> None:
        """End it: no event is handled after this, but for one that is being handled. A second call does nothing."""
        self._consumption.close()

    async def aclose(self) -> None:
        """As `close`, without holding up the event loop."""
        await in_thread(self.close)

    def stats(self) -> SubscriptionStats:
        """What it has received, handled, failed to handle, and discarded as repeated, and what waits."""
        from echannel_ray.models import SubscriptionStats

        with self._endpoint.lock:
            self._inbox.take_in()
            if self._inbox.is_seated:
                self._inbox.leave_seats()  # for what waits there to be counted as pending
        counters = self._inbox.counters
        duplicates = self._endpoint.core.receiver.duplicates.get(self._inbox.number, 0)
        return SubscriptionStats(
            received=counters.received,
            handled=counters.handled,
            failed=counters.failed,
            dropped=counters.dropped,
            duplicates=duplicates,
            pending=max(0, self._inbox.pending),
        )

    def _check_open(self) -> None:
        if self._inbox.deleted:
            raise errors.ChannelDeleted(
                f"channel {self._inbox.channel!r} was deleted: create it again, and subscribe again",
                channel=self._inbox.channel,
            )
        if self._consumption.closed:
            raise closed_error(self._inbox.channel)
        self._endpoint.check_usable()
