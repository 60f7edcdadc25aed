"""A log's events shared out among the members of a group: each to one of them, and what one leaves to another.

Rules:

* Events are given out in ranges of offsets, in order. A range is a member's until it says that it has done with it, or
  leaves, or asks for more; then what is left of it goes to whoever asks next, before anything new.
* A member asks with rising numbers. The same number again (the answer was lost) gets the same range.
* `acknowledged` is the offset before which all is done with: what a group has to be told again after a restart begins
  there. Members that are back after one say first what they have done beyond it, and what they hold.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple


class Allotment(NamedTuple):
    """Events `start` to `stop - 1`."""

    start: int
    stop: int
    is_redelivered: bool = False

    def split(self, start: int, stop: int) -> tuple[list[Allotment], list[Allotment]]:
        """What of it lies between two offsets, and what does not."""
        begin, end = max(self.start, start), min(self.stop, stop)
        if begin >= end:
            return [], [self]
        outside = [self._replace(stop=begin), self._replace(start=end)]
        return [self._replace(start=begin, stop=end)], [each for each in outside if each.start < each.stop]


@dataclass
class _Member:
    number: int = 0
    given: Allotment | None = None  # in answer to that number
    taken: list[Allotment] = field(default_factory=list)


class Allotments:
    """The events of one log as they are shared out among the members of one group."""

    def __init__(self, acknowledged: int) -> None:
        self.acknowledged = acknowledged
        self._next = acknowledged  # the first that was never given out
        self._left: list[Allotment] = []  # by members that have gone
        self._done: list[tuple[int, int]] = []  # beyond `acknowledged`
        self._members: dict[Hashable, _Member] = {}

    @property
    def members(self) -> int:
        """How many members the group has."""
        return len(self._members)

    def joined(self, member: Hashable) -> None:
        """Enter a member."""
        self._members.setdefault(member, _Member())

    def claim(self, member: Hashable, start: int, stop: int) -> None:
        """A member was given these by a log host that died: what nobody else has now is its again."""
        if stop > self._next:  # what lies between was given out as well, to somebody
            self._left.append(Allotment(self._next, stop, True))
            self._next = stop
        free, self._left = _divided(self._left, start, stop)
        self._members[member].taken += free

    def asks(self, member: Hashable, number: int) -> None:
        """A member asks for more, ahead of `take`: what it was given before and has not done, it never will do."""
        known = self._members.setdefault(member, _Member())
        if number > known.number:
            self._give_back(known)

    def take(self, member: Hashable, number: int, end: int, most: int) -> Allotment | None:
        """What a member that asks gets, of a log that ends before `end`: up to so many events, or None."""
        known = self._members[member]
        if number <= known.number:
            return known.given
        given = self._give(end, most)
        if given is not None:
            known.number, known.given = number, given
            known.taken.append(given)
        return given

    def _give_back(self, known: _Member) -> None:
        for start, stop, _ in known.taken:
            insort(self._left, Allotment(start, stop, True))
        known.taken = []

    def _give(self, end: int, most: int) -> Allotment | None:
        if self._left:
            start, stop, is_redelivered = self._left.pop(0)
            if stop - start > most:
                self._left.insert(0, Allotment(start + most, stop, is_redelivered))
                stop = start + most
            return Allotment(start, stop, is_redelivered)
        if self._next >= end:
            return None
        start, self._next = self._next, min(end, self._next + most)
        return Allotment(start, self._next)

    def shorten(self, member: Hashable, stop: int) -> Allotment:
        """The last range that was given to a member ends sooner: the rest is somebody else's."""
        known = self._members[member]
        whole = known.taken.pop()
        known.given = whole._replace(stop=stop)
        known.taken.append(known.given)
        if self._next == whole.stop and not whole.is_redelivered:
            self._next = stop
        else:
            insort(self._left, whole._replace(start=stop))
        return known.given

    def skip_to(self, first: int) -> list[Allotment]:
        """What is before this offset is not there any more: which of it nobody had got, and nobody will."""
        lost, self._left = _divided(self._left, 0, first)
        if self._next < first:
            lost.append(Allotment(self._next, first))
            self._next = first
        self._advance(lost)
        return lost

    def done(self, member: Hashable, ranges: Iterable[tuple[int, int]]) -> bool:
        """A member has done with these; whether `acknowledged` has moved."""
        known = self._members.get(member)
        if known is None:
            return False  # it was given up: others have got them
        mine: list[Allotment] = []
        for start, stop in ranges:
            inside, known.taken = _divided(known.taken, start, stop)
            mine += inside
        return self._advance(mine)

    def _advance(self, ranges: Iterable[Allotment]) -> bool:
        before = self.acknowledged
        for start, stop, _ in ranges:
            self._add_done(start, stop)
        if self._done and self._done[0][0] == self.acknowledged:
            self.acknowledged = self._done.pop(0)[1]
        return self.acknowledged > before

    def _add_done(self, start: int, stop: int) -> None:
        """Joined to its neighbours: behind a slow member there may be very many."""
        done = self._done
        i = bisect_left(done, (start, stop))
        if i < len(done) and done[i][0] == stop:
            stop = done.pop(i)[1]
        if i and done[i - 1][1] == start:
            i -= 1
            start = done.pop(i)[0]
        done.insert(i, (start, stop))

    def left(self, member: Hashable) -> None:
        """Take out a member; what it has not done with goes to others."""
        known = self._members.pop(member, None)
        if known is not None:
            self._give_back(known)

    def validate(self) -> None:
        """Raise AssertionError where an event is nobody's, or two parties'."""
        held = [(each.start, each.stop) for member in self._members.values() for each in member.taken]
        held += [(each.start, each.stop) for each in self._left] + self._done
        at = self.acknowledged
        for start, stop in sorted(held):
            assert start == at, (start, at, held)
            assert stop > start, (start, stop)
            at = stop
        assert at == self._next, (at, self._next)
        assert self._left == sorted(self._left), self._left
        assert not self._done or self._done[0][0] > self.acknowledged, (self._done, self.acknowledged)


def _divided(ranges: Iterable[Allotment], start: int, stop: int) -> tuple[list[Allotment], list[Allotment]]:
    """What of these ranges lies between two offsets, and what does not; both in the order of the ranges."""
    inside: list[Allotment] = []
    outside: list[Allotment] = []
    for each in ranges:
        within, without = each.split(start, stop)
        inside += within
        outside += without
    return inside, outside
