"""Cursors of a reader in its logs: every order in which log hosts answer, die and come back, and what is told then."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from echannel_ray.core.cursors import CURSOR_TRANSITIONS, WINDOW_BYTES, LogCursor, LogRun, Seen
from echannel_ray.core.messages import LogAddress
from echannel_ray.core.states import IllegalTransition

HERE = LogAddress(1, 10, "log")
STATES = {state for state, _ in CURSOR_TRANSITIONS}
EVENTS = {event for _, event in CURSOR_TRANSITIONS}


def tell(cursor: LogCursor, event: str) -> None:
    """Have an event happen to a cursor, with whatever it brings."""
    match event:
        case "joined":
            cursor.joined(0)
        case "sliced":
            cursor.sliced(b"part")
        case "taken":
            cursor.taken(cursor.at, cursor.at + 1, 0, [])
        case "lost":
            cursor.went_away(0.0)
            assert cursor.lose()
        case "returned":
            cursor.is_at(cursor.address)
        case _:
            getattr(cursor, event)()


def cursor_in(state: str) -> LogCursor:
    """A cursor that has come to a state, by the shortest way."""
    ways: dict[str, list[str]] = {"apart": []}
    while state not in ways:
        for (before, event), after in CURSOR_TRANSITIONS.items():
            if before in ways:
                ways.setdefault(after, [*ways[before], event])
    cursor = LogCursor(HERE, "new", is_of_group=False)
    for event in ways[state]:
        tell(cursor, event)
    assert cursor.state == state
    return cursor


@pytest.mark.parametrize("event", sorted(EVENTS - {"returned", "lost"}))
@pytest.mark.parametrize("state", sorted(STATES))
def test_what_the_table_has_happens_and_all_else_is_an_error(state, event):
    cursor = cursor_in(state)
    if (state, event) in CURSOR_TRANSITIONS:
        tell(cursor, event)
        assert cursor.state == CURSOR_TRANSITIONS[state, event]
        cursor.validate()
        return
    with pytest.raises(IllegalTransition) as caught:
        tell(cursor, event)
    assert (caught.value.what, caught.value.state, caught.value.event) == ("the cursor in log log", state, event)


class Reading(RuleBasedStateMachine):
    """One cursor, the log that it is in, and a handler that takes its time. Nobody else reads."""

    @initialize(start=st.sampled_from(["earliest", 0, 3]), is_of_group=st.booleans())
    def begin(self, start: int | str, is_of_group: bool) -> None:
        self.cursor = LogCursor(HERE, start, is_of_group)
        self.first, self.end = 0, 5  # of the log
        self.group_at = 0  # where the log host has the group, once it has joined
        self.runs: deque[LogRun] = deque()  # what the handler has not done with
        self.taken: list[int] = []  # all offsets that came
        self.handled: set[int] = set()
        self.missing: set[int] = set()

    def _is(self, *states: str) -> bool:
        return self.cursor.state in states

    @rule(count=st.integers(1, 4))
    def log_more(self, count: int) -> None:
        self.end += count

    @rule(count=st.integers(1, 4))
    def retain_less(self, count: int) -> None:
        self.first = min(self.end, self.first + count)

    # ---- what the reader does ----

    @precondition(lambda self: self._is("apart"))
    @rule()
    def join(self) -> None:
        self.cursor.join()

    @precondition(lambda self: self.cursor.may_fetch)
    @rule()
    def fetch(self) -> None:
        fetches = self.cursor.fetches
        done = self.cursor.fetch()
        assert self.cursor.fetches == fetches + 1
        assert {offset for start, stop in done for offset in range(start, stop)} <= {*self.handled, *self.missing}
        assert not self.cursor.is_of_group or not self.runs

    @precondition(lambda self: self.runs)
    @rule(part=st.integers(0, 3))
    def close_run(self, part: int) -> None:
        run = self.runs.popleft()
        stop = run.stop if part or not self.cursor.is_of_group else run.start  # a member may leave what it has
        self.cursor.run_closed(run.start, stop, run.size_bytes)
        self.handled |= {*range(run.start, stop)}

    # ---- what the log host answers ----

    @precondition(lambda self: self._is("joining"))
    @rule()
    def answer_join(self) -> None:
        was_first = isinstance(self.cursor.start, str)
        self.cursor.joined(self.group_at if self.cursor.is_of_group else self.first)
        if self.cursor.is_of_group:
            self.taken, self.runs = [], deque()  # by another log host it may be given all again
            self.cursor.waiting_bytes = 0
        elif was_first:
            assert self.cursor.at == self.first

    @precondition(lambda self: self._is("fetching", "slicing") and self.cursor.at < self.first)
    @rule()
    def answer_that_it_is_gone(self) -> None:
        self.missing |= {*range(self.cursor.at, self.first)}
        self.cursor.gone(self.first)
        if self.cursor.is_of_group:
            self.cursor.at = self.first

    @precondition(lambda self: self._is("fetching"))
    @rule()
    def answer_that_it_is_large(self) -> None:
        self.cursor.announced()

    @precondition(lambda self: self._is("slicing"))
    @rule()
    def answer_with_a_slice(self) -> None:
        self.cursor.sliced(b"slice")

    @precondition(lambda self: self._is("fetching", "slicing") and self.first <= self.cursor.at < self.end)
    @rule(count=st.integers(1, 4), unreadable=st.integers(0, 4), size_bytes=st.sampled_from([1, WINDOW_BYTES]))
    def answer_with_events(self, count: int, unreadable: int, size_bytes: int) -> None:
        start = self.cursor.at
        stop = min(self.end, start + count)
        begin = min(stop, start + unreadable)
        runs = [LogRun(begin, stop, size_bytes)] if begin < stop else []
        self.cursor.taken(start, stop, 0, runs)
        self.runs += runs
        self.missing |= {*range(start, begin)}
        self.taken += range(begin, stop)

    # ---- what happens to the log host ----

    @precondition(lambda self: not self._is("lost"))
    @rule()
    def restart(self) -> None:
        attempt = self.cursor.attempt
        self.cursor.restarted()
        assert self.cursor.attempt == attempt + 1

    @rule(now=st.floats(0, 100))
    def go_away(self, now: float) -> None:
        since = self.cursor.away_since
        self.cursor.went_away(now)
        assert self.cursor.away_since == (now if since is None else since)

    @precondition(lambda self: self.cursor.away_since is not None)
    @rule()
    def lose(self) -> None:
        was_lost = self._is("lost")
        assert self.cursor.lose() is not was_lost
        assert not self.cursor.lose()

    @rule(is_another=st.booleans())
    def come_back(self, is_another: bool) -> None:
        address, attempt = self.cursor.address, self.cursor.attempt
        self.cursor.is_at(replace(address, endpoint=address.endpoint + is_another))
        assert self.cursor.away_since is None
        assert self._is("apart") if is_another else not self._is("lost")
        assert self.cursor.attempt == attempt + is_another

    # ---- what holds ----

    @invariant()
    def all_is_well(self) -> None:
        cursor = self.cursor
        cursor.validate()
        assert cursor.waiting_bytes == sum(run.size_bytes for run in self.runs)
        assert self.taken == sorted({*self.taken})
        if not cursor.is_of_group:  # who reads on from its position misses nothing
            assert {offset for offset in self.taken if offset < cursor.handled_to} <= self.handled
        held = {offset for start, stop in cursor.held for offset in range(start, stop)}
        done = {offset for start, stop in cursor.done for offset in range(start, stop)}
        assert held == {*range(*cursor.given)} - done


TestReading = Reading.TestCase
TestReading.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_a_member_of_a_group_tells_what_is_not_acknowledged_again():
    cursor = LogCursor(HERE, "earliest", is_of_group=True)
    cursor.join()
    cursor.joined(0)
    cursor.fetch()
    cursor.taken(0, 4, 0, [LogRun(0, 4, 1)])
    assert not cursor.may_fetch
    assert cursor.held == [(0, 4)]
    cursor.run_closed(0, 4, 1)
    assert (cursor.held, cursor.all_done) == ([], [(0, 4)])
    assert cursor.fetch() == [(0, 4)]
    cursor.restarted()
    assert (cursor.done, cursor.all_done) == ([], [(0, 4)])
    cursor.join()
    cursor.joined(4)
    cursor.fetch()
    cursor.taken(4, 5, 4, [LogRun(4, 5, 1)])
    assert cursor.all_done == []


class TestSeen:
    def test_what_another_log_has_again_is_repeated(self):
        seen, one, other = Seen(), cursor_in("idle"), cursor_in("idle")
        assert seen.sort_out(one, "p", 1, 5) == (0, None)
        assert seen.sort_out(other, "p", 4, 4) == (2, None)
        assert seen.sort_out(other, "p", 2, 3) == (3, None)

    def test_what_never_comes_is_a_gap_once_and_none_where_it_is_told_otherwise(self):
        seen, cursor = Seen(), cursor_in("idle")
        assert seen.sort_out(cursor, "p", 7, 1) == (0, None)  # what came before this reader
        assert seen.sort_out(cursor, "p", 10, 1) == (0, (8, 9))
        seen.missed(cursor)
        assert seen.sort_out(cursor, "p", 15, 1) == (0, None)
