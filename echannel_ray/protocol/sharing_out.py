"""A log's events shared out among the members of a group: each to one of them, and what one leaves to another.

Rules:

* Events are given out in ranges of offsets, in order. A range is a member's until it says that it has done with it, or
  leaves; then what is left of it goes to whoever asks next, before anything new.
* A member asks with rising numbers. The same number again (the answer was lost) gets the same range.
* `acknowledged` is the offset before which all is done with: what a group has to be told again after a restart begins
  there.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple


class Range(NamedTuple):
    """Events `start` to `stop - 1`."""

    start: int
    stop: int
    is_redelivered: bool = False


@dataclass
class _Member:
    number: int = 0
    given: Range | None = None  # in answer to that number
    taken: list[Range] = field(default_factory=list)


class SharedOut:
    """One per group and log."""

    def __init__(self, acknowledged: int) -> None:
        self.acknowledged = acknowledged
        self._next = acknowledged  # the first that was never given out
        self._left: list[Range] = []  # by members that have gone
        self._done: list[tuple[int, int]] = []  # beyond `acknowledged`
        self._members: dict[Hashable, _Member] = {}

    @property
    def members(self) -> int:
        """How many there are."""
        return len(self._members)

    def joined(self, member: Hashable) -> None:
        """A member is there."""
        self._members.setdefault(member, _Member())

    def take(self, member: Hashable, number: int, end: int, most: int) -> Range | None:
        """What a member gets now, of a log that ends before `end`: up to so many events, or None."""
        known = self._members.setdefault(member, _Member())
        if number <= known.number:
            return known.given
        given = self._give(end, most)
        if given is not None:
            known.number, known.given = number, given
            known.taken.append(given)
        return given

    def _give(self, end: int, most: int) -> Range | None:
        if self._left:
            start, stop, is_redelivered = self._left.pop(0)
            if stop - start > most:
                self._left.insert(0, Range(start + most, stop, is_redelivered))
                stop = start + most
            return Range(start, stop, is_redelivered)
        if self._next >= end:
            return None
        start, self._next = self._next, min(end, self._next + most)
        return Range(start, self._next)

    def shorten(self, member: Hashable, stop: int) -> Range:
        """The last range that was given to a member ends sooner: the rest is somebody else's."""
        known = self._members[member]
        whole = known.taken.pop()
        known.given = Range(whole.start, stop, whole.is_redelivered)
        known.taken.append(known.given)
        if self._next == whole.stop and not whole.is_redelivered:
            self._next = stop
        else:
            insort(self._left, Range(stop, whole.stop, whole.is_redelivered))
        return known.given

    def skip_to(self, first: int) -> None:
        """What is before this offset is not there any more."""
        self._next = max(self._next, first)
        self._left = [Range(max(each.start, first), *each[1:]) for each in self._left if each.stop > first]
        self._advance([(self.acknowledged, first)] if first > self.acknowledged else [])

    def done(self, member: Hashable, ranges: Iterable[tuple[int, int]]) -> bool:
        """A member has done with these; whether `acknowledged` has moved."""
        known = self._members.get(member)
        if known is None:
            return False  # it was given up: others have got them
        mine = []
        for start, stop in ranges:
            for taken in [each for each in known.taken if each.start <= start and stop <= each.stop]:
                known.taken.remove(taken)
                rest = [Range(taken.start, start, taken.is_redelivered), Range(stop, taken.stop, taken.is_redelivered)]
                known.taken += [each for each in rest if each.start < each.stop]
                mine.append((start, stop))
        return self._advance(mine)

    def _advance(self, ranges: Iterable[tuple[int, int]]) -> bool:
        before = self.acknowledged
        for each in ranges:
            insort(self._done, each)
        while self._done and self._done[0][0] <= self.acknowledged:
            self.acknowledged = max(self.acknowledged, self._done.pop(0)[1])
        return self.acknowledged > before

    def left(self, member: Hashable) -> bool:
        """A member is gone; whether it has left anything."""
        known = self._members.pop(member, None)
        if known is None:
            return False
        for start, stop, _ in known.taken:
            insort(self._left, Range(start, stop, True))
        return bool(known.taken)

    def validate(self) -> None:
        """Raise AssertionError where an event is nobody's, or two parties'."""
        held = [(e.start, e.stop) for m in self._members.values() for e in m.taken]
        held += [(each.start, each.stop) for each in self._left] + self._done
        at = self.acknowledged
        for start, stop in sorted(held):
            assert start == at, (start, at, held)
            assert stop > start, (start, stop)
            at = stop
        assert at == self._next, (at, self._next)
