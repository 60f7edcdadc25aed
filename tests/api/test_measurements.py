"""What `stats()` measures, on a cluster of two nodes: each figure is true."""

from __future__ import annotations

import pickle
import re
import time

import pytest
import ray

import echannel_ray as ec
from echannel_ray.consumers.inbox import WINDOW_EVENTS
from echannel_ray.overview.readings import find_channel, read_line
from tests.api.modulators import Above, Gate, Raising, Waiting
from tests.api.parties import Inbox, Valve, ask, publish_all
from tests.api.ticks import OPEN, SOURCES, Tick, ticks
from tests.clusters import wait_until

MEGABYTE = bytes(1 << 20)


def stall(party, channel, options):
    """Subscribe with a handler that waits until `release`."""
    valve = party.kept["valve"] = Valve()
    party.kept["subscription"] = channel.subscribe(valve, on_error=Inbox(), **options)


def release(party):
    party.kept["valve"].opened.set()


def handle_all(party, count):
    party.kept["valve"].inbox.wait(count)
    party.kept["subscription"].drain(20)


class Stalled:
    """Parties whose handlers wait."""

    def __init__(self, parties):
        self._parties = parties
        self._waiting = []

    def begin(self, where, channel, **options):
        self._waiting.append(self._parties[where])
        ask(self._waiting[-1], stall, channel, options)

    def end(self):
        """Let them go on."""
        while self._waiting:
            ask(self._waiting.pop(), release)


@pytest.fixture
def stalled(parties):
    stalled = Stalled(parties)
    yield stalled
    stalled.end()


class TestDropped:
    @pytest.mark.parametrize("reason", ["newest", "oldest"])
    def test_for_a_consumer_elsewhere(self, stalled, channel, reason):
        stalled.begin("near", channel)
        stalled.begin("far", channel)
        with channel.producer(overflow=f"drop_{reason}") as producer:
            for _ in range(30):
                producer.publish(MEGABYTE)
            stats = channel.stats()
            stalled.end()  # else the producer would wait for them when it is closed
        assert stats.dropped == {reason: stats.events_dropped}
        assert stats.events_dropped >= 2 * (30 - 17)

    @pytest.mark.parametrize("reason", ["newest", "oldest"])
    def test_for_a_consumer_here(self, here, channel, reason):
        stall(here, channel, {})
        with channel.producer(overflow=f"drop_{reason}") as producer:
            producer.publish(0)
            assert here.kept["valve"].entered.wait(20)
            for number in range(WINDOW_EVENTS + 10):
                producer.publish(number)
            stats = channel.stats()
            release(here)
        assert stats.dropped == {reason: stats.events_dropped}
        assert stats.events_dropped == 11

    def test_for_a_group(self, stalled, channel):
        stalled.begin("near", channel, group="workers")
        with channel.producer(overflow="drop_oldest") as producer:
            outcomes = [producer.publish(MEGABYTE) for _ in range(20)]
            stats = channel.stats()
            stalled.end()
        assert stats.dropped == {"group": outcomes.count(False)}
        assert stats.events_dropped == outcomes.count(False) > 0

    def test_that_of_closed_producers_stays(self, stalled, channel):
        stalled.begin("near", channel)
        producer = channel.producer(overflow="drop_newest")
        outcomes = [producer.publish(MEGABYTE) for _ in range(20)]
        stalled.end()
        producer.close()
        assert channel.stats().dropped == {"newest": outcomes.count(False)}

    def test_what_is_gone_from_a_log_before_it_is_read(self, stalled, near, nodes, name):
        channel = ec.channel(name, retain=ec.Retention(max_bytes=10 * len(MEGABYTE)))
        with channel.producer() as producer:
            stalled.begin("near", channel, start="earliest")
            for _ in range(60):  # of which a window or so has been read ahead
                producer.publish(MEGABYTE)
            producer.drain(timeout=20)
            stalled.end()
            wait_until(lambda: (found := channel.stats()).events_delivered + found.events_dropped == 60)
            stats = channel.stats()
            assert stats.dropped == {"retention": stats.events_dropped}
            assert stats.events_dropped > 10
            assert stats.consumer_lag_events == 0


@pytest.mark.parametrize("options", [{}, {"group": "g"}], ids=["alone", "group"])
@pytest.mark.parametrize("is_coroutine", [False, True])
def test_the_event_in_whose_handler_a_subscription_is_closed_is_counted(nodes, near, channel, is_coroutine, options):
    def close_at_ten(event: int) -> None:
        if event == 10:
            subscription.close()

    async def close_in_coroutine(event: int) -> None:
        close_at_ten(event)

    subscription = channel.subscribe(close_in_coroutine if is_coroutine else close_at_ten, **options)
    ask(near, publish_all, channel, [*range(1, 21)])
    wait_until(lambda: channel.stats().events_delivered == subscription.stats().handled == 10)
    time.sleep(0.2)  # nothing more is to be counted, so there is nothing to wait for
    assert channel.stats().events_delivered == 10


class TestQueues:
    def test_grow_while_a_handler_is_stuck(self, stalled, far, channel):
        stalled.begin("far", channel)
        with channel.producer() as producer:
            producer.publish_many(range(100))
            producer.drain(timeout=20)
            stats = channel.stats()
            assert (stats.queue_depth, stats.consumer_lag_events, stats.events_delivered) == (100, 100, 0)
            producer.publish_many(range(20))
            assert channel.stats().consumer_lag_events == 120
            stalled.end()
            ask(far, handle_all, 120)
            stats = channel.stats()
            assert (stats.queue_depth, stats.consumer_lag_events, stats.events_delivered) == (0, 0, 120)

    @pytest.mark.parametrize("where", ["near", "here"])
    def test_lag_counts_each_consumer(self, parties, here, channel, where):
        party = here if where == "here" else parties[where]
        options = [channel, {}]
        stall(here, *options) if where == "here" else ask(party, stall, *options)
        with channel.subscribe() as other, channel.producer() as producer:
            producer.publish_many(range(50))
            producer.drain(timeout=20)
            assert channel.stats().consumer_lag_events == 100
            assert [other.get(timeout=20) for _ in range(50)] == [*range(50)]
            assert channel.stats().consumer_lag_events == 50
            release(here) if where == "here" else ask(party, release)
            handle_all(here, 50) if where == "here" else ask(party, handle_all, 50)
            assert channel.stats().consumer_lag_events == 0

    def test_lag_leaves_out_what_was_dropped(self, stalled, near, channel):
        stalled.begin("near", channel)
        with channel.producer(overflow="drop_newest") as producer:
            outcomes = [producer.publish(MEGABYTE) for _ in range(20)]
            producer.drain(timeout=20)
            assert channel.stats().consumer_lag_events == outcomes.count(True) < 20
            stalled.end()
            ask(near, handle_all, outcomes.count(True))
            wait_until(lambda: channel.stats().consumer_lag_events == 0)  # the gap may be on its way to the consumer

    def test_lag_of_a_group_is_what_nobody_has_handled(self, stalled, near, channel):
        stalled.begin("near", channel, group="workers")
        stalled.begin("far", channel, group="workers")
        with channel.producer() as producer:
            producer.publish_many(range(40))
            stats = channel.stats()
            assert (stats.consumers, stats.consumer_lag_events) == (2, 40)
            stalled.end()
            producer.drain(timeout=20)  # handled, for a group
            assert channel.stats().consumer_lag_events == 0

    def test_lag_of_a_derived_channel(self, stalled, near, channel):
        derived = channel.derive(ec.FIFOModulator())
        stalled.begin("near", derived)
        with channel.producer() as producer:
            producer.publish_many(range(40))
            producer.drain(timeout=20)
            stats = channel.stats()
            assert (stats.consumer_lag_events, stats.derived[derived.name].consumer_lag_events) == (0, 40)
            assert (stats.queue_depth, stats.derived[derived.name].queue_depth) == (0, 40)
            stalled.end()
            ask(near, handle_all, 40)
            assert derived.stats().consumer_lag_events == 0

    @pytest.mark.parametrize("group", [None, "workers"])
    def test_lag_of_a_retained_channel(self, stalled, near, nodes, name, group):
        channel = ec.channel(name, retain=ec.Retention())
        stalled.begin("near", channel, group=group, start="earliest")
        with channel.producer() as producer:
            producer.publish_many(range(40))
            producer.drain(timeout=20)
            wait_until(lambda: channel.stats().consumer_lag_events == 40)  # it may not have heard of the new log yet
            stalled.end()
            ask(near, handle_all, 40)
            wait_until(lambda: channel.stats().consumer_lag_events == 0)  # a group's acknowledgement takes a moment
            assert channel.stats().events_delivered == 40


class TestLatency:
    @pytest.mark.parametrize("where", ["near", "far", "here"])
    def test_of_a_handler_that_takes_its_time(self, parties, here, channel, where):
        def consume(party):
            party.kept["subscription"] = channel.subscribe(lambda _: time.sleep(0.02))

        consume(here) if where == "here" else ask(parties[where], consume)
        with channel.producer() as producer:
            for number in range(20):
                producer.deliver(number).result(timeout=20)
        stats = channel.stats()
        assert sum(stats.latency.values()) == 2  # one of sixteen
        assert stats.latency_p50_seconds >= 0.02
        assert stats.latency_p99_seconds >= stats.latency_p50_seconds
        assert min(map(float, stats.latency)) > 0.02

    def test_counts_what_waited_for_the_handler(self, stalled, near, channel):
        stalled.begin("near", channel)
        with channel.producer() as producer:
            producer.publish_many(range(100))
            producer.drain(timeout=20)
            assert channel.stats().latency_p50_seconds is None
            time.sleep(0.25)  # what is measured
            stalled.end()
            ask(near, handle_all, 100)
        assert min(map(float, channel.stats().latency)) > 0.2

    def test_of_a_pull_subscription_is_up_to_the_hand_over(self, near, channel):
        def take(party):
            subscription = party.kept["subscription"] = channel.subscribe()
            with channel.producer() as producer:
                producer.publish("waits")
                time.sleep(0.06)  # what is measured
                assert subscription.get(timeout=20) == "waits"

        ask(near, take)
        (bound,) = channel.stats().latency
        assert float(bound) > 0.05

    def test_of_a_derived_channel_stays_when_its_consumer_leaves(self, near, channel):
        derived = channel.derive(ec.FIFOModulator())
        ray.get(near.consume.remote(derived))
        with channel.producer() as producer:
            producer.publish_many(range(50))
            ray.get(near.received.remote(50))
            ask(near, lambda party: party.kept["subscription"].close())
            wait_until(lambda: derived.stats().consumers == 0)
            stats = derived.stats()
            assert stats.events_delivered == 50
            assert 1 <= sum(stats.latency.values()) <= 50


def test_shares_of_the_nodes(nodes, parties, channel):
    first, second = (node.node_id[:16] for node in nodes.nodes)
    for party in parties["near"], parties["far"]:
        ray.get(party.consume.remote(channel))
    ask(parties["far"], lambda party: party.kept.update(producer=channel.producer()))
    with channel.producer() as producer:
        producer.publish_many([bytes(100)] * 30)
        ask(parties["far"], lambda party: party.kept["producer"].publish(bytes(1000)))
        ray.get([parties[name].received.remote(31) for name in ("near", "far")])
        for name in ("near", "far"):
            ask(parties[name], lambda party: party.kept["subscription"].drain(20))
        stats = channel.stats()
        shares = stats.nodes
        assert {node: (each.producers, each.consumers) for node, each in shares.items()} == {
            first: (1, 1),
            second: (1, 1),
        }
        assert [shares[node].events_published for node in (first, second)] == [30, 1]
        assert [shares[node].bytes_published for node in (first, second)] == [3000, 1000]
        assert [shares[node].events_delivered for node in (first, second)] == [31, 31]
    ask(parties["far"], lambda party: party.leave())
    wait_until(lambda: second not in channel.stats().nodes)
    assert channel.stats().events_published == 31


class TestOverview:
    def test_one_channel_without_joining(self, near, channel):
        derived = channel.derive(ec.FIFOModulator())
        ray.get(near.consume.remote(derived))
        with channel.producer() as producer:
            producer.deliver("event").result(timeout=20)
            line = read_line(*find_channel("default", channel.name))
            assert line.model_dump(exclude={"event_type", "packing_degree"}) == channel.stats().model_dump(
                exclude={"packing_degree"}
            )
            assert [*line.derived] == [derived.name]
            assert line.derived[derived.name].producers == 1

    def test_a_channel_that_is_not_there(self, channel):
        with pytest.raises(ec.NoSuchChannel, match=f"did you mean .*'{re.escape(channel.name)}'") as caught:
            find_channel("default", f"{channel.name}x")
        assert (caught.value.channel, caught.value.namespace) == (f"{channel.name}x", "default")
        with pytest.raises(LookupError, match="it has '"):
            find_channel("default", "?" * 9)
        with pytest.raises(ec.NoSuchChannel, match="no process has joined namespace 'nowhere'"):
            find_channel("nowhere", channel.name)


TIERS = ["inline", "isolated"]


class TestModulators:
    @pytest.mark.parametrize("tier", TIERS)
    @pytest.mark.parametrize("as_objects", [True, False])
    def test_saved_bytes_of_a_filter(self, near, channel, tier, as_objects):
        def event(content):
            return (content,) if as_objects else content

        derived = channel.derive(Above(event(b"m")), tier=tier)
        ray.get(near.consume.remote(derived))
        with channel.producer(admission=OPEN) as producer:
            size = len(pickle.dumps(event(bytes(100)), 5)) if as_objects else 100
            producer.publish_many([event(b"a" * 100), event(b"z" * 100)] * 20)
            ray.get(near.received.remote(20))
            stats = channel.stats().derived[derived.name]
            assert (stats.events_in, stats.events_out, stats.saved_bytes) == (40, 20, 20 * size)
        assert derived.stats().saved_bytes == 20 * size  # of a producer that is closed

    @pytest.mark.parametrize("source", SOURCES)
    def test_saved_bytes_of_ecode(self, near, name, source):
        channel = ec.channel(name, Tick)
        derived = channel.derive("number > 60")
        ray.get(near.consume.remote(derived))
        with channel.producer() as producer:
            producer.publish_many(SOURCES[source](1, 100))
            ray.get(near.received.remote(40))
            stats = derived.stats()
            assert (stats.events_in, stats.events_out) == (100, 40)
            # A block of Arrow's columns is somewhat longer than its records.
            assert stats.saved_bytes >= 60 * 16 if source == "batches" else stats.saved_bytes == 60 * 16

    @pytest.mark.parametrize("tier", TIERS)
    @pytest.mark.parametrize("where", ["near", "here"])
    def test_what_passes_all_saves_nothing(self, parties, here, channel, tier, where):
        derived = channel.derive(ec.FIFOModulator(), tier=tier)
        party = here if where == "here" else parties[where]
        here.consume(derived) if where == "here" else ray.get(party.consume.remote(derived))
        with channel.producer(admission=OPEN) as producer:
            producer.publish_many([1, 2.5, "text", "Ä", b"bytes", None, (1, 2), {"a": bytes(20_000)}])
            here.received(8) if where == "here" else ray.get(party.received.remote(8))
            stats = derived.stats()
            assert (stats.events_in, stats.events_out) == (8, 8)
            assert stats.saved_bytes == 0

    @pytest.mark.parametrize("tier", TIERS)
    def test_errors(self, near, channel, tier):
        derived = channel.derive(Raising([3, 5]), tier=tier)
        ray.get(near.consume.remote(derived))
        with channel.producer(admission=OPEN) as producer:
            producer.publish_many(range(10))
            ray.get(near.received.remote(8))
            assert derived.stats().modulator_errors == 2

    def test_errors_of_ecode(self, near, name):
        channel = ec.channel(name, Tick)
        derived = channel.derive("1000 // (number % 10) > 0")
        ray.get(near.consume.remote(derived))
        with channel.producer() as producer:
            producer.publish_many(ticks(1, 25))
            ray.get(near.received.remote(23))
            assert derived.stats().modulator_errors == 2

    def test_what_is_dropped_before_a_slow_one(self, near, channel):
        gate = Gate()
        ask(near, lambda party: party.consume(channel, modulator=Waiting()))
        with channel.producer(overflow="drop_newest", services={"tests.Gate": gate}) as producer:
            producer.publish(b"")
            assert gate.entered.wait(20)
            outcomes = [producer.publish(MEGABYTE) for _ in range(20)]
            (stats,) = channel.stats().derived.values()
            gate.opened.set()
            ray.get(near.received.remote(1 + outcomes.count(True)))
            assert stats.dropped == {}  # it is told, and counted, in its place in the order
            (stats,) = channel.stats().derived.values()
            assert stats.dropped == {"modulator": outcomes.count(False)}
            assert stats.events_dropped == outcomes.count(False) > 0


@pytest.mark.parametrize("group", [None, "g"])
def test_what_readers_of_a_log_fetch_from_another_node(parties, name, group):
    channel = ec.channel(name, retain=ec.Retention())
    inbox = Inbox()
    with channel.subscribe(inbox) as here, channel.producer() as producer:
        ray.get(parties["far"].consume.remote(channel, group=group))
        producer.publish_many([bytes(1000)] * 100)
        ray.get(parties["far"].received.remote(100))
        inbox.wait(100)
        here.drain(20)
        crossed = channel.stats().bytes_between_nodes
    assert 100_000 <= crossed < 110_000  # by the one on the other node, and not by the one here
