"""Windows, laggards, groups and redelivery: what `Sender` decides."""

from __future__ import annotations

import pytest

from echannel_ray.core.receiver import Delivered
from echannel_ray.core.streams import NEVER
from echannel_ray.core.windows import BLOCK, DROP_NEWEST, DROP_OLDEST, full_groups, full_recipients, plain_have_room
from tests.core.direct import Bench, seen


@pytest.fixture
def bench():
    bench = Bench()
    yield bench
    bench.sender.validate()
    for receiver in bench.receivers.values():
        receiver.validate()


def test_the_limit_follows_the_slowest(bench: Bench) -> None:
    stream = bench.sender.open_stream("a", BLOCK, 100)
    assert stream.limit_bytes == NEVER
    bench.members(stream, bench.consumer(2, 20), bench.consumer(3, 30))
    assert stream.limit_bytes == 100
    for i in range(10):
        bench.publish(stream, i)
    assert not plain_have_room(stream, 1)
    bench.exchange()
    bench.sender.credited(stream, 2, 20, 100)
    assert stream.limit_bytes == 100
    bench.sender.credited(stream, 3, 30, 50)
    assert stream.limit_bytes == 150
    bench.sender.credited(stream, 3, 30, 20)  # an old one, late
    assert stream.limit_bytes == 150


def test_an_event_larger_than_the_window_passes_alone(bench: Bench) -> None:
    stream = bench.sender.open_stream("a", BLOCK, 100)
    bench.members(stream, bench.consumer(2, 20))
    assert plain_have_room(stream, 500)
    bench.publish(stream, "large", 500)
    assert not plain_have_room(stream, 1)
    bench.handle(stream, bench.exchange())
    assert plain_have_room(stream, 500)


def test_who_subscribes_late_has_a_whole_window(bench: Bench) -> None:
    stream = bench.sender.open_stream("a", BLOCK, 100)
    first = bench.consumer(2, 20)
    bench.members(stream, first)
    bench.publish(stream, "a1", 100)
    bench.members(stream, first, bench.consumer(3, 30))
    assert [r.subscription for r in full_recipients(stream, 1)] == [20]


def test_the_death_of_the_slowest_makes_room(bench: Bench) -> None:
    stream = bench.sender.open_stream("a", BLOCK, 100)
    bench.members(stream, bench.consumer(2, 20), bench.consumer(3, 30))
    bench.publish(stream, "a1", 100)
    bench.exchange()
    bench.sender.credited(stream, 3, 30, 100)
    assert bench.sender.endpoint_gone(2, 0.0) == [stream]
    assert plain_have_room(stream, 100)
    assert not any(flow.kept and not flow.members for flow in bench.sender.flows.values())


@pytest.mark.parametrize("policy", [DROP_NEWEST, DROP_OLDEST])
def test_a_laggard_misses_what_others_get_and_comes_back(bench: Bench, policy: str) -> None:
    stream = bench.sender.open_stream("a", policy, 30)
    bench.members(stream, bench.consumer(2, 20), bench.consumer(3, 30))
    slow: list[Delivered] = []
    fast: list[Delivered] = []
    for i in range(1, 11):
        bench.publish(stream, i)
        got = bench.exchange()
        slow += [d for d in got if d.source.subscription == 20]
        fresh = [d for d in got if d.source.subscription == 30]
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
    stream = bench.sender.open_stream("a", DROP_OLDEST, 30)
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


@pytest.mark.parametrize("policy", [DROP_NEWEST, DROP_OLDEST])
def test_a_laggard_is_told_at_the_end_what_it_missed(bench: Bench, policy: str) -> None:
    stream = bench.sender.open_stream("a", policy, 30)
    bench.members(stream, bench.consumer(2, 20), bench.consumer(3, 30))
    for i in range(1, 11):
        bench.publish(stream, i)
    bench.sender.close_stream(stream)
    kept = [] if policy == DROP_NEWEST else [8, 9, 10]
    got = bench.exchange()
    for subscription in (20, 30):
        assert seen(got, subscription) == [1, 2, 3, (4, 10 - len(kept)), *kept]
    assert not bench.receivers[2].streams
    assert not bench.receivers[3].streams


# ---- groups ----


def test_members_share_the_events_and_the_idle_gets_more(bench: Bench) -> None:
    stream = bench.sender.open_stream("a", BLOCK, 1000)
    bench.members(stream, bench.consumer(2, 20, "g"), bench.consumer(3, 30, "g"))
    for i in range(4):
        bench.publish(stream, i)
    got = bench.exchange()
    assert (seen(got, 20), seen(got, 30)) == ([0, 2], [1, 3])
    bench.handle(stream, [d for d in got if d.source.subscription == 30])
    bench.publish(stream, 4)
    bench.publish(stream, 5)
    assert seen(bench.exchange(), 30) == [4, 5]


def test_a_member_without_room_is_passed_over(bench: Bench) -> None:
    stream = bench.sender.open_stream("a", BLOCK, 100)
    bench.members(stream, bench.consumer(2, 20, "g"), bench.consumer(3, 30, "g"))
    bench.publish(stream, "large", 95)  # to 20
    for i in range(3):
        bench.publish(stream, i, 10)  # to 30, though it has more events
    assert seen(bench.exchange(), 30) == [0, 1, 2]
    assert full_groups(stream, 80) == ["g"]
    assert full_groups(stream, 70) == []


def test_a_group_is_told_at_the_end_what_it_missed(bench: Bench) -> None:
    stream = bench.sender.open_stream("a", DROP_NEWEST, 30)
    bench.members(stream, bench.consumer(2, 20, "g"))
    for i in range(1, 7):
        bench.publish(stream, i)
    bench.sender.close_stream(stream)
    assert seen(bench.exchange(), 20) == [1, 2, 3, (4, 6)]
    assert not bench.receivers[2].streams


def test_what_a_dead_member_had_goes_to_another_marked(bench: Bench) -> None:
    stream = bench.sender.open_stream("a", BLOCK, 1000)
    bench.members(stream, bench.consumer(2, 20, "g"), bench.consumer(3, 30, "g"))
    for i in range(4):
        bench.publish(stream, i)
    bench.handle(stream, [d for d in bench.exchange() if d.source.subscription == 30])
    bench.sender.endpoint_gone(2, 0.0)
    again = bench.exchange()
    assert seen(again, 30) == [0, 2]
    assert all(d.redelivered for d in again)
    bench.handle(stream, again)
    assert not any(r.sent for r in stream.recipients.values())


def test_an_event_given_again_is_not_taken_for_handled_before_it_was(bench: Bench) -> None:
    """Its mark may be the one at which the other member joined."""
    stream = bench.sender.open_stream("a", BLOCK, 1000)
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
    stream = bench.sender.open_stream("a", BLOCK, 1000)
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
    assert stream.recipients[2, 20].is_leaving  # its last word is awaited
    assert bench.receivers[2].credit_wanted(1, stream.number, 20, 99) == (10, True)
    bench.sender.credited(stream, 2, 20, 10, final=True)
    again = bench.exchange()
    assert seen(again, 30) == [2]
    assert all(d.redelivered for d in again)


def test_a_member_that_was_left_out_for_a_moment_is_a_member(bench: Bench) -> None:
    stream = bench.sender.open_stream("a", BLOCK, 1000)
    member = bench.consumer(2, 20, "g")
    bench.members(stream, member)
    bench.publish(stream, "a1")
    bench.members(stream)
    bench.members(stream, member)
    assert not stream.recipients[2, 20].is_leaving
    bench.publish(stream, "a2")
    assert seen(bench.exchange(), 20) == ["a1", "a2"]


def test_a_group_without_room_holds_what_is_given_again(bench: Bench) -> None:
    stream = bench.sender.open_stream("a", BLOCK, 20)
    bench.members(stream, bench.consumer(2, 20, "g"), bench.consumer(3, 30, "g"))
    for i in range(4):
        bench.publish(stream, i)
    got = [d for d in bench.exchange() if d.source.subscription == 30]
    bench.sender.endpoint_gone(2, 0.0)
    assert [u.event for u in stream.undelivered["g"]] == [0, 2]
    assert full_groups(stream, 1) == ["g"]
    while got:
        bench.handle(stream, got)
        got = bench.exchange()
    assert not stream.undelivered
    assert full_groups(stream, 1) == []
