"""The public face of a subscription."""

from __future__ import annotations

import dataclasses
import threading
import time
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from echannel_ray import errors
from echannel_ray.core.counting import growth
from echannel_ray.core.messages import Membership, Shipment, Subscribe, Unsubscribe
from echannel_ray.modulation.fingerprint import identity_of
from echannel_ray.runtime.calls import Nobody
from echannel_ray.runtime.crew import Errand
from echannel_ray.runtime.entering import entered
from echannel_ray.runtime.inbox import Inbox
from echannel_ray.runtime.message import Gap, Message
from echannel_ray.runtime.offload import in_thread
from echannel_ray.runtime.owned import OwnedByProcess
from echannel_ray.runtime.pull_driver import Ended, PullDriver, closed_error
from echannel_ray.runtime.shipping import identity_of_other, ship
from echannel_ray.runtime.waiting import deadline_of
from echannel_ray.session import Session

if TYPE_CHECKING:
    from echannel_ray.models import SubscriptionStats


TIERS_OF_MODULATORS = ("isolated", "inline")


def tier_of(tier: str | None) -> str:
    """The tier that is meant, or `ValueError`."""
    if tier is None:
        return TIERS_OF_MODULATORS[0]
    if tier not in TIERS_OF_MODULATORS:
        raise ValueError(f"the tier of a modulator is {' or '.join(map(repr, TIERS_OF_MODULATORS))}, not {tier!r}")
    return tier


class Pair(NamedTuple):
    """The two halves of an eager handler, as a subscription asks for them."""

    shipment: Shipment | None
    fingerprint: str  # for groups, whose members have equal pairs; "" is no pair

    @classmethod
    def of(cls, modulator: Any, demodulator: Any, tier: str | None, group: str | None) -> Pair:
        """Ship the one, and look at the other."""
        tier = tier_of(tier)
        if isinstance(demodulator, type):
            raise TypeError(f"a demodulator is an object, not its class: {demodulator.__name__}(…)")
        if demodulator is not None and not callable(getattr(demodulator, "receive", None)):
            raise TypeError(f"a demodulator has a method receive(event), and {type(demodulator).__name__} has none")
        shipment = ship(modulator, tier) if modulator is not None else None
        if group is None:
            return cls(shipment, "")
        parts = [
            identity_of(shipment.code, shipment.key, [dataclasses.astuple(each) for each in shipment.shared])
            if shipment is not None
            else "",
            identity_of_other(demodulator) if demodulator is not None else "",
        ]
        return cls(shipment, "/".join(parts) if any(parts) else "")


# No generators: these would end with the first error, and what is told in the place of events that are gone is no end.
# They hold the subscription: one that is garbage is closed, and `for event in channel.subscribe()` holds nothing else.
class _Messages:
    """What `Subscription.messages` returns."""

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
    """What `for` gets."""

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
    """What `async for` gets."""

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

    def __init__(self, session: Session, mailbox: Inbox, parent: str = "") -> None:
        self._session = session
        self._parent = parent  # what it was made on: a derived channel, or "", the channel itself
        self._resetting = threading.Lock()
        self._last_version = 0
        self._shipment: Shipment | None = None  # of the pair that counts, as is the demodulator
        self._demodulator: Any = None
        self._mailbox = mailbox
        self._closing = threading.Lock()
        self._closed = False
        if mailbox.driver.is_pulled:
            # Nobody can ask for its events any more, and producers would wait for it for good.
            weakref.finalize(self, session.endpoint.abandon_later, mailbox).atexit = False

    def __repr__(self) -> str:
        state = " (closed)" if self._closed else ""
        return f"<subscription {self._mailbox.number} of channel {self._mailbox.channel!r}{state}>"

    # ---- pulling ----

    def get(self, timeout: float | None = None) -> Any:
        """The next event, waiting up to `timeout` seconds (`TimeoutError`). Gaps go to `on_error` (see `messages`)."""
        deadline = deadline_of(timeout)
        while True:
            try:
                message = self._next_message(deadline)
            except Ended:
                raise closed_error(self._mailbox.channel) from None
            if isinstance(message, Message):
                return message.event
            self._mailbox.report(message)

    def __iter__(self) -> Iterator[Any]:
        return _Events(self)

    def messages(self) -> Iterator[Message | Gap]:
        """Events with what is known about them, and gaps in the places of what was dropped; ends when it is closed."""
        return _Messages(self)

    def __aiter__(self) -> AsyncIterator[Any]:
        return _AsyncEvents(self)

    def _next_message(self, deadline: float | None) -> Message | Gap:
        return self._pull().get(None if deadline is None else max(0.0, deadline - time.monotonic()))

    def _pull(self) -> PullDriver:
        driver = self._mailbox.driver
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
        mailbox = self._mailbox
        if mailbox.supply.reads_logs:
            raise errors.ModulatorRefused(
                f"this subscription reads the log of channel {mailbox.channel!r}, and has no pair to replace: "
                "subscribe anew, with the modulator",
                reason="it reads a log",
                channel=mailbox.channel,
            )
        pair = Pair.of(modulator, demodulator, tier, mailbox.group)
        with self._resetting:
            self._last_version += 1
            version = self._last_version
            mailbox.add_version(version, demodulator)
            request = Subscribe(
                mailbox.channel,
                mailbox.number,
                mailbox.group,
                pair.fingerprint,
                mailbox.incarnation,
                self._parent,
                pair.shipment,
                version,
            )
            try:
                membership = self._session.endpoint.requests.ask(
                    request, timeout, f"the new modulator of channel {mailbox.channel!r}"
                )
            except errors.EChannelError:
                mailbox.drop_version(version)
                raise
            except BaseException:  # it took too long, or Ctrl-C: it may still take effect
                self._take_back()
                raise
            self._shipment, self._demodulator = pair.shipment, demodulator
            mailbox.fingerprint = pair.fingerprint
            mailbox.use_version(version)
            self._entered(membership, pair)

    def _take_back(self) -> None:
        """Have the pair that was there before a `reset`, whatever becomes of that: by a later one of its own."""
        mailbox = self._mailbox
        self._last_version += 1
        mailbox.add_version(self._last_version, self._demodulator)
        mailbox.use_version(self._last_version)
        self._session.endpoint.requests.tell(
            Subscribe(
                mailbox.channel,
                mailbox.number,
                mailbox.group,
                mailbox.fingerprint,
                mailbox.incarnation,
                self._parent,
                self._shipment,
                self._last_version,
            )
        )

    async def areset(self, modulator: Any = None, demodulator: Any = None, *, tier: str | None = None) -> None:
        """As `reset`, without holding up the event loop."""
        await in_thread(lambda: self.reset(modulator, demodulator, tier=tier))

    def _begin(self, membership: Membership, pair: Pair, demodulator: Any) -> None:
        """It has just been made."""
        self._shipment, self._demodulator = pair.shipment, demodulator
        self._entered(membership, pair)

    def _entered(self, membership: Membership, pair: Pair) -> None:
        """Producers know of it: note what it consumes, for managers that are restarted."""
        entered(self._session.endpoint, self._mailbox, membership, pair.shipment)

    def drain(self, timeout: float | None = None) -> None:
        """Wait until all that has arrived is handled. In its own handler, which can't wait for itself: not at all."""
        self._check_open()
        deadline = deadline_of(timeout)
        if self._mailbox.driver.is_current_thread():
            return
        if not self._session.endpoint.crew.wait(self._mailbox.when_idle(), deadline):
            raise TimeoutError(
                f"{self._mailbox.pending} events of {self._mailbox.channel!r} not handled within {timeout} s"
            )

    def close(self) -> None:
        """End it: no event is handled after this, but for one that is being handled. A second call does nothing."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        endpoint = self._session.endpoint
        if endpoint.closed or endpoint.broken is not None:
            self._mailbox.close()
            return
        if self._mailbox.supply.reads_logs:
            endpoint.close_mailbox(self._mailbox)
            if self._mailbox.driver.is_at_rest:
                self._leave()
            else:  # not in its handler's thread, which may be an event loop's
                self._mailbox.at_rest(lambda: endpoint.crew.submit(Errand(self._leave)))
            return
        told = self._mailbox.totals()
        try:
            self._session.mailbox_closed(self._mailbox, told, None)
        except errors.ChannelDeleted:
            pass  # nobody keeps its books any more
        finally:
            endpoint.close_mailbox(self._mailbox)
            self._mailbox.at_rest(lambda: self._tell_rest(told))

    def _tell_rest(self, told: dict[str, Any]) -> None:
        """What was counted since it was closed: the event in whose handler that was, say."""
        mailbox, endpoint = self._mailbox, self._session.endpoint
        rest = growth(told, mailbox.totals())
        if rest and not mailbox.deleted and not endpoint.closed:
            endpoint.requests.tell_once(Unsubscribe(mailbox.channel, mailbox.number, rest, is_late=True))

    def _leave(self) -> None:
        """The keepers of the logs first: whom the manager takes out is dead to them, and what it had goes to others."""
        mailbox = self._mailbox
        try:
            mailbox.supply.leave()
            self._session.mailbox_closed(mailbox, mailbox.totals(), None)
        except (errors.EChannelError, TimeoutError, Nobody):
            self._session.endpoint.requests.tell(Unsubscribe(mailbox.channel, mailbox.number, mailbox.totals()))

    async def aclose(self) -> None:
        """As `close`, without holding up the event loop."""
        await in_thread(self.close)

    def stats(self) -> SubscriptionStats:
        """What it has received, handled, failed to handle, and discarded as repeated, and what waits."""
        from echannel_ray.models import SubscriptionStats

        counters = self._mailbox.counters
        duplicates = self._session.endpoint.core.receiver.duplicates.get(self._mailbox.number, 0)
        return SubscriptionStats(
            received=counters.received,
            handled=counters.handled,
            failed=counters.failed,
            dropped=counters.dropped,
            duplicates=duplicates,
            pending=max(0, self._mailbox.pending),
        )

    def _check_open(self) -> None:
        if self._mailbox.deleted:
            raise errors.ChannelDeleted(
                f"channel {self._mailbox.channel!r} was deleted: create it again, and subscribe again",
                channel=self._mailbox.channel,
            )
        if self._closed:
            raise closed_error(self._mailbox.channel)
        self._session.endpoint.check_usable()
