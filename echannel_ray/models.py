"""What `status()` and `stats()` tell, as models."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, computed_field

from echannel_ray.core.latencies import quantile

if TYPE_CHECKING:
    from typing_extensions import Self


class Part(BaseModel):
    """An actor of a namespace."""

    model_config = ConfigDict(extra="ignore")

    name: str
    pid: int = 0
    node_id: str = ""
    restarts: int = 0
    endpoints: int = 0
    wire_version: int = 0
    compiled: bool = False  # whether the hot modules of its process are compiled, or pure Python
    error: str | None = None  # why it did not answer; the other fields are empty then


class Manager(Part):
    """A channel manager."""

    state: str = ""
    channels: list[str] = Field(default_factory=list)


class Certificate(BaseModel):
    """What a concentrator shows to its peers."""

    model_config = ConfigDict(extra="ignore")

    source: str  # "issued" by the name server, or "mounted" as files
    until: datetime
    sha256: str
    failures: int = 0  # mounted files that were no good: those before them stay in use


class ConcentratorPart(Part):
    """A concentrator, and how its links are."""

    state: str = ""  # "starting", "serving", or "draining": its node is to be removed
    peers: int = 0
    flows: int = 0
    suspected_endpoints: list[str] = Field(default_factory=list)
    queued_bytes: int = 0
    malformed_frames: int = 0
    refused_links: int = 0
    refused: dict[str, int] = Field(default_factory=dict)  # the same by reason
    certificate: Certificate | None = None
    dropped_frames: int = 0
    packs_forwarded: int = 0
    bytes_between_nodes: int = 0
    gateway: dict[str, int] = Field(default_factory=dict)  # if it has one: what went through, who was refused, why


class Node(BaseModel):
    """A node of the Ray cluster."""

    node_id: str
    alive: bool
    joined: bool
    suspected: bool


class Status(BaseModel):
    """A namespace and all its parts."""

    namespace: str
    name_server: Part
    managers: list[Manager]
    concentrators: list[ConcentratorPart]
    channels: list[str]
    nodes: list[Node]


class NodeShare(BaseModel):
    """What of a channel's counters comes from the processes of one node that are there now."""

    model_config = ConfigDict(extra="ignore")

    producers: int = 0
    consumers: int = 0
    events_published: int = 0
    events_delivered: int = 0
    events_dropped: int = 0
    bytes_published: int = 0
    queue_depth: int = 0
    blocked_producers: int = 0  # that wait in `publish`: back-pressure


class ChannelStats(BaseModel):
    """Counters of a channel, summed over all processes that are there and those that left in order."""

    model_config = ConfigDict(extra="ignore")

    channel: str
    producers: int = 0
    consumers: int = 0
    events_published: int = 0
    events_delivered: int = 0
    events_dropped: int = 0
    events_failed: int = 0
    bytes_published: int = 0
    bytes_between_nodes: int = 0
    packs_sent: int = 0
    events_in_segments: int = 0  # that consumers of the same node look at where they were written
    not_in_segments: dict[str, int] = Field(
        default_factory=dict
    )  # large events (and loans) that went otherwise, by why
    packing_degree: dict[str, float] = Field(default_factory=dict)
    derived: dict[str, ChannelStats] = Field(default_factory=dict)
    parent: str | None = None  # of a derived channel: what it is derived from
    modulator: str | None = None  # of a derived channel: its class
    events_in: int = 0  # that its modulator has seen
    events_out: int = 0  # that it has emitted
    blocked_producers: int = 0  # that wait in `publish`: for a consumer, or for a part that is being restarted
    blocked_milliseconds: int = 0  # that `publish` calls have waited, all together
    retained_events: int = 0  # that its logs hold, of a retained channel; and so on
    retained_bytes: int = 0
    staged_bytes: int = 0  # that wait for a commit
    lag: dict[str, int] = Field(default_factory=dict)  # by groups: events in logs that they have not acknowledged
    dropped: dict[str, int] = Field(default_factory=dict)  # `events_dropped` by reason
    queue_depth: int = 0  # events that are in their consumers' processes, and not handled
    consumer_lag_events: int = 0  # published and not handled, over all consumers
    latency: dict[str, int] = Field(default_factory=dict)  # samples by what they took at most, in seconds
    saved_bytes: int = 0  # of a derived channel: of events that its modulator kept from travelling
    modulator_errors: int = 0  # of a derived channel: what its modulator raised
    nodes: dict[str, NodeShare] = Field(default_factory=dict)  # by the first 16 digits of the node's id

    @classmethod
    def of(cls, channel: str, counters: dict[str, Any], **more: Any) -> Self:
        """What a manager tells of a channel, with derived channels by their names."""
        derived = {
            f"{channel}~{key[:12]}": {
                **each,
                "channel": f"{channel}~{key[:12]}",
                "producers": counters.get("producers", 0),  # all have its modulator
            }
            for key, each in counters.get("derived", {}).items()
        }
        return cls.model_validate({**counters, "channel": channel, "derived": derived, **more})

    @computed_field  # type: ignore[prop-decorator]
    @property
    def latency_p50_seconds(self) -> float | None:
        """What half of the sampled events took at most, from `publish` to the return of the handler."""
        return quantile(self.latency, 0.5)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def latency_p99_seconds(self) -> float | None:
        """The latency that all but a hundredth of the events had at most."""
        return quantile(self.latency, 0.99)


class SubscriptionStats(BaseModel):
    """What one subscription has seen."""

    received: int
    handled: int
    failed: int
    dropped: int
    duplicates: int
    pending: int


def status_of(described: dict[str, Any]) -> Status:
    """The name server's description as a model."""
    return Status.model_validate(described)
