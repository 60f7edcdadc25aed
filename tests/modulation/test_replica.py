"""A replica calls its modulator and keeps what that emits; see also tests/modulators, which runs the library by it."""

from __future__ import annotations

import pytest

from echannel_ray.modulation.modulator import FIFOModulator, Modulator
from echannel_ray.modulation.replica import BrokenAt, Replica
from echannel_ray.modulation.services import Services


def replica_of(modulator: Modulator) -> Replica:
    return Replica(modulator, Services((), lambda *call: None))


def test_what_is_emitted_is_taken_once():
    replica = replica_of(FIFOModulator())
    replica.enqueue([1, 2, 3])
    assert replica.take() == [1, 2, 3]
    assert replica.take() == []


def test_it_says_at_which_event_it_broke():
    class Breaks(FIFOModulator):
        def enqueue(self, event):
            self.emit(1 / event)

    replica = replica_of(Breaks())
    with pytest.raises(BrokenAt, match="ZeroDivisionError") as caught:
        replica.enqueue([1, 2, 0, 4])
    assert caught.value.index == 2
    assert replica.take() == [1.0, 0.5]


def test_one_that_overrides_dequeue_keeps_a_queue():
    class Odd(FIFOModulator):
        def dequeue(self, event):
            return event if event % 2 else None

    replica = replica_of(Odd())
    replica.enqueue([*range(10)])
    assert replica.take() == []
    assert replica.dequeue(2) == [1, 3]
    assert replica.dequeue(100) == [5, 7, 9]
    assert not replica.waiting


def test_emit_works_at_the_producer_only():
    with pytest.raises(RuntimeError, match="subscribe"):
        FIFOModulator().emit(1)


def test_services_are_asked_for_by_name():
    calls = []
    services = Services(("a.B",), lambda *call: calls.append(call))
    services["a.B"].method(1, two=2)
    assert calls == [("a.B", "method", (1,), {"two": 2})]
    assert [*services] == ["a.B"]
    with pytest.raises(KeyError, match="requires"):
        services["a.C"]
    with pytest.raises(AttributeError, match="public"):
        services["a.B"]._private()
