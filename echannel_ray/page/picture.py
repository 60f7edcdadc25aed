"""What a viewer is shown of one round of reading: plain records, which travel as JSON."""

from __future__ import annotations

import msgspec


class EndsRow(msgspec.Struct, frozen=True):
    """Producers or consumers of one node."""

    kind: str  # "produces" or "consumes"
    node: str
    ends: int
    rate: float | None  # events in a second
    blocked: int  # producers that wait
    queue: int  # events that wait


class DerivedRow(msgspec.Struct, frozen=True):
    """A derived channel."""

    channel: str
    parent: str
    modulator: str
    producers: int
    consumers: int
    in_rate: float | None
    out_rate: float | None
    events_in: int
    events_out: int
    saved_bytes: int
    errors: int
    edges: list[EndsRow]


class ChannelRow(msgspec.Struct, frozen=True):
    """A channel. Rates are in a second, since the round before; None is unknown."""

    channel: str
    event_type: str | None
    producers: int
    consumers: int  # of derived channels too
    published: int
    delivered: int  # also by those of derived channels, as all that is said of consumers
    published_rate: float | None
    delivered_rate: float | None
    bytes_rate: float | None
    dropped_rate: float | None
    dropped: int
    drops: dict[str, int]  # by reason
    failed: int
    lag: int  # events that were published and not handled, over all consumers
    queue: int
    p50: float | None  # seconds from `publish` to the handler
    p99: float | None
    packing: float | None  # events in a pack, on the mean link
    blocked: int  # producers that wait in `publish`
    blocked_share: float | None  # of the producers' time that they have waited
    saved_bytes: int
    level: str  # as `painter.level` names it
    edges: list[EndsRow]
    branches: list[DerivedRow]  # each followed by what is derived from it


class PartRow(msgspec.Struct, frozen=True):
    """An actor of the namespace."""

    kind: str
    name: str
    node: str
    pid: int
    restarts: int
    error: str | None
    facts: str  # what it has, in words
    suspected: int  # endpoints that are silent


class NodeRow(msgspec.Struct, frozen=True):
    """A node of the cluster."""

    node: str
    alive: bool
    joined: bool
    suspected: bool
    processes: int
    restarts: int
    error: str | None


class Picture(msgspec.Struct, frozen=True):
    """A namespace at one time."""

    namespace: str
    at: float  # by the clock of the wall
    round_seconds: float  # how long it took to read
    nodes: list[NodeRow]
    parts: list[PartRow]
    rows: list[ChannelRow]
