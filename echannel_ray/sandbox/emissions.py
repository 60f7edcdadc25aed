"""What a modulator emits, as a sandbox tells it: events that it was given by their numbers, plain data by value."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import is_
from typing import Any, Final

from echannel_ray.formats import plain
from echannel_ray.records.generic import as_plain
from echannel_ray.sandbox.messages import MAX_ANSWER_BYTES, MAX_OUTPUTS, Outcome

# Nothing changes these, and they are cheap to send: no need to know which event such a value was.
SCALARS: Final = frozenset({bytes, str, int, float, bool, type(None)})
_MIN_SWEEP: Final = 256


@dataclass(slots=True)
class Data:
    """Plain data as it was when it was emitted."""

    encoded: bytes


def references(objects: Sequence[Any]) -> list[int]:
    """How many references each has, this sequence's included."""
    return list(map(sys.getrefcount, objects))


_UNHELD: Final = references([object()])[0]


class Holdings:
    """The events that the modulator holds on to beyond their batches, with the handles that the producer knows too.

    A sweep over all of them is due when as many have come as were left by the last one.
    """

    def __init__(self) -> None:
        self.handles: dict[int, int] = {}  # by id
        self._objects: dict[int, Any] = {}
        self._next = 0
        self._sweep_at = _MIN_SWEEP

    def keep(self, events: Sequence[Any]) -> array[int]:
        """Hold on to the events of a batch that somebody else still refers to; their indices."""
        keeps = array("I")
        for index, count in enumerate(references(events)):
            if count > _UNHELD:
                event = events[index]
                if type(event) not in SCALARS and id(event) not in self.handles:
                    self.handles[id(event)] = self._next
                    self._objects[self._next] = event
                    self._next += 1
                    keeps.append(index)
        return keeps

    def sweep(self) -> list[int]:
        """The handles of those that only this table refers to, if a sweep is due; they are forgotten."""
        if len(self._objects) < self._sweep_at:
            return []
        objects = list(self._objects.values())
        counts = references(objects)
        drops = [handle for handle, count in zip(self._objects, counts, strict=True) if count <= _UNHELD + 1]
        for handle in drops:
            del self.handles[id(self._objects.pop(handle))]
        self._sweep_at = max(_MIN_SWEEP, 2 * len(self._objects))
        return drops

    def clear(self) -> None:
        """Forget all events: the modulator is gone, and the producer has forgotten them too."""
        self.handles.clear()
        self._objects.clear()


def describe(number: int, events: Sequence[Any], emitted: list[Any], holdings: Holdings) -> Outcome:
    """What was emitted in this batch, so far as it can be said; a failure where it is too much."""
    outcome = Outcome(number, -1, False, b"", [], [], b"", [], 0, None)
    if len(emitted) == len(events) and all(map(is_, emitted, events)):
        outcome.passed = True
        return outcome
    index_of = dict(zip(map(id, events), range(len(events)), strict=True))
    picks = list(map(index_of.get, map(id, emitted), repeat(-1)))
    if -1 in picks:
        _add_others(picks, emitted, len(events), holdings, outcome)
    if len(picks) > MAX_OUTPUTS:
        del picks[MAX_OUTPUTS:]
        outcome.failure = f"it emitted more than {MAX_OUTPUTS:,} events at once"
    outcome.picks = array("I", picks).tobytes()
    return outcome


def _add_others(picks: list[int], emitted: list[Any], first: int, holdings: Holdings, outcome: Outcome) -> None:
    """Find the place of what is no event of the batch: behind those, first all values, then all that was held."""
    places: list[tuple[int, bool, int]] = []
    size = 0
    for at, event in enumerate(emitted):
        if picks[at] >= 0:
            continue
        handle = holdings.handles.get(id(event))
        if handle is not None:
            places.append((at, True, len(outcome.held)))
            outcome.held.append(handle)
            continue
        encoded = b""
        try:
            encoded = event.encoded if type(event) is Data else encode(event)
        except TypeError as error:
            outcome.failure = str(error)
        size += len(encoded) + 16
        if outcome.failure is None and size > MAX_ANSWER_BYTES // 2:
            outcome.failure = f"it emitted more than {MAX_ANSWER_BYTES // 2:,} bytes at once"
        if outcome.failure is not None:
            del picks[at:]
            break
        places.append((at, False, len(outcome.values)))
        outcome.values.append(encoded)
    for at, is_held, place in places:
        picks[at] = first + place + (len(outcome.values) if is_held else 0)


def encode(event: Any) -> bytes:
    """Plain data, or a record as its fields, as bytes; `TypeError` with what to do instead."""
    try:
        return plain.encode(event)
    except plain.NotPlain:
        pass
    try:
        return plain.encode(as_plain(event))
    except plain.NotPlain as error:
        raise TypeError(f"it emitted what is neither an event that it was given nor plain data: {error}") from None
