"""From what was read of a namespace, round after round, to what a viewer is shown. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from echannel_ray.models import ChannelStats, ConcentratorPart, Manager, Part, Status
from echannel_ray.overview.phrases import counted
from echannel_ray.overview.rate_meter import RateMeter
from echannel_ray.overview.readings import ChannelLine
from echannel_ray.overview.topology import Edge as Link
from echannel_ray.overview.topology import NodeSpot, parent_of, topology_of, with_derived
from echannel_ray.page.picture import ChannelRow, DerivedRow, EndsRow, NodeRow, PartRow, Picture


class Painter:
    """Has the counters of the round before, from which rates come. Clear it when there was a pause."""

    def __init__(self) -> None:
        self._meter = RateMeter()

    def paint(
        self, status: Status, lines: Sequence[ChannelLine], now: float, wall: float, round_seconds: float
    ) -> Picture:
        """The picture of this round; `now` is of a monotonic clock."""
        topology = topology_of(status, lines)
        links = defaultdict(list)
        for link in topology.edges:
            links[link.channel].append(link)
        rows = [self._row(line, links, now) for line in lines]
        self._meter.end_round()
        return Picture(
            namespace=status.namespace,
            at=wall,
            round_seconds=round_seconds,
            nodes=[_node(spot) for spot in topology.nodes],
            parts=_parts(status),
            rows=rows,
        )

    def _row(self, line: ChannelLine, links: dict[str, list[Link]], now: float) -> ChannelRow:
        # Who listens to what is derived listens to the channel: what it gets, and lacks, is the channel's too.
        own, *derived = everything = with_derived(line)
        total = _total(line, everything)
        published_rate = self._rate(own, "published", own.events_published, now)
        dropped_rate = _sum([self._rate(each, "dropped", each.events_dropped, now) for each in everything])
        failed_rate = _sum([self._rate(each, "failed", each.events_failed, now) for each in everything])
        delivered_rate = _sum([self._rate(each, "delivered", each.events_delivered, now) for each in everything])
        blocked_share = self._blocked_share(own, now)
        p50, p99 = self._meter.latencies(own, now)
        degrees = line.packing_degree.values()
        return ChannelRow(
            channel=line.channel,
            event_type=(line.event_type or "").rpartition(":")[2] or None,
            producers=line.producers,
            consumers=total.consumers,
            published=line.events_published,
            delivered=total.events_delivered,
            published_rate=published_rate,
            delivered_rate=delivered_rate,
            bytes_rate=self._rate(own, "bytes", own.bytes_published, now),
            dropped_rate=dropped_rate,
            dropped=total.events_dropped,
            drops=total.dropped,
            failed=total.events_failed,
            lag=total.consumer_lag_events,
            queue=total.queue_depth,
            p50=_precise(p50),
            p99=_precise(p99),
            packing=round(sum(degrees) / len(degrees), 1) if degrees else None,
            blocked=line.blocked_producers,
            blocked_share=blocked_share,
            saved_bytes=sum(each.saved_bytes for each in derived),
            level=level(total, published_rate, dropped_rate, failed_rate, blocked_share),
            edges=self._edges(links[line.channel], now),
            branches=[self._branch(each, line, links, now) for each in derived],
        )

    def _branch(self, derived: ChannelStats, line: ChannelLine, links: dict[str, list[Link]], now: float) -> DerivedRow:
        return DerivedRow(
            channel=derived.channel,
            parent=parent_of(derived, line),
            modulator=derived.modulator or "",
            producers=derived.producers,
            consumers=derived.consumers,
            in_rate=self._rate(derived, "in", derived.events_in, now),
            out_rate=self._rate(derived, "out", derived.events_out, now),
            events_in=derived.events_in,
            events_out=derived.events_out,
            saved_bytes=derived.saved_bytes,
            errors=derived.modulator_errors,
            edges=self._edges(links[derived.channel], now),
        )

    def _edges(self, links: list[Link], now: float) -> list[EndsRow]:
        found = []
        for link in links:
            rate = _rounded(self._meter.rate((link.channel, link.node, link.kind), link.events, now))
            found.append(EndsRow(link.kind, link.node, link.ends, rate, link.blocked_producers, link.queue_depth))
        return found

    def _rate(self, stats: ChannelStats, what: str, value: float, now: float) -> float | None:
        return _rounded(self._meter.rate((stats.channel, what), value, now))

    def _blocked_share(self, stats: ChannelStats, now: float) -> float | None:
        blocked = self._meter.rate((stats.channel, "blocked"), stats.blocked_milliseconds / 1000, now)
        if blocked is None or not stats.producers:
            return None
        return round(min(1.0, blocked / stats.producers), 3)


def _total(line: ChannelLine, everything: Sequence[ChannelStats]) -> ChannelStats:
    """The channel, with what its consumers and those of all that is derived from it have counted together."""
    drops: Counter[str] = Counter()
    for each in everything:
        drops.update(each.dropped)
    counters = (
        "consumers", "events_delivered", "events_dropped", "events_failed", "consumer_lag_events", "queue_depth",
    )  # fmt: skip
    sums = {name: sum(getattr(each, name) for each in everything) for name in counters}
    return line.model_copy(update={**sums, "dropped": dict(drops)})


def _sum(rates: Sequence[float | None]) -> float | None:
    """The sum of the channel's own rate and those of what is derived, of which some may be new."""
    return None if rates[0] is None else _rounded(sum(rate or 0.0 for rate in rates))


def level(
    stats: ChannelStats,
    published_rate: float | None,
    dropped_rate: float | None,
    failed_rate: float | None,
    blocked_share: float | None,
) -> str:
    """How a channel is, the worst first: producers wait, events are dropped, handlers raise, consumers are more than a
    second of events behind, or all is well.
    """
    if stats.blocked_producers or (blocked_share or 0) >= 0.05:
        return "blocked"
    if dropped_rate:
        return "dropping"
    if failed_rate:
        return "failing"
    a_second = (published_rate or 0) * max(1, stats.consumers)
    if stats.consumer_lag_events > max(100, a_second):
        return "behind"
    return "flowing" if published_rate else "idle"


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 1)


def _precise(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)


def _node(spot: NodeSpot) -> NodeRow:
    return NodeRow(spot.node, spot.alive, spot.joined, spot.suspected, spot.processes, spot.restarts, spot.error)


def _parts(status: Status) -> list[PartRow]:
    rows = [_part("name server", status.name_server, "")]
    rows += [_part("manager", each, _duty(each)) for each in status.managers]
    rows += [
        _part("concentrator", each, _traffic(each), len(each.suspected_endpoints)) for each in status.concentrators
    ]
    return rows


def _part(kind: str, part: Part, facts: str, suspected: int = 0) -> PartRow:
    return PartRow(kind, part.name, part.node_id[:16], part.pid, part.restarts, part.error, facts, suspected)


def _duty(manager: Manager) -> str:
    return counted(len(manager.channels), "channel") + (f", {manager.state}" if manager.state != "serving" else "")


def _traffic(hub: ConcentratorPart) -> str:
    facts = [counted(hub.endpoints, "process", "es"), counted(hub.peers, "peer")]
    told = {
        "bytes queued": hub.queued_bytes,
        "malformed frames": hub.malformed_frames,
        "refused links": hub.refused_links,
        "dropped frames": hub.dropped_frames,
    }
    return ", ".join(facts + [f"{number:,} {what}" for what, number in told.items() if number])
