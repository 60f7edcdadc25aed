"""What clients of the port for events can do, over a host without Ray."""

from __future__ import annotations

import threading
import time
from contextlib import closing

import pytest

from echannel_ray import errors
from echannel_ray.consumers.message import Gap, Message
from echannel_ray.gateway import event_connection
from echannel_ray.gateway.event_client import EventClient, EventGap, EventMessage
from echannel_ray.gateway.server import Gateway
from tests.clusters import wait_until
from tests.gateway.conftest import gateway_of
from tests.gateway.raw import Raw

SOON = 20.0


def taken(subscription, count: int) -> list:
    return [subscription.get(SOON).event for _ in range(count)]


def feed_of(host, name: str = "notes"):
    return host.events[name].feeds[-1]


def message(event, sequence: int, producer: str = "p.1", at: float = 1.0) -> Message:
    return Message(event, producer, sequence, at)


def test_what_is_published_is_got(host, events):
    values = [None, True, -5, 2**63, 1.5, "text", b"bytes", [1, [2]], {"a": {"b": None}}]
    with events.subscribe("notes") as subscription:
        assert events.publish("notes", values) == len(values)
        got = [subscription.get(SOON) for _ in values]
    assert host.events["notes"].published == values
    assert [each.event for each in got] == values
    assert [each.sequence for each in got] == [*range(1, len(values) + 1)]
    assert {(each.producer, each.published_at) for each in got} == {("00000000000000ab.1", 1700000000.5)}


def test_many_events_go_in_few_frames(gateway, events):
    with events.subscribe("notes") as subscription:
        events.publish("notes", range(25_000))
        assert taken(subscription, 25_000) == [*range(25_000)]
    stats = gateway.stats()
    assert stats["events_events_in"] == stats["events_events_out"] == 25_000
    assert stats["events_frames_in"] < 100
    assert stats["events_frames_out"] < 25_000 / 2


def test_events_of_several_producers_and_times_keep_theirs(host, events):
    items = [
        message(1, 1), message(2, 2), message(3, 9), message(4, 10, at=2.0), message(5, 1, "p.2"), Gap("p.2", 2, 7),
        message(6, 8, "p.2"),
    ]  # fmt: skip
    with events.subscribe("notes") as subscription:
        for item in items:
            feed_of(host).put(item)
        got = [subscription.get(SOON) for _ in items]
    assert [each if isinstance(each, EventGap) else (each.event, each.producer, each.sequence, each.published_at)
            for each in got] == [
        (1, "p.1", 1, 1.0), (2, "p.1", 2, 1.0), (3, "p.1", 9, 1.0), (4, "p.1", 10, 2.0), (5, "p.2", 1, 1.0),
        EventGap("p.2", 2, 7), (6, "p.2", 8, 1.0),
    ]  # fmt: skip


def test_what_is_told_stands_in_its_place(host, events):
    with events.subscribe("notes") as subscription:
        feed = feed_of(host)
        for item in (message(1, 1), errors.ModulatorFailed("it failed", producer="p.1", reason="r"), message(2, 2)):
            feed.put(item)
        assert taken(subscription, 1) == [1]
        with pytest.raises(errors.ModulatorFailed, match="it failed") as told:
            subscription.get(SOON)
        assert told.value.reason == "r"
        assert taken(subscription, 1) == [2]


def test_a_subscription_ends_with_its_channel(host, events):
    subscription = events.subscribe("notes")
    feed = feed_of(host)
    feed.put(message(1, 1))
    feed.put(errors.ChannelDeleted("it was deleted", channel="notes"))
    assert taken(subscription, 1) == [1]
    with pytest.raises(errors.ChannelDeleted):
        subscription.get(SOON)
    with pytest.raises(errors.Closed):
        subscription.get(SOON)
    assert [*subscription] == []
    assert feed.closed.wait(SOON)
    subscription.close()
    assert events.publish("notes", [1]) == 1


def test_closing_a_subscription_ends_its_feed_and_iteration(host, events):
    subscription = events.subscribe("notes")
    feed = feed_of(host)
    subscription.close()
    assert feed.closed.is_set()
    assert [*subscription] == []
    subscription.close()


def test_a_client_that_goes_leaves_nothing(host, gateway):
    client = EventClient(gateway.endpoint)
    client.subscribe("notes")
    client.subscribe("notes", where="value", params={"low": 3})
    feeds = [*host.events["notes"].feeds]
    client.close()
    assert all(feed.closed.wait(SOON) for feed in feeds)
    assert host.derived[0].closed.wait(SOON)
    wait_until(lambda: gateway.stats()["events_connections"] == 0)
    with pytest.raises(errors.Closed):
        client.ping()


def test_a_member_of_a_group_says_what_it_has_handled(host, events):
    with events.subscribe("notes", group="g") as member, events.subscribe("notes") as alone:
        theirs, own = host.events["notes"].feeds
        for feed in (theirs, own):
            for sequence in range(1, 6):
                feed.put(message(sequence, sequence, at=sequence / 2))
        assert taken(member, 5) == taken(alone, 5)
        wait_until(lambda: theirs.acknowledged == 5)
        assert own.acknowledged == 0


@pytest.mark.parametrize("group", [None, "g"])
def test_what_has_come_is_handed_out_after_the_connection_was_lost(host, gateway, group):
    client = EventClient(gateway.endpoint)
    subscription = client.subscribe("notes", group=group)
    for sequence in range(1, 4):
        feed_of(host).put(Message(b"x" * 300_000, "p.1", sequence, float(sequence)))
    wait_until(lambda: len(subscription._frames) == 3)
    client._wire.close()
    wait_until(lambda: client._lost is not None)
    assert len(taken(subscription, 3)) == 3
    with pytest.raises(errors.Disconnected):
        subscription.get(SOON)


def test_a_filter_has_its_params(host, events):
    with events.subscribe("notes", where="value", params={"low": 3}) as subscription:
        events.publish("notes", range(6))
        assert taken(subscription, 3) == [3, 4, 5]
    with pytest.raises(errors.ModulatorRefused) as refused:
        events.derive("notes", "wrong")
    assert refused.value.channel == "notes"


def test_nothing_is_kept_of_what_was_refused(events):
    with pytest.raises(LookupError, match="no channel"):
        events.publish("nowhere", ["x" * 100_000] * 20)
    events.ping()
    assert not events._answers


def test_errors_are_raised_again_as_what_they_were(events):
    with pytest.raises(LookupError, match="no channel 'nowhere'"):
        events.open("nowhere")
    with pytest.raises(errors.NotSerialisable, match="no such event"):
        events.publish("notes", [1, "refused"])
    with pytest.raises(errors.NotSerialisable, match="plain data"):
        events.publish("notes", [object()])
    events.open("typed", {"a": "int"})
    with pytest.raises(errors.TypeMismatch):
        events.open("typed", {"a": "str"})
    assert events.publish("notes", [1]) == 1


def test_without_credit_nothing_comes_and_others_go_on(host, gateway, events):
    with Raw(gateway.endpoint) as slow, events.subscribe("notes") as fast:
        slow.say({"op": "subscribe", "id": 7, "channel": "notes", "credit": 100_000})
        assert slow.hear() == {"op": "answer", "id": 7}
        feed = feed_of(host)
        large = [b"x" * 30_000] * 20
        events.publish("notes", large)
        assert taken(fast, 20) == large
        got = 0
        while got < 4:  # the credit is used up in the middle of the fourth
            got += len(slow.hear()["events"])
        slow.say({"op": "ping", "id": 8})
        assert slow.hear() == {"op": "answer", "id": 8}
        assert feed.taken < 8
        slow.say({"op": "credit", "subscription": 7, "bytes": 1_000_000})
        while got < 20:
            got += len(slow.hear()["events"])
        assert feed.waiting == 0


def test_who_does_not_read_holds_up_only_itself(host, gateway, events):
    with Raw(gateway.endpoint) as stuck, events.subscribe("notes") as fast:
        stuck.say({"op": "subscribe", "id": 1, "channel": "notes", "credit": 2**31})
        assert stuck.hear()["op"] == "answer"
        stuck_feed = feed_of(host)
        large = b"x" * 500_000
        for _ in range(60):  # 30 MB: more than sockets hold
            events.publish("notes", [large])
            assert taken(fast, 1) == [large]
        assert stuck_feed.waiting > 0
    assert stuck_feed.closed.wait(SOON)


def test_a_publisher_that_waits_in_the_host_holds_up_neither_its_own_events_nor_others(host, gateway, events):
    with Raw(gateway.endpoint) as waiting:
        waiting.say({"op": "subscribe", "id": 1, "channel": "notes", "credit": 1_000_000})
        assert waiting.hear()["op"] == "answer"
        host.room.clear()
        waiting.say({"op": "publish", "id": 2, "channel": "notes", "events": ["later"]})
        feed_of(host).put(message("meanwhile", 1))
        assert waiting.hear()["events"] == ["meanwhile"]
        waiting.say({"op": "ping", "id": 3})
        assert waiting.hear() == {"op": "answer", "id": 3}
        assert events.ping() < SOON
        host.room.set()
        heard = [waiting.hear(), waiting.hear()]
        assert {each["op"] for each in heard} == {"answer", "events"}


def test_who_has_many_requests_under_way_is_not_read(host, gateway):
    with Raw(gateway.endpoint) as eager:
        host.room.clear()
        for number in range(2 * event_connection.MAX_REQUESTS):
            eager.say({"op": "publish", "id": number, "channel": "notes", "events": [number]})
        wait_until(lambda: gateway.stats().get("events_frames_in", 0) > event_connection.MAX_REQUESTS)
        time.sleep(0.1)  # nothing more is to happen, so there is nothing to wait for
        assert gateway.stats()["events_frames_in"] <= event_connection.MAX_REQUESTS + 2
        host.room.set()
        assert [eager.hear()["id"] for _ in range(2 * event_connection.MAX_REQUESTS)] == [*range(128)]
    assert host.events["notes"].published == [*range(128)]


def test_a_gateway_that_closes_says_so_and_its_successor_is_found(host, gateway, events):
    subscription = events.subscribe("notes")
    successor = []

    def restart() -> None:
        gateway.close()
        successor.append(Gateway(host, "default", identity=gateway.identity))
        successor[0].start()

    restarting = threading.Thread(target=restart)
    restarting.start()
    with pytest.raises(errors.Disconnected, match=r"make another|connect again"):
        subscription.get(SOON)
    with EventClient(gateway.endpoint, patience_seconds=SOON) as again:
        assert again.publish("notes", [1]) == 1
    with pytest.raises(errors.Disconnected):
        events.ping()
    restarting.join()
    successor[0].close()


def test_a_gateway_that_is_not_there_is_said_to_be_gone(host):
    gateway = gateway_of(host)
    endpoint = gateway.start()
    gateway.close()
    with pytest.raises(errors.Disconnected, match="can't be reached"):
        EventClient(endpoint, patience_seconds=0.2)


def test_iteration_gives_messages(events):
    with closing(events.subscribe("notes")) as subscription:
        events.publish("notes", [1, 2])
        assert isinstance(next(iter(subscription)), EventMessage)
