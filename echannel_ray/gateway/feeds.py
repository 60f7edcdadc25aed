"""What a gateway's clients consume: subscriptions and derived channels of an endpoint that decodes nothing.

It is another endpoint than the log host's, in the same process: here nobody's pickle is read, whatever comes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from echannel_ray import errors
from echannel_ray.client.channels import retains
from echannel_ray.client.consumption import Consumption, consume
from echannel_ray.client.derivation import derive, derived_meanwhile, name_of_derived, replay_from
from echannel_ray.consumers.inbox import Inbox
from echannel_ray.consumers.message import Gap, Message
from echannel_ray.consumers.pull_driver import Ended, Ledger, PullDriver
from echannel_ray.core.messages import Definition, Derived, SharedRef, Shipment
from echannel_ray.endpoint.definitions import open_channel
from echannel_ray.endpoint.process_endpoint import ProcessEndpoint
from echannel_ray.endpoint.record_codec import RecordReader
from echannel_ray.formats.sealed_events import SEALED
from echannel_ray.ids import check_group_name
from echannel_ray.logs.positions import Position
from echannel_ray.programs.code import Code
from echannel_ray.programs.program import TYPES_OF_VALUES
from echannel_ray.programs.source import name_of, source_of
from echannel_ray.records.reader import Reader
from echannel_ray.records.untyped_reader import UntypedReader
from echannel_ray.retained import log_calls
from echannel_ray.schemas import types
from echannel_ray.schemas.schema import RecordType
from echannel_ray.schemas.type_texts import record_named, type_text
from echannel_ray.shared.shared_copies import Master
from echannel_ray.transport.connection import Connection


class FeedEnded(Exception):
    """Raised when nothing more comes of a subscription."""


class Feed:
    """The events of one subscription of a client."""

    def __init__(self, consumption: Consumption, driver: PullDriver, told: deque[Exception]) -> None:
        """`told` is what came in the place of events: some could not be read, and modulators failed."""
        self._consumption = consumption
        self._driver = driver
        self._told = told
        self._held: Message | Gap | None = None  # what came behind that

    def take(self) -> Message | Gap | None:
        """The next one, if there is one. What is told in the place of events is raised; and `FeedEnded` at the end."""
        item, self._held = self._held or self._taken(), None
        if self._told:
            self._held = item
            raise self._told.popleft()
        return item

    def _taken(self) -> Message | Gap | None:
        try:
            return self._driver.take()
        except Ended:
            if self._consumption.endpoint.closed:
                raise errors.Disconnected("the gateway is closing: connect again in a moment") from None
            raise FeedEnded from None

    def acknowledge(self, events: int) -> None:
        """A member of a group has handled so many more; what it has not when this is closed goes to another."""
        if self._consumption.inbox.group is not None:
            self._driver.acknowledge(events)

    def close(self) -> None:
        """End the subscription; this may wait."""
        self._consumption.close()


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
    """A derived channel that a client of the gateway holds."""

    def __init__(
        self,
        endpoint: ProcessEndpoint,
        channel: str,
        derived: Derived,
        handle: int,
        shipment: Shipment,
        output: RecordType,
        master: Master | None,
    ) -> None:
        self.parent = channel
        self.name = name_of_derived(channel, derived.key)
        self.key = derived.key
        self.shipment = shipment
        self.output = output
        self.fields = {field.name: type_text(field.type) for field in output.fields}
        self._endpoint = endpoint
        self._handle = handle
        self._master = master

    def close(self) -> None:
        """Release the handle of the derived channel; this may wait."""
        self._endpoint.derivations.released(self._handle)
        if self._master is not None:
            self._endpoint.sharing.withdraw(self._master)


class Feeds:
    """The subscriptions of one gateway's clients; their endpoint begins with the first."""

    def __init__(self, namespace: str, node: int, connect: Callable[[ProcessEndpoint], Connection]) -> None:
        self._namespace = namespace
        self._node = node
        self._connect = connect
        self._lock = threading.Lock()
        self._begun: ProcessEndpoint | None = None
        self._is_closed = False

    @property
    def _endpoint(self) -> ProcessEndpoint:
        with self._lock:
            if self._is_closed:
                raise errors.Closed("the gateway is closing: connect again in a moment", what="gateway")
            if self._begun is None:
                begun = self._begun = ProcessEndpoint(self._namespace, self._node, self._connect, SEALED)
                begun.calls.serve({}, log_calls.ANSWERS)  # of the log hosts
                begun.start()
            return self._begun

    def close(self) -> None:
        """End all feeds."""
        with self._lock:
            self._is_closed = True
            begun = self._begun
        if begun is not None:
            begun.close()

    def _opened(self, definition: Definition) -> Definition:
        """Have the concentrator know that this endpoint is concerned with a channel."""
        return open_channel(self._endpoint, definition.channel, incarnation=definition.incarnation)

    def subscribe(
        self,
        definition: Definition,
        derived: DerivedChannel | None,
        group: str | None,
        start: str | None,
        wake: Callable[[], None],
    ) -> Feed:
        """Consume a channel, or what is derived from it; `wake` says when there is something to take."""
        endpoint = self._endpoint
        definition = self._opened(definition)
        channel = definition.channel
        if group is not None:
            check_group_name(group)
        drive = partial(PullDriver, wake=wake, ledger=None if group is None else Ledger())
        inbox = Inbox(endpoint, endpoint.new_subscription(), channel, group, "", drive)
        told: deque[Exception] = deque()
        inbox.on_error = told.append
        record = types.record_of(definition.type_schema) if derived is None else derived.output
        reader = UntypedReader() if definition.type_schema is None else Reader(None, record)
        records = RecordReader(endpoint, channel, definition.incarnation, reader)
        place = _place(definition, start)
        with _behind(endpoint, definition, derived, place, group) as parent:
            consumption = consume(endpoint, definition, inbox, records, parent=parent, start=place)
        assert isinstance(inbox.driver, PullDriver)
        return Feed(consumption, inbox.driver, told)

    def derive(
        self,
        definition: Definition,
        source: str,
        params: Mapping[str, bool | int | float],
        output: Mapping[str, str] | None,
    ) -> DerivedChannel:
        """Have a program work at the producers of a channel."""
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
            derived, handle = derive(endpoint, definition, "", shipment)
        except BaseException:
            if master is not None:
                endpoint.sharing.withdraw(master)
            raise
        what = types.record_of(definition.type_schema) if made is None else made
        return DerivedChannel(endpoint, channel, derived, handle, shipment, what, master)


def _place(definition: Definition, start: str | None) -> str | Position:
    """The place where a subscription begins; `ValueError` where it can't."""
    if start in (None, "new"):
        return "new"
    if not retains(definition):
        raise ValueError(f"channel {definition.channel!r} can't be read from {start!r} on: it retains nothing")
    return "earliest" if start == "earliest" else Position.parse(start)


def _behind(
    endpoint: ProcessEndpoint,
    definition: Definition,
    derived: DerivedChannel | None,
    place: str | Position,
    group: str | None,
) -> AbstractContextManager[str]:
    """The key of what is subscribed to: the program, or from a place on, another one of it behind a replay, which ends
    with its subscriber.
    """
    if derived is None:
        return nullcontext("")
    if place == "new":
        return nullcontext(derived.key)
    return derived_meanwhile(endpoint, definition, replay_from(str(place), group), derived.shipment)
