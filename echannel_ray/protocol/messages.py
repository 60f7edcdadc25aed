"""What endpoints, concentrators, managers and the name server say to each other outside the path of events.

Plain dataclasses: they travel through Ray calls as they are, and through links as msgpack (`transport.wire`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# ---- from an endpoint, through its concentrator, to the manager that keeps the channel -----------------------------


@dataclass(frozen=True)
class OpenChannel:
    """Create the channel, or open it; answered by a `Definition`."""

    channel: str
    type_schema: dict[str, Any] | None
    options: dict[str, Any]


@dataclass(frozen=True)
class DeleteChannel:
    """Delete the channel everywhere; answered by None when every endpoint was told."""

    channel: str
    incarnation: int = 0  # of the channel that the caller's handle is for; 0 is whichever is there


@dataclass(frozen=True)
class RegisterProducer:
    """A producer is being made; answered by the current `Membership`."""

    channel: str
    stream: int
    incarnation: int = 0  # of the channel that the caller's handle is for; 0 is whichever is there


@dataclass(frozen=True)
class UnregisterProducer:
    """A producer was closed; answered by None. `totals` are its final counters."""

    channel: str
    stream: int
    totals: dict[str, int]


@dataclass(frozen=True)
class Subscribe:
    """A subscription is being made; answered by the `Membership` when every producer's endpoint has it."""

    channel: str
    subscription: int
    group: str | None
    pair: str  # a fingerprint of modulator and demodulator: members of a group have equal ones; "" is none
    incarnation: int = 0  # of the channel that the caller's handle is for; 0 is whichever is there


@dataclass(frozen=True)
class Unsubscribe:
    """A subscription was closed; answered by None when every producer's endpoint has let go of it."""

    channel: str
    subscription: int
    totals: dict[str, int]


@dataclass(frozen=True)
class GetChannelStats:
    """Answered by the counters of the channel, summed over all processes: dict[str, Any]."""

    channel: str
    incarnation: int = 0  # of the channel that the caller's handle is for; 0 is whichever is there


@dataclass(frozen=True)
class GetStatus:
    """Answered (by the name server) by a description of all parts: dict[str, Any]."""


ManagerRequest = (
    OpenChannel | DeleteChannel | RegisterProducer | UnregisterProducer | Subscribe | Unsubscribe | GetChannelStats
)
Request = ManagerRequest | GetStatus


# ---- answers, and what managers push to endpoints ------------------------------------------------------------------


@dataclass(frozen=True)
class Definition:
    """What a channel is: hard state, kept by its manager and by the name server."""

    channel: str
    type_schema: dict[str, Any] | None
    options: dict[str, Any]
    incarnation: int = 0  # a channel that is created again after its deletion has a higher one


@dataclass(frozen=True)
class Consumer:
    """One subscription, as producers see it."""

    node: int
    endpoint: int
    subscription: int
    group: str | None


@dataclass(frozen=True)
class Membership:
    """All consumers of a channel. Of two, the one with the higher (epoch, version) counts; `deleted` is the last."""

    channel: str
    epoch: int  # rises each time a manager starts
    version: int
    consumers: tuple[Consumer, ...]
    deleted: bool = False
    incarnation: int = 0


@dataclass(frozen=True)
class StatsWanted:
    """A manager asks an endpoint for its counters of a channel; answered by dict[str, Any]."""

    channel: str


Push = Membership | StatsWanted


# ---- what an endpoint says of itself when it attaches to a concentrator, and concentrators report to managers
# ---------


@dataclass(frozen=True)
class Registrations:
    """What one endpoint holds open on one channel."""

    node: int
    endpoint: int
    channel: str
    definition: Definition
    streams: tuple[int, ...]
    consumers: tuple[tuple[int, str | None, str], ...]  # (subscription, group, pair)


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
    """What the name server tells every concentrator: of two, the one with the higher (epoch, version) counts."""

    epoch: int
    version: int
    managers: tuple[str, ...]  # actor names; a channel's manager is `managers[slot_of(channel, len(managers))]`
    concentrators: tuple[ConcentratorInfo, ...] = field(default=())
