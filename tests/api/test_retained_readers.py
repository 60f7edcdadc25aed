"""What readers of a retained channel get: all kinds of events, in all the ways there are to consume, and deliveries."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
from functools import partial

import pyarrow as pa
import pytest
import ray

import echannel_ray as ec
from tests.api import kinds, modulators
from tests.api.parties import SOON, Inbox, Valve, ask, publish_all
from tests.api.quotes import NUMBERED, Numbered, numbered, numbers
from tests.api.test_kinds import EVENTS
from tests.clusters import wait_until


@pytest.fixture
def channel(nodes, name):
    return ec.channel(name, retain=ec.Retention())


# ---- kinds of events ----


@pytest.mark.parametrize("where", ["near", "far"])
def test_events_of_all_kinds_arrive_as_what_they_were(parties, channel, where):
    publish_all(None, channel, EVENTS)
    ray.get(parties[where].consume.remote(channel, start="earliest"))
    came = ray.get(parties[where].received.remote(len(EVENTS)))
    assert [(type(each), repr(each)) for each in came] == [(type(each), repr(each)) for each in EVENTS]


def test_classes_of_the_main_module(parties, channel):
    made = type("Local", (), {"__module__": "__main__", "__reduce__": lambda self: (dict, ())})
    publish_all(None, channel, [made()])
    ray.get(parties["far"].consume.remote(channel, start="earliest"))
    assert ray.get(parties["far"].received.remote(1)) == [{}]


@pytest.mark.parametrize("size_bytes", [200_704, 5 << 20, 20 << 20])
def test_large_events_keep_their_places(parties, channel, size_bytes):
    large = bytes(range(256)) * (size_bytes // 256)
    publish_all(None, channel, [0, large, 1, large, {"inside": large}, 2])
    ray.get(parties["far"].consume.remote(channel, start="earliest"))
    assert ask(parties["far"], sizes) == [0, size_bytes, 1, size_bytes, -size_bytes, 2]


def sizes(party):
    def size(event):
        if isinstance(event, dict):
            return -len(event["inside"])
        return len(event) if isinstance(event, bytes) else event

    return [size(event) for event in party.kept["inbox"].wait(6)]


def test_what_can_not_be_read_is_told_in_its_place(parties, channel):
    def forbid(party):
        kinds.FORBIDDEN = True
        party.kept["told"] = Inbox()
        party.kept["inbox"] = Inbox()
        party.kept["subscription"] = channel.subscribe(
            party.kept["inbox"], start="earliest", on_error=party.kept["told"]
        )

    def outcome(party):
        try:
            return party.kept["inbox"].wait(2), party.kept["told"].wait(1), party.kept["subscription"].stats().failed
        finally:
            kinds.FORBIDDEN = False

    publish_all(None, channel, ["before", kinds.Unreadable(), "after"])
    ask(parties["near"], forbid)
    events, [error], failed = ask(parties["near"], outcome)
    assert (events, failed) == (["before", "after"], 1)
    assert isinstance(error, ec.NotSerialisable)


def test_records_arrive_as_the_consumers_type(parties, name):
    channel = ec.channel(name, Numbered, retain=ec.Retention())
    with channel.producer() as producer:
        producer.publish(Numbered(1))
        producer.publish_many(numbered(2, 5000))
        producer.publish(Numbered(5001))
    with channel.subscribe(start="earliest") as subscription:
        came = [subscription.get(timeout=20) for _ in range(5001)]
    assert numbers(came) == [*range(1, 5002)]
    assert {type(event) for event in came} == {Numbered}
    ray.get(parties["far"].consume.remote(channel, start="earliest"))
    assert numbers(ray.get(parties["far"].received.remote(5001))) == [*range(1, 5002)]


@dataclasses.dataclass
class Number:
    number: int


def test_a_consumer_may_want_less_than_there_is(name):
    channel = ec.channel(name, Numbered, retain=ec.Retention())
    publish_all(None, channel, [Numbered(1), Numbered(2)])
    with channel.subscribe(event_type=Number, start="earliest") as subscription:
        assert [subscription.get(timeout=20) for _ in range(2)] == [Number(1), Number(2)]


@pytest.mark.parametrize("batches", ["numpy", "arrow"])
def test_batches_and_the_positions_behind_them(name, batches):
    channel = ec.channel(name, NUMBERED, retain=ec.Retention())
    with channel.producer() as producer:
        producer.publish_many(numbered(1, 3000))
        producer.drain(timeout=20)
        producer.publish_many(numbered(3001, 4000))
        producer.drain(timeout=20)
    with channel.subscribe(batches=batches, start="earliest") as subscription:
        messages = subscription.messages()
        first = next(messages)
        came = column(first.event)
        while len(came) < 4000:
            came += column(next(messages).event)
    assert came == [*range(1, 4001)]
    with channel.subscribe(batches=batches, start=first.position) as subscription:
        rest: list[int] = []
        while len(rest) < 4000 - len(first.event):
            rest += column(subscription.get(timeout=20))
    assert rest == [*range(len(first.event) + 1, 4001)]


def column(batch):
    values = batch.column("number").to_pylist() if isinstance(batch, pa.RecordBatch) else batch["number"].tolist()
    return list(values)


# ---- ways to consume ----


def test_coroutine_handlers_and_demodulators(parties, channel):
    async def subscribe(party):
        party.kept["inbox"] = Inbox()

        async def handle(event):
            party.kept["inbox"](event)

        party.kept["subscription"] = await channel.asubscribe(handle, start="earliest", demodulator=Doubling())

    publish_all(None, channel, [*range(1000)])
    ask(parties["asynchronous"], subscribe)
    assert ask(parties["asynchronous"], lambda party: party.kept["inbox"].wait(2000)) == [
        each for number in range(1000) for each in (number, number)
    ]


class Doubling:
    def receive(self, event):
        return [event, event]


def test_iterating_asynchronously(parties, channel):
    async def iterate(party):
        subscription = party.kept["subscription"] = await channel.asubscribe(start="earliest")
        came = []
        async for event in subscription:
            came.append(event)
            if len(came) == 500:
                return came
        return None

    publish_all(None, channel, [*range(500)])
    assert ask(parties["asynchronous"], iterate) == [*range(500)]


def test_a_slow_reader_holds_up_nobody_and_loses_nothing(parties, channel):
    valve = Valve()
    with channel.subscribe(valve) as slow, channel.producer() as producer:
        ray.get(parties["far"].consume.remote(channel))
        for number in range(3000):
            producer.publish((number, bytes(10_000)))
        producer.drain(timeout=20)
        assert [event[0] for event in ray.get(parties["far"].received.remote(3000))] == [*range(3000)]
        assert slow.stats().received < 3000  # what its window does not hold stays in the log
        valve.opened.set()
        assert [event[0] for event in valve.inbox.wait(3000)] == [*range(3000)]


def test_a_handler_that_raises_loses_no_other_event(channel):
    def handle(event):
        seen(event)
        if event % 2:
            raise ValueError(event)

    seen, told = Inbox(), Inbox()
    with channel.subscribe(handle, on_error=told) as subscription:
        publish_all(None, channel, [*range(100)])
        assert seen.wait(100) == [*range(100)]
        subscription.drain(timeout=20)
        stats = subscription.stats()
    assert (stats.received, stats.handled, stats.failed, len(told.items)) == (100, 50, 50, 50)


def test_a_subscription_closes_itself_in_its_handler(channel):
    def handle(event):
        seen(event)
        if event == 10:
            subscription.close()

    seen = Inbox()
    subscription = channel.subscribe(handle)
    publish_all(None, channel, [*range(1000)])
    assert seen.wait(11) == [*range(11)]
    wait_until(lambda: channel.stats().consumers == 0)
    assert len(seen.items) == 11
    assert channel.stats().events_delivered == 11


# ---- deliver ----


@pytest.mark.parametrize("who", [[], ["near"], ["far"], ["near", "far", "threaded"]])
def test_a_receipt_counts_readers(parties, channel, who):
    ray.get([parties[each].consume.remote(channel) for each in who])
    inbox = Inbox()
    with channel.subscribe(inbox), channel.producer() as producer:
        for number in range(20):
            assert producer.deliver(number).result(timeout=10).consumers == len(who) + 1
            assert len(inbox.items) == number + 1


def test_nobody_listens(channel):
    with channel.producer() as producer:
        assert producer.deliver("unheard").result(timeout=10) == ec.Receipt(consumers=0)


def test_many_deliveries_at_once_keep_their_places(parties, channel):
    ray.get([parties[each].consume.remote(channel) for each in ("near", "far")])
    with channel.producer() as producer:
        deliveries = [producer.publish(number) if number % 3 else producer.deliver(number) for number in range(900)]
        assert {delivery.result(timeout=20).consumers for delivery in deliveries if delivery is not True} == {2}
    for each in ("near", "far"):
        assert ray.get(parties[each].received.remote(900)) == [*range(900)]


def test_a_group_counts_as_one_and_a_failure_is_named(parties, channel):
    def fail(event):
        raise ValueError(f"no {event}")

    ray.get([parties[each].consume.remote(channel, group="g") for each in ("near", "far")])
    with channel.producer() as producer:
        assert producer.deliver("x").result(timeout=10).consumers == 1
        with channel.subscribe(fail, on_error=Inbox()), pytest.raises(ec.DeliveryFailed, match="no y") as failed:
            producer.deliver("y").result(timeout=10)
        assert failed.value.handled == 1
        assert len(failed.value.failures) == 1


def test_a_pull_subscription_has_handled_what_was_handed_out(channel):
    with channel.subscribe() as subscription, channel.producer() as producer:
        delivery = producer.deliver("x")
        with pytest.raises(TimeoutError):
            delivery.result(timeout=0.1)
        assert subscription.get(timeout=20) == "x"
        assert delivery.result(timeout=20).consumers == 1


def test_a_reader_that_leaves_need_not_answer(channel):
    subscription = channel.subscribe()
    with channel.producer() as producer:
        delivery = producer.deliver("x")
        subscription.close()
        assert delivery.result(timeout=20).consumers == 0


def test_a_reader_that_dies_has_failed(new_party, channel):
    doomed = new_party()
    pid = ask(doomed, lambda party: os.getpid())
    ask(doomed, lambda party: party.kept.update(subscription=channel.subscribe()))
    with channel.producer() as producer:
        delivery = producer.deliver("x")
        with pytest.raises(TimeoutError):
            delivery.result(timeout=0.1)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(ec.DeliveryFailed, match="died"):
            delivery.result(timeout=20)


def test_a_handler_that_waits_for_itself_is_told_so(channel):
    def handle(event):
        if event == "first":
            try:
                producer.deliver("second").result(timeout=SOON)
            except ec.EChannelError as error:
                told(error)

    told = Inbox()
    with channel.producer() as producer, channel.subscribe(handle):
        producer.publish("first")
        assert "waits for itself" in str(told.wait(1)[0])


# ---- beside the log ----


def test_modulators_work_on_what_is_logged(parties, channel):
    inbox = Inbox()
    with channel.subscribe(inbox, modulator=modulators.Above(10)):
        ray.get(parties["far"].consume.remote(channel))
        publish_all(None, channel, [*range(21)])
        ask(parties["far"], publish_all, channel, [*range(100, 110)])
        assert sorted(inbox.wait(20)) == [*range(11, 21), *range(100, 110)]
        assert sorted(ray.get(parties["far"].received.remote(31))) == [*range(21), *range(100, 110)]


def test_ecode_derives_from_a_retained_channel(parties, name):
    channel = ec.channel(name, Numbered, retain=ec.Retention())
    inbox = Inbox()
    with channel.derive("number > 2990").subscribe(inbox), channel.producer() as producer:
        producer.publish(Numbered(3001))
        producer.publish_many(numbered(1, 3000))
        assert sorted(numbers(inbox.wait(11))) == [*range(2991, 3002)]


def test_a_derived_subscription_of_several_lives(channel):
    """What is published while nobody derives is not made up for; what comes once somebody does is not missed."""
    for life in range(5):
        publish_all(None, channel, [(life, "nobody")] * 10)
        inbox = Inbox()
        with channel.subscribe(inbox, modulator=ec.FIFOModulator()):
            publish_all(None, channel, [(life, number) for number in range(50)])
            wait_until(partial(has_come, inbox, (life, 49)))
        mine = [number for which, number in inbox.items if which == life and number != "nobody"]
        assert mine == [*range(50)]


def has_come(inbox: Inbox, event: object) -> bool:
    return event in inbox.items


def test_many_threads_of_one_process_publish_and_read(channel):
    inboxes = [Inbox() for _ in range(4)]
    subscriptions = [channel.subscribe(inbox) for inbox in inboxes]
    with channel.producer() as producer:

        def publish(who):
            for number in range(2000):
                producer.publish((who, number))

        threads = [threading.Thread(target=publish, args=[who]) for who in range(4)]
        for thread in threads:
            thread.start()
        for inbox in inboxes:
            came = inbox.wait(8000)
            for who in range(4):
                assert [number for producer, number in came if producer == who] == [*range(2000)]
        for thread in threads:
            thread.join()
    for subscription in subscriptions:
        subscription.close()


def test_deliver_waits_for_what_modulators_make_of_it(nodes, near, name):
    channel = ec.channel(name, retain=ec.Retention())

    def consume(party):
        party.kept["seen"] = Inbox()
        above = ec.channel(name).derive(modulators.Above(1))
        party.kept["subscriptions"] = [above.subscribe(party.kept["seen"]), above.subscribe(fail)]

    def fail(event):
        if event == 3:
            raise ValueError("three")

    ask(near, consume)
    direct = Inbox()
    with channel.subscribe(direct), channel.producer() as producer:
        assert producer.deliver(1).result(20).consumers == 1  # the modulator does not let it pass
        assert producer.deliver(2).result(20).consumers == 3
        with pytest.raises(ec.DeliveryFailed, match="three") as caught:
            producer.deliver(3).result(20)
    assert caught.value.handled == 2
    assert ask(near, lambda party: party.kept["seen"].items) == [2, 3]
    assert direct.items == [1, 2, 3]


def test_a_delivery_does_not_wait_for_modulators_that_have_gone(nodes, near, name):
    """Those that were to get the event are taken out while it waits behind others for their consumer."""
    channel = ec.channel(name, retain=ec.Retention())

    def consume(party):
        party.kept["valve"] = Valve()
        party.kept["subscription"] = ec.channel(name).subscribe(party.kept["valve"], modulator=ec.FIFOModulator())

    def leave(party):
        party.kept["subscription"].close()
        party.kept["valve"].opened.set()

    ask(near, consume)
    with channel.producer() as producer:
        producer.publish_many([bytes(1 << 20) for _ in range(30)])
        producer.drain(SOON)
        ask(near, lambda party: party.kept["valve"].entered.wait(SOON))
        delivery = producer.deliver("x")
        producer.drain(SOON)
        ask(near, leave)
        assert delivery.result(SOON).consumers == 0
