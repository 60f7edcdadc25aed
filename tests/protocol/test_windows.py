"""Windows, laggards, groups and redelivery: what `Sender` and `Receiver` decide, with packs handed over directly."""

from __future__ import annotations

from typing import Any

import pytest

from echannel_ray.protocol import frames
from echannel_ray.protocol.flows import FlowSender
from echannel_ray.protocol.gathering import BUFFERS, GAP, PICKLED, PLAIN, Columns, Gather
from echannel_ray.protocol.messages import Consumer
from echannel_ray.protocol.receiving import Delivered, Receiver
from echannel_ray.protocol.sending import BLOCK, DROP_NEWEST, DROP_OLDEST, NEVER, Sender, SenderStream


class Bench:
    """Endpoint 1 sends to endpoints 2 and 3; what is taken but not handed over is "lost", or late."""

    def __init__(self) -> None:
        self.sender = Sender(0xA, 1)
        self.receivers = {number: Receiver(0xA, number, 10**6) for number in (2, 3)}
        self.version = 0

    def consumer(self, endpoint: int, subscription: int, group: str | None = None) -> Consumer:
        self.receivers[endpoint].subscription_opened(subscription)
        return Consumer(0xA, endpoint, subscription, group)

    def members(self, stream: SenderStream, *consumers: Consumer) -> None:
        self.version += 1
        self.sender.membership_changed(stream, (1, self.version), consumers)

    def publish(self, stream: SenderStream, event: Any, size: int = 10, kind: int = PLAIN) -> bool:
        """By the hot path where it allows."""
        if stream.published_bytes + size <= stream.limit_bytes and size <= frames.CHUNK_BYTES:
            gather = stream.gather
            assert gather is not None
            if gather.stream is not stream or gather.kind != kind:
                gather.turn(stream, kind)
            gather.events.append(event)
            stream.published_bytes += size
            return True
        return not self.sender.send_to_all(stream, kind, event, size)[1]

    def taken(self) -> list[tuple[FlowSender, int, Columns]]:
        """What leaves now: a pack from each flow that has gathered something."""
        self.sender.new_flows.clear()
        packs = []
        for number, gather in self.sender.gathers.items():
            while gather:
                flow = self.sender.flows[number]
                packs.append((flow, flow.sent([b"x"], 0, 0.0), gather.take()))
        return packs

    def arrive(self, *packs: tuple[FlowSender, int, Columns]) -> list[Delivered]:
        got: list[Delivered] = []
        for flow, number, columns in packs:
            for _, endpoint in flow.destinations:
                receiver = self.receivers[endpoint]
                key = frames.KEY.pack(1, flow.number)
                receiver.flow_declared(key, 0xA, 1, flow.number)
                got += receiver.pack_received(receiver.flows[key], number, columns, 100) or []
        return got

    def exchange(self) -> list[Delivered]:
        return self.arrive(*self.taken())

    def handle(self, stream: SenderStream, delivered: list[Delivered]) -> None:
        """Each is handled, and reported at once."""
        for each in delivered:
            each.reception.handled(each.mark)
            endpoint = next(n for n, r in self.receivers.items() if each.reception.subscription in r.subscriptions)
            self.sender.credited(stream, endpoint, each.reception.subscription, each.reception.credit())


@pytest.fixture
def bench():
    bench = Bench()
    yield bench
    bench.sender.validate()
    for receiver in bench.receivers.values():
        receiver.validate()


def seen(delivered: list[Delivered], subscription: int) -> list[Any]:
    """Events in order; a gap as (first, last)."""
    got: list[Any] = []
    for each in delivered:
        if each.reception.subscription == subscription:
            got += [(each.first, each.gap_last)] if each.gap_last else each.events
    return got


# ---- packs and routes ----


def test_streams_and_kinds_that_take_turns_share_a_pack(bench: Bench) -> None:
    one, two = (bench.sender.open_stream(name, BLOCK, 1000, 64) for name in "ab")
    consumers = [bench.consumer(2, 20)]
    bench.members(one, *consumers)
    bench.members(two, *consumers)
    for i in range(4):
        bench.publish(one, f"a{i}", kind=(PLAIN, PICKLED, BUFFERS, PLAIN)[i])
        bench.publish(two, f"b{i}")
    packs = bench.taken()
    assert len(packs) == 1
    got = bench.arrive(*packs)
    assert seen([d for d in got if d.reception.stream.channel == "a"], 20) == ["a0", "a1", "a2", "a3"]
    assert seen([d for d in got if d.reception.stream.channel == "b"], 20) == ["b0", "b1", "b2", "b3"]


def test_a_later_flow_waits_for_the_earlier_one(bench: Bench) -> None:
    stream = bench.sender.open_stream("a", BLOCK, 1000, 64)
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
    one, two = (bench.sender.open_stream(name, BLOCK, 1000, 64) for name in "ab")
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
    stream = bench.sender.open_stream("a", BLOCK, 1000, 64)
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
    stream = bench.sender.open_stream("a", BLOCK, 1000, 64)
    bench.members(stream, bench.consumer(2, 20))
    bench.publish(stream, "a1")
    bench.sender.close_stream(stream)
    assert seen(bench.exchange(), 20) == ["a1"]
    assert not bench.receivers[2].streams


def test_a_subscription_that_was_let_go_and_taken_up_again_is_told_of_its_gap(bench: Bench) -> None:
    stream = bench.sender.open_stream("a", BLOCK, 1000, 64)
    consumer = bench.consumer(2, 20)
    bench.members(stream, consumer)
    bench.publish(stream, "a1")
    bench.members(stream)
    bench.sender.skip(stream)
    bench.members(stream, consumer)
    bench.publish(stream, "a3")
    assert seen(bench.exchange(), 20) == ["a1", (2, 2), "a3"]


def test_a_flow_that_nobody_uses_ends(bench: Bench) -> None:
    stream = bench.sender.open_stream("a", BLOCK, 1000, 64)
    bench.members(stream, bench.consumer(2, 20))
    bench.publish(stream, "a1")
    bench.members(stream)
    assert bench.sender.ended_flows() == []  # it has gathered something
    (flow, number, _), *_ = bench.taken()
    assert bench.sender.ended_flows() == []
    flow.acknowledged(0xA, number, 0.0)
    assert bench.sender.ended_flows() == [flow]


def test_a_closed_subscription_leaves_no_half_of_a_large_event(bench: Bench) -> None:
    stream = bench.sender.open_stream("a", BLOCK, 1000, 64)
    bench.members(stream, bench.consumer(2, 20))
    bench.publish(stream, "a1")
    bench.exchange()
    receiver = bench.receivers[2]
    ((wire, _),) = [(key[1], route) for key, route in receiver.routes.items()]
    flow = receiver.flows[frames.KEY.pack(1, 1)]
    assert receiver.chunk_received(flow, 2, (wire, 2, 20, PLAIN, 0, 10, 0), memoryview(b"12345")) is None
    assert receiver.assemblies
    receiver.subscription_closed(20)
    assert not receiver.assemblies


def test_a_chunk_beyond_its_event_is_malformed(bench: Bench) -> None:
    stream = bench.sender.open_stream("a", BLOCK, 1000, 64)
    bench.members(stream, bench.consumer(2, 20))
    bench.publish(stream, "a1")
    bench.exchange()
    receiver = bench.receivers[2]
    flow = receiver.flows[frames.KEY.pack(1, 1)]
    wire = next(iter(receiver.routes))[1]
    assert receiver.chunk_received(flow, 2, (wire, 2, 20, PLAIN, 0, 4, 0), memoryview(b"12345")) is None
    assert receiver.malformed == 1


def test_two_gaps_are_two_runs() -> None:
    gather = Gather()
    gather.add(1, 5, 50, GAP, 5)
    gather.add(1, 6, 60, GAP, 9)
    assert gather.take().counts == [1, 1]


def test_of_a_run_that_is_known_in_part_the_rest_is_taken(bench: Bench) -> None:
    stream = bench.sender.open_stream("a", BLOCK, 1000, 64)
    bench.members(stream, bench.consumer(2, 20))
    for i in range(1, 6):
        bench.publish(stream, i)
    ((flow, _, columns),) = bench.taken()
    first = columns._replace(counts=[2], marks=[20], events=columns.events[:2])
    assert seen(bench.arrive((flow, 1, first)), 20) == [1, 2]
    assert seen(bench.arrive((flow, 2, columns)), 20) == [3, 4, 5]
    assert bench.receivers[2].duplicates == {20: 2}
    assert seen(bench.arrive((flow, 3, columns)), 20) == []


def test_a_pack_that_can_not_be_read_becomes_a_gap(bench: Bench) -> None:
    stream = bench.sender.open_stream("a", BLOCK, 1000, 64)
    bench.members(stream, bench.consumer(2, 20))
    bench.publish(stream, 1)
    assert seen(bench.exchange(), 20) == [1]
    bench.publish(stream, 2)
    bench.taken()
    bench.receivers[2].flows[frames.KEY.pack(1, 1)].skipped(10)
    bench.publish(stream, 3)
    assert seen(bench.exchange(), 20) == [(2, 2), 3]


# ---- windows ----


def test_the_limit_follows_the_slowest(bench: Bench) -> None:
    stream = bench.sender.open_stream("a", BLOCK, 100, 64)
    assert stream.limit_bytes == NEVER
    bench.members(stream, bench.consumer(2, 20), bench.consumer(3, 30))
    assert stream.limit_bytes == 100
    for i in range(10):
        bench.publish(stream, i)
    assert not stream.fits(1)
    bench.exchange()
    bench.sender.credited(stream, 2, 20, 100)
    assert stream.limit_bytes == 100
    bench.sender.credited(stream, 3, 30, 50)
    assert stream.limit_bytes == 150
    bench.sender.credited(stream, 3, 30, 20)  # an old one, late
    assert stream.limit_bytes == 150


def test_an_event_larger_than_the_window_passes_alone(bench: Bench) -> None:
    stream = bench.sender.open_stream("a", BLOCK, 100, 64)
    bench.members(stream, bench.consumer(2, 20))
    assert stream.fits(500)
    bench.publish(stream, "large", 500)
    assert not stream.fits(1)
    bench.handle(stream, bench.exchange())
    assert stream.fits(500)


def test_who_subscribes_late_has_a_whole_window(bench: Bench) -> None:
    stream = bench.sender.open_stream("a", BLOCK, 100, 64)
    first = bench.consumer(2, 20)
    bench.members(stream, first)
    bench.publish(stream, "a1", 100)
    bench.members(stream, first, bench.consumer(3, 30))
    assert [r.subscription for r in stream.full_recipients(1)] == [20]


def test_the_death_of_the_slowest_makes_room(bench: Bench) -> None:
    stream = bench.sender.open_stream("a", BLOCK, 100, 64)
    bench.members(stream, bench.consumer(2, 20), bench.consumer(3, 30))
    bench.publish(stream, "a1", 100)
    bench.exchange()
    bench.sender.credited(stream, 3, 30, 100)
    assert bench.sender.endpoint_gone(2, 0.0) == [stream]
    assert stream.fits(100)
    assert not any(flow.kept and not flow.members for flow in bench.sender.flows.values())


@pytest.mark.parametrize("policy", [DROP_NEWEST, DROP_OLDEST])
def test_a_laggard_misses_what_others_get_and_comes_back(bench: Bench, policy: str) -> None:
    stream = bench.sender.open_stream("a", policy, 30, 64)
    bench.members(stream, bench.consumer(2, 20), bench.consumer(3, 30))
    slow: list[Delivered] = []
    fast: list[Delivered] = []
    for i in range(1, 11):
        bench.publish(stream, i)
        got = bench.exchange()
        slow += [d for d in got if d.reception.subscription == 20]
        fresh = [d for d in got if d.reception.subscription == 30]
        fast += fresh
        bench.handle(stream, fresh)
    assert seen(fast, 30) == [*range(1, 11)]
    assert [r.subscription for r in stream.laggards] == [20]
    assert seen(slow, 20) == [1, 2, 3]
    pending = slow
    while pending:
        bench.handle(stream, pending)
        pending = bench.exchange()
        slow += pending
    kept = [] if policy == DROP_NEWEST else [8, 9, 10]
    assert seen(slow, 20) == [1, 2, 3, (4, 10 - len(kept)), *kept]
    assert not stream.laggards
    assert stream.dropped == 7 - len(kept)
    bench.publish(stream, 11)
    assert seen(bench.exchange(), 20) == [11]


def test_what_a_laggard_got_before_it_lagged_may_come_late(bench: Bench) -> None:
    stream = bench.sender.open_stream("a", DROP_OLDEST, 30, 64)
    bench.members(stream, bench.consumer(2, 20))
    for i in range(1, 4):
        bench.publish(stream, i)
    lost = bench.taken()
    bench.publish(stream, 4)
    bench.sender.credited(stream, 2, 20, 30)
    later = bench.taken()
    assert seen(bench.arrive(*later), 20) == []
    assert seen(bench.arrive(*lost), 20) == [1, 2, 3]
    assert seen(bench.arrive(*later), 20) == [4]


# ---- groups ----


def test_members_share_the_events_and_the_idle_gets_more(bench: Bench) -> None:
    stream = bench.sender.open_stream("a", BLOCK, 1000, 64)
    bench.members(stream, bench.consumer(2, 20, "g"), bench.consumer(3, 30, "g"))
    for i in range(4):
        bench.publish(stream, i)
    got = bench.exchange()
    assert (seen(got, 20), seen(got, 30)) == ([0, 2], [1, 3])
    bench.handle(stream, [d for d in got if d.reception.subscription == 30])
    bench.publish(stream, 4)
    bench.publish(stream, 5)
    assert seen(bench.exchange(), 30) == [4, 5]


def test_a_member_without_room_is_passed_over(bench: Bench) -> None:
    stream = bench.sender.open_stream("a", BLOCK, 100, 64)
    bench.members(stream, bench.consumer(2, 20, "g"), bench.consumer(3, 30, "g"))
    bench.publish(stream, "large", 95)  # to 20
    for i in range(3):
        bench.publish(stream, i, 10)  # to 30, though it has more events
    assert seen(bench.exchange(), 30) == [0, 1, 2]
    assert bench.sender.full_groups(stream, 80) == ["g"]
    assert bench.sender.full_groups(stream, 70) == []


def test_what_a_dead_member_had_goes_to_another_marked(bench: Bench) -> None:
    stream = bench.sender.open_stream("a", BLOCK, 1000, 64)
    bench.members(stream, bench.consumer(2, 20, "g"), bench.consumer(3, 30, "g"))
    for i in range(4):
        bench.publish(stream, i)
    bench.handle(stream, [d for d in bench.exchange() if d.reception.subscription == 30])
    bench.sender.endpoint_gone(2, 0.0)
    again = bench.exchange()
    assert seen(again, 30) == [0, 2]
    assert all(d.redelivered for d in again)
    bench.handle(stream, again)
    assert not any(r.sent for r in stream.recipients.values())


def test_an_event_given_again_is_not_taken_for_handled_before_it_was(bench: Bench) -> None:
    """Its mark may be the one at which the other member joined."""
    stream = bench.sender.open_stream("a", BLOCK, 1000, 64)
    first = bench.consumer(2, 20, "g")
    bench.members(stream, first)
    bench.publish(stream, "a1")
    bench.exchange()
    bench.members(stream, first, bench.consumer(3, 30, "g"))
    bench.sender.endpoint_gone(2, 0.0)
    assert seen(bench.exchange(), 30) == ["a1"]
    answer = bench.receivers[3].credit_wanted(1, stream.number, 30, stream.published_bytes)
    assert answer is not None
    bench.sender.credited(stream, 3, 30, *answer)
    assert stream.recipients[3, 30].sent


def test_a_member_that_closes_says_how_far_it_came(bench: Bench) -> None:
    stream = bench.sender.open_stream("a", BLOCK, 1000, 64)
    first, second = bench.consumer(2, 20, "g"), bench.consumer(3, 30, "g")
    bench.members(stream, first, second)
    for i in range(4):
        bench.publish(stream, i)
        if i == 1:
            bench.handle(stream, bench.exchange())
    bench.exchange()
    (reception,) = bench.receivers[2].subscription_closed(20)
    assert reception.grouped
    bench.members(stream, second)
    assert stream.recipients[2, 20].leaving  # its last word is awaited
    assert bench.receivers[2].credit_wanted(1, stream.number, 20, 99) == (10, True)
    bench.sender.credited(stream, 2, 20, 10, final=True)
    again = bench.exchange()
    assert seen(again, 30) == [2]
    assert all(d.redelivered for d in again)


def test_a_member_that_was_left_out_for_a_moment_is_a_member(bench: Bench) -> None:
    stream = bench.sender.open_stream("a", BLOCK, 1000, 64)
    member = bench.consumer(2, 20, "g")
    bench.members(stream, member)
    bench.publish(stream, "a1")
    bench.members(stream)
    bench.members(stream, member)
    assert not stream.recipients[2, 20].leaving
    bench.publish(stream, "a2")
    assert seen(bench.exchange(), 20) == ["a1", "a2"]


def test_a_group_without_room_holds_what_is_given_again(bench: Bench) -> None:
    stream = bench.sender.open_stream("a", BLOCK, 20, 64)
    bench.members(stream, bench.consumer(2, 20, "g"), bench.consumer(3, 30, "g"))
    for i in range(4):
        bench.publish(stream, i)
    got = [d for d in bench.exchange() if d.reception.subscription == 30]
    bench.sender.endpoint_gone(2, 0.0)
    assert [u.event for u in stream.undelivered["g"]] == [0, 2]
    assert bench.sender.full_groups(stream, 1) == ["g"]
    while got:
        bench.handle(stream, got)
        got = bench.exchange()
    assert not stream.undelivered
    assert bench.sender.full_groups(stream, 1) == []
