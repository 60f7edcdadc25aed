"""Threads that append late to the list of a mixture: what they publish stays that of its producer, and of its kind."""

from __future__ import annotations

from typing import Any

import pytest

from echannel_ray.core.kinds import PICKLED, PLAIN
from echannel_ray.core.mixtures import Mixture
from tests.endpoint.walking import Line


@pytest.fixture
def line() -> Line:
    return Line()


def join(line: Line, kind: int, payload: Any = b"") -> Any:
    """Have the producer join a mixture: the list, its lane and the kind, as `publish` reads them."""
    sink = line.publisher.sink
    with sink.lock:
        sink.disarm()
        assert sink._join_mixture(kind, payload, 60)
    return sink._plain_mixed or sink._encoded_mixed


def leave(line: Line) -> None:
    with line.publisher.sink.lock:
        line.publisher.sink.disarm()


def test_what_comes_late_keeps_its_kind_when_the_producer_has_joined_for_another(line):
    mixed, lane, kind = join(line, PICKLED)
    assert kind == PICKLED
    leave(line)
    join(line, PLAIN)
    line.seen.clear()
    mixed.pending.extend((lane, b"\x80\x05K\x05."))  # by a thread that had read these before
    with line.publisher.sink.lock:
        mixed.absorb()
    line.tick()
    assert line.seen == [5]


def test_a_lane_is_read_with_its_list(line):
    first, lane, _ = join(line, PLAIN)
    leave(line)
    second, other, _ = join(line, PLAIN)
    assert first is not second
    assert isinstance(first.mixture, Mixture)
    assert (first._sinks[int.from_bytes(lane, "little")], second._sinks[int.from_bytes(other, "little")]) == (
        line.publisher.sink,
        line.publisher.sink,
    )


@pytest.mark.parametrize("first", [None, 7, 1.5, "text", "Ä"])
def test_scalars_are_mixed_as_pickles_and_so_is_all_that_follows(line, first):
    mixed, _, kind = join(line, PLAIN, first)
    assert kind == PICKLED
    mixed.room = 1 << 10
    events = [first, b"bytes", {"a": (1, 2)}, True, 2**70]
    line.seen.clear()
    for event in events:
        line.publisher.publish(event)
    assert len(mixed.pending) == 2 * len(events)
    line.tick()
    assert line.seen == events


def test_a_mixture_outlasts_the_sleep_of_the_ticker(line):
    """The ticker finds nothing to do also where others have the core for a while; then it must be woken."""
    mixed, _, _ = join(line, PLAIN)
    crew = line.producing.crew
    line.seen.clear()
    crew.ticking = False
    mixed.disarm()
    for event in (b"first", b"second"):
        line.publisher.publish(event)
    assert line.publisher.sink._plain_mixed is not None
    assert mixed.room > 0
    assert crew.ticking
    line.tick()
    assert line.seen == [b"first", b"second"]
