"""What goes into a sandbox and comes out of it."""

from __future__ import annotations

import dataclasses
import heapq
import threading
from collections import deque
from typing import Any

import numpy
import pytest

from echannel_ray.formats import events
from echannel_ray.modulation.modulator import FIFOModulator, Modulator
from echannel_ray.sandbox.owner import SandboxFailed
from tests.sandbox.arena import LIMITS, PATIENCE_SECONDS, Guest, Passing, decoded, limits_of

ALL_KINDS: list[Any] = [b"bytes", "text", 1, 2.5, None, True, (1, "two"), {"three": [4]}, numpy.arange(10_000), {1, 2}]


class EverySecond(Modulator):
    def __init__(self):
        self.seen = 0

    def enqueue(self, event):
        self.seen += 1
        if self.seen % 2 == 0:
            self.emit(event)


class Newest(Modulator):
    """Holds one event back, and emits the one before."""

    def __init__(self):
        self.held: deque[Any] = deque()

    def enqueue(self, event):
        self.held.append(event)
        if len(self.held) > 3:
            self.emit(self.held.popleft())

    def flush(self):
        while self.held:
            self.emit(self.held.popleft())


class Ticking(Modulator):
    period_seconds = 60.0


class Ordered(Modulator):
    def __init__(self):
        self.heap = []

    def enqueue(self, event):
        heapq.heappush(self.heap, event[0])
        self.emit(event)

    def dequeue(self, event):
        return [heapq.heappop(self.heap), "of", event[0]]


class Calling(Modulator):
    def __init__(self, function):
        self.function = function

    def enqueue(self, event):
        self.function(self, event)


@dataclasses.dataclass
class Point:
    x: int


def test_events_of_all_kinds_pass_as_they_were(arena):
    guest = arena.guest(Passing())
    for batch in (ALL_KINDS, ALL_KINDS[:6], [b"x" * 100] * 1000, [(i,) for i in range(500)]):
        passed = guest.work(batch)
        assert [type(each) for each in passed] == [type(each) for each in batch]
        assert all(
            numpy.array_equal(a, b) if isinstance(a, numpy.ndarray) else a == b
            for a, b in zip(passed, batch, strict=True)
        )


def test_what_passes_is_the_payload_that_was_given(arena):
    guest = arena.guest(Passing())
    kind, payload, _ = events.encode({"a": [1, 2]})
    guest.sandbox.submit(1, bytes([kind]), [payload])
    assert guest.owner.next()[2][0][1] is payload


def test_some_pass(arena):
    guest = arena.guest(EverySecond())
    assert guest.work(list(range(10))) == [1, 3, 5, 7, 9]
    assert guest.work([(i,) for i in range(10)]) == [(i,) for i in range(1, 10, 2)]


def test_plain_data_of_kind_data_is_read(arena):
    from echannel_ray.formats import plain

    guest = arena.guest(Calling(lambda self, event: self.emit(("seen", event))))
    guest.sandbox.submit(1, bytes([events.DATA]), [plain.encode({"a": (1, 2)})])
    assert decoded(guest.owner.next())[2] == [("seen", {"a": (1, 2)})]


@pytest.mark.parametrize("size", [100, 1 << 20, 5 << 20])
def test_events_larger_than_the_area(arena, size):
    guest = arena.guest(Passing())
    for _ in range(3):
        assert guest.work([b"x" * size, b"y"]) == [b"x" * size, b"y"]


def test_other_plain_data_can_be_emitted_and_is_taken_as_it_was(arena):
    def emit_twice(self, event):
        value = [event]
        self.emit(value)
        value.append("changed afterwards")
        self.emit({"doubled": value})

    guest = arena.guest(Calling(emit_twice))
    assert guest.work([1]) == [[1], {"doubled": [1, "changed afterwards"]}]


def test_events_that_are_held_back_are_emitted_later_by_identity(arena):
    guest = arena.guest(Newest())
    batch = [(i, object) for i in range(8)]
    assert guest.work(batch[:5]) == batch[:2]
    assert guest.work(batch[5:]) == batch[2:5]
    guest.sandbox.flush(9)
    assert decoded(guest.owner.next()) == ("emitted", 9, batch[5:], 0)


def test_what_is_let_go_is_forgotten_at_the_producer(arena):
    guest = arena.guest(Newest())
    for _ in range(20):
        guest.work([(i,) for i in range(100)])
    assert len(guest.sandbox._message_check._given._held) < 1000


def test_what_is_held_too_long_is_a_failure(arena):
    limits = dataclasses.replace(LIMITS, max_memory_bytes=40_000_000)
    guest = arena.guest(Newest(), limits)
    told = [guest.outcome([{"large": bytes(15_000_000)}]) for _ in range(4)]
    assert told[-1][0] == "failed"


def test_a_queue_of_its_own_waits_in_the_sandbox(arena):
    guest = Guest(arena.warden, LIMITS)
    arena.guests.append(guest)
    installed = guest.install(Ordered())
    assert installed.queues
    assert guest.outcome([(3,), (1,), (2,)])[2:] == ([], 3)
    guest.sandbox.dequeue(7, 2)
    assert decoded(guest.owner.next()) == ("emitted", 7, [[1, "of", 3], [2, "of", 1]], 1)


def test_one_that_fails_waits_for_a_restart_and_begins_anew(arena):
    def fail_at_three(self, event):
        if event == 3:
            raise ValueError("three")
        self.emit(event)

    guest = arena.guest(Calling(fail_at_three))
    assert guest.outcome([1, 2, 3, 4]) == ("failed", 1, 2, [1, 2], 0, "ValueError: three")
    guest.sandbox.restart()
    assert guest.work([4]) == [4]


def test_what_is_no_plain_data_is_a_failure_at_its_event(arena):
    guest = arena.guest(Calling(lambda self, event: self.emit(event if event < 2 else object())))
    told = guest.outcome([0, 1, 2, 3])
    assert told[:4] == ("failed", 1, 2, [0, 1])
    assert "neither an event that it was given nor plain data" in told[5]


def test_an_event_whose_class_is_not_there_is_a_failure(arena):
    guest = arena.guest(Passing())
    told = guest.outcome([(1,), Point(2), (3,)])
    assert told[:4] == ("failed", 1, 1, [(1,)])
    assert "modules" in told[5]


def test_an_event_of_a_class_of_a_script_arrives(arena):
    made = dataclasses.make_dataclass("Made", ["x"])
    made.__module__ = "__main__"
    guest = arena.guest(Calling(lambda self, event: self.emit(event.x)))
    assert guest.work([made(7)]) == [7]


def test_imports_after_the_lockdown_say_what_to_do(arena):
    def import_late(self, event):
        import wave  # noqa: F401

    told = arena.guest(Calling(import_late)).outcome([1])
    assert told[0] == "failed"
    assert "Admission(modules=" in told[5]


def test_installing_what_can_not_be_made_says_why(arena):
    guest = arena.guest()
    with pytest.raises(SandboxFailed, match="wave"):
        guest.sandbox.install(b"cwave\nWave_read\n.", {}, (), False, 10)


def test_keys_are_canonical(arena):
    class Keyed(FIFOModulator):
        def __init__(self, key):
            self.value = key

        def key(self):
            return self.value

    keys = {
        arena.guest().install(Keyed(value), wants_key=True).key
        for value in ({"b": {1, 2}, "a": (3, frozenset("xy"))}, {"a": (3, frozenset("yx")), "b": {2, 1}})
    }
    assert len(keys) == 1
    assert arena.guest().install(Passing(), wants_key=True).key is None


def test_a_period_emits_unasked(arena):
    class Ticking(Modulator):
        period_seconds = 0.01
        count = 0

        def period(self):
            self.count += 1
            self.emit(self.count)

    guest = arena.guest(Ticking())
    assert [decoded(guest.owner.next()) for _ in range(30)] == [("emitted", 0, [i + 1], 0) for i in range(30)]
    assert guest.sandbox._meter.cpu_seconds() > 0


def test_memory_errors_are_failures(arena):
    limits = limits_of(1.0, 32 << 20)
    guest = arena.guest(Calling(lambda self, event: self.emit(bytes(event))), limits)
    assert "MemoryError" in guest.outcome([64 << 20])[5]
    guest.sandbox.restart()
    assert guest.work([3]) == [bytes(3)]


def test_an_empty_batch(arena):
    guest = arena.guest(Passing())
    guest.sandbox.submit(1, b"", [])
    assert guest.owner.next() == ("emitted", 1, [], 0)


def test_an_owner_that_raises_loses_nothing_of_others(arena, caplog):
    guest, other = arena.guest(Passing()), arena.guest(Passing())
    raised = threading.Event()

    def emitted(*args):
        raised.set()
        raise RuntimeError("an owner's mistake")

    guest.owner.emitted = emitted
    guest.send([1])
    assert raised.wait(PATIENCE_SECONDS)
    del guest.owner.emitted
    assert other.work([2]) == [2]
    assert guest.work([3]) == [3]
    assert "an owner's mistake" in caplog.text


def test_imports_of_the_producer_are_not_used_up(arena):
    """What is on the producer's path can be imported in sandboxes, when its admission lists it."""
    limits = dataclasses.replace(LIMITS, modules=("wave",))

    def import_listed(self, event):
        import wave

        self.emit(wave.__name__)

    assert arena.guest(Calling(import_listed), limits).work([1]) == ["wave"]


def test_who_may_hold_something_back_says_so(arena):
    held = {cls: arena.guest().install(cls()).holds_back for cls in (Passing, Newest, Ordered, Ticking)}
    assert held == {Passing: False, Newest: True, Ordered: True, Ticking: True}
