"""Event channels: opening them, and making producers and subscriptions."""

from __future__ import annotations

import asyncio
import inspect
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from echannel_ray import errors, options
from echannel_ray.client.channels import encoder_of, fields_of, open_typed, retains
from echannel_ray.client.consumption import EagerHandler, consume, tier_of
from echannel_ray.client.derivation import derive, derived_meanwhile, name_of_derived, replay_from
from echannel_ray.client.production import produce
from echannel_ray.consumers.bare_methods import bare
from echannel_ray.consumers.coroutine_driver import CoroutineDriver
from echannel_ray.consumers.driver import Driver
from echannel_ray.consumers.function_driver import FunctionDriver
from echannel_ray.consumers.handler_loop import handler_loop
from echannel_ray.consumers.inbox import Inbox, Tracer
from echannel_ray.consumers.pull_driver import PullDriver
from echannel_ray.core import messages
from echannel_ray.core.windows import OVERFLOW_POLICIES
from echannel_ray.derived.shipments import ship
from echannel_ray.endpoint.deadlines import deadline_of
from echannel_ray.endpoint.offload import in_thread
from echannel_ray.endpoint.record_codec import RecordReader, open_more
from echannel_ray.formats.trace_context import switch
from echannel_ray.ids import check_channel_name, check_group_name, check_namespace
from echannel_ray.logs.positions import Position
from echannel_ray.modulation.admission import Admission
from echannel_ray.modulation.modulator import Modulator
from echannel_ray.options import Packing, Retention
from echannel_ray.producer import Producer
from echannel_ray.producers.publisher import Publisher
from echannel_ray.records.reader import Reader
from echannel_ray.records.untyped_reader import UntypedReader
from echannel_ray.schemas import types
from echannel_ray.schemas.schema import RecordType, record_from
from echannel_ray.schemas.type_texts import type_text
from echannel_ray.session import endpoint_for
from echannel_ray.subscription import Subscription

if TYPE_CHECKING:
    from echannel_ray.endpoint.process_endpoint import ProcessEndpoint
    from echannel_ray.event_code import Ecode
    from echannel_ray.models import ChannelStats
    from echannel_ray.tracing import TracedPublisher


def channel(
    name: str,
    event_type: Any = None,
    *,
    namespace: str | None = None,
    packing: Packing | None = None,
    retain: Retention | None = None,
) -> EventChannel:
    """The channel of this name: created on first use (with these options), opened afterwards."""
    check_channel_name(name)
    if namespace is not None:
        check_namespace(namespace)
    if packing is not None and not isinstance(packing, Packing):
        raise TypeError(f"packing is a Packing, not {type(packing).__name__}: packing=echannel_ray.Packing(degree=64)")
    if retain is not None and not isinstance(retain, Retention):
        raise TypeError(f"retain is a Retention, not {type(retain).__name__}: retain=echannel_ray.Retention(disk=True)")
    endpoint = endpoint_for(namespace)
    opened = EventChannel(endpoint.namespace, name, event_type, packing, retain)
    opened._open(endpoint)
    return opened


class EventChannel:
    """A channel of a namespace; it may be passed to Ray actors and tasks, and opens itself there."""

    def __init__(
        self,
        namespace: str,
        name: str,
        event_type: Any,
        packing: Packing | None,
        retain: Retention | None = None,
        chain: tuple[messages.Shipment, ...] = (),
        output: bytes | None = None,
    ) -> None:
        """Use `echannel_ray.channel`; `chain` are the modulators by which it is derived from that channel, `output` is
        the schema of what they make, where that is another one.
        """
        self._output = output
        self._namespace = namespace
        self._name = name
        self._chain = chain
        self._derived: messages.Derived | None = None
        self._endpoint: ProcessEndpoint | None = None  # that holds it
        self._event_type = event_type
        self._packing = packing
        self._retain = retain
        self._definition: messages.Definition | None = None

    @override
    def __reduce__(self) -> Any:
        return EventChannel, (
            self._namespace, self._name, self._event_type, self._packing, self._retain, self._chain, self._output,
        )  # fmt: skip

    @override
    def __repr__(self) -> str:
        return f"<channel {self._namespace}/{self.name}>"

    @property
    def name(self) -> str:
        """The name within the namespace; that of a derived channel says what it is derived from, and by what code."""
        return name_of_derived(self._name, self._key()) if self._chain else self._name

    @property
    def namespace(self) -> str:
        """The namespace that the channel belongs to."""
        return self._namespace

    @property
    def event_type(self) -> Any:
        """The type of its events, as given when this handle was opened; None on an untyped channel."""
        return self._event_type

    def schema(self) -> dict[str, str] | None:
        """Field names and types of its events, known without the class; None on an untyped channel."""
        if self._output is not None:
            return {field.name: type_text(field.type) for field in record_from(self._output).fields}
        return fields_of(self._defined())

    def stats(self) -> ChannelStats:
        """The channel's counters over all processes."""
        from echannel_ray.models import ChannelStats

        answer = self._joined().requests.ask(messages.GetChannelStats(self._name, self._defined().incarnation))
        stats = ChannelStats.of(self._name, answer)
        return stats.derived.get(self.name, ChannelStats(channel=self.name)) if self._chain else stats

    def delete(self) -> None:
        """Delete it for everybody: producers and subscriptions get `ChannelDeleted`."""
        if self._chain:
            raise errors.EChannelError(
                f"{self.name} is a derived channel, which ends with its last handle and subscriber: close those"
            )
        self._joined().requests.ask(messages.DeleteChannel(self._name, self._defined().incarnation))

    # ---- producing ----

    def producer(
        self,
        overflow: str = "block",
        services: dict[Any, Any] | None = None,
        delegate: Callable[[str], Any] | None = None,
        admission: Admission | None = None,
        validate: bool = False,
    ) -> Producer:
        """A producer of this process. `overflow` is what it does when a consumer's window is full: "block", "raise",
        "drop_newest" or "drop_oldest". `services` and `delegate` are what it grants to modulators, `admission` is what
        it lets in. On a typed channel, `validate` has each event's values compared with its declaration.
        """
        if overflow not in OVERFLOW_POLICIES:
            raise ValueError(f"overflow is one of {', '.join(OVERFLOW_POLICIES)}, not {overflow!r}")
        if admission is not None and not isinstance(admission, Admission):
            raise TypeError(f"admission is an echannel_ray.Admission, not {type(admission).__name__}")
        if delegate is not None and not callable(delegate):
            raise TypeError(f"a delegate is a function of a service's name, not {type(delegate).__name__}")
        endpoint = self._joined()
        derived = self._key()
        definition = self._defined()
        output = types.described(record_from(self._output)) if self._output is not None else None
        publisher = produce(
            endpoint,
            definition,
            encoder_of(endpoint, definition, self._event_type, validate, output),
            overflow=overflow,
            derived=derived,
            admission=admission,
            services=services,
            delegate=delegate,
        )
        return Producer(publisher, _traced(publisher) if switch.is_on else None)

    # ---- consuming ----

    def subscribe(
        self,
        handler: Callable[[Any], Any] | None = None,
        *,
        modulator: Any = None,
        demodulator: Any = None,
        event_type: Any = None,
        group: str | None = None,
        on_error: Callable[[Any], Any] | None = None,
        timeout: float | None = None,
        tier: str | None = None,
        batches: str | None = None,
        start: str | Position | None = None,
        on_missing: str = "raise",
    ) -> Subscription:
        """Consume: `handler(event)` is called for each event, or, without a handler, events are pulled from the
        subscription.

        When this returns, every event whose `publish` begins afterwards, anywhere, reaches it. With a `modulator`, that
        works on the events at every producer first, in this `tier` ("isolated" by default, or "inline"), and the
        `demodulator` on what arrives.

        On a typed channel events arrive as instances of `event_type` (by default, the type that this handle was opened
        with; without one, by field names), or many at once, as columns: `batches` is "numpy" (structured arrays) or
        "arrow" (record batches).

        On a retained channel `start` says where to begin: with the "new" events, with the "earliest" that are retained,
        or at a position (of a message, say). A group goes on where it was. What is missing there is an `EventsMissing`:
        raised by a pull subscription, else given to `on_error`; with on_missing="skip" it is only counted as dropped.
        """
        if handler is not None and not callable(handler):
            raise TypeError(f"a handler is a function or coroutine function of one event, not {type(handler).__name__}")
        if on_error is not None and not callable(on_error):
            raise TypeError(f"on_error is a function of one error, not {type(on_error).__name__}")
        if group is not None:
            check_group_name(group)
        deadline_of(timeout)  # which raises where it is none
        if _as_ecode(modulator) is not None:
            raise errors.ModulatorRefused(
                "E-code derives a channel, and is no modulator: channel.derive(…).subscribe(…)",
                reason="E-code derives a channel",
            )
        eager_handler = EagerHandler.of(modulator, demodulator, tier, group)
        self._check_start(start, on_missing)
        endpoint = self._joined()
        # A place in the logs is where those begin who read them: modulators work on what is replayed from there.
        is_replayed = start not in (None, "new") and (eager_handler.shipment is not None or bool(self._chain))
        with self._behind(endpoint, start, group) if is_replayed else nullcontext(self._key()) as parent:
            records = self._records(endpoint, event_type, batches)
            inbox = self._inbox(endpoint, handler, group, eager_handler.fingerprint)
            inbox.on_error = None if on_error is None else bare(on_error)
            consumption = consume(
                endpoint,
                self._defined(),
                inbox,
                records,
                parent=parent,
                eager_handler=eager_handler,
                start=start,
                skips_missing=on_missing == "skip",
                timeout=timeout,
            )
        return Subscription(consumption)

    async def asubscribe(
        self,
        handler: Callable[[Any], Any] | None = None,
        *,
        modulator: Any = None,
        demodulator: Any = None,
        event_type: Any = None,
        group: str | None = None,
        on_error: Callable[[Any], Any] | None = None,
        timeout: float | None = None,
        tier: str | None = None,
        batches: str | None = None,
        start: str | Position | None = None,
        on_missing: str = "raise",
    ) -> Subscription:
        """As `subscribe`, without holding up the event loop."""
        loop = asyncio.get_running_loop()

        def subscribe() -> Subscription:
            with handler_loop.of(loop):
                return self.subscribe(
                    handler,
                    modulator=modulator, demodulator=demodulator, event_type=event_type, group=group,
                    on_error=on_error, timeout=timeout, tier=tier, batches=batches, start=start, on_missing=on_missing,
                )  # fmt: skip

        # One that was cancelled leaves nothing installed.
        return await in_thread(subscribe, undo=Subscription.close)

    def derive(self, modulator: Any, params: Any = None, *, tier: str | None = None) -> EventChannel:
        """A derived channel: what is published here, behind a modulator or E-code that works at every producer. It is
        installed when this returns, and lives as long as a handle or a subscriber.

        E-code (a text, or what `echannel_ray.ecode` makes) needs a typed channel; `params` is the shared object that
        steers it.
        """
        event_type, output = self._event_type, self._output
        program = _as_ecode(modulator)
        if program is not None:
            from echannel_ray.event_code import shipped

            shipment, made = shipped(program, self._readable(tier), params)
            if made is not None:
                event_type, output = program.output, made
        elif params is not None:
            raise TypeError("params steers E-code: a modulator takes its shared objects as arguments of its own")
        else:
            shipment = ship(modulator, tier_of(tier))
        chain = (*self._chain, shipment)
        derived = EventChannel(self._namespace, self._name, event_type, self._packing, self._retain, chain, output)
        derived._key()
        return derived

    def _readable(self, tier: str | None) -> RecordType:
        """What E-code on this channel may read."""
        if tier not in (None, "ecode"):
            raise ValueError(f"E-code runs in the tier 'ecode', not {tier!r}")
        type_schema = self._defined().type_schema
        if self._output is not None:
            return record_from(self._output)
        if type_schema is None:
            raise errors.ModulatorRefused(
                f"channel {self._name!r} is untyped, and E-code needs a type: create the channel with one",
                reason="the channel is untyped",
                channel=self._name,
            )
        return types.readable_of(type_schema)

    def _key(self) -> str:
        """The key by which managers know the channel, "" where it is not derived; where it is, it is installed."""
        if not self._chain:
            return ""
        endpoint = self._joined()
        if self._derived is None or self._endpoint is not endpoint:
            held = EventChannel(self._namespace, self._name, None, self._packing, self._retain, self._chain[:-1])
            parent = held._key()  # it must not end before this one is there
            derived, handle = derive(endpoint, self._defined(), parent, self._chain[-1])
            self._derived, self._endpoint = derived, endpoint
            weakref.finalize(self, endpoint.derivations.released, handle).atexit = False
        return self._derived.key

    def _records(self, endpoint: ProcessEndpoint, event_type: Any, batches: str | None) -> RecordReader | None:
        """How a subscription reads the records of a typed channel."""
        if batches not in (None, "numpy", "arrow"):
            raise ValueError(f'batches is "numpy" or "arrow", not {batches!r}')
        definition = self._defined()
        type_schema = definition.type_schema
        if self._output is not None:
            type_schema = types.described(record_from(self._output))
        if event_type is not None:
            if type_schema is not None and self._output is None:
                definition = self._definition = open_more(endpoint, definition, event_type)
                type_schema = definition.type_schema
            types.check_consumer(self._name, type_schema, event_type)
        if type_schema is None and retains(definition):
            return RecordReader(endpoint, self._name, definition.incarnation, UntypedReader(batches))
        if type_schema is None:
            if batches is not None:
                raise TypeError(f"channel {self._name!r} is untyped, and has no batches: create it with a type")
            return None
        target = event_type if event_type is not None else self._event_type
        if target is not None and event_type is None:
            types.check_consumer(self._name, type_schema, target)
        # Columns have a value in every row: by itself a batch has no field that some records lack.
        record = types.record_of(type_schema) if batches is None else types.certain_of(type_schema)
        if target is not None:
            record = types.with_defaults_of(type_schema, types.schema_of(target))
        return RecordReader(endpoint, self._name, definition.incarnation, Reader(target, record, batches))

    def _check_start(self, start: str | Position | None, on_missing: str) -> None:
        """Raise where the channel can't be read from there."""
        if on_missing not in ("raise", "skip"):
            raise ValueError(f'on_missing is "raise" or "skip", not {on_missing!r}')
        if isinstance(start, str) and start not in ("new", "earliest"):
            raise ValueError(f'start is "new", "earliest" or a position, not {start!r} (see Position.parse)')
        if start is not None and not isinstance(start, str | Position):
            raise TypeError(f'start is "new", "earliest" or a Position, not {type(start).__name__}')
        if start not in (None, "new") and not retains(self._defined()):
            raise ValueError(
                f"channel {self.name!r} can't be read from {start!r} on: it retains nothing: create it with retain="
            )

    def _behind(
        self, endpoint: ProcessEndpoint, start: str | Position | None, group: str | None
    ) -> AbstractContextManager[str]:
        """What is derived up to here, from a place in the logs on; it lives as long as its subscriber."""
        return derived_meanwhile(endpoint, self._defined(), replay_from(str(start), group), *self._chain)

    def _inbox(
        self, endpoint: ProcessEndpoint, handler: Callable[[Any], Any] | None, group: str | None, fingerprint: str
    ) -> Inbox:
        drive: Callable[[Inbox], Driver]
        if handler is None:
            drive = PullDriver
        elif _is_coroutine_function(handler):
            drive = partial(CoroutineDriver, handler, handler_loop())
        else:
            drive = partial(FunctionDriver, handler)
        return Inbox(endpoint, endpoint.new_subscription(), self._name, group, fingerprint, drive, _tracer())

    # ---- opening ----

    def _joined(self) -> ProcessEndpoint:
        endpoint = endpoint_for(self._namespace)
        if self._definition is None or self._name not in endpoint.definitions:
            self._open(endpoint)
        return endpoint

    def _open(self, endpoint: ProcessEndpoint) -> None:
        # A derived channel may have another type than what it is derived from.
        event_type = self._event_type if not self._chain else None
        definition = open_typed(endpoint, self._name, event_type, self._packing, self._retain)
        options.check_retention(self._name, definition.options, self._retain)
        self._definition = definition

    def _defined(self) -> messages.Definition:
        if self._definition is None:
            self._joined()
        if self._definition is None:
            raise errors.Disconnected(f"channel {self._name!r} could not be opened")
        return self._definition


def _traced(publisher: Publisher) -> TracedPublisher:
    from echannel_ray.tracing import TracedPublisher

    return TracedPublisher(publisher)


def _tracer() -> Tracer | None:
    if switch.is_on:
        from echannel_ray.tracing import ConsumerTracer

        return ConsumerTracer()
    return None


def _as_ecode(modulator: Any) -> Ecode | None:
    if modulator is None or isinstance(modulator, Modulator):
        return None
    # Imported by the first program: the compiler and what it needs take longer than all else here.
    from echannel_ray.event_code import as_ecode

    return as_ecode(modulator)


def _is_coroutine_function(handler: Callable[[Any], Any]) -> bool:
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004
