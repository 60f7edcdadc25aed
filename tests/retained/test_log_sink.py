"""What a producer on a retained channel gathers: the short way, when it leaves, and that nothing is lost of it."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from typing_extensions import override

from echannel_ray.compilation import is_compiled
from echannel_ray.core.packing import Packing
from echannel_ray.retained.log_sink import LogSink
from tests.endpoint.walking import LoggedLine

pytestmark = pytest.mark.skipif(
    is_compiled(), reason="the endpoint of these tests replaces methods of compiled classes"
)

PATIENT = 60.0  # nothing leaves by the clock


class Line(LoggedLine):
    """A logged line whose producer has these options; nothing is answered until `settle`."""

    def __init__(self, packing: Packing = Packing(), window_bytes: int | None = None) -> None:  # noqa: B008 (it is frozen)
        super().__init__(packing)
        sink = self.publisher.sink
        assert isinstance(sink, LogSink)
        self.sink = sink
        if window_bytes is not None:
            self.publisher.stream.window_bytes = window_bytes
        self.settle()
        self.seen.clear()

    @override
    def publish(self, event: Any) -> None:
        self.publisher.publish(event)

    def settle(self) -> None:
        """All that was published is logged, and seen."""
        producing = self.endpoints[0]
        while True:
            with producing.lock:
                self.sink.absorb()
                self.sink._leave()
            self.sink.advance()
            seen = len(self.seen)
            self.pass_on()
            if not self.sink._backlog.size_bytes and seen == len(self.seen):
                return

    def logged(self) -> int:
        """How many calls came to the log."""
        return self.sink._backlog.packs


def test_what_comes_while_something_is_under_way_is_only_appended_and_leaves_with_the_answer():
    line = Line()
    packs = line.logged()
    for number in range(500):
        line.publish(b"%d" % number)
    assert len(line.sink._plain) == 499  # the first left by itself
    line.pass_on()
    line.pass_on()
    assert line.seen == [b"%d" % number for number in range(500)]
    assert line.logged() == packs + 2


def test_as_many_as_go_together_leave_at_once():
    line = Line()
    for _ in range(3000):
        line.publish(b"event")
    assert [sent.events for sent in line.sink._backlog.sent] == [1, 1024, 1024]
    line.settle()
    assert len(line.seen) == 3000


def test_one_by_itself_leaves_at_once_also_after_many():
    line = Line()
    for _ in range(100):
        line.publish(b"event")
    line.settle()
    line.publish(b"alone")
    assert line.sink._backlog.gathered == 0
    assert not line.sink._plain
    line.pass_on()
    assert line.seen[-1] == b"alone"


def test_events_of_several_kinds_stay_in_order():
    line = Line()
    events: list[Any] = []
    for number in range(50):
        events += [b"%d" % number, {"number": number}, {"number": -number}, None, number, "text", bytes(20_000)]
    for event in events:
        line.publish(event)
    line.settle()
    assert line.seen == events


def test_a_thread_that_is_late_loses_nothing():
    line = Line()
    line.publish(b"first")
    line.publish(b"second")
    late = line.sink._plain
    line.settle()
    late.append(b"late")  # it has found the producer armed, and comes when nothing is under way
    producing = line.endpoints[0]
    with producing.lock:
        line.sink.absorb()
    assert [*producing.fed] == [line.sink]
    line.sink.advance()
    line.pass_on()
    assert line.seen == [b"first", b"second", b"late"]


def test_several_threads_lose_nothing():
    line = Line(Packing(degree=100, interval_seconds=PATIENT))

    def publish(name: int) -> None:
        for number in range(2000):
            line.publish(b"%d %d" % (name, number))

    threads = [threading.Thread(target=publish, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    line.settle()
    line.settle()
    for name in range(4):
        mine = [event for event in line.seen if event.startswith(b"%d " % name)]
        assert mine == [b"%d %d" % (name, number) for number in range(2000)]


@pytest.mark.parametrize("degree", [1, 2, 7, 64])
def test_a_degree_is_kept(degree):
    line = Line(Packing(degree=degree, interval_seconds=PATIENT))
    packs = line.logged()
    for number in range(degree - 1):
        line.publish(b"%d" % number)
        line.pass_on()
    assert line.seen == []
    line.publish(b"last")
    line.pass_on()
    assert len(line.seen) == degree
    for _ in range(3 * degree):
        line.publish(b"more")
    assert line.logged() == packs + 4
    line.settle()
    assert len(line.seen) == 4 * degree


def test_the_interval_has_it_leave():
    line = Line(Packing(degree=1000, interval_seconds=PATIENT))
    producing = line.endpoints[0]
    line.publish(b"first")
    line.publish(b"second")
    assert line.sink._plain == [b"second"]
    producing.depart(time.monotonic())
    line.work(producing)
    line.pass_on()
    assert line.seen == []
    line.sink._due_at = time.monotonic()
    producing.depart(time.monotonic())
    line.work(producing)
    line.pass_on()
    assert line.seen == [b"first", b"second"]
    assert not producing._absorb(time.monotonic())


def test_hill_climbing_is_told_what_has_left():
    line = Line(Packing(degree="hill-climb", interval_seconds=PATIENT, measuring_seconds=0.0005))
    for _ in range(2000):
        line.publish(b"event")
        line.pass_on()
    line.settle()
    assert line.sink._policy is not None
    assert line.sink._policy.degree > 1
    assert len(line.seen) == 2000


def test_no_more_is_appended_than_the_window_has_room_for():
    line = Line(window_bytes=20_000)
    published = 0
    while line.sink.attempt(b"x" * 100, line.publisher.encode(b"x" * 100), False)[0]:
        published += 1
        while len(line.sink._plain) < line.sink._plain_room:
            line.publish(b"x" * 100)
            published += 1
        with line.endpoints[0].lock:
            line.sink._take_pending()
        assert line.sink._backlog.size_bytes <= 20_000
    assert published > 50
    line.settle()
    assert len(line.seen) == published


def test_what_was_appended_is_counted_delivered_behind_and_drained():
    line = Line()
    for _ in range(10):
        line.publish(b"event")
    assert line.sink.counters()["events_published"] == 11  # with the one before
    for _ in range(10):
        line.publish(b"event")
    delivery = line.publisher.deliver(b"delivered")
    line.settle()
    assert line.seen[-1] == b"delivered"
    assert delivery.result(0).consumers == 1
    line.publish(b"first")
    line.publish(b"to be drained")
    with pytest.raises(TimeoutError):
        line.publisher.drain(0)  # nobody reads the link here
    assert line.sink._backlog.gathered == 0
    line.settle()
    line.publisher.drain(0)


def test_a_log_that_moves_gets_what_was_appended():
    line = Line()
    for _ in range(10):
        line.publish(b"event")
    with line.endpoints[0].lock:
        line.sink._look_for_log()
    for _ in range(10):
        line.publish(b"event")
    line.work(line.endpoints[0])
    line.settle()
    assert len(line.seen) == 20
