"""Packs and routes: what a receiver takes in, refuses for now, or tells as a gap."""

from __future__ import annotations

from dataclasses import replace

import pytest

from echannel_ray.core import frames
from echannel_ray.core.gather import Gather, PackColumns
from echannel_ray.core.kinds import BUFFERS, GAP, PICKLED, PLAIN
from echannel_ray.core.receiver import Delivered
from echannel_ray.core.windows import BLOCK
from tests.core.direct import Bench, seen


@pytest.fixture
def bench():
    bench = Bench()
    yield bench
    bench.sender.validate()
    for receiver in bench.receivers.values():
        receiver.validate()


def test_streams_and_kinds_that_take_turns_share_a_pack(bench: Bench) -> None:
    one, two = (bench.sender.open_stream(name, BLOCK, 1000) for name in "ab")
    consumers = [bench.consumer(2, 20)]
    bench.members(one, *consumers)
    bench.members(two, *consumers)
    for i in range(4):
        bench.publish(one, f"a{i}", kind=(PLAIN, PICKLED, BUFFERS, PLAIN)[i])
        bench.publish(two, f"b{i}")
    packs = bench.taken()
    assert len(packs) == 1
    got = bench.arrive(*packs)
    assert seen([d for d in got if d.source.stream.number == one.number], 20) == ["a0", "a1", "a2", "a3"]
    assert seen([d for d in got if d.source.stream.number == two.number], 20) == ["b0", "b1", "b2", "b3"]


def test_a_later_flow_waits_for_the_earlier_one(bench: Bench) -> None:
    stream = bench.sender.open_stream("a", BLOCK, 1000)
    first, second = bench.consumer(2, 20), bench.consumer(3, 30)
    bench.members(stream, first)
    bench.publish(stream, "a1")
    lost = bench.taken()
    bench.members(stream, first, second)
    bench.publish(stream, "a2")
    later = bench.taken()
    assert seen(bench.arrive(*later), 20) == []
    assert bench.receivers[2].refused == 1
    assert seen(bench.arrive(*lost), 20) == ["a1"]
    assert seen(bench.arrive(*later), 20) == ["a2"]


def test_no_two_packs_wait_for_each_other(bench: Bench) -> None:
    """Two streams that change places while both flows are gathering."""
    one, two = (bench.sender.open_stream(name, BLOCK, 1000) for name in "ab")
    first, second = bench.consumer(2, 20), bench.consumer(3, 30)
    bench.members(one, first)
    bench.members(two, first, second)
    bench.publish(one, "a1")
    bench.publish(two, "b1")
    bench.members(one, first, second)
    bench.members(two, first)
    bench.publish(one, "a2")
    bench.publish(two, "b2")
    packs = bench.taken()
    got: list[Delivered] = []
    for _ in packs:  # as probes would bring back what was refused
        got += bench.arrive(*packs)
    assert sorted(seen(got, 20)) == ["a1", "a2", "b1", "b2"]
    assert seen(got, 30) == ["b1", "a2"]


def test_the_end_of_a_stream_waits_for_its_events(bench: Bench) -> None:
    stream = bench.sender.open_stream("a", BLOCK, 1000)
    first, second = bench.consumer(2, 20), bench.consumer(3, 30)
    bench.members(stream, first)
    bench.publish(stream, "a1")
    lost = bench.taken()
    bench.members(stream, first, second)
    bench.sender.close_stream(stream)
    bench.arrive(*bench.taken())
    assert bench.receivers[2].streams
    assert seen(bench.arrive(*lost), 20) == ["a1"]
    assert not bench.receivers[2].streams
    assert not bench.receivers[2].routes


def test_the_end_of_a_stream_stands_behind_the_events_of_its_pack(bench: Bench) -> None:
    stream = bench.sender.open_stream("a", BLOCK, 1000)
    bench.members(stream, bench.consumer(2, 20))
    bench.publish(stream, "a1")
    bench.sender.close_stream(stream)
    assert seen(bench.exchange(), 20) == ["a1"]
    assert not bench.receivers[2].streams


def test_a_subscription_that_was_let_go_and_taken_up_again_is_told_of_its_gap(bench: Bench) -> None:
    stream = bench.sender.open_stream("a", BLOCK, 1000)
    consumer = bench.consumer(2, 20)
    bench.members(stream, consumer)
    bench.publish(stream, "a1")
    bench.members(stream)
    bench.sender.skip(stream)
    bench.members(stream, consumer)
    bench.publish(stream, "a3")
    assert seen(bench.exchange(), 20) == ["a1", (2, 2), "a3"]


def test_a_flow_that_nobody_uses_ends(bench: Bench) -> None:
    stream = bench.sender.open_stream("a", BLOCK, 1000)
    bench.members(stream, bench.consumer(2, 20))
    bench.publish(stream, "a1")
    bench.members(stream)
    assert bench.sender.ended_flows() == []  # it has gathered something
    (flow, number, _), *_ = bench.taken()
    assert bench.sender.ended_flows() == []
    flow.acknowledged(0xA, number, 0.0)
    assert bench.sender.ended_flows() == [flow]


def test_a_closed_subscription_leaves_no_half_of_a_large_event(bench: Bench) -> None:
    stream = bench.sender.open_stream("a", BLOCK, 1000)
    bench.members(stream, bench.consumer(2, 20))
    bench.publish(stream, "a1")
    bench.exchange()
    receiver = bench.receivers[2]
    ((wire, _),) = [(key[1], route) for key, route in receiver.routes.items()]
    flow = receiver.flows[frames.KEY.pack(1, 1)]
    assert receiver.chunk_received(flow, (wire, 2, 20, PLAIN, 0, 10, 0, 0), memoryview(b"12345")) is None
    assert receiver.assemblies
    receiver.subscription_closed(20)
    assert not receiver.assemblies


def test_a_chunk_beyond_its_event_is_malformed(bench: Bench) -> None:
    stream = bench.sender.open_stream("a", BLOCK, 1000)
    bench.members(stream, bench.consumer(2, 20))
    bench.publish(stream, "a1")
    bench.exchange()
    receiver = bench.receivers[2]
    flow = receiver.flows[frames.KEY.pack(1, 1)]
    wire = next(iter(receiver.routes))[1]
    assert receiver.chunk_received(flow, (wire, 2, 20, PLAIN, 0, 4, 0, 0), memoryview(b"12345")) is None
    assert receiver.malformed == 1


def test_two_gaps_are_two_runs() -> None:
    gather = Gather()
    gather.add(1, 5, 50, GAP, 5)
    gather.add(1, 6, 60, GAP, 9)
    ((columns, _),) = gather.take()
    assert isinstance(columns, PackColumns)
    assert columns.counts == [1, 1]


def test_of_a_run_that_is_known_in_part_the_rest_is_taken(bench: Bench) -> None:
    stream = bench.sender.open_stream("a", BLOCK, 1000)
    bench.members(stream, bench.consumer(2, 20))
    for i in range(1, 6):
        bench.publish(stream, i)
    ((flow, _, columns),) = bench.taken()
    first = replace(columns, counts=[2], marks=[20], events=columns.events[:2])
    assert seen(bench.arrive((flow, 1, first)), 20) == [1, 2]
    assert seen(bench.arrive((flow, 2, columns)), 20) == [3, 4, 5]
    assert bench.receivers[2].duplicates == {20: 2}
    assert seen(bench.arrive((flow, 3, columns)), 20) == []


def test_a_pack_that_can_not_be_read_becomes_a_gap(bench: Bench) -> None:
    stream = bench.sender.open_stream("a", BLOCK, 1000)
    bench.members(stream, bench.consumer(2, 20))
    bench.publish(stream, 1)
    assert seen(bench.exchange(), 20) == [1]
    bench.publish(stream, 2)
    bench.taken()
    bench.receivers[2].flows[frames.KEY.pack(1, 1)].skipped(10)
    bench.publish(stream, 3)
    assert seen(bench.exchange(), 20) == [(2, 2), 3]
