"""A subscription goes over to another handler version: one cut, nothing lost, and nothing for the new handler version
before its turn.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from echannel_ray.core import frames
from echannel_ray.core.gather import Gather, PackColumns
from echannel_ray.core.kinds import GAP, NOTICE
from echannel_ray.core.messages import Consumer
from echannel_ray.core.receiver import Delivered
from echannel_ray.core.streams import SenderStream
from echannel_ray.core.windows import BLOCK, DROP_NEWEST, DROP_OLDEST
from tests.core.direct import Bench, seen


@pytest.fixture
def bench():
    bench = Bench()
    yield bench
    bench.sender.validate()
    for receiver in bench.receivers.values():
        receiver.validate()


def opened(bench: Bench, *names: str, policy: str = BLOCK, window: int = 1000) -> list[SenderStream]:
    """The streams of one producer."""
    return [bench.sender.open_stream(name, policy, window) for name in names]


def move(bench: Bench, consumer: Consumer, former: SenderStream, new: SenderStream, *others: Consumer) -> Consumer:
    """As a producer's endpoint does it: cut-over points first, and the new stream has a new flow. `others` stay."""
    replaced = replace(consumer, handler_version=consumer.handler_version + 1)
    who = (consumer.endpoint, consumer.subscription)
    cutover_point = bench.sender.cutovers.cutover_point_of(former, *who)
    bench.members(former, *others)
    bench.sender.flow_to.clear()
    bench.version += 1
    bench.sender.membership_changed(
        new, (1, bench.version), [replaced], cutover_points={who: cutover_point} if cutover_point else {}
    )
    return replaced


def handler_versions(delivered: list[Delivered], subscription: int) -> list[int]:
    return [each.version for each in delivered if each.source.subscription == subscription]


def test_the_new_pair_waits_for_the_last_of_the_old_one(bench: Bench) -> None:
    one, two = opened(bench, "a", "b")
    consumer = bench.consumer(2, 20)
    bench.members(one, consumer)
    bench.publish(one, "a1")
    late = bench.taken()
    move(bench, consumer, one, two)
    bench.publish(two, "b1")
    early = bench.taken()
    assert seen(bench.arrive(*early), 20) == []
    assert bench.receivers[2].refused == 1
    assert seen(bench.arrive(*late), 20) == ["a1"]
    got = bench.arrive(*early)
    assert (seen(got, 20), handler_versions(got, 20)) == (["b1"], [1])
    assert list(bench.receivers[2].streams) == [(1, two.number)], "the former stream is forgotten"


def test_the_old_pairs_last_event_may_be_in_the_very_pack(bench: Bench) -> None:
    one, two = opened(bench, "a", "b")
    consumer = bench.consumer(2, 20)
    bench.members(one, consumer)
    bench.publish(one, "a1")
    bench.exchange()
    bench.publish(one, "a2")
    ((flow, number, old),) = bench.taken()
    move(bench, consumer, one, two)
    bench.publish(two, "b1")
    ((_, _, new),) = bench.taken()
    both = replace(
        old,
        control=[*old.control, *new.control],
        streams=old.streams + new.streams,
        firsts=old.firsts + new.firsts,
        counts=old.counts + new.counts,
        marks=old.marks + new.marks,
        events=old.events + new.events,
    )
    got = bench.arrive((flow, number, both))
    assert (seen(got, 20), handler_versions(got, 20)) == (["a2", "b1"], [0, 1])


def test_only_the_demodulator_is_replaced(bench: Bench) -> None:
    (stream,) = opened(bench, "a")
    first, second = bench.consumer(2, 20), bench.consumer(3, 30)
    bench.members(stream, first, second)
    bench.publish(stream, 1)
    late = bench.taken()
    bench.members(stream, replace(first, handler_version=1), second)
    bench.publish(stream, 2)
    early = bench.taken()
    assert seen(bench.arrive(*early), 30) == []
    got = [*bench.arrive(*late), *bench.arrive(*early)]
    assert (seen(got, 20), handler_versions(got, 20)) == ([1, 2], [0, 1])
    assert (seen(got, 30), handler_versions(got, 30)) == ([1, 2], [0, 0])


def test_a_pair_that_got_nothing_leaves_the_wait_to_the_next(bench: Bench) -> None:
    one, two, three = opened(bench, "a", "b", "c")
    consumer = bench.consumer(2, 20)
    bench.members(one, consumer)
    bench.publish(one, "a1")
    late = bench.taken()
    consumer = move(bench, consumer, one, two)
    move(bench, consumer, two, three)
    bench.publish(three, "c1")
    early = bench.taken()
    assert seen(bench.arrive(*early), 20) == []
    assert seen([*bench.arrive(*late), *bench.arrive(*early)], 20) == ["a1", "c1"]


@pytest.mark.parametrize("between", [0, 2])
def test_there_and_back(bench: Bench, between: int) -> None:
    one, two = opened(bench, "a", "b")
    consumer, other = bench.consumer(2, 20), bench.consumer(3, 30)
    bench.members(one, consumer, other)
    bench.publish(one, "a1")
    packs = [bench.taken()]
    consumer = move(bench, consumer, one, two, other)
    bench.publish(one, "a2")  # for the other alone
    for i in range(between):
        bench.publish(two, f"b{i}")
    packs.append(bench.taken())
    cutover_point = bench.sender.cutovers.cutover_point_of(two, 2, 20)
    bench.members(two)
    bench.version += 1
    assert cutover_point is not None
    bench.sender.membership_changed(
        one, (1, bench.version), [replace(consumer, handler_version=2), other], cutover_points={(2, 20): cutover_point}
    )
    bench.publish(one, "a3")
    packs.append(bench.taken())
    got: list[Delivered] = []
    for _ in packs:  # the latest first, as probes would bring them again
        for each in reversed(packs):
            got += bench.arrive(*each)
    assert seen(got, 20) == ["a1", *(f"b{i}" for i in range(between)), "a3"]
    assert handler_versions(got, 20) == [0, *([1] if between else []), 2]
    assert seen(got, 30) == ["a1", "a2", "a3"]


def test_what_an_unread_pack_had_is_a_gap_for_its_own_pair(bench: Bench) -> None:
    one, two = opened(bench, "a", "b")
    consumer = bench.consumer(2, 20)
    bench.members(one, consumer)
    bench.publish(one, "a1")
    bench.exchange()
    bench.publish(one, "a2")
    ((flow, number, _),) = bench.taken()
    bench.receivers[2].flows[frames.KEY.pack(1, flow.number)].skipped(10)
    move(bench, consumer, one, two)
    bench.publish(two, "b1")
    ((_, _, columns),) = bench.taken()
    got = bench.arrive((flow, number + 1, columns))  # by the same flow
    assert (seen(got, 20), handler_versions(got, 20)) == ([(2, 2), "b1"], [0, 1])


def test_a_wait_for_what_another_flow_can_not_bring_ends(bench: Bench) -> None:
    one, two = opened(bench, "a", "b")
    consumer, other = bench.consumer(2, 20), bench.consumer(3, 30)
    bench.members(one, consumer, other)
    bench.publish(one, "a1")
    bench.exchange()
    bench.publish(one, "a2")
    ((flow, _, _),) = bench.taken()
    bench.receivers[2].flows[frames.KEY.pack(1, flow.number)].skipped(10)
    move(bench, consumer, one, two)
    bench.publish(two, "b1")
    packs = bench.taken()
    got = [each for _ in range(6) for each in bench.arrive(*packs)]
    assert seen(got, 20) == [(2, 2), "b1"]


def test_a_closed_subscription_waits_for_nothing(bench: Bench) -> None:
    one, two = opened(bench, "a", "b")
    consumer = bench.consumer(2, 20)
    bench.members(one, consumer)
    bench.publish(one, "a1")
    bench.taken()  # lost
    move(bench, consumer, one, two)
    bench.publish(two, "b1")
    packs = bench.taken()
    assert bench.arrive(*packs) == []
    bench.receivers[2].subscription_closed(20)
    assert bench.arrive(*packs) == []
    assert not bench.receivers[2].cutovers.waiting
    assert bench.receivers[2].flows[frames.KEY.pack(1, packs[0][0].number)].received == packs[0][1]


def test_the_death_of_a_producer_ends_the_wait(bench: Bench) -> None:
    one, two = opened(bench, "a", "b")
    consumer = bench.consumer(2, 20)
    bench.members(one, consumer)
    bench.publish(one, "a1")
    bench.taken()  # lost
    move(bench, consumer, one, two)
    bench.publish(two, "b1")
    bench.exchange()
    receiver = bench.receivers[2]
    assert receiver.cutovers.waiting
    receiver.endpoint_gone(1)
    assert not receiver.cutovers.waiting
    assert not receiver.streams


@pytest.mark.parametrize("is_late", [False, True])
def test_a_producer_that_closes_behind_a_reset_leaves_nothing(bench: Bench, is_late: bool) -> None:
    """Nothing was sent to the new handler version, so nothing else would say that the old one has had all."""
    one, two = opened(bench, "a", "b")
    consumer = bench.consumer(2, 20)
    bench.members(one, consumer)
    bench.publish(one, "a1")
    packs = bench.taken()
    move(bench, consumer, one, two)
    bench.sender.close_stream(one)
    bench.sender.close_stream(two)
    packs = [*bench.taken(), *packs] if is_late else [*packs, *bench.taken()]
    assert seen(bench.arrive(*packs), 20) == ["a1"]
    assert not bench.receivers[2].streams
    assert not bench.receivers[2].routes
    assert not bench.receivers[2].cutovers._left


def test_a_stream_that_ends_waits_like_its_events(bench: Bench) -> None:
    one, two = opened(bench, "a", "b")
    consumer, other = bench.consumer(2, 20), bench.consumer(3, 30)
    bench.members(one, consumer)
    bench.publish(one, "a1")
    late = bench.taken()
    moved = move(bench, consumer, one, two)
    bench.publish(two, "b1")
    early = bench.taken()
    bench.members(two, moved, other)  # by another flow, in which only the end comes
    bench.sender.close_stream(two)
    last = bench.taken()
    got = [each for packs in (last, early, late, early, last) for each in bench.arrive(*packs)]
    assert seen(got, 20) == ["a1", "b1"]
    assert not bench.receivers[2].streams
    assert not bench.receivers[2].cutovers.waiting


def test_relays_know_a_flow_until_the_next_is_used(bench: Bench) -> None:
    one, two = opened(bench, "a", "b")
    consumer = bench.consumer(2, 20)
    bench.members(one, consumer)
    bench.publish(one, "a1")
    ((flow, number, columns),) = bench.taken()
    bench.arrive((flow, number, columns))
    flow.acknowledged(0xA, number, 0.0)
    move(bench, consumer, one, two)
    assert flow not in bench.sender.ended_flows()
    bench.publish(two, "b1")
    bench.exchange()
    assert flow in bench.sender.ended_flows()


def test_four_streams_that_change_places_do_not_wait_for_each_other(bench: Bench) -> None:
    a, b, c, d = opened(bench, "a", "b", "c", "d")
    first, second, third = bench.consumer(2, 20), bench.consumer(2, 21), bench.consumer(3, 30)
    bench.members(b, first)  # by the flow to endpoint 2
    bench.members(d, second, third)  # by the flow to both
    bench.publish(b, "b1")
    bench.publish(d, "d1")
    points = {
        (2, 20): bench.sender.cutovers.cutover_point_of(b, 2, 20),
        (2, 21): bench.sender.cutovers.cutover_point_of(d, 2, 21),
        (3, 30): bench.sender.cutovers.cutover_point_of(d, 3, 30),
    }
    bench.version += 1
    cutover_points = {who: cutover_point for who, cutover_point in points.items() if cutover_point is not None}
    first, second, third = (replace(each, handler_version=1) for each in (first, second, third))
    for stream, consumers in ((a, [second]), (b, []), (c, [first, third]), (d, [])):
        bench.sender.membership_changed(stream, (1, bench.version), consumers, cutover_points=cutover_points)
    bench.publish(a, "a1")
    bench.publish(c, "c1")
    packs = bench.taken()
    got = [each for _ in packs for each in bench.arrive(*packs)]
    assert (seen(got, 20), seen(got, 21), seen(got, 30)) == (["b1", "c1"], ["d1", "a1"], ["d1", "c1"])


def test_nobody_joins_a_flow_in_which_chunks_wait(bench: Bench) -> None:
    """What has to follow them would be ahead of them."""
    one, two = opened(bench, "a", "b")
    consumer = bench.consumer(2, 20)
    bench.members(one, consumer)
    bench.publish(one, "a1")
    ((flow, _, _),) = bench.taken()
    one.chunks = 1
    cutover_point = bench.sender.cutovers.cutover_point_of(one, 2, 20)
    assert cutover_point is not None
    bench.members(one)
    bench.version += 1
    bench.sender.membership_changed(
        two, (1, bench.version), [replace(consumer, handler_version=1)], cutover_points={(2, 20): cutover_point}
    )
    assert two.route is not None
    assert two.route.flow is not flow
    one.chunks = 0


@pytest.mark.parametrize("policy", [DROP_NEWEST, DROP_OLDEST])
def test_what_was_kept_for_a_laggard_leaves_at_the_cut(bench: Bench, policy: str) -> None:
    one, two = opened(bench, "a", "b", policy=policy, window=30)
    consumer, other = bench.consumer(2, 20), bench.consumer(3, 30)
    bench.members(one, consumer, other)
    got: list[Delivered] = []
    for i in range(1, 11):
        bench.publish(one, i)
        fresh = bench.exchange()
        got += fresh
        bench.handle(one, [d for d in fresh if d.source.subscription == 30])
    assert one.laggards
    move(bench, consumer, one, two, other)
    assert not one.laggards
    bench.publish(two, "b1")
    got += bench.exchange()
    kept = [] if policy == DROP_NEWEST else [8, 9, 10]
    assert seen(got, 20) == [1, 2, 3, (4, 10 - len(kept)), *kept, "b1"]
    assert handler_versions(got, 20)[-1] == 1
    assert set(handler_versions(got, 20)[:-1]) == {0}


def test_the_only_member_of_a_group_takes_its_work_along(bench: Bench) -> None:
    one, two = opened(bench, "a", "b", window=20)
    consumer, other = bench.consumer(2, 20, "g"), bench.consumer(3, 30, "g")
    bench.members(one, consumer, other)
    for i in range(4):
        bench.publish(one, i)
    got = [d for d in bench.exchange() if d.source.subscription == 20]
    bench.sender.endpoint_gone(3, 0.0)
    assert one.undelivered["g"]
    move(bench, consumer, one, two)
    bench.publish(two, "b1")
    got += bench.exchange()
    assert seen(got, 20) == [0, 2, 1, 3, "b1"]
    assert handler_versions(got, 20)[-1] == 1
    assert one.recipients[2, 20].is_leaving
    for each in got:
        answer = bench.receivers[2].credit_wanted(1, each.source.stream.number, 20, each.mark)
        each.source.handled(each.mark)
        stream = bench.sender.streams[each.source.stream.number]
        bench.sender.credited(stream, 2, 20, each.source.credit())
        assert answer is not None
        assert not answer[1], "it lives on"
    assert (2, 20) not in one.recipients
    assert not two.recipients[2, 20].sent


def test_the_only_member_of_a_group_keeps_its_account_on_the_same_stream(bench: Bench) -> None:
    (stream,) = opened(bench, "a")
    consumer = bench.consumer(2, 20, "g")
    bench.members(stream, consumer)
    bench.publish(stream, 1)
    late = bench.taken()
    bench.members(stream, replace(consumer, handler_version=1))
    assert len(stream.recipients[2, 20].sent) == 1
    bench.publish(stream, 2)
    early = bench.taken()
    got = [each for packs in (early, late, early) for each in bench.arrive(*packs)]
    assert (seen(got, 20), handler_versions(got, 20)) == ([1, 2], [0, 1])
    assert not any(each.redelivered for each in got)
    bench.handle(stream, got)
    assert not stream.recipients[2, 20].sent


# ---- what a policy dropped for all ----


def test_what_is_dropped_for_all_is_one_gap_for_each(bench: Bench) -> None:
    (stream,) = opened(bench, "a", policy=DROP_OLDEST, window=30)
    bench.members(stream, bench.consumer(2, 20), bench.consumer(3, 30, "g"), bench.consumer(3, 31, "g"))
    assert bench.publish(stream, 1)
    assert bench.sender.drop_for_all(stream, 3) == 2
    assert bench.sender.drop_for_all(stream) == 5
    bench.publish(stream, 6)
    got = bench.exchange()
    assert seen(got, 20) == [1, (2, 5), 6]
    groups = sorted(str(item) for item in (*seen(got, 30), *seen(got, 31)))
    assert groups == ["(2, 4)", "(5, 5)", "1", "6"]
    assert stream.dropped == 4


def test_a_gap_keeps_its_place_in_a_laggards_backlog(bench: Bench) -> None:
    (stream,) = opened(bench, "a", policy=DROP_OLDEST, window=30)
    bench.members(stream, bench.consumer(2, 20), bench.consumer(3, 30))
    got: list[Delivered] = []
    for i in range(1, 6):
        bench.publish(stream, i)
        fresh = bench.exchange()
        got += fresh
        bench.handle(stream, [d for d in fresh if d.source.subscription == 30])
    bench.sender.drop_for_all(stream, 2)
    bench.publish(stream, 8)
    pending = got
    while pending:
        bench.handle(stream, pending)
        pending = bench.exchange()
        got += pending
    assert seen(got, 20) == [1, 2, 3, 4, 5, (6, 7), 8]


def test_several_are_skipped_at_once(bench: Bench) -> None:
    (stream,) = opened(bench, "a")
    assert bench.sender.skip(stream, 5) == 1
    assert bench.sender.skip(stream) == 6
    assert stream.skipped == 6


def test_a_notice_has_a_run_of_its_own() -> None:
    gather = Gather()
    for sequence in (1, 2):
        gather.add(1, sequence, 0, NOTICE, b"error")
    gather.add(1, 3, 0, GAP, 3)
    assert gather.widen_gap(1, 4, 6)
    assert not gather.widen_gap(1, 9, 9)
    columns = gather.take()[0][0]
    assert isinstance(columns, PackColumns)
    assert columns.counts == [1, 1, 1]
    assert columns.events[-1] == 6
