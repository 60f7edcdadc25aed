"""What the protocol promises, checked against what was published."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from echannel_ray.core import frames
from echannel_ray.core.kinds import GAP
from echannel_ray.core.windows import BLOCK, RAISE

if TYPE_CHECKING:
    from tests.core.published import Family, Part, Published, Subscription
    from tests.core.simulation import World

Runs = list[tuple[int, int, bool]]


def check_drained(published: Published, sequence: int, subscriptions: list[Subscription]) -> None:
    """`drain` returned: each plain consumer that `subscribe` has returned for has received everything up to here."""
    for subscription in subscriptions:
        source = (published.endpoint, published.stream.number)
        if subscription.starts is None or subscription.closed or subscription.dead or subscription.group is not None:
            continue
        if subscription.channel != published.stream.channel or subscription.endpoint == published.endpoint:
            continue
        if subscription.handler_version:
            continue
        recipient = published.stream.recipients.get((subscription.endpoint, subscription.number))
        if recipient is not None and (recipient.gap or any(unhandled.kind == GAP for unhandled in recipient.sent)):
            continue  # what a policy dropped is told when there is room for what comes behind it: nobody waits for that
        if subscription.starts.get(source, 1) <= sequence:
            runs = subscription.received.get(source, [])
            assert runs, f"drained, but {subscription.number} has nothing of {source}"
            assert runs[-1][1] >= sequence, f"drained to {sequence}, but {subscription.number} is at {runs[-1]}"


def check(world: World) -> None:
    """Everything that has to hold when nothing happens any more."""
    for published in world.published:
        for subscription in world.subscriptions:
            if subscription.channel != published.stream.channel or subscription.endpoint == published.endpoint:
                continue
            if subscription.group is None and not subscription.handler_version:
                _check_plain(published, subscription)
        groups = {s.group for s in world.subscriptions if s.group and s.channel == published.stream.channel}
        for group in groups:
            members = [
                s
                for s in world.subscriptions
                if s.group == group and s.channel == published.stream.channel and s.endpoint != published.endpoint
            ]
            _check_group(world, published, group, members)
    for family in {id(published.family): published.family for published in world.published}.values():
        for subscription in world.subscriptions:
            if subscription.group is None and subscription.endpoint != family.endpoint:
                _check_parts(family, subscription)
    _check_nothing_kept(world)


def _check_parts(family: Family, subscription: Subscription) -> None:
    """Each part of what is published goes to the handler version that had its turn, in order, and completely."""
    who = (subscription.endpoint, subscription.number)
    streams = {published.stream.number: published for published in family.streams.values()}
    first = next(iter(streams.values()))
    wanted = [
        part._replace(last=streams[part.stream].last) if part.last < 0 else part for part in family.parts.get(who, [])
    ]
    wanted = [part for part in wanted if part.last >= part.first]
    got: list[Part] = []
    for part in subscription.parts.get(family.endpoint, []):
        if got and (got[-1].handler_version, got[-1].stream, got[-1].last + 1) == (
            part.handler_version,
            part.stream,
            part.first,
        ):
            got[-1] = got[-1]._replace(last=part.last)
        elif part.stream in streams:
            got.append(part)
    story = f"subscription {subscription.number} of e{subscription.endpoint}: of {wanted} it got {got}"
    if subscription.closed or subscription.dead or first.killed:
        wanted = wanted[: len(got)]
        if got and wanted:
            assert got[-1].last <= wanted[-1].last, story
            wanted[-1] = wanted[-1]._replace(last=got[-1].last)
    assert got == wanted, story
    if first.stream.overflow in (BLOCK, RAISE):
        for number in streams:
            assert not any(run[2] for run in subscription.received.get((family.endpoint, number), [])), story


def _check_plain(published: Published, subscription: Subscription) -> None:
    source = (published.endpoint, published.stream.number)
    who = f"subscription {subscription.number} of e{subscription.endpoint}, stream {source}"
    runs: Runs = subscription.received.get(source, [])
    start = subscription.starts.get(source, 1) if subscription.starts is not None else published.last + 1
    for before, after in pairwise(runs):
        assert after[0] == before[1] + 1, f"{who}: {after} after {before}"
    if published.stream.overflow in (BLOCK, RAISE):
        assert not any(run[2] for run in runs), f"{who}: a gap"
    if subscription.closed or subscription.dead:
        return
    if runs:
        assert runs[0][0] <= start, f"{who}: begins with {runs[0]}, promised from {start}"
    if published.killed:
        return
    if runs or start <= published.last:
        assert runs, f"{who}: nothing of {start} to {published.last}"
        assert runs[-1][1] == published.last, f"{who}: ends with {runs[-1]}, {published.last} were published"
    handled = [sequence for sequence, _ in subscription.handled.get(source, [])]
    got = [sequence for first, last, is_gap in runs if not is_gap for sequence in range(first, last + 1)]
    assert handled == got, f"{who}: {len(got)} received, {len(handled)} handled"
    assert not subscription.queue


def _check_group(world: World, published: Published, group: str, members: list[Subscription]) -> None:
    source = (published.endpoint, published.stream.number)
    who = f"group {group}, stream {source}"
    seen: dict[int, int] = {}
    plain: dict[int, int] = {}
    for member in members:
        for sequence, redelivered in member.handled.get(source, []):
            seen[sequence] = seen.get(sequence, 0) + 1
            if not redelivered:
                plain[sequence] = plain.get(sequence, 0) + 1
    assert all(count == 1 for count in plain.values()), f"{who}: handled twice and not marked"
    if not any(member.dead for member in members):
        twice = [sequence for sequence, count in seen.items() if count > 1]
        assert not twice, f"{who}: {twice} handled twice, and nobody died"
    steady = any(m.starts is not None and not m.closed and not m.dead for m in members)
    start = published.group_start.get(group)
    if published.killed or published.stream.overflow not in (BLOCK, RAISE) or not steady or start is None:
        return
    # The group may have been without members for a while: only who stays to the end can vouch for what came since.
    vouched = min(m.starts.get(source, 1) for m in members if m.starts is not None and not m.closed and not m.dead)
    missing = [sequence for sequence in range(vouched, published.last + 1) if sequence not in seen]
    assert not missing, f"{who}: {missing} never handled"


def _check_nothing_kept(world: World) -> None:
    alive = [e for e in world.endpoints.values() if not e.dead]
    used: set[bytes] = set()
    for endpoint in alive:
        for flow in endpoint.core.sender.flows.values():
            assert not flow.kept, f"e{endpoint.number}, flow {flow.number} keeps {[p.number for p in flow.kept]}"
            is_needed = flow.streams or endpoint.core.sender.is_last_flow_used(flow)
            assert is_needed, f"e{endpoint.number}, flow {flow.number} is used by nobody"
            used.add(frames.KEY.pack(endpoint.number, flow.number))
        assert not any(endpoint.core.sender.gathers.values())
        assert not endpoint.core.deliveries.awaited
        for published in endpoint.published.values():
            assert not published.pending, f"e{endpoint.number}: publishers wait for ever"
            assert not published.drains
            for number, count in published.expected.items():
                answers = published.answers.get(number, [])
                assert len(answers) == count, f"e{endpoint.number}: delivery {number} has {answers} of {count} answers"
            assert not published.stream.undelivered
            for recipient in published.stream.recipients.values():
                assert not recipient.is_leaving
                assert not recipient.gap
                assert not recipient.backlog
                assert not (recipient.sent and recipient.consumer.group)
    if world.network.is_tidy:
        for node in world.nodes.values():
            if node.relay is not None:
                unused = [key for key in node.relay.flows if key not in used]
                assert not unused, f"{node.number:x} routes flows that ended: {[frames.KEY.unpack(k) for k in unused]}"
        dead = {e.number for e in world.endpoints.values() if e.dead}
        for endpoint in alive:
            assert not endpoint.core.receiver.assemblies
            known = {key[0] for key in endpoint.core.receiver.streams} | {
                key[0] for key in endpoint.core.receiver.routes
            }
            assert not known & dead, f"e{endpoint.number} remembers streams of the dead: {known & dead}"
