"""What is left of a modulator that failed, and what is said of it."""

from __future__ import annotations

import dataclasses
import time

import pytest

from echannel_ray.formats import plain
from echannel_ray.modulation.modulator import Modulator
from echannel_ray.sandbox.owner import SandboxFailed
from tests.sandbox.arena import limits_of

ROOMY = limits_of(2.0, 200 << 20)


class Large(Modulator):
    """Takes 50 MB, and raises at every second event."""

    def __init__(self):
        self.memory = None
        self.kept = []

    def enqueue(self, event):
        local = self.memory = bytearray(50_000_000)
        self.kept.append(self.emit)
        if event:
            raise ValueError(f"{len(local)} bytes")
        self.emit(event)


class LargeQueue(Large):
    def dequeue(self, event):
        return event


@pytest.mark.parametrize("modulator", [Large(), LargeQueue()])
def test_a_restart_gives_the_memory_of_the_old_one_back(arena, modulator):
    guest = arena.guest(modulator, ROOMY)
    for _ in range(8):
        assert guest.outcome([0, 1])[5] == "ValueError: 50000000 bytes"
        guest.sandbox.restart()
    assert guest.outcome([0])[0] == "emitted"


def test_a_lack_of_memory_names_the_limit(arena):
    class Greedy(Modulator):
        def enqueue(self, event):
            self.emit(len(bytearray(event)))

    guest = arena.guest(Greedy(), dataclasses.replace(ROOMY, max_memory_bytes=32 << 20))
    told = guest.outcome([1 << 30])
    assert told[5] == "MemoryError (it needed more than max_memory_bytes, 32 MiB)"


class EndlessState(Modulator):
    def __reduce__(self):
        return EndlessState, (), {"x": 1}

    def __setstate__(self, state):
        while True:
            pass


def test_a_loop_in_setstate_is_told_as_one_of_making(arena):
    guest = arena.guest()
    with pytest.raises(SandboxFailed, match=r"0\.5 s of CPU while it was made .*__setstate__") as caught:
        guest.install(EndlessState())
    assert "one event" not in str(caught.value)


def test_what_is_nested_too_deep_is_told_in_a_line(arena):
    nested: list = []
    nested.append(nested)
    with pytest.raises(plain.NotPlain) as caught:
        plain.encode(nested)
    assert len(str(caught.value)) < 120
    assert "or in itself at [0][0]" in str(caught.value)


class SlowToMake(Modulator):
    """Needs more time to be made than it has for an event."""

    def __reduce__(self):
        return SlowToMake, (), {"x": 1}

    def __setstate__(self, state):
        end = time.process_time() + 0.2
        while time.process_time() < end:
            pass

    def enqueue(self, event):
        if event == 1:
            raise ValueError("once more")
        self.emit(event)


def test_a_restart_has_the_time_of_an_installation(arena):
    guest = arena.guest(SlowToMake(), dataclasses.replace(ROOMY, max_seconds_per_event=0.05))
    for _ in range(3):
        assert guest.outcome([0, 1])[5] == "ValueError: once more"
        guest.sandbox.restart()
    assert guest.outcome([0])[0] == "emitted"
