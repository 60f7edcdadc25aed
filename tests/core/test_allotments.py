"""How a group's events are shared out: each to one member at a time, and none lost with a member or a log host."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from echannel_ray.core.allotments import Allotment, Allotments


def ask(shared: Allotments, member: str, number: int, end: int, most: int) -> Allotment | None:
    """What a member gets under this number."""
    shared.asks(member, number)
    return shared.take(member, number, end, most)


@pytest.fixture
def shared() -> Iterator[Allotments]:
    made = Allotments(100)
    yield made
    made.validate()


def test_events_are_given_out_in_order_and_in_parts(shared: Allotments):
    assert ask(shared, "a", 1, 110, 4) == Allotment(100, 104)
    assert ask(shared, "b", 1, 110, 4) == Allotment(104, 108)
    assert ask(shared, "c", 1, 110, 4) == Allotment(108, 110)
    assert ask(shared, "d", 1, 110, 4) is None
    assert shared.members == 4


def test_the_same_number_again_gets_the_same(shared: Allotments):
    given = ask(shared, "a", 1, 110, 4)
    assert ask(shared, "a", 1, 120, 9) == given
    shared.done("a", [(100, 104)])
    assert ask(shared, "a", 2, 110, 4) == Allotment(104, 108)


def test_what_nobody_had_may_be_asked_for_again_under_the_same_number(shared: Allotments):
    assert ask(shared, "a", 1, 100, 4) is None
    assert ask(shared, "a", 1, 101, 4) == Allotment(100, 101)


def test_it_is_acknowledged_up_to_what_was_not_done(shared: Allotments):
    ask(shared, "a", 1, 110, 5)
    ask(shared, "b", 1, 110, 5)
    assert not shared.done("b", [(105, 110)])
    assert not shared.done("a", [(102, 103)])
    assert shared.acknowledged == 100
    assert shared.done("a", [(100, 102)])
    assert shared.acknowledged == 103
    assert shared.done("a", [(103, 105)])
    assert shared.acknowledged == 110


def test_what_a_member_leaves_goes_to_the_next_that_asks_and_is_marked(shared: Allotments):
    shared.joined("b")
    ask(shared, "a", 1, 110, 6)
    shared.done("a", [(100, 102)])
    shared.left("a")
    assert shared.members == 1
    assert ask(shared, "b", 1, 110, 2) == Allotment(102, 104, True)
    shared.done("b", [(102, 104)])
    assert ask(shared, "b", 2, 110, 9) == Allotment(104, 106, True)
    shared.done("b", [(104, 106)])
    assert ask(shared, "b", 3, 110, 9) == Allotment(106, 110)


def test_what_one_that_was_given_up_has_done_counts_no_more(shared: Allotments):
    ask(shared, "a", 1, 110, 6)
    shared.left("a")
    assert not shared.done("a", [(100, 106)])
    assert ask(shared, "b", 1, 110, 9) == Allotment(100, 106, True)
    shared.left("nobody")


def test_what_a_member_has_not_done_when_it_asks_for_more_is_somebody_elses(shared: Allotments):
    ask(shared, "a", 1, 110, 5)
    shared.done("a", [(101, 103)])
    assert ask(shared, "a", 2, 110, 5) == Allotment(100, 101, True)
    assert ask(shared, "b", 1, 110, 5) == Allotment(103, 105, True)


@pytest.mark.parametrize("is_redelivered", [False, True])
def test_a_range_may_be_shortened(shared: Allotments, is_redelivered: bool):
    ask(shared, "a", 1, 110, 6)
    if is_redelivered:
        shared.left("a")
        ask(shared, "a", 1, 110, 6)
    assert shared.shorten("a", 102) == Allotment(100, 102, is_redelivered)
    assert ask(shared, "a", 1, 110, 6) == Allotment(100, 102, is_redelivered)
    assert ask(shared, "b", 1, 110, 4) == Allotment(102, 106, is_redelivered)


def test_a_range_behind_which_more_was_given_out_may_be_shortened(shared: Allotments):
    ask(shared, "a", 1, 110, 6)
    ask(shared, "b", 1, 110, 2)
    shared.shorten("a", 101)
    assert ask(shared, "c", 1, 110, 9) == Allotment(101, 106)


def test_what_is_gone_is_lost_but_for_what_members_have(shared: Allotments):
    ask(shared, "a", 1, 140, 10)
    ask(shared, "b", 1, 140, 10)
    shared.left("b")
    assert shared.skip_to(125) == [Allotment(110, 120, True), Allotment(120, 125)]
    assert shared.acknowledged == 100
    assert shared.skip_to(125) == []
    assert shared.done("a", [(100, 110)])
    assert shared.acknowledged == 125
    assert ask(shared, "a", 2, 140, 99) == Allotment(125, 140)


def test_members_of_a_keeper_that_died_claim_what_they_have(shared: Allotments):
    shared.joined("a")
    shared.joined("b")
    shared.claim("b", 104, 108)  # done beyond what was acknowledged
    shared.done("b", [(104, 108)])
    shared.claim("a", 100, 102)
    assert ask(shared, "c", 1, 120, 99) == Allotment(102, 104, True)  # of one that died with the log host
    assert ask(shared, "d", 1, 120, 99) == Allotment(108, 120)
    shared.done("a", [(100, 102)])
    assert shared.done("c", [(102, 104)])
    assert shared.acknowledged == 108


def test_what_others_have_got_meanwhile_can_not_be_claimed(shared: Allotments):
    ask(shared, "b", 1, 120, 4)
    shared.joined("a")
    shared.claim("a", 98, 106)
    assert not shared.done("a", [(98, 106)])
    assert shared.acknowledged == 100
    assert shared.done("b", [(100, 104)])
    assert shared.acknowledged == 106


MEMBERS = st.sampled_from("abcd")


class Sharing(RuleBasedStateMachine):
    """Any calls in any order, against who has which event."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = Allotments(0)
        self.end = 0
        self.first = 0
        self.numbers: dict[str, int] = {}
        self.held: dict[str, set[int]] = {}
        self.last: dict[str, Allotment] = {}
        self.done: set[int] = set()
        self.given_before: set[int] = set()

    @rule(more=st.integers(1, 20))
    def grow(self, more: int) -> None:
        self.end += more

    @rule(member=MEMBERS, most=st.integers(1, 8), repeats=st.booleans())
    def take(self, member: str, most: int, repeats: bool) -> None:
        number = self.numbers.get(member, 0)
        if repeats and member in self.last:
            assert ask(self.shared, member, number, self.end, most) == self.last[member]
            return
        held = self.held.setdefault(member, set())
        self.numbers[member] = number + 1
        given = ask(self.shared, member, number + 1, self.end, most)
        if given is None:
            assert not held
            self.numbers[member] = number
            return
        held.clear()
        self.last[member] = given
        events = {*range(given.start, given.stop)}
        assert 0 < len(events) <= most
        assert not events & self.done
        assert not events & {each for others in self.held.values() for each in others}
        assert given.is_redelivered == bool(events & self.given_before)
        self.given_before |= events
        held |= events

    @precondition(lambda self: any(self.held.values()))
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from(sorted(name for name, held in self.held.items() if held)))
        start = data.draw(st.sampled_from(sorted(self.held[member])))
        stop = start + data.draw(st.integers(1, 8))
        before = self.shared.acknowledged
        finished = self.held[member] & {*range(start, stop)}
        moved = self.shared.done(member, [(start, stop)])
        self.done |= finished
        self.held[member] -= finished
        assert moved == (self.shared.acknowledged > before)

    @rule(member=MEMBERS)
    def leave(self, member: str) -> None:
        self.shared.left(member)
        for known in (self.held, self.numbers, self.last):
            known.pop(member, None)

    @precondition(lambda self: self.end > self.first)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        self.first = data.draw(st.integers(self.first, self.end))
        lost = {each for start, stop, _ in self.shared.skip_to(self.first) for each in range(start, stop)}
        held = {each for members in self.held.values() for each in members}
        assert lost == {*range(self.first)} - self.done - held
        self.done |= lost

    @rule(keeps=st.sets(MEMBERS))
    def restart(self, keeps: set[str]) -> None:
        """Another log host: it knows what was acknowledged, and members say what they have (some have died)."""
        reported = {*range(self.shared.acknowledged)} | self.done
        self.shared = Allotments(self.shared.acknowledged)
        for member in [member for member in self.held if member not in keeps]:
            del self.held[member]
        for member, held in self.held.items():
            self.shared.joined(member)
            for each in sorted(held):
                self.shared.claim(member, each, each + 1)
        self.shared.joined("reporter")
        for each in sorted(reported):
            if each >= self.shared.acknowledged:
                self.shared.claim("reporter", each, each + 1)
                self.shared.done("reporter", [(each, each + 1)])
        self.shared.left("reporter")
        self.numbers.clear()
        self.last.clear()
        # What lies before something that is claimed was given to somebody.
        known = self.done | {each for held in self.held.values() for each in held}
        self.given_before = {*range(max(known, default=-1) + 1)}

    @invariant()
    def nothing_is_lost(self) -> None:
        self.shared.validate()
        undone = next(each for each in range(self.end + 1) if each not in self.done)
        assert self.shared.acknowledged == min(undone, self.end)


TestSharing = Sharing.TestCase
