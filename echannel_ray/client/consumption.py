"""Subscriptions of this process: entered in their channel's books, replaced, and taken out of them.

Rules:

* Who reads no log leaves the books first: then no more comes, and what has come is not lost on the way. Who reads logs
  stops reading first, tells their log hosts how far it came, and leaves the books last: whom the manager takes out is
  dead to the log hosts, and what it had goes to others.
* What fails leaves nothing installed; what may still take effect is taken back by another request.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from dataclasses import replace
from typing import Any, Final, NamedTuple

from echannel_ray import errors
from echannel_ray.client.channels import retains
from echannel_ray.consumers.inbox import Inbox
from echannel_ray.core.counters import growth
from echannel_ray.core.messages import Definition, Membership, Shipment, Subscribe, Unsubscribe
from echannel_ray.derived.shipments import identity_of_other, ship
from echannel_ray.endpoint.calls import Nobody
from echannel_ray.endpoint.crew import Job, Waiter
from echannel_ray.endpoint.deadlines import deadline_of, seconds_left
from echannel_ray.endpoint.process_endpoint import ProcessEndpoint
from echannel_ray.endpoint.record_codec import RecordReader
from echannel_ray.logs.positions import Position
from echannel_ray.modulation.fingerprint import identity_of
from echannel_ray.retained.log_reader import LogReader

AS_MUCH_AS_CAN_BE: Final = (TimeoutError, errors.EChannelError)
TIERS_OF_MODULATORS: Final = ("isolated", "inline")


def tier_of(tier: str | None) -> str:
    """The tier that was asked for, or the usual one; `ValueError` where there is none of that name."""
    if tier is None:
        return TIERS_OF_MODULATORS[0]
    if tier not in TIERS_OF_MODULATORS:
        raise ValueError(f"the tier of a modulator is {' or '.join(map(repr, TIERS_OF_MODULATORS))}, not {tier!r}")
    return tier


class EagerHandler(NamedTuple):
    """The two halves of an eager handler, as a subscription asks for them."""

    shipment: Shipment | None = None
    demodulator: Any = None
    fingerprint: str = ""  # for groups, whose members have equal handler versions; "" is no handler version

    @classmethod
    def of(cls, modulator: Any, demodulator: Any, tier: str | None, group: str | None) -> EagerHandler:
        """The pair of this modulator, which is shipped, and this demodulator, which is checked."""
        tier = tier_of(tier)
        if isinstance(demodulator, type):
            raise TypeError(f"a demodulator is an object, not its class: {demodulator.__name__}(…)")
        if demodulator is not None and not callable(getattr(demodulator, "receive", None)):
            raise TypeError(f"a demodulator has a method receive(event), and {type(demodulator).__name__} has none")
        shipment = ship(modulator, tier) if modulator is not None else None
        if group is None:
            return cls(shipment, demodulator)
        parts = [
            identity_of(shipment.code, shipment.key, [dataclasses.astuple(each) for each in shipment.shared])
            if shipment is not None
            else "",
            identity_of_other(demodulator) if demodulator is not None else "",
        ]
        return cls(shipment, demodulator, "/".join(parts) if any(parts) else "")


NO_EAGER_HANDLER = EagerHandler()


def consume(
    endpoint: ProcessEndpoint,
    definition: Definition,
    inbox: Inbox,
    records: RecordReader | None,
    *,
    parent: str = "",
    eager_handler: EagerHandler = NO_EAGER_HANDLER,
    start: str | Position | None = None,
    skips_missing: bool = False,
    timeout: float | None = None,
) -> Consumption:
    """Have an inbox get the events of a channel, or of what is derived from it by the key `parent`. All producers know
    of it when this returns. Where the channel retains, and no modulator is concerned, they come from its logs.
    """
    deadline = deadline_of(timeout)
    inbox.records = records
    inbox.incarnation = definition.incarnation
    inbox.skips_missing = skips_missing
    inbox.add_version(0, eager_handler.demodulator)
    reader = None
    if retains(definition) and not parent and eager_handler.shipment is None:
        reader = inbox.supply = LogReader(endpoint, inbox, start or "new")
    consumption = Consumption(endpoint, inbox, parent, eager_handler)
    endpoint.open_inbox(inbox)
    try:
        what = f"the subscription of channel {inbox.channel!r}"
        membership: Membership = endpoint.requests.ask(consumption.request(eager_handler, 0), timeout, what)
        if reader is not None:
            reader.begin(membership, deadline)
    except BaseException:
        endpoint.requests.tell(Unsubscribe(inbox.channel, inbox.number, {}))
        endpoint.close_inbox(inbox)
        raise
    consumption.entered(membership)
    return consumption


class Consumption:
    """One subscription of this process, in the books of its channel."""

    def __init__(self, endpoint: ProcessEndpoint, inbox: Inbox, parent: str, eager_handler: EagerHandler) -> None:
        self.endpoint = endpoint
        self.inbox = inbox
        self.closed = False
        self._parent = parent  # what it was made on: a derived channel, or "", the channel itself
        self._eager_handler = eager_handler  # the one that counts
        self._last_version = 0
        self._resetting = threading.Lock()
        self._closing = threading.Lock()

    def request(self, eager_handler: EagerHandler, version: int) -> Subscribe:
        """What its manager is asked for: this handler version, from this version on."""
        inbox = self.inbox
        return Subscribe(
            inbox.channel,
            inbox.number,
            inbox.group,
            eager_handler.fingerprint,
            inbox.incarnation,
            self._parent,
            eager_handler.shipment,
            version,
        )

    def entered(self, membership: Membership) -> None:
        """Producers know of it: note what it consumes, for managers that are restarted."""
        endpoint, inbox, shipment = self.endpoint, self.inbox, self._eager_handler.shipment
        for consumer in membership.consumers:
            if (consumer.endpoint, consumer.subscription) == (endpoint.id, inbox.number):
                inbox.derived = consumer.derived
        with endpoint.lock:
            for derived in membership.derived:
                if derived.key == inbox.derived and shipment is not None:
                    endpoint.derivations.learned(inbox.channel, replace(derived, shipment=shipment))
        endpoint.installer.learned(membership)

    # ---- another handler version ----

    def reset(self, modulator: Any, demodulator: Any, tier: str | None, timeout: float | None) -> None:
        """Replace the handler version, at one point of each producer's order; the old one stays where this fails."""
        inbox = self.inbox
        if inbox.supply.reads_logs:
            raise errors.ModulatorRefused(
                f"this subscription reads the log of channel {inbox.channel!r}, and has no pair to replace: "
                "subscribe anew, with the modulator",
                reason="it reads a log",
                channel=inbox.channel,
            )
        eager_handler = EagerHandler.of(modulator, demodulator, tier, inbox.group)
        with self._resetting:
            self._last_version += 1
            version = self._last_version
            inbox.add_version(version, demodulator)
            what = f"the new modulator of channel {inbox.channel!r}"
            try:
                membership = self.endpoint.requests.ask(self.request(eager_handler, version), timeout, what)
            except errors.EChannelError:
                inbox.drop_version(version)
                raise
            except BaseException:  # it took too long, or Ctrl-C: it may still take effect
                self._take_back()
                raise
            self._eager_handler = eager_handler
            inbox.fingerprint = eager_handler.fingerprint
            inbox.use_version(version)
            self.entered(membership)

    def _take_back(self) -> None:
        """Go back, by a later handler version, to what was there before a `reset`, whatever becomes of that."""
        self._last_version += 1
        self.inbox.add_version(self._last_version, self._eager_handler.demodulator)
        self.inbox.use_version(self._last_version)
        self.endpoint.requests.tell(self.request(self._eager_handler, self._last_version))

    # ---- its end ----

    def close(self) -> None:
        """End it: no event is handled after this, but for one that is being handled. A second call does nothing."""
        with self._closing:
            if self.closed:
                return
            self.closed = True
        endpoint, inbox = self.endpoint, self.inbox
        if endpoint.closed or endpoint.broken is not None:
            inbox.close()
        elif inbox.supply.reads_logs:
            endpoint.close_inbox(inbox)
            if inbox.driver.is_at_rest:
                self._leave_logs()
            else:  # not in its handler's thread, which may be an event loop's
                inbox.at_rest(lambda: endpoint.crew.submit(Job(self._leave_logs)))
        else:
            farewell = _farewell_of(inbox)
            try:
                self._unsubscribe(farewell)
            finally:
                endpoint.close_inbox(inbox)
                inbox.at_rest(lambda: self._tell_rest(farewell.totals))

    def _unsubscribe(self, farewell: Unsubscribe) -> None:
        try:
            self.endpoint.requests.ask(farewell, None, f"leaving channel {farewell.channel!r}")
        except errors.ChannelDeleted:
            pass  # nobody keeps its books any more

    def _tell_rest(self, told: dict[str, Any]) -> None:
        """What was counted since it was closed: the event in whose handler that was, say."""
        inbox = self.inbox
        rest = growth(told, inbox.totals())
        if rest and not inbox.deleted and not self.endpoint.closed:
            self.endpoint.requests.tell_once(Unsubscribe(inbox.channel, inbox.number, rest, is_late=True))

    def _leave_logs(self) -> None:
        inbox = self.inbox
        try:
            inbox.supply.leave()
            self._unsubscribe(_farewell_of(inbox))
        except (*AS_MUCH_AS_CAN_BE, Nobody):
            self.endpoint.requests.tell(_farewell_of(inbox))


def end_all(endpoint: ProcessEndpoint, inboxes: list[Inbox], deadline: float | None, *, are_handled: bool) -> bool:
    """Take all these out of the books together, as far as that goes until the deadline; whether all of it was done.

    `are_handled`: what has come for them is handled first, and nothing runs any more when this returns.
    """
    readers = [each for each in inboxes if each.supply.reads_logs]
    for each in readers:  # their logs keep what they have not handled
        endpoint.close_inbox(each)
    is_done = not are_handled or _are_at_rest(endpoint, readers, deadline)
    for each in readers:
        with contextlib.suppress(*AS_MUCH_AS_CAN_BE):
            each.supply.leave(seconds_left(deadline))
    with contextlib.suppress(*AS_MUCH_AS_CAN_BE):
        endpoint.requests.ask_all([_farewell_of(each) for each in inboxes], seconds_left(deadline))
    for each in inboxes:
        # What a member of a group has not begun goes to another; of other subscriptions nobody else would handle it.
        if are_handled and each.group is None and not each.closed:
            is_done &= endpoint.crew.wait(each.when_idle(), deadline)
        endpoint.close_inbox(each)  # members of groups report how far they came
    return is_done and (not are_handled or _are_at_rest(endpoint, inboxes, deadline))


def _farewell_of(inbox: Inbox) -> Unsubscribe:
    return Unsubscribe(inbox.channel, inbox.number, inbox.totals())


def _are_at_rest(endpoint: ProcessEndpoint, closed: list[Inbox], deadline: float | None) -> bool:
    """Wait until none of these inboxes has an event in its handler."""
    waiters = []
    for inbox in closed:
        waiter = Waiter()
        inbox.at_rest(waiter.set)
        waiters.append(waiter)
    return all(endpoint.crew.wait(waiter, deadline) for waiter in waiters)
