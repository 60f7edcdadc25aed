"""Members of a group share the events, and what one of them leaves behind another gets."""

from __future__ import annotations

import os
import signal
import threading

import pytest
import ray

import echannel_ray as ec
from tests.api.parties import SOON, Inbox, Valve, ask


def numbers(party):
    return party.kept["inbox"].items


def join(party, channel):
    """Pull: so a test decides what this member handles."""
    party.kept["subscription"] = channel.subscribe(group="g")


def test_each_event_goes_to_one_member(parties, channel):
    members = [parties[name] for name in ("near", "far", "threaded")]
    ray.get([member.consume.remote(channel, group="g") for member in members])
    ray.get(parties["asynchronous"].run.remote(keep_inbox, channel))
    with channel.producer() as producer:
        for number in range(3000):
            producer.publish(number)
        producer.drain(timeout=20)  # handled, for a group
        shares = [ask(member, numbers) for member in members]
        everything = ask(parties["asynchronous"], lambda party: party.kept["inbox"].wait(3000))
    assert sorted(number for share in shares for number in share) == [*range(3000)]
    assert all(share == sorted(share) for share in shares)
    assert all(share for share in shares)
    assert everything == [*range(3000)]


def keep_inbox(party, channel):
    party.kept["inbox"] = Inbox()
    party.kept["subscription"] = channel.subscribe(party.kept["inbox"])


def test_groups_are_independent(parties, channel):
    ray.get(parties["near"].consume.remote(channel, group="one"))
    ray.get(parties["far"].consume.remote(channel, group="another"))
    with channel.producer() as producer:
        producer.publish_many(range(100))
        producer.drain(timeout=20)
    assert ask(parties["near"], numbers) == ask(parties["far"], numbers) == [*range(100)]


def test_members_in_one_process(near, channel):
    first, second = Inbox(), Inbox()
    with channel.subscribe(first, group="g"), channel.subscribe(second, group="g"), channel.producer() as producer:
        producer.publish_many(range(200))
        producer.drain(timeout=20)
        assert sorted(first.items + second.items) == [*range(200)]


def test_what_a_dead_member_left_goes_to_another(new_party, near, channel):
    doomed = new_party()
    pid = ask(doomed, lambda party: os.getpid())
    ask(doomed, lambda party: party.kept.update(subscription=channel.subscribe(Valve(), group="g")))
    with channel.producer() as producer:
        for number in range(50):
            producer.publish(number)
        ask(near, join, channel)
        for number in range(50, 100):
            producer.publish(number)
        os.kill(pid, signal.SIGKILL)
        producer.publish("end")
        messages = ask(near, take_all, 101)
        producer.drain(timeout=20)
    assert sorted(event for event, _ in messages if event != "end") == [*range(100)]
    assert {event for event, redelivered in messages if redelivered} >= {*range(50)}
    assert {event for event, redelivered in messages if not redelivered}


def take_all(party, count):
    taken = []
    for message in party.kept["subscription"].messages():
        taken.append((message.event, message.redelivered))
        if len(taken) == count:
            return taken
    return None


def take(party, count):
    return [party.kept["subscription"].get(timeout=20) for _ in range(count)]


def test_a_member_that_leaves_in_order_loses_and_doubles_nothing(parties, channel):
    leaving, staying = parties["near"], parties["far"]
    ask(leaving, join, channel)
    with channel.producer() as producer:
        producer.publish_many(range(500))
        handled = ask(leaving, take, 123)
        ask(staying, join, channel)
        ray.get(leaving.leave.remote())
        rest = ask(staying, take, 500 - 123)
        producer.publish("end")
        assert ask(staying, take, 1) == ["end"]
        producer.drain(timeout=20)
    assert handled == [*range(123)]
    assert rest == [*range(123, 500)]


def test_members_that_leave_inside_their_handlers(parties, channel):
    """Push members, each of which closes itself after some events, while others join; there is always one."""
    seen = Inbox()
    joined = [threading.Event() for _ in range(10)]

    def member(index):
        quota = [40]

        def handle(event):
            seen(event)
            if quota[0] == 1:  # a group that its last member leaves ends, with what nobody had handled
                assert joined[min(index + 1, 9)].wait(SOON)
                subscription.close()
            quota[0] -= 1

        subscription = channel.subscribe(handle, group="g")
        joined[index].set()

    with channel.producer() as producer:
        member(0)
        for number in range(400):
            producer.publish(number)
        for index in range(1, 10):
            member(index)
        assert sorted(seen.wait(400)) == [*range(400)]
        producer.drain(timeout=20)
    assert len(seen.items) == 400


def test_a_slow_member_holds_up_nobody(parties, channel):
    valve = Valve()
    with channel.subscribe(valve, group="g"), channel.producer() as producer:
        ray.get(parties["far"].consume.remote(channel, group="g"))
        for number in range(1000):
            producer.deliver(number) if number == 0 else producer.publish(number)
        others = ask(parties["far"], lambda party: len(party.kept["inbox"].wait(400)))
        assert others >= 400
        valve.opened.set()
        producer.drain(timeout=20)
        assert sorted([*valve.inbox.items, *ask(parties["far"], numbers)]) == [*range(1000)]


def test_a_deliver_fails_with_the_member_that_had_it(new_party, near, channel):
    doomed = new_party()
    pid = ask(doomed, lambda party: os.getpid())
    ask(doomed, join, channel)
    with channel.producer() as producer:
        delivery = producer.deliver("x")
        ray.get(near.consume.remote(channel, group="g"))
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(ec.DeliveryFailed, match="died"):  # the one that it waited for
            delivery.result(timeout=10)
        assert ray.get(near.received.remote(1)) == ["x"]


def test_what_is_dropped_for_a_group_is_told_to_a_member(near, channel):
    def stall(party):
        valve = party.kept["valve"] = Valve()
        party.kept["told"] = Inbox()
        party.kept["subscription"] = channel.subscribe(
            lambda event: valve(event[0]), group="g", on_error=party.kept["told"]
        )

    def outcome(party):
        valve, told = party.kept["valve"], party.kept["told"]
        valve.opened.set()
        (gap,) = told.wait(1)
        return valve.inbox.wait(gap.first - 1), gap

    ask(near, stall)
    with channel.producer(overflow="drop_newest") as producer:
        taken = [producer.publish((number, bytes(1 << 20))) for number in range(40)].count(True)
        handled, gap = ask(near, outcome)
        assert handled == [*range(taken)]
        assert gap == ec.Gap(producer.name, taken + 1, 40)
        producer.drain(timeout=10)
        assert producer.publish(("end", b"")) is True
        producer.drain(timeout=10)
    assert channel.stats().events_dropped == 40 - taken
