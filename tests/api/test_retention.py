"""Retained channels: what was published before can be read, and what comes joins it without a gap or a repeat."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import ray

import echannel_ray as ec
from echannel_ray.endpoint.calls import Call
from echannel_ray.ids import node_number
from echannel_ray.retained import log_calls
from echannel_ray.retained.log_directory import directory_of
from tests.api.parties import Inbox, Valve, ask, publish_all
from tests.clusters import wait_until


@pytest.fixture(params=["memory", "disk"])
def retained(request, nodes, name):
    return ec.channel(name, retain=ec.Retention(disk=request.param == "disk"))


@pytest.fixture
def channel(nodes, name):
    return ec.channel(name, retain=ec.Retention())


def events_of(subscription, count):
    return [subscription.get(timeout=20) for _ in range(count)]


def numbered(party, channel, who, first, last):
    with channel.producer() as producer:
        for number in range(first, last):
            producer.publish((who, number))
        producer.drain(timeout=30)


# ---- replay ----


def test_what_was_published_before_is_read_from_the_beginning(parties, retained):
    ask(parties["far"], publish_all, retained, [*range(100)])
    publish_all(None, retained, [*range(100, 200)])
    with retained.subscribe(start="earliest") as subscription:
        assert sorted(events_of(subscription, 200)) == [*range(200)]


def test_new_is_what_comes_after_subscribing(parties, retained):
    ask(parties["far"], publish_all, retained, [*range(100)])
    with retained.subscribe() as subscription, retained.subscribe(start="new") as another:
        ask(parties["far"], publish_all, retained, ["far"])
        publish_all(None, retained, ["near"])  # whose node has its first log only now
        for each in (subscription, another):
            assert sorted(events_of(each, 2)) == ["far", "near"]
            assert each.stats().pending == 0


def test_replay_joins_the_live_stream(parties, retained):
    """Producers on two nodes publish at full speed, while readers begin at all moments."""
    sources = ["near", "far", "threaded", "far"]
    readers: list[tuple[str, Inbox, ec.Subscription]] = []
    with ThreadPoolExecutor(8) as pool:
        at_work = [
            pool.submit(ask, parties[where], numbered, retained, who, 0, 20_000) for who, where in enumerate(sources)
        ]
        while not all(each.done() for each in at_work):
            inbox = Inbox()
            start = "earliest" if len(readers) % 2 else "new"
            readers.append((start, inbox, retained.subscribe(inbox, start=start)))
            wait_until(partial(has_begun, inbox, at_work))
        for each in at_work:
            each.result()
    inbox = Inbox()
    readers.append(("earliest", inbox, retained.subscribe(inbox, start="earliest")))
    for where in ("near", "far"):  # behind all that is in the log of each node
        assert ask(parties[where], deliver_end, retained) == len(readers)
    for start, inbox, subscription in readers:
        subscription.close()
        for who in range(len(sources)):
            mine = [number for producer, number in inbox.items if producer == who]
            assert mine == [*range(20_000 - len(mine), 20_000)]
            assert len(mine) == 20_000 or start == "new"


def has_begun(inbox: Inbox, at_work: list[Any]) -> bool:
    return len(inbox.items) > 100 or all(each.done() for each in at_work)


def deliver_end(party, channel):
    with channel.producer() as producer:
        return producer.deliver(("end", 0)).result(timeout=30).consumers


def test_a_position_goes_on_behind_its_message(parties, retained):
    ask(parties["far"], publish_all, retained, [("far", number) for number in range(50)])
    publish_all(None, retained, [("near", number) for number in range(50)])
    with retained.subscribe(start="earliest") as subscription:
        messages = subscription.messages()
        before = [next(messages) for _ in range(73)]
    assert all(isinstance(message.position, ec.Position) for message in before)
    position = pickle.loads(pickle.dumps(before[-1].position))
    assert ec.Position.parse(str(position)) == position
    publish_all(None, retained, ["after"])
    with retained.subscribe(start=position) as subscription:
        rest = events_of(subscription, 28)
    assert sorted([*(message.event for message in before), *(each for each in rest if each != "after")]) == sorted(
        (where, number) for where in ("far", "near") for number in range(50)
    )
    with retained.subscribe(start=before[0].position) as subscription:
        assert len(events_of(subscription, 100)) == 100


def test_a_position_in_a_batch_of_pushed_events_is_where_its_message_is(channel):
    publish_all(None, channel, [*range(10)])
    with channel.subscribe(start="earliest") as subscription:
        positions = [message.position for _, message in zip(range(10), subscription.messages(), strict=False)]
    for number, position in enumerate(positions[:-1]):
        with channel.subscribe(start=position) as subscription:
            assert subscription.get(timeout=20) == number + 1


def test_a_position_of_a_log_that_is_gone_is_told(channel, monkeypatch):
    monkeypatch.setattr("echannel_ray.retained.log_reader._PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr("echannel_ray.retained.log_reader._LOOK_SECONDS", 0.1)
    publish_all(None, channel, ["still there"])
    with channel.subscribe(start=ec.Position.parse('{"feedfeedfeedfeed": 12}')) as subscription:
        assert subscription.get(timeout=20) == "still there"
        with pytest.raises(ec.EventsMissing) as missing:
            subscription.get(timeout=20)
    assert (missing.value.log, missing.value.first, missing.value.last) == ("feedfeedfeedfeed", 12, None)


def test_a_channel_that_is_passed_on_goes_on_being_retained(parties, retained):
    publish_all(None, retained, ["x"])
    ray.get(parties["far"].consume.remote(retained, start="earliest"))
    assert ray.get(parties["far"].received.remote(1)) == ["x"]


# ---- publishing ----


def test_drained_is_logged_whoever_reads(retained):
    with retained.subscribe(Valve()), retained.producer() as producer:
        producer.publish_many(range(10_000))
        producer.drain(timeout=20)
        with retained.subscribe(start="earliest") as subscription:
            assert subscription.get(timeout=20) == 0
            stats = retained.stats()
        assert (stats.producers, stats.consumers, stats.events_published) == (1, 2, 10_000)
        assert 0 < stats.packs_sent < 10_000


def test_a_window_that_is_full_holds_up_or_raises(channel, monkeypatch):
    with channel.producer(overflow="raise") as raising, channel.producer() as waiting:
        for producer in (raising, waiting):
            monkeypatch.setattr(producer._publisher.sink, "_address", None)  # its log host is away
            producer.publish(bytes(5 << 20))
        with pytest.raises(ec.Overloaded, match="the log of channel"):
            raising.publish(bytes(5 << 20))
        with pytest.raises(TimeoutError, match="the log of channel"):
            waiting.publish(bytes(5 << 20), timeout=0.05)
        with pytest.raises(TimeoutError, match="logged within"):
            waiting.drain(timeout=0.05)
        monkeypatch.undo()
        with channel.subscribe(start="earliest") as subscription:
            for producer in (raising, waiting):
                producer.drain(timeout=20)
            assert [len(event) for event in events_of(subscription, 2)] == [5 << 20] * 2


def test_a_log_that_can_not_be_written_holds_up_and_says_why(channel, monkeypatch):
    with channel.subscribe() as subscription, channel.producer() as producer:
        asking = producer._publisher.endpoint.calls
        begin = asking.begin

        def fail(node, endpoint, message, then=None, **how):
            if not isinstance(message, log_calls.Append):
                return begin(node, endpoint, message, then, **how)
            call = Call(0, node, endpoint, then)
            call.end(log_calls.Unlogged("No space left on device"), None)
            return call

        with monkeypatch.context() as context:
            context.setattr(asking, "begin", fail)
            producer.publish_many(range(100))
            with pytest.raises(TimeoutError, match="No space left on device"):
                producer.drain(timeout=0.2)
        producer.drain(timeout=20)
        assert events_of(subscription, 100) == [*range(100)]


@pytest.mark.parametrize("policy", ["drop_newest", "drop_oldest"])
def test_what_a_policy_drops_is_a_gap_in_its_place(channel, monkeypatch, policy):
    with channel.subscribe() as subscription, channel.producer(overflow=policy) as producer:
        producer.publish((1, b""))
        producer.drain(timeout=20)
        monkeypatch.setattr(producer._publisher.sink, "_address", None)
        taken = [producer.publish((number, bytes(1 << 20))) for number in range(2, 22)]
        monkeypatch.undo()
        assert producer.publish((22, b"")) or policy == "drop_newest"
        producer.drain(timeout=20)
        producer.publish((23, b""))
        gaps: list[Any] = []
        events: list[Any] = []
        for message in subscription.messages():
            (gaps if isinstance(message, ec.Gap) else events).append(message)
            if events and events[-1].event[0] == 23:
                break
        assert producer._publisher.counters()["events_dropped"] == sum(gap.last - gap.first + 1 for gap in gaps) > 0
        came = [message.event[0] for message in events]
        assert sorted([*came, *(number for gap in gaps for number in range(gap.first, gap.last + 1))]) == [
            *range(1, 24)
        ]
        assert came == sorted(came)
        assert taken == [True] * 20 or policy == "drop_newest"
        assert (2 in came) == (policy == "drop_newest")
        assert {gap.producer for gap in gaps} == {producer.name}


def test_an_event_that_cannot_be_serialised_is_refused_and_the_next_is_taken(channel):
    with channel.subscribe() as subscription, channel.producer() as producer:
        with pytest.raises(ec.NotSerialisable):
            producer.publish(open(__file__))  # noqa: SIM115
        producer.publish("good")
        assert subscription.get(timeout=20) == "good"


def test_coroutines_publish_without_holding_up_their_loop(parties, channel):
    async def publish(party):
        producer = party.kept["producer"] = channel.producer()
        for number in range(100):
            await producer.apublish(number)
        await producer.adrain()
        receipt = await producer.deliver("delivered")
        return receipt.consumers

    with channel.subscribe(start="earliest") as subscription:
        pushed = Inbox()
        with channel.subscribe(pushed, start="earliest"):
            reading = ThreadPoolExecutor(1).submit(events_of, subscription, 101)
            assert ask(parties["asynchronous"], publish) == 2
            assert reading.result(20) == [*range(100), "delivered"]
            assert pushed.wait(101) == [*range(100), "delivered"]


# ---- the end of a channel ----


def test_a_channel_that_is_deleted_is_deleted_for_all_and_its_files_are_gone(parties, name):
    channel = ec.channel(name, retain=ec.Retention(disk=True))
    node = node_number(ray.get_runtime_context().get_node_id())
    told, valve = Inbox(), Valve()
    before = files(node)
    with channel.producer() as producer:
        producer.publish_many(range(100))
        producer.drain(timeout=20)
        assert len(files(node)) > len(before)
        pulled = channel.subscribe(start="earliest")
        pushed = channel.subscribe(valve, on_error=told)
        ray.get(parties["far"].consume.remote(channel))
        undelivered = producer.deliver("never handled")
        assert valve.entered.wait(20)
        channel.delete()
        with pytest.raises(ec.ChannelDeleted):
            list(pulled)
        assert isinstance(told.wait(1)[0], ec.ChannelDeleted)
        with pytest.raises(ec.ChannelDeleted):
            undelivered.result(timeout=20)
        with pytest.raises(ec.ChannelDeleted):
            producer.publish(1)
        with pytest.raises(ec.ChannelDeleted):
            producer.drain(timeout=20)
        valve.opened.set()
        pushed.close()
        pulled.close()
    wait_until(lambda: files(node) == before)
    anew = ec.channel(name, retain=ec.Retention())
    with anew.subscribe(start="earliest") as subscription:
        publish_all(None, anew, ["new life"])
        assert subscription.get(timeout=20) == "new life"


def files(node: int) -> set[Path]:
    return {*directory_of("default", node).glob("*")}


# ---- bounds ----


def test_what_the_bounds_have_passed_is_missing_with_its_range(nodes, name):
    channel = ec.channel(name, retain=ec.Retention(max_bytes=1 << 20))
    told = Inbox()
    with channel.producer() as producer:
        producer.publish((0, bytes(100)))
        producer.drain(timeout=20)
        with channel.subscribe(start="earliest") as subscription:
            position = next(subscription.messages()).position
        for number in range(1, 300):
            producer.publish((number, bytes(20_000)))
            producer.drain(timeout=20)
        with channel.subscribe(start=position) as subscription:
            messages = subscription.messages()
            with pytest.raises(ec.EventsMissing):
                next(messages)
            assert next(messages).event[0] > 1  # the iterator goes on behind them
        with channel.subscribe(start=position) as subscription:
            with pytest.raises(ec.EventsMissing, match="retain more") as missing:
                subscription.get(timeout=20)
            first = subscription.get(timeout=20)[0]
            assert (missing.value.first, missing.value.last) == (1, first - 1)
            assert missing.value.channel == name
            assert [event[0] for event in events_of(subscription, 299 - first)] == [*range(first + 1, 300)]
            assert subscription.stats().dropped == first - 1
        inbox = Inbox()
        with channel.subscribe(inbox, start=position, on_error=told) as pushed:
            assert inbox.wait(300 - first)[0][0] == first
            assert (told.items[0].first, told.items[0].last) == (1, first - 1)
            assert pushed.stats().dropped == first - 1
        with channel.subscribe(start=position, on_missing="skip") as skipping:
            assert skipping.get(timeout=20)[0] == first
            assert skipping.stats().dropped == first - 1


def test_what_is_too_old_is_missing(nodes, name):
    channel = ec.channel(name, retain=ec.Retention(max_age_seconds=0.3))
    with channel.producer() as producer:
        producer.publish("old")
        producer.drain(timeout=20)
        with channel.subscribe(start=ec.Position.parse("{}")) as subscription:
            assert subscription.get(timeout=20) == "old"
        wait_until(lambda: is_empty(channel))
        producer.publish("new")
        producer.drain(timeout=20)
        with channel.subscribe(start=ec.Position.parse("{}")) as subscription:
            with pytest.raises(ec.EventsMissing) as missing:
                subscription.get(timeout=20)
            assert (missing.value.first, missing.value.last) == (0, 0)
            assert subscription.get(timeout=20) == "new"


def is_empty(channel: ec.EventChannel) -> bool:
    with channel.subscribe(start="earliest") as subscription:
        try:
            subscription.get(timeout=0.1)
        except TimeoutError:
            return True
        return False


# ---- what is refused ----


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"max_bytes": 0}, ValueError, "1 or more"),
        ({"max_bytes": 1.5}, ValueError, "number of bytes"),
        ({"max_age_seconds": 0}, ValueError, "more than 0"),
        ({"disk": 1}, TypeError, "True or False"),
    ],
)
def test_retention_that_makes_no_sense(options, error, says):
    with pytest.raises(error, match=says):
        ec.Retention(**options)


def test_retention_is_no_dict(nodes, name):
    retain: Any = {"disk": True}
    with pytest.raises(TypeError, match=r"Retention\(disk=True\)"):
        ec.channel(name, retain=retain)


def test_a_channel_that_keeps_less_is_refused(nodes, name):
    ec.channel(f"{name}-nothing")
    with pytest.raises(ec.TypeMismatch, match="keeps nothing"):
        ec.channel(f"{name}-nothing", retain=ec.Retention())
    ec.channel(f"{name}-memory", retain=ec.Retention(max_bytes=1 << 20))
    with pytest.raises(ec.TypeMismatch, match="in memory"):
        ec.channel(f"{name}-memory", retain=ec.Retention(disk=True))
    ec.channel(f"{name}-memory", retain=ec.Retention())
    ec.channel(f"{name}-memory")


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"start": "latest"}, ValueError, '"new", "earliest" or a position'),
        ({"start": 17}, TypeError, "or a Position, not int"),
        ({"on_missing": "ignore"}, ValueError, '"raise" or "skip"'),
    ],
)
def test_a_start_that_makes_no_sense(channel, options, error, says):
    with pytest.raises(error, match=says):
        channel.subscribe(**options)
    assert channel.stats().consumers == 0


def test_a_channel_without_retention_has_no_past(nodes, name):
    channel = ec.channel(name)
    for start in ("earliest", ec.Position.parse("{}")):
        with pytest.raises(ValueError, match="create it with retain="):
            channel.subscribe(start=start)
    with channel.subscribe(start="new"):
        pass


@pytest.mark.parametrize("text", ["", "[]", '{"a": "b"}', "nonsense"])
def test_a_text_that_is_no_position(text):
    with pytest.raises(ValueError, match="no position"):
        ec.Position.parse(text)


def test_the_pair_of_a_reader_is_not_replaced(channel):
    with channel.subscribe() as subscription, pytest.raises(ec.ModulatorRefused, match="subscribe anew"):
        subscription.reset(ec.FIFOModulator())
