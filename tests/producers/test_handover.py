"""The short way to consumers in the producer's own process: each event comes once, in order, and none is left lying."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from echannel_ray import errors
from echannel_ray.consumers.function_driver import FunctionDriver
from echannel_ray.consumers.inbox import WINDOW_EVENTS, Inbox
from echannel_ray.consumers.message import Gap
from echannel_ray.consumers.pull_driver import PullDriver
from echannel_ray.core.kinds import PICKLED, PLAIN
from echannel_ray.core.messages import Consumer, Membership
from echannel_ray.core.packing import Packing
from echannel_ray.endpoint.process_endpoint import ProcessEndpoint
from echannel_ray.formats.events import encode
from echannel_ray.producers.handover import Handover
from echannel_ray.producers.local_source import hand_over
from echannel_ray.producers.publisher import Publisher
from tests.endpoint.walking import WINDOW_BYTES, Line, Processes


class Own(Processes):
    """A process with producers and consumers of one channel. Its drivers run when a test says so; it has no ticker."""

    def __init__(self) -> None:
        super().__init__(1)
        (self.endpoint,) = self.endpoints
        self.consumers: list[Consumer] = []
        self.publishers: list[Publisher] = []
        self.epoch = 1

    def consume(self, handle: Callable[[Any], Any], drive: Any = FunctionDriver) -> Inbox:
        number = len(self.consumers) + 1
        made = partial(drive, handle) if drive is FunctionDriver else drive
        inbox = Inbox(self.endpoint, number, "c", None, "", made)
        inbox.on_error = handle
        inbox.add_version(0, None)
        self.endpoint.open_inbox(inbox)
        self.consumers.append(Consumer(1, self.endpoint.id, number, None))
        self.apply()
        return inbox

    def produce(self, overflow: str = "block") -> Publisher:
        publisher = Publisher(self.endpoint, "c", 1, overflow, WINDOW_BYTES, Packing())
        publisher.enter()
        self.publishers.append(publisher)
        self.apply()
        return publisher

    def apply(self) -> None:
        self.epoch += 1
        with self.endpoint.lock:
            for each in self.publishers:
                each.apply(Membership("c", self.epoch, 1, tuple(self.consumers), False, 1))

    def run(self) -> None:
        """The drivers, until they have nothing to do."""
        self.work(self.endpoint)


@pytest.fixture
def own() -> Own:
    return Own()


def handover_of(publisher: Publisher) -> Handover:
    sink: Any = publisher.sink
    handover: Handover = sink._handover
    return handover


def is_settled(inbox: Inbox) -> bool:
    """Whether nothing waits, and nothing is counted that is not there."""
    return not (inbox.handovers or inbox.queue or inbox.local_pending or inbox.pending)


def armed(own: Own, publisher: Publisher) -> int:
    """Publish until it is armed: how many that took."""
    count = 0
    while not handover_of(publisher).room:
        publisher.publish(count)
        count += 1
        assert count < 100
    return count


def test_one_by_itself_is_in_the_inbox_at_once(own):
    seen: list[Any] = []
    inbox, publisher = own.consume(seen.append), own.produce()
    for number in range(50):
        publisher.publish(number)
        assert len(inbox.queue) == 1
        own.run()
        assert seen[-1] == number
        assert is_settled(inbox)


@pytest.mark.parametrize("drive", [FunctionDriver, PullDriver])
def test_many_arrive_once_and_in_order(own, drive):
    seen: list[Any] = []
    inbox, publisher = own.consume(seen.append, drive), own.produce()
    for number in range(5000):
        publisher.publish(number)
    own.run()
    if drive is PullDriver:
        assert not handover_of(publisher).room  # nobody would look what is in it
        seen = [inbox.driver.take().event for _ in range(5000)]
    assert seen == [*range(5000)]
    assert is_settled(inbox)
    assert inbox.counters.arrived == inbox.counters.handled == 5000
    assert publisher.stream.next_sequence == 5001


@pytest.mark.parametrize("event", [b"bytes", b"b" * 10_000, None, 1, 1.5, "text", "Ä", (1,), [1], {"a": 1}, object()])
def test_objects_of_all_kinds_are_appended(own, event, monkeypatch):
    seen: list[Any] = []
    own.consume(seen.append)
    publisher = own.produce()
    count = armed(own, publisher)
    monkeypatch.setattr(type(publisher.sink), "attempt", None)
    for _ in range(10):
        assert publisher.publish(event)  # which would call it
    own.run()
    assert len(seen) == count + 10
    assert all(each is event for each in seen[count:])


def test_who_appends_late_finds_that_nobody_comes(own):
    # Between a publisher's look and its append the driver handles all, and stops.
    seen: list[Any] = []
    inbox, publisher = own.consume(seen.append), own.produce()
    count = armed(own, publisher)
    handover = handover_of(publisher)

    class Late(list[Any]):
        def append(self, event: Any) -> None:
            own.run()
            assert not handover.room
            super().append(event)

    handover.events = Late()
    publisher.publish("late")
    assert len(inbox.queue) == 1
    own.run()
    assert seen == [*range(count), "late"]
    assert is_settled(inbox)


def test_a_driver_that_stops_meanwhile_is_noticed(own, monkeypatch):
    # It sees no list that is armed, and stops, before it is armed.
    seen: list[Any] = []
    inbox, publisher = own.consume(seen.append), own.produce()
    asked: list[None] = []

    def is_busy() -> bool:
        asked.append(None)
        return len(asked) % 2 == 1

    monkeypatch.setattr(inbox.driver, "is_busy", is_busy)
    for number in range(100):
        publisher.publish(number)
        assert not handover_of(publisher).room
    assert asked
    own.run()
    assert seen == [*range(100)]
    assert is_settled(inbox)


def publish_for_good(*publishers: Publisher) -> None:
    while True:
        for publisher in publishers:
            publisher.publish(None, timeout=0)


@pytest.mark.parametrize("number", [1, 2, 5])
@pytest.mark.parametrize(("overflow", "error"), [("block", TimeoutError), ("raise", errors.Overloaded)])
def test_the_window_holds(own, number, overflow, error):
    seen: list[Any] = []
    inbox = own.consume(seen.append)
    publishers = [own.produce(overflow) for _ in range(number)]
    for turn in range(3):
        with pytest.raises(error):
            publish_for_good(*publishers)
        with own.endpoint.lock:
            inbox.take_in()
        assert sum(len(run.events) for run in inbox.queue) == WINDOW_EVENTS
        own.run()
        assert len(seen) == WINDOW_EVENTS * (turn + 1)
        assert is_settled(inbox)


@pytest.mark.parametrize("others", ["drop_newest", "drop_oldest"])
def test_nothing_is_dropped_for_what_another_may_append(own, others):
    seen: list[Any] = []
    inbox = own.consume(seen.append)
    blocking, dropping = own.produce(), own.produce(others)
    armed(own, blocking)
    while inbox.local_pending < WINDOW_EVENTS:
        assert dropping.publish("kept")
    for _ in range(200):  # for which room is counted, but not used
        assert dropping.publish("kept")
    assert not inbox.counters.dropped
    assert not handover_of(dropping).room
    while dropping.publish("the rest"):
        assert sum(len(run.events) for run in inbox.queue) <= WINDOW_EVENTS
        if others == "drop_oldest" and any(run.gap_last for run in inbox.queue):
            break
    own.run()
    assert any(isinstance(each, Gap) for each in seen)
    assert is_settled(inbox)


def test_nothing_emitted_is_dropped_for_what_another_may_append(own):
    inbox = own.consume(print)
    blocking, dropping = own.produce(), own.produce("drop_newest")
    armed(own, blocking)
    outlet = dropping.sink.outlet
    while inbox.local_pending < WINDOW_EVENTS:
        dropping.publish("kept")
    with own.endpoint.lock:
        assert hand_over(outlet, "kept too", None, own.endpoint.core.skip(dropping.stream), None) == 1


def test_what_is_appended_counts_as_received_and_is_waited_for(own):
    seen: list[Any] = []
    inbox, publisher = own.consume(seen.append), own.produce()
    count = armed(own, publisher)
    publisher.publish("more")
    waiter = inbox.when_idle()
    assert inbox.counters.received == count + 1
    assert not waiter.done
    own.run()
    assert waiter.done
    assert seen[-1] == "more"


def test_a_delivered_one_does_not_overtake(own):
    seen: list[Any] = []
    own.consume(seen.append)
    publisher = own.produce()
    count = armed(own, publisher)
    publisher.publish("appended")
    delivery = publisher.deliver("delivered")
    publisher.publish("later")
    assert not delivery.done
    own.run()
    assert delivery.result(0).consumers == 1
    assert seen == [*range(count), "appended", "delivered", "later"]


def test_another_handler_version_gets_what_comes_after_it(own):
    seen: list[Any] = []

    class Tag:
        def __init__(self, tag: str) -> None:
            self.tag = tag

        def receive(self, event: Any) -> list[Any]:
            return [(self.tag, event)]

    inbox, publisher = own.consume(seen.append), own.produce()
    armed(own, publisher)
    own.run()
    seen.clear()
    count = armed(own, publisher)
    publisher.publish("before")
    inbox.add_version(1, Tag("new"))
    own.consumers[0] = Consumer(1, own.endpoint.id, 1, None, handler_version=1)
    own.apply()
    publisher.publish("after")
    own.run()
    assert seen[count:] == ["before", ("new", "after")]


def test_a_second_consumer_gets_what_comes_after_it(own):
    first: list[Any] = []
    second: list[Any] = []
    inbox, publisher = own.consume(first.append), own.produce()
    count = armed(own, publisher)
    publisher.publish("before")
    other = own.consume(second.append)
    for number in range(1000):
        publisher.publish(number)
    own.run()
    assert first == [*range(count), "before", *range(1000)]
    assert second == [*range(1000)]
    assert is_settled(inbox)
    assert is_settled(other)


def test_a_fast_one_is_not_kept_by_a_slow_one(own):
    slow: list[Any] = []
    fast: list[Any] = []
    inbox, other, publisher = own.consume(slow.append), own.consume(fast.append), own.produce()
    count = armed(own, publisher)
    publisher.publish("appended")
    (slow_driver,) = [each for each in own.endpoint.ready if each is inbox.driver]
    own.endpoint.ready.remove(slow_driver)
    own.run()
    assert fast == [*range(count), "appended"]
    publisher.publish("by itself")  # the fast one stopped
    own.run()
    assert fast[-1] == "by itself"
    assert not slow
    slow_driver.run()
    own.run()
    assert slow == fast
    assert is_settled(inbox)
    assert is_settled(other)


def test_one_that_fails_loses_nothing_else(own):
    seen: list[Any] = []

    def handle(event: Any) -> None:
        if event == 700:
            raise ValueError(event)
        seen.append(event)

    inbox, publisher = own.consume(handle), own.produce()
    inbox.on_error = None
    for number in range(1000):
        publisher.publish(number)
    own.run()
    assert seen == [number for number in range(1000) if number != 700]
    assert (inbox.counters.handled, inbox.counters.failed) == (999, 1)
    assert is_settled(inbox)


def test_a_handler_that_publishes_to_itself(own):
    seen: list[Any] = []

    def handle(event: int) -> None:
        seen.append(event)
        if event < 3000:
            publisher.publish(event + 3000)

    inbox, publisher = own.consume(handle), own.produce()
    for number in range(3000):
        publisher.publish(number)
    own.run()
    assert seen == [*range(6000)]
    assert is_settled(inbox)


def test_a_producer_that_leaves_has_its_events_handled(own):
    seen: list[Any] = []
    inbox, publisher = own.consume(seen.append), own.produce()
    count = armed(own, publisher)
    publisher.publish("last")
    publisher.retire()
    with pytest.raises(errors.Closed):
        publisher.publish("too late")
    own.run()
    assert seen == [*range(count), "last"]
    assert is_settled(inbox)


def test_one_that_is_late_behind_the_end_is_not_counted(own):
    seen: list[Any] = []
    inbox, publisher = own.consume(seen.append), own.produce()
    count = armed(own, publisher)
    handover = handover_of(publisher)
    publisher.retire()
    handover.events.append("late")  # found room before
    with own.endpoint.lock:
        handover.absorb()
    own.run()
    assert seen == [*range(count)]
    assert is_settled(inbox)


def test_a_consumer_that_is_closed_leaves_the_others_alone(own):
    seen: list[Any] = []
    closed, other, publisher = own.consume(seen.append), own.consume(seen.append), own.produce()
    armed(own, publisher)
    publisher.publish("appended")
    own.consumers = own.consumers[1:]
    own.apply()
    own.endpoint.close_inbox(closed)
    publisher.publish("after")
    own.run()
    assert seen[-1] == "after"
    assert not closed.queue
    assert not closed.handovers
    assert is_settled(other)


def test_in_the_child_of_a_fork_nothing_is_handed_over(own):
    seen: list[Any] = []
    own.consume(seen.append)
    publisher = own.produce()
    armed(own, publisher)
    own.endpoint.forget()
    with pytest.raises(errors.Closed):
        publisher.publish("in the child")


def test_a_consumer_elsewhere_ends_it() -> None:
    line = Line()
    producing: ProcessEndpoint = line.producing
    seen: list[Any] = []
    inbox = Inbox(producing, 9, "c", None, "", partial(FunctionDriver, seen.append))
    inbox.add_version(0, None)
    producing.open_inbox(inbox)
    here, elsewhere = Consumer(1, producing.id, 9, None), Consumer(1, line.endpoints[1].id, 1, None)

    def apply(version: int, *consumers: Consumer) -> None:
        with producing.lock:
            line.publisher.apply(Membership("c", version, 1, consumers, False, 1))

    line.seen.clear()
    apply(2, here)
    for number in range(100):
        line.publisher.publish(number)
    assert handover_of(line.publisher).room
    apply(3, here, elsewhere)
    for number in range(100, 200):
        line.publisher.publish(number)
    line.tick()
    line.pass_on()
    assert seen == [*range(200)]
    assert line.seen == [*range(100, 200)]


# ---- lists of several kinds ----


@pytest.mark.parametrize("kind", [PLAIN, PICKLED])
def test_what_was_appended_late_for_another_kind_came_first(kind) -> None:
    line = Line()
    line.seen.clear()
    line.producing.crew.ticks += 1
    event: Any = b"plain" if kind == PLAIN else ["a list"]
    line.publisher.publish(event)  # for which it is armed
    sink: Any = line.publisher.sink
    # By a thread that had found room for the other kind.
    if kind == PLAIN:
        assert sink._plain_room
        sink._lists[PICKLED].append(encode(["late"])[1])
    else:
        assert sink._encoded_room
        sink._plain.append(b"late")
    line.publisher.publish(event)
    with line.producing.lock:
        sink.disarm()
    line.tick()
    assert len(line.seen) == 3
    assert line.seen[-1] == event
