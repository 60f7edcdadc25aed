"""What a gateway's clients consume: subscriptions and derived channels of an endpoint that decodes nothing.

It is another endpoint than the keeper's, in the same process: here nobody's pickle is read, whatever comes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from echannel_ray import errors
from echannel_ray.core.messages import (
    Definition,
    Derived,
    Membership,
    OpenChannel,
    SharedRef,
    Shipment,
    Subscribe,
    Unsubscribe,
)
from echannel_ray.formats.sealed import SEALED
from echannel_ray.gateway.event_hosting import FeedEnded
from echannel_ray.ids import check_group_name
from echannel_ray.logs.positions import Position
from echannel_ray.programs.code import Code
from echannel_ray.programs.program import TYPES_OF_VALUES
from echannel_ray.programs.source import name_of, source_of
from echannel_ray.records import known
from echannel_ray.records.reading import Reader
from echannel_ray.records.untyped import UntypedReader
from echannel_ray.retained import calls
from echannel_ray.retained.reader import LogReader
from echannel_ray.runtime.endpoint import Endpoint
from echannel_ray.runtime.entering import enter, entered, install_derived, replay_from
from echannel_ray.runtime.inbox import Inbox
from echannel_ray.runtime.message import Gap, Message
from echannel_ray.runtime.pull_driver import Ended, Ledger, PullDriver
from echannel_ray.runtime.sharing import Master
from echannel_ray.runtime.typed import RecordReader
from echannel_ray.schemas import types
from echannel_ray.schemas.schema import Record
from echannel_ray.schemas.texts import record_named, type_text
from echannel_ray.transport.connection import Connection

_LEAVE_SECONDS: Final = 5.0


class Feed:
    """See `event_hosting.Feed`."""

    def __init__(self, endpoint: Endpoint, mailbox: Inbox, driver: PullDriver) -> None:
        self._endpoint = endpoint
        self._mailbox = mailbox
        self._driver = driver
        self._told: deque[Exception] = deque()  # of events that could not be read, and modulators that failed
        self._held: Message | Gap | None = None  # what came behind them
        mailbox.on_error = self._told.append

    def take(self) -> Message | Gap | None:
        """See `event_hosting.Feed`."""
        item, self._held = self._held or self._taken(), None
        if self._told:
            self._held = item
            raise self._told.popleft()
        return item

    def _taken(self) -> Message | Gap | None:
        try:
            return self._driver.take()
        except Ended:
            if self._endpoint.closed:
                raise errors.Disconnected("the gateway is closing: connect again in a moment") from None
            raise FeedEnded from None

    def settle(self, events: int) -> None:
        """See `event_hosting.Feed`."""
        if self._mailbox.group is not None:
            self._driver.acknowledge(events)

    def close(self) -> None:
        """See `event_hosting.Feed`."""
        endpoint, mailbox = self._endpoint, self._mailbox
        endpoint.close_mailbox(mailbox)
        if endpoint.closed or endpoint.broken is not None:
            return
        mailbox.supply.leave(_LEAVE_SECONDS)  # the keepers of logs first: see `Subscription.close`
        try:
            endpoint.requests.ask(Unsubscribe(mailbox.channel, mailbox.number, mailbox.totals()))
        except errors.ChannelDeleted:
            pass  # nobody keeps its books any more


class _Params:
    """The parameter block of a program: a shared object that nobody changes."""

    policy = None

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def _echannel_state(self) -> tuple[int, dict[str, Any]]:
        return 1, self._fields

    def _echannel_merge(self, fields: dict[str, Any], expected_version: int | None) -> tuple[int, dict[str, Any]]:
        raise ValueError("the parameters that a gateway's client gave stay as they are")


class DerivedChannel:
    """See `event_hosting.Derived`."""

    def __init__(
        self,
        endpoint: Endpoint,
        channel: str,
        derived: Derived,
        handle: int,
        shipment: Shipment,
        output: Record,
        master: Master | None,
    ) -> None:
        self.parent = channel
        self.name = f"{channel}~{derived.key[:12]}"
        self.key = derived.key
        self.shipment = shipment
        self.output = output
        self.fields: dict[str, str] | None = {field.name: type_text(field.type) for field in output.fields}
        self._endpoint = endpoint
        self._handle = handle
        self._master = master

    def close(self) -> None:
        """See `event_hosting.Derived`."""
        self._endpoint.derivations.released(self._handle)
        if self._master is not None:
            self._endpoint.sharing.withdraw(self._master)


class Feeds:
    """One per gateway; its endpoint begins with the first subscription."""

    def __init__(self, namespace: str, node: int, connect: Callable[[Endpoint], Connection]) -> None:
        self._namespace = namespace
        self._node = node
        self._connect = connect
        self._lock = threading.Lock()
        self._begun: Endpoint | None = None
        self._is_closed = False

    @property
    def _endpoint(self) -> Endpoint:
        with self._lock:
            if self._is_closed:
                raise errors.Closed("the gateway is closing: connect again in a moment", what="gateway")
            if self._begun is None:
                begun = self._begun = Endpoint(self._namespace, self._node, self._connect, SEALED)
                begun.calls.serve({}, calls.ANSWERS)  # of the keepers of logs
                begun.start()
            return self._begun

    def close(self) -> None:
        """End all of it."""
        with self._lock:
            self._is_closed = True
            begun = self._begun
        if begun is not None:
            begun.close()

    def _opened(self, definition: Definition) -> Definition:
        """Have the concentrator know that this endpoint is concerned with a channel."""
        endpoint = self._endpoint
        channel = definition.channel
        request = OpenChannel(channel, None, definition.options, {}, definition.incarnation)
        opened: Definition = endpoint.requests.ask(request)
        endpoint.definitions[channel] = opened
        known.learn_all(opened.formats)
        return opened

    def subscribe(
        self,
        definition: Definition,
        derived: DerivedChannel | None,
        group: str | None,
        start: str | None,
        wake: Callable[[], None],
    ) -> Feed:
        """See `EventHost`."""
        endpoint = self._endpoint
        definition = self._opened(definition)
        channel = definition.channel
        if group is not None:
            check_group_name(group)
        drive = partial(PullDriver, wake=wake, ledger=None if group is None else Ledger())
        mailbox = Inbox(endpoint, endpoint.new_subscription(), channel, group, "", drive)
        record = types.record_of(definition.type_schema) if derived is None else derived.output
        reader = UntypedReader() if definition.type_schema is None else Reader(None, record)
        mailbox.records = RecordReader(endpoint, channel, definition.incarnation, reader)
        mailbox.add_version(0, None)
        mailbox.incarnation = definition.incarnation
        place = _place(definition, start)
        source: LogReader | None = None
        if derived is None and "retain" in definition.options:
            source = mailbox.supply = LogReader(endpoint, mailbox, place, False)

        def begin(membership: Membership) -> None:
            if source is not None:
                source.begin(membership, None)

        with _behind(endpoint, definition, derived, place, group) as parent:
            request = Subscribe(channel, mailbox.number, group, "", definition.incarnation, parent)
            entered(endpoint, mailbox, enter(endpoint, mailbox, request, None, begin), None)
        assert isinstance(mailbox.driver, PullDriver)
        return Feed(endpoint, mailbox, mailbox.driver)

    def derive(
        self,
        definition: Definition,
        source: str,
        params: Mapping[str, bool | int | float],
        output: Mapping[str, str] | None,
    ) -> DerivedChannel:
        """See `EventHost`."""
        endpoint = self._endpoint
        definition = self._opened(definition)
        channel = definition.channel
        if definition.type_schema is None:
            raise errors.ModulatorRefused(
                f"channel {channel!r} is untyped, and E-code needs a type: create the channel with one",
                reason="the channel is untyped",
                channel=channel,
            )
        record = types.readable_of(definition.type_schema)
        made = None if output is None else record_named(output)
        named = tuple((name, TYPES_OF_VALUES[type(value)].value) for name, value in params.items())
        code = Code(source_of(source), record, made, named)
        code.check()
        master = endpoint.sharing.export(_Params(dict(params))) if params else None
        shared: tuple[SharedRef, ...] = () if master is None else (master.ref,)
        shipment = Shipment(name_of(code.source), "ecode", code.as_bytes(), (), shared)
        try:
            derived, handle = install_derived(endpoint, channel, "", shipment, definition.incarnation)
        except BaseException:
            if master is not None:
                endpoint.sharing.withdraw(master)
            raise
        what = types.record_of(definition.type_schema) if made is None else made
        return DerivedChannel(endpoint, channel, derived, handle, shipment, what, master)


def fields_of(definition: Definition) -> dict[str, str] | None:
    """Names and types of a channel's fields."""
    return dict(definition.type_schema["fields"]) if definition.type_schema else None


def _place(definition: Definition, start: str | None) -> str | Position:
    """Where a subscription begins; `ValueError` where it can't."""
    if start in (None, "new"):
        return "new"
    if "retain" not in definition.options:
        raise ValueError(f"channel {definition.channel!r} can't be read from {start!r} on: it retains nothing")
    return "earliest" if start == "earliest" else Position.parse(start)


@contextmanager
def _behind(
    endpoint: Endpoint,
    definition: Definition,
    derived: DerivedChannel | None,
    place: str | Position,
    group: str | None,
) -> Iterator[str]:
    """The key of what is subscribed to: the program, or from a place on, another one of it behind a replay, which then
    lives as long as its subscriber.
    """
    if derived is None or place == "new":
        yield "" if derived is None else derived.key
        return
    key = ""
    handles: list[int] = []
    try:
        for shipment in (replay_from(str(place), group), derived.shipment):
            installed, handle = install_derived(endpoint, definition.channel, key, shipment, definition.incarnation)
            handles.append(handle)
            key = installed.key
        yield key
    finally:
        for handle in handles:
            endpoint.derivations.released(handle)
