"""Who is connected with whom: nodes, channels with what is derived from them, and the edges between the two; and what
deriving has saved.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Literal

from pydantic import BaseModel, Field

from echannel_ray.models import ChannelStats, Status
from echannel_ray.overview.readings import ChannelLine, read_channels, read_status

NODE_DIGITS = 16  # of a Ray node id: as many as the counters of a channel name its nodes by


class NodeSpot(BaseModel):
    """A node of the cluster, and its concentrator if it has one."""

    node: str  # the first 16 digits of its Ray node id
    alive: bool = True
    suspected: bool = False
    joined: bool = False  # it has a concentrator
    processes: int = 0  # that are linked to it
    restarts: int = 0  # of the concentrator
    queued_bytes: int = 0  # that wait in it
    error: str | None = None  # why its concentrator did not answer


class ChannelSpot(BaseModel):
    """A channel, or one that is derived."""

    channel: str
    parent: str | None = None  # what it is derived from; None of a channel that is not
    modulator: str | None = None  # by what
    event_type: str | None = None  # None is untyped, or derived
    producers: int = 0
    consumers: int = 0


class Edge(BaseModel):
    """The producers, or the consumers, that one node has on one channel."""

    kind: Literal["produces", "consumes"]
    node: str
    channel: str
    ends: int  # so many producers, or consumers
    events: int = 0  # that they have published, or handled
    blocked_producers: int = 0  # that wait in `publish`
    queue_depth: int = 0  # events that wait for handlers there


class Topology(BaseModel):
    """A namespace as a graph."""

    namespace: str
    nodes: list[NodeSpot] = Field(default_factory=list)
    channels: list[ChannelSpot] = Field(default_factory=list)  # each followed by what is derived from it
    edges: list[Edge] = Field(default_factory=list)

    def edges_of(self, channel: str) -> list[Edge]:
        """The edges of one channel: producers first."""
        return [edge for edge in self.edges if edge.channel == channel]


class DerivationTree(BaseModel):
    """A channel, or one that is derived, with what is derived from it."""

    channel: str
    modulator: str | None = None  # None of a channel that is not derived
    consumers: int = 0
    events_in: int = 0  # that its modulator has seen; of a channel, events that were published
    events_out: int = 0  # that it has emitted; of a channel, the same
    saved_bytes: int = 0
    modulator_errors: int = 0
    derived: list[DerivationTree] = Field(default_factory=list)

    @property
    def total_saved_bytes(self) -> int:
        """The bytes that this modulator and those below it have saved."""
        return self.saved_bytes + sum(each.total_saved_bytes for each in self.derived)


def read_topology(namespace: str) -> Topology:
    """The namespace as it is now."""
    status = read_status(namespace)
    return topology_of(status, read_channels(namespace) if status.managers else [])


def topology_of(status: Status, channels: Iterable[ChannelLine]) -> Topology:
    """The graph of what was read."""
    topology = Topology(namespace=status.namespace, nodes=[*_nodes(status)])
    for line in channels:
        for stats in with_derived(line):
            topology.channels.append(_spot(stats, line))
            topology.edges.extend(_edges(stats))
    known = {spot.node for spot in topology.nodes}
    unknown = dict.fromkeys(edge.node for edge in topology.edges if edge.node not in known)
    # A node that has joined since the parts were asked.
    topology.nodes.extend(NodeSpot(node=node, joined=True) for node in unknown)
    return topology


def with_derived(stats: ChannelStats) -> list[ChannelStats]:
    """A channel and all that is derived from it, each followed by its own."""
    children = _children(stats)

    def below(parent: str) -> Iterator[ChannelStats]:
        for child in children[parent]:
            yield child
            yield from below(child.channel)

    return [stats, *below(stats.channel)]


def derivation_of(channel: ChannelStats) -> DerivationTree:
    """The tree of one channel."""
    children = _children(channel)

    def branch(stats: ChannelStats) -> DerivationTree:
        is_root = stats is channel
        return DerivationTree(
            channel=stats.channel,
            modulator=stats.modulator,
            consumers=stats.consumers,
            events_in=stats.events_published if is_root else stats.events_in,
            events_out=stats.events_published if is_root else stats.events_out,
            saved_bytes=stats.saved_bytes,
            modulator_errors=stats.modulator_errors,
            derived=[branch(each) for each in children[stats.channel]],
        )

    return branch(channel)


def _children(channel: ChannelStats) -> defaultdict[str, list[ChannelStats]]:
    """What is derived from each of a channel and its derived ones directly, by name."""
    children = defaultdict(list)
    for each in sorted(channel.derived.values(), key=lambda each: each.channel):
        children[parent_of(each, channel)].append(each)
    return children


def parent_of(derived: ChannelStats, channel: ChannelStats) -> str:
    """What it is derived from: the channel, or something that is derived from it."""
    # Counters are gathered from many processes, so a parent that has just ended may be missing.
    known = (each.channel for each in channel.derived.values())
    return derived.parent if derived.parent is not None and derived.parent in known else channel.channel


def _nodes(status: Status) -> Iterator[NodeSpot]:
    # One that does not answer says nothing of its node, and its name ends in that.
    concentrators = {
        (each.node_id or each.name.rpartition("-")[2])[:NODE_DIGITS]: each for each in status.concentrators
    }
    for node in status.nodes:
        number = node.node_id[:NODE_DIGITS]
        hub = concentrators.get(number)
        if not node.alive and hub is None:
            continue  # Ray remembers all that there ever were
        spot = NodeSpot(node=number, alive=node.alive, suspected=node.suspected, joined=node.joined)
        if hub is not None:
            spot.processes, spot.restarts = hub.endpoints, hub.restarts
            spot.queued_bytes, spot.error = hub.queued_bytes, hub.error
        yield spot


def _spot(stats: ChannelStats, line: ChannelLine) -> ChannelSpot:
    is_derived = stats is not line
    return ChannelSpot(
        channel=stats.channel,
        parent=parent_of(stats, line) if is_derived else None,
        modulator=stats.modulator,
        event_type=None if is_derived else line.event_type,
        producers=stats.producers,
        consumers=stats.consumers,
    )


def _edges(stats: ChannelStats) -> Iterator[Edge]:
    for node, share in sorted(stats.nodes.items()):
        if share.producers:
            yield Edge(
                kind="produces", node=node, channel=stats.channel, ends=share.producers,
                events=share.events_published, blocked_producers=share.blocked_producers,
            )  # fmt: skip
    for node, share in sorted(stats.nodes.items()):
        if share.consumers:
            yield Edge(
                kind="consumes", node=node, channel=stats.channel, ends=share.consumers,
                events=share.events_delivered, queue_depth=share.queue_depth,
            )  # fmt: skip
