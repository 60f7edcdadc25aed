"""Groups on retained channels: each event to one member, and a group that comes back goes on where it acknowledged."""

from __future__ import annotations

import os
import signal
import threading

import pytest
import ray

import echannel_ray as ec
from tests.api.parties import SOON, Inbox, Valve, ask, publish_all
from tests.clusters import wait_until


@pytest.fixture(params=["memory", "disk"])
def channel(request, nodes, name):
    return ec.channel(name, retain=ec.Retention(disk=request.param == "disk"))


def numbers(party):
    return party.kept["inbox"].items


def take(party, count):
    return [party.kept["subscription"].get(timeout=20) for _ in range(count)]


def join(party, channel, start=None):
    party.kept["subscription"] = channel.subscribe(group="g", start=start)


def test_each_event_goes_to_one_member_from_the_logs_of_two_nodes(parties, channel):
    members = [parties[name] for name in ("near", "far", "threaded")]
    ray.get([member.consume.remote(channel, group="g") for member in members])
    with channel.subscribe(start="earliest") as everything:
        publish_all(None, channel, [*range(3000)])
        ask(parties["far"], publish_all, channel, [*range(3000, 6000)])
        assert sorted(everything.get(timeout=20) for _ in range(6000)) == [*range(6000)]
        wait_until(lambda: sum(len(ask(member, numbers)) for member in members) >= 6000)
    shares = [ask(member, numbers) for member in members]
    assert sorted(number for share in shares for number in share) == [*range(6000)]
    assert all(shares)
    for share in shares:
        for low, high in ((0, 3000), (3000, 6000)):
            mine = [number for number in share if low <= number < high]
            assert mine == sorted(mine)


def test_a_group_that_comes_back_goes_on_where_it_was(parties, channel):
    publish_all(None, channel, [*range(100)])
    ask(parties["near"], join, channel, "earliest")
    assert ask(parties["near"], take, 40) == [*range(40)]
    ray.get(parties["near"].leave.remote())
    publish_all(None, channel, [*range(100, 150)])  # nobody is there
    ask(parties["far"], join, channel, "new")  # it is no new group
    assert ask(parties["far"], take, 110) == [*range(40, 150)]


def test_a_group_that_is_new_begins_where_it_says(parties, channel):
    publish_all(None, channel, [*range(10)])
    ask(parties["near"], join, channel)
    with channel.subscribe(group="other", start="earliest") as other:
        publish_all(None, channel, [10])
        assert ask(parties["near"], take, 1) == [10]
        assert [other.get(timeout=20) for _ in range(11)] == [*range(11)]


def test_a_member_that_leaves_in_order_loses_and_doubles_nothing(parties, channel):
    leaving, staying = parties["near"], parties["far"]
    ask(leaving, join, channel)
    with channel.producer() as producer:
        producer.publish_many(range(500))
        producer.drain(timeout=20)
        handled = ask(leaving, take, 123)
        ask(staying, join, channel)
        ray.get(leaving.leave.remote())
        handled += ask(staying, take, 500 - 123)
        producer.publish("end")
        assert ask(staying, take, 1) == ["end"]
    assert sorted(handled) == [*range(500)]


def test_a_process_that_leaves_says_what_it_has_handled(new_party, near, channel):
    leaving = new_party()
    ask(leaving, join, channel)
    publish_all(None, channel, [*range(100)])
    assert ask(leaving, take, 40) == [*range(40)]
    ask(leaving, lambda party: ec.disconnect())
    ask(near, join, channel)
    assert ask(near, take_messages, 60) == [(number, False) for number in range(40, 100)]


def test_what_a_dead_member_left_goes_to_another_and_is_marked(new_party, near, channel):
    doomed = new_party()
    pid = ask(doomed, lambda party: os.getpid())
    ask(doomed, stall, channel)
    publish_all(None, channel, [*range(50)])
    ask(doomed, lambda party: party.kept["valve"].entered.wait(20))
    ask(near, join, channel)
    os.kill(pid, signal.SIGKILL)
    messages = ask(near, take_messages, 50)
    assert sorted(event for event, _ in messages) == [*range(50)]
    assert 0 in {event for event, redelivered in messages if redelivered}
    assert {redelivered for _, redelivered in messages} == {True, False}


def stall(party, channel):
    party.kept["valve"] = Valve()
    party.kept["subscription"] = channel.subscribe(party.kept["valve"], group="g")


def take_messages(party, count):
    messages = party.kept["subscription"].messages()
    return [(message.event, message.redelivered) for _, message in zip(range(count), messages, strict=False)]


def test_members_that_leave_inside_their_handlers(channel):
    seen = Inbox()

    def member():
        quota = [40]

        def handle(event):
            quota[0] -= 1
            if quota[0] == 0:
                assert made.wait(SOON)  # all of it may be handled before `subscribe` has returned
                subscription.close()
                left(event)
            seen(event)

        made = threading.Event()
        subscription = channel.subscribe(handle, group="g", start="earliest")
        made.set()

    left = Inbox()
    publish_all(None, channel, [*range(400)])
    for lives in range(1, 11):
        member()
        left.wait(lives)
        wait_until(lambda: channel.stats().consumers == 0)
    assert sorted(seen.wait(400)) == [*range(400)]
    assert len(seen.items) == 400


def test_members_in_one_process_and_one_that_is_slow(channel):
    first, valve = Inbox(), Valve()
    with channel.subscribe(valve, group="g"), channel.subscribe(first, group="g"):
        publish_all(None, channel, [*range(5000)])
        first.wait(2000)
        valve.opened.set()
        wait_until(lambda: len(first.items) + len(valve.inbox.items) >= 5000)
        assert sorted(first.items + valve.inbox.items) == [*range(5000)]


def test_what_the_bounds_have_passed_is_told_to_a_member(nodes, name):
    channel = ec.channel(name, retain=ec.Retention(max_bytes=1 << 20))
    with channel.producer() as producer:
        producer.publish((0, b""))
        with channel.subscribe(group="g", start="earliest") as subscription:
            assert subscription.get(timeout=20)[0] == 0
        for number in range(1, 300):
            producer.publish((number, bytes(20_000)))
            producer.drain(timeout=20)
    with channel.subscribe(group="g") as subscription:
        with pytest.raises(ec.EventsMissing) as missing:
            subscription.get(timeout=20)
        first = subscription.get(timeout=20)[0]
        assert (missing.value.first, missing.value.last) == (1, first - 1)
        assert [subscription.get(timeout=20)[0] for _ in range(299 - first)] == [*range(first + 1, 300)]


def test_members_have_equal_pairs(channel):
    with channel.subscribe(group="g"), pytest.raises(ec.ModulatorRefused, match="equal"):
        channel.subscribe(group="g", demodulator=Demodulator())


class Demodulator:
    def receive(self, event):
        return [event]


def test_a_group_that_returns_gets_what_came_into_a_new_log_meanwhile(nodes, far, name):
    channel = ec.channel(name, retain=ec.Retention())
    with channel.producer() as producer:
        producer.publish_many(range(10))
        producer.drain()
        with channel.subscribe(group="g", start="earliest") as member:
            assert [member.get(timeout=SOON) for _ in range(10)] == [*range(10)]

        def publish(party):
            with ec.channel(name).producer() as elsewhere:
                elsewhere.publish_many(range(100, 200))

        ask(far, publish)
        producer.publish_many(range(10, 20))
    with channel.subscribe(group="g") as member:
        assert sorted(member.get(timeout=SOON) for _ in range(110)) == [*range(10, 20), *range(100, 200)]
