"""What publish does when a consumer's window is full: wait, raise or drop; what was dropped is told in its place."""

from __future__ import annotations

import threading
import time
from fractions import Fraction

import numpy as np
import pytest
import ray

import echannel_ray as ec
from tests.api.parties import Inbox, Valve, ask

MEGABYTE = bytes(1 << 20)
WINDOW_MEGABYTES = 8


def stall(party, channel):
    """Subscribe with a handler that waits until `release`."""
    valve = party.kept["valve"] = Valve()
    errors = party.kept["errors"] = Inbox()
    party.kept["subscription"] = channel.subscribe(lambda event: valve(event[0]), on_error=errors)


def release(party):
    party.kept["valve"].opened.set()


def sizes(count):
    """Events of about a megabyte, numbered."""
    return [(number, MEGABYTE) for number in range(count)]


@pytest.fixture(params=["near", "far"])
def stalled(request, parties, channel):
    party = parties[request.param]
    ask(party, stall, channel)
    yield party
    ask(party, release)


def fill(producer):
    """Publish until a timeout: how many were accepted."""
    accepted: list[int] = []
    with pytest.raises(TimeoutError, match="no room"):
        accepted.extend(number for number, event in enumerate(sizes(100)) if producer.publish(event, timeout=0.3))
    return len(accepted)


@pytest.mark.parametrize("timeout", [np.float32(0.05), Fraction(1, 20), np.int64(0)], ids=repr)
def test_any_kind_of_number_bounds_the_wait(stalled, channel, timeout):
    with channel.producer() as producer:
        fill(producer)
        with pytest.raises(TimeoutError, match="no room"):
            producer.publish((0, MEGABYTE), timeout=timeout)


def test_block_waits_for_the_slowest_consumer(stalled, channel):
    with channel.producer() as producer:
        accepted = fill(producer)
        assert 1 <= accepted <= WINDOW_MEGABYTES
        blocked = threading.Thread(target=producer.publish, args=[(accepted, MEGABYTE)])
        blocked.start()
        blocked.join(0.2)
        assert blocked.is_alive()
        ask(stalled, release)
        blocked.join(20)
        assert not blocked.is_alive()
        producer.drain(timeout=20)
    received = ask(stalled, lambda party: party.kept["valve"].inbox.wait(accepted + 1))
    assert accepted + 1 not in received
    assert received == [*range(accepted + 1)]


def test_block_holds_up_no_other_channel(stalled, channel, name):
    other = ec.channel(f"{name}-other")
    inbox = Inbox()
    with channel.producer() as blocked, other.producer() as free, other.subscribe(inbox):
        fill(blocked)
        assert all(free.publish(number) for number in range(100))
        assert inbox.wait(100) == [*range(100)]
        ask(stalled, release)


def test_raise(stalled, channel):
    with channel.producer(overflow="raise") as producer:
        taken: list[int] = []
        with pytest.raises(ec.Overloaded, match="window") as caught:
            taken.extend(number for number, event in enumerate(sizes(100)) if producer.publish(event))
        accepted = len(taken)
        assert caught.value.channel == channel.name
        assert accepted <= WINDOW_MEGABYTES
        ask(stalled, release)
        producer.drain(timeout=20)
        received = ask(stalled, lambda party, count: party.kept["valve"].inbox.wait(count), accepted)
        assert received == [*range(accepted)]
        assert producer.publish((accepted, b"")) is True
        assert ask(stalled, lambda party, count: party.kept["valve"].inbox.wait(count), accepted + 1)[-1] == accepted


@pytest.mark.parametrize("policy", ["drop_newest", "drop_oldest"])
def test_dropping_is_told_to_on_error(stalled, channel, policy):
    with channel.producer(overflow=policy) as producer:
        outcomes = [producer.publish(event) for event in sizes(40)]
        ask(stalled, release)
        producer.drain(timeout=20)
        while producer.publish(("end", b"")) is False:
            pass
        producer.drain(timeout=20)
        name = producer.name
    handled, gaps = ask(
        stalled,
        lambda party: (
            party.kept["subscription"].drain(20) or party.kept["valve"].inbox.items,
            party.kept["errors"].items,
        ),
    )
    numbers = [number for number in handled if number != "end"]
    lost = [number for gap in gaps for number in range(gap.first - 1, gap.last) if number < 40]
    assert sorted([*numbers, *lost]) == [*range(40)]
    assert numbers == sorted(numbers)
    assert handled[-1] == "end"
    assert {gap.producer for gap in gaps} == {name}
    if policy == "drop_newest":
        assert outcomes == [number in numbers for number in range(40)]
        assert numbers[0] == 0
    else:
        assert 39 in numbers
    assert channel.stats().events_dropped >= len(lost) > 0


@pytest.mark.parametrize("policy", ["drop_newest", "drop_oldest"])
@pytest.mark.parametrize("who", ["near", "far"])
def test_a_gap_is_in_its_place_in_messages(parties, channel, policy, who):
    def subscribe(party):
        party.kept["subscription"] = channel.subscribe()

    def pull(party):
        seen = []
        for message in party.kept["subscription"].messages():
            if isinstance(message, ec.Gap):
                seen.append((message.producer, message.first, message.last))
            else:
                seen.append((message.producer, message.sequence, message.sequence))
                if message.event[0] == "end":
                    return seen
        return None

    ask(parties[who], subscribe)
    with channel.producer(overflow=policy) as producer:
        dropped = [producer.publish(event) for event in sizes(40)].count(False)
        assert dropped or policy == "drop_oldest"
        answer = parties[who].run.remote(pull)
        deadline = time.monotonic() + 20
        while producer.publish(("end", b"")) is False:
            assert time.monotonic() < deadline
        producer.drain(timeout=20)
        seen = ray.get(answer, timeout=20)
        assert {who for who, _, _ in seen} == {producer.name}
    # Without a hole: each begins where the one before ended.
    assert [first for _, first, _ in seen] == [1, *(last + 1 for _, _, last in seen[:-1])]
    assert any(last > first for _, first, last in seen)


def test_drop_concerns_that_consumer_only(stalled, parties, channel):
    other = parties["threaded"]
    ray.get(other.consume.remote(channel))
    with channel.producer(overflow="drop_newest") as producer:
        for event in sizes(20):
            producer.publish(event)
            producer.drain(timeout=20)
            ask(other, lambda party: party.kept["subscription"].drain(20))
    assert ask(other, lambda party: [event[0] for event in party.kept["inbox"].items]) == [*range(20)]


def test_a_single_event_may_be_larger_than_the_window(near, channel):
    ray.get(near.consume.remote(channel))
    with channel.producer() as producer:
        assert producer.publish(bytes(20 << 20), timeout=10)
        assert producer.publish("after", timeout=20)
    received = ask(near, lambda party: [len(event) for event in party.kept["inbox"].wait(2)])
    assert received == [20 << 20, 5]
