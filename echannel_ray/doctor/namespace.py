"""What the parts and the channels of a namespace say of its health. Pure: status and counters in, findings out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from echannel_ray.doctor.findings import Finding, fine, problem, warning
from echannel_ray.ids import WIRE_VERSION
from echannel_ray.models import ChannelStats, ConcentratorPart, Status
from echannel_ray.overview.readings import ChannelLine
from echannel_ray.overview.topology import with_derived

# So many events that were published and not handled are more than a burst.
LONG_LAG_EVENTS = 100_000
_SOON_ISSUED = timedelta(days=7)  # of 30, and half of them is when they are renewed
_SOON_MOUNTED = timedelta(hours=6)  # some live for a day only
_LOOK = "see that the name server answers: concentrators ask it for another one; their logs say what it said"


def judge_parts(status: Status) -> Iterator[Finding]:
    """Name server, managers, concentrators, nodes."""
    if not status.managers and status.name_server.error:
        yield fine("parts", f"nobody has joined namespace {status.namespace} yet")
        return
    silent = [part for part in (status.name_server, *status.managers, *status.concentrators) if part.error]
    for part in silent:
        advice = "look into its worker's log (`ray list actors`): it is started again where its process has ended"
        yield problem("parts", f"{part.name} does not answer: {part.error}", advice)
    for manager in status.managers:
        if manager.error is None and manager.state != "serving":
            advice = "wait: it asks all concentrators what is open, and goes on without those that are gone after 40 s"
            yield warning("parts", f"{manager.name} is {manager.state}: its channels have to wait", advice)
    if not silent:
        count = 1 + len(status.managers) + len(status.concentrators)
        yield fine("parts", f"all {count} of namespace {status.namespace} answer")
    yield from _versions(status)
    yield from _nodes(status)
    yield from _links([each for each in status.concentrators if each.error is None])


def judge_certificates(concentrators: Sequence[ConcentratorPart], now: datetime) -> Iterator[Finding]:
    """Judge when certificates end: issued ones are renewed at half of their life, mounted ones by who mounts them."""
    shown = [(each.node_id[:8], each.certificate) for each in concentrators if each.certificate is not None]
    findings: list[Finding] = []
    for node, certificate in shown:
        left = certificate.until - now
        is_mounted = certificate.source == "mounted"
        advice = "have cert-manager, or who else mounts them, renew them" if is_mounted else _LOOK
        if left <= timedelta(0):
            findings.append(problem("certificates", f"ended at {certificate.until:%Y-%m-%d %H:%M} UTC", advice, [node]))
        elif left < (_SOON_MOUNTED if is_mounted else _SOON_ISSUED):
            says = f"ends at {certificate.until:%Y-%m-%d %H:%M} UTC, and was not renewed"
            findings.append(warning("certificates", says, advice, [node]))
        if certificate.failures:
            says = f"{certificate.failures:,} times files that were mounted were no good: those before stay in use"
            advice = "compare key, certificate and authority in the mounted directory; the concentrator's log says more"
            findings.append(warning("certificates", says, advice, [node]))
    yield from findings
    if shown and not findings:
        first = min(certificate.until for _, certificate in shown)
        yield fine("certificates", f"the first of {len(shown)} ends at {first:%Y-%m-%d}")


def judge_channels(channels: Sequence[ChannelLine]) -> Iterator[Finding]:
    """Producers that wait, consumers that are behind, modulators that fail."""
    findings: list[Finding] = []
    for line in channels:
        for each in with_derived(line):
            findings += _channel(each, is_derived=each is not line)
    yield from findings
    if not findings:
        yield fine("channels", f"nobody waits or is far behind on {len(channels)} of them")


def _channel(stats: ChannelStats, *, is_derived: bool) -> Iterator[Finding]:
    name = stats.channel
    if stats.blocked_producers and not is_derived:
        where = [node[:8] for node, share in stats.nodes.items() if share.blocked_producers]
        says = f"{name}: {stats.blocked_producers} of {stats.producers} producers wait in publish, as windows are full"
        advice = "make the slow handler faster, share its events in a group, or have the producer drop: overflow="
        yield warning("channels", says, advice, where)
    if stats.consumer_lag_events > LONG_LAG_EVENTS:
        says = f"{name}: consumers are {stats.consumer_lag_events:,} events behind"
        yield warning("channels", says, "as above; `echannel info` says at which node they are")
    for group, lag in sorted(stats.lag.items()):
        if lag > LONG_LAG_EVENTS:
            advice = "add members to the group, before the log's bounds overtake it"
            yield warning("channels", f"{name}: group {group} is {lag:,} events behind in the logs", advice)
    if stats.events_dropped and not is_derived:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(stats.dropped.items()))
        says = f"{name}: {stats.events_dropped:,} events were dropped" + (f" ({reasons})" if reasons else "")
        yield warning("channels", says, "make consumers faster, or have the producer wait: overflow='block'")
    if stats.modulator_errors:
        says = f"{name}: modulator {stats.modulator} failed at {stats.modulator_errors:,} events"
        yield warning("channels", says, "its consumers' on_error has the reason: give them a better one with reset()")


def _versions(status: Status) -> Iterator[Finding]:
    parts = [each for each in (status.name_server, *status.managers, *status.concentrators) if each.error is None]
    others = sorted({each.wire_version for each in parts} - {0, WIRE_VERSION})
    if others:
        advice = "install one version everywhere, and end the old parts with echannel_ray.shutdown()"
        says = f"parts speak {', '.join(map(str, others))}, this is {WIRE_VERSION}"
        yield problem("wire version", says, advice)
    elif parts:
        yield fine("wire version", f"{WIRE_VERSION}, as that of all parts")


def _nodes(status: Status) -> Iterator[Finding]:
    suspected = [node.node_id[:8] for node in status.nodes if node.suspected]
    if suspected:
        says = "silent for more than a second"
        advice = "look whether the machine is overloaded, stopped or cut off: after 30 s it counts as dead"
        yield warning("nodes", says, advice, suspected)
    else:
        yield fine("nodes", f"{sum(node.alive for node in status.nodes)} alive, none is suspected")


def _links(concentrators: Sequence[ConcentratorPart]) -> Iterator[Finding]:
    alone = [each.node_id[:8] for each in concentrators if each.peers < len(concentrators) - 1]
    if alone:
        says = "not linked with all other concentrators"
        advice = "let their ports through the firewall: any port, between the nodes' addresses that Ray shows"
        yield problem("links", says, advice, alone)
    elif len(concentrators) > 1:
        yield fine("links", f"all {len(concentrators)} concentrators reach each other")
    for each in concentrators:
        if each.refused_links:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(each.refused.items()))
            says = f"{each.refused_links:,} links were refused" + (f" ({reasons})" if reasons else "")
            advice = "see who tries: its address is in the concentrator's log; a scan of ports is one too"
            yield warning("links", says, advice, [each.node_id[:8]])
        if each.malformed_frames:
            says = f"{each.malformed_frames:,} malformed frames"
            advice = "see who else connects to its ports, and that all speak one version"
            yield warning("links", says, advice, [each.node_id[:8]])
