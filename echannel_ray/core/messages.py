"""What endpoints, concentrators, managers and the name server say to each other outside the path of events.

Plain dataclasses: they travel through Ray calls as they are, and through links as msgpack (`transport.wire`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

# ---- modulators on their way ---------------------------------------------------------------------------------------


# Of code and state of one modulator: it has to fit into a frame, beside all else that this says.
MAX_SHIPPED_BYTES = 4 << 20


@dataclass(frozen=True)
class SharedRef:
    """A shared object by the number that its master has in the endpoint where it lives."""

    node: int
    endpoint: int
    number: int


REPLAY: Final = "replay"  # the tier of what is no modulator: see `Shipment`


@dataclass(frozen=True)
class Shipment:
    """A modulator as it travels to the producers.

    Its identity is not stated by who ships it: the manager works it out from `code` (and `key`, which each producer
    compares with what the shipped `key()` says there).

    One of the tier `REPLAY` is no modulator: what is derived by it is what the logs of a retained channel hold from
    `start` on, and then what comes. So modulators that are derived from that see what is retained.
    """

    name: str  # the class, for people
    tier: str  # "isolated", "inline" or "ecode"; or `REPLAY`
    code: bytes  # a pickle of (class, modulator), to be read in the sandbox only; empty where the receiver has it
    requires: tuple[str, ...] = ()  # services, by qualified names
    shared: tuple[SharedRef, ...] = ()  # the shared objects that `code` refers to, by their places here
    key: bytes | None = None  # what an overridden `key()` returned, as canonical plain data; None: the state counts
    start: str = ""  # of a replay: "earliest", or a position as text; its `code` tells it from others


@dataclass(frozen=True)
class Derived:
    """A derived channel, as producers see it."""

    key: str  # its identity: parent, code, state or key, and tier
    parent: str  # the key of the derived channel that it is derived from; "" is the channel itself
    shipment: Shipment
    maker: int  # the endpoint that asked for it first
    generation: int = 0  # rises when it is to be installed anew where it was removed


# ---- from an endpoint, through its concentrator, to the manager that keeps the channel -----------------------------


@dataclass(frozen=True)
class OpenChannel:
    """Create the channel, or open it; answered by a `Definition`."""

    channel: str
    type_schema: dict[str, Any] | None
    options: dict[str, Any]
    formats: dict[int, bytes] = field(default_factory=dict)  # in which the opener publishes, by their tokens
    incarnation: int = 0  # of the channel that is there; 0 makes one where there is none


@dataclass(frozen=True)
class LookUpChannel:
    """Answered by the channel's `Definition`, or None where there is none."""

    channel: str


@dataclass(frozen=True)
class GetMembership:
    """Answered by the channel's `Membership`, for who takes no part in it."""

    channel: str
    incarnation: int = 0


@dataclass(frozen=True)
class DeleteChannel:
    """Delete the channel everywhere; answered by None when every endpoint was told."""

    channel: str
    incarnation: int = 0  # of the channel that the caller's handle is for; 0 is whichever is there


@dataclass(frozen=True)
class OpenedLog:
    """A log of a retained channel, and where it ended when its log host opened it: what came later lies behind that."""

    log: str
    since: int


@dataclass(frozen=True)
class RegisterProducer:
    """A producer is being made; answered by the current `Membership`."""

    channel: str
    stream: int
    incarnation: int = 0  # of the channel that the caller's handle is for; 0 is whichever is there
    derived: str = ""  # it publishes straight into this derived channel
    log: OpenedLog | None = None  # it is where this log of a retained channel is kept, and publishes what that holds


@dataclass(frozen=True)
class UnregisterProducer:
    """A producer was closed; answered by None. `totals` are its final counters."""

    channel: str
    stream: int
    totals: dict[str, Any]


@dataclass(frozen=True)
class Subscribe:
    """A subscription is being made; answered by the `Membership` when every producer's endpoint has it."""

    channel: str
    subscription: int
    group: str | None
    # a fingerprint of modulator and demodulator: members of a group have equal ones; "" is none
    handler_fingerprint: str
    incarnation: int = 0  # of the channel that the caller's handle is for; 0 is whichever is there
    parent: str = ""  # the derived channel that it is made on; "" is the channel itself
    shipment: Shipment | None = None  # its modulator
    handler_version: int = 0  # how often it was replaced: the same subscription again, with a higher one, is a `reset`


@dataclass(frozen=True)
class Derive:
    """A handle of a derived channel is being made; answered by the `Derived` when every producer has installed it."""

    channel: str
    handle: int  # unique within the endpoint, subscriptions apart
    parent: str
    shipment: Shipment
    incarnation: int = 0


@dataclass(frozen=True)
class Release:
    """A handle of a derived channel is gone; answered by None."""

    channel: str
    handle: int


@dataclass(frozen=True)
class GetModulator:
    """The code of a derived channel that this endpoint lacks; answered by its `Derived`, or None where it has ended."""

    channel: str
    key: str


@dataclass(frozen=True)
class ModulatorGone:
    """A derived channel does not work at a producer: it was removed there, or refused when the producer was made.

    Whoever subscribes to it next, or resets to it, has it installed anew there. Answered by None.
    """

    channel: str
    key: str
    generation: int
    stream: int  # of the producer


@dataclass(frozen=True)
class Unsubscribe:
    """A subscription was closed; answered by None when every producer's endpoint has let go of it."""

    channel: str
    subscription: int
    totals: dict[str, Any]
    is_late: bool = False  # it was closed before, and this was counted since; not to be repeated


@dataclass(frozen=True)
class GetChannelStats:
    """Answered by the counters of the channel, summed over all processes: dict[str, Any]."""

    channel: str
    incarnation: int = 0  # of the channel that the caller's handle is for; 0 is whichever is there


@dataclass(frozen=True)
class OpenLog:
    """Have the log of a retained channel at this node; answered, by the concentrator itself, by a `LogAddress`."""

    channel: str
    incarnation: int = 0


@dataclass(frozen=True)
class OpenGateway:
    """Have the gateway of this node; answered, by the concentrator itself, by its endpoint as a text."""

    host: str
    port: int
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    derive: tuple[str, ...]
    files: tuple[str, ...] = ("*",)
    max_events_per_second: float | None = None
    max_bytes_per_second: float | None = None
    max_event_bytes: int | None = None
    events_port: int = 0


@dataclass(frozen=True)
class GrantAtGateway:
    """Have the gateway of this node give another token; answered by its endpoint with that, as a text."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    derive: tuple[str, ...]
    files: tuple[str, ...]
    max_events_per_second: float | None
    max_bytes_per_second: float | None
    max_event_bytes: int | None
    expires_after_seconds: float | None


@dataclass(frozen=True)
class RevokeAtGateway:
    """Have the gateway of this node end a token, of which this is the digest; answered by None."""

    digest: bytes


@dataclass(frozen=True)
class GetStatus:
    """Answered (by the name server) by a description of all parts: dict[str, Any]."""


ManagerRequest = (
    OpenChannel
    | LookUpChannel
    | GetMembership
    | DeleteChannel
    | RegisterProducer
    | UnregisterProducer
    | Subscribe
    | Unsubscribe
    | GetChannelStats
    | Derive
    | Release
    | GetModulator
    | ModulatorGone
)
GatewayRequest = OpenGateway | GrantAtGateway | RevokeAtGateway
Request = ManagerRequest | OpenLog | GatewayRequest | GetStatus


# ---- answers, and what managers push to endpoints ------------------------------------------------------------------


@dataclass(frozen=True)
class Definition:
    """What a channel is: hard state, kept by its manager and by the name server.

    Of two, the one with the higher (incarnation, revision) counts.
    """

    channel: str
    type_schema: dict[str, Any] | None
    options: dict[str, Any]
    incarnation: int = 0  # a channel that is created again after its deletion has a higher one
    formats: dict[int, bytes] = field(default_factory=dict)  # in which its records travel, by their tokens
    revision: int = 0  # rises when formats or fields are added


@dataclass(frozen=True)
class Consumer:
    """One subscription, as producers see it."""

    node: int
    endpoint: int
    subscription: int
    group: str | None
    derived: str = ""  # the key of the derived channel that it consumes; "" is the channel itself
    handler_version: int = 0  # how often it was replaced


@dataclass(frozen=True)
class LogAddress:
    """One log of a retained channel, and the endpoint that keeps it."""

    node: int
    endpoint: int
    log: str
    since: int = 0  # see `OpenedLog`


@dataclass(frozen=True)
class Membership:
    """All consumers of a channel and of what is derived from it.

    Of two, the one with the higher `recency` counts; `deleted` is the last.
    """

    channel: str
    epoch: int  # rises each time a manager starts
    version: int
    consumers: tuple[Consumer, ...]
    deleted: bool = False
    incarnation: int = 0
    derived: tuple[Derived, ...] = ()  # parents before their children
    logs: tuple[LogAddress, ...] = ()  # of a retained channel: consumers are told too

    @property
    def recency(self) -> tuple[int, int]:
        """(epoch, version): of two, the one in which it is higher counts."""
        return self.epoch, self.version


@dataclass(frozen=True)
class RefusedModulator:
    """A producer can't work with a derived channel; `error` is what `subscribe` is to raise, as `transport.wire`
    encodes it.
    """

    key: str
    stream: int
    error: bytes


@dataclass(frozen=True)
class Installed:
    """The answer to a `Membership` that was pushed: it counts from now on, but for what is refused."""

    refused: tuple[RefusedModulator, ...] = ()  # all that its producers do not have of what it names, however long


@dataclass(frozen=True)
class Unconfirmed:
    """A concentrator's word for an endpoint that has not answered a push yet: it may be making a modulator ready."""


@dataclass(frozen=True)
class StatsWanted:
    """A manager asks an endpoint for its counters of a channel; answered by dict[str, Any]."""

    channel: str


@dataclass(frozen=True)
class NodeDrains:
    """The node is to be removed: its endpoints leave in order within this time. Answered at once, by True."""

    seconds: float


Push = Membership | StatsWanted | NodeDrains


# ---- what an endpoint says of itself when it attaches to a concentrator, and concentrators report to managers
# ---------


@dataclass(frozen=True)
class Registrations:
    """What one endpoint holds open on one channel."""

    node: int
    endpoint: int
    channel: str
    definition: Definition
    streams: tuple[tuple[int, str], ...]  # (stream, derived)
    # (subscription, group, fingerprint, derived, handler version)
    consumers: tuple[tuple[int, str | None, str, str, int], ...]
    derived: tuple[Derived, ...] = ()  # that it consumes or has handles of, and their parents; parents first
    handles: tuple[tuple[int, str], ...] = ()  # (handle, derived)
    logs: tuple[tuple[int, OpenedLog], ...] = ()  # by streams


@dataclass(frozen=True)
class Tally:
    """What one endpoint has to do with one channel, for metrics: `counters` by how much they have grown since it last
    said so, `gauges` as they are now. Both are named as in statistics; derived channels go by their modulators.
    """

    channel: str
    counters: dict[str, Any]
    gauges: dict[str, Any]


# ---- between concentrators and the name server ---------------------------------------------------------------------


@dataclass(frozen=True)
class ConcentratorInfo:
    """Where one concentrator is: its node, its actor's name, and where its peers reach it."""

    node: int
    ray_node_id: str
    actor_name: str
    host: str
    port: int
    raylet_port: int
    pid: int
    incarnation: int  # rises each time it starts


@dataclass(frozen=True)
class Directory:
    """What the name server tells every concentrator: of two, the one with the higher `recency` counts."""

    epoch: int
    version: int
    managers: tuple[str, ...]  # actor names; a channel's manager is `managers[slot_of(channel, len(managers))]`
    concentrators: tuple[ConcentratorInfo, ...] = field(default=())
    revoked: tuple[tuple[int, int], ...] = ()  # node: certificates issued to it before this second are void

    @property
    def recency(self) -> tuple[int, int]:
        """(epoch, version): of two, the one in which it is higher counts."""
        return self.epoch, self.version
