"""A log against a plain model of it: any calls in any order, and opened again at any time."""

import os
import tempfile
import time

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from echannel_ray.logs import store as store_module
from echannel_ray.logs.entries import Chosen, Committed, LogBounds, Missing, NewEntry, NotStaged, WriteAttempt
from echannel_ray.logs.store import Store
from tests.logs.made import check, entries_of

MAX_BYTES = 3000
LEASE = 100.0

producers = st.sampled_from(["p", "q"])
writes = st.sampled_from(["v", "w", "x", "y"])
groups = st.sampled_from(["g", "h"])
new_entries = st.builds(
    NewEntry,
    count=st.integers(0, 5),
    kind=st.integers(1, 3),
    token=st.integers(0, 2**64 - 1),
    data=st.integers(0, 400).map(bytes),
    producer=producers,
    sequence=st.integers(0, 2**63 - 1),
    published_at=st.floats(0, 1e10),
)


class Model(RuleBasedStateMachine):
    """What the log should hold, as lists and dicts."""

    path: str | None = None

    def __init__(self):
        super().__init__()
        self.now = time.time()
        self.log = []  # of (first, entry)
        self.first = self.next = 0
        self.marks = {}
        self.staged = {}  # by (write, partition, attempt): {number: entry}
        self.leases = {}
        self.ledger = {}
        self.groups = {}
        self.store = Store(self.path, LogBounds(max_bytes=MAX_BYTES))

    def _append(self, new):
        if new.count:
            self.log.append((self.next, new))
            self.next += new.count

    def _trim(self):
        held = min((at for at, until in self.groups.values() if until > self.now), default=self.next)
        while len(self.log) > 1 and sum(len(new.data) for _, new in self.log) > MAX_BYTES:
            first, new = self.log[0]
            if first + new.count > held:
                break
            del self.log[0]
            self.first = first + new.count

    @rule(entries=st.lists(new_entries, max_size=4), producer=producers, sequence=st.integers(0, 30))
    def append(self, entries, producer, sequence):
        mark = (producer, sequence) if sequence else None
        repeated = mark is not None and self.marks.get(producer, 0) >= sequence
        assert self.store.append(entries, mark) == (-1 if repeated else self.next)
        if not repeated:
            for each in entries:
                self._append(each)
            if mark:
                self.marks[producer] = sequence
        self._follow_trimming()

    def _follow_trimming(self):
        """The log may have trimmed itself: as the model would, or not at all."""
        if self.store.first != self.first:
            self._trim()

    @rule(
        write=writes, partition=st.integers(0, 1), attempt=st.integers(0, 1), number=st.integers(0, 2), new=new_entries
    )
    def stage(self, write, partition, attempt, number, new):
        place = self.staged.setdefault((write, partition, attempt), {})
        kept = write not in self.ledger and number not in place
        assert self.store.stage(WriteAttempt(write, partition, attempt), number, new, LEASE, self.now) == kept
        if kept:
            place[number] = new
        if write not in self.ledger:
            self.leases[write] = self.now + LEASE

    def _end(self, write, outcome):
        self.ledger[write] = outcome
        self.leases.pop(write, None)
        self.staged = {place: entries for place, entries in self.staged.items() if place[0] != write}

    @rule(write=writes, attempts=st.permutations([(0, 0), (1, 1)]), extra=st.sampled_from([0, 0, 0, 1]))
    def commit(self, write, attempts, extra):
        chosen = [
            Chosen(partition, attempt, len(self.staged.get((write, partition, attempt), {})) + extra)
            for partition, attempt in attempts
        ]
        known = self.ledger.get(write)
        there = all(
            set(range(each.entries)) <= set(self.staged.get((write, each.partition, each.attempt), {}))
            for each in chosen
        )
        if known == "aborted" or (known is None and not there):
            with pytest.raises(NotStaged):
                self.store.commit(write, chosen, self.now)
            return
        done = self.store.commit(write, chosen, self.now)
        if known is not None:
            assert (done.first, done.next, done.repeated) == (*known, True)
            return
        first = self.next
        for partition, attempt, entries in sorted(chosen):
            for number in range(entries):
                self._append(self.staged[write, partition, attempt][number])
        assert done == Committed(first, self.next)
        self._end(write, (first, self.next))
        self._follow_trimming()

    @rule(write=writes)
    def abort(self, write):
        known = self.ledger.get(write)
        assert self.store.abort(write, self.now) == (known in (None, "aborted"))
        if known is None:
            self._end(write, "aborted")

    @rule(seconds=st.floats(0, 2 * LEASE))
    def end_leases(self, seconds):
        self.now += seconds
        ended = {write for write, until in self.leases.items() if until < self.now}
        assert set(self.store.end_leases(self.now)) == ended
        for write in ended:
            self._end(write, "aborted")

    @rule(name=groups, back=st.integers(0, 20), hold=st.sampled_from([None, 0.0, 50.0, 500.0]))
    def set_group(self, name, back, hold):
        offset = max(self.next - back, 0)
        known, until = self.groups.get(name, (offset, 0.0))
        hold_until = None if hold is None else self.now + hold
        self.store.set_group(name, offset, hold_until)
        self.groups[name] = (max(offset, known), until if hold is None else hold_until)

    @rule(name=groups)
    def drop_group(self, name):
        self.store.drop_group(name)
        self.groups.pop(name, None)

    @rule()
    def trim(self):
        before = self.first
        self._trim()
        assert self.store.trim(self.now) == self.first - before

    @rule(data=st.data(), max_bytes=st.integers(1, 1000))
    def read(self, data, max_bytes):
        start = data.draw(st.integers(max(self.first - 3, 0), self.next + 3))
        stop = data.draw(st.none() | st.integers(start, self.next + 3))
        end = self.next if stop is None else min(stop, self.next)
        if start < self.first and start < end:
            with pytest.raises(Missing):
                self.store.read(start, max_bytes, stop)
            return
        found = self.store.read(start, max_bytes, stop)
        expected = [
            (first, new) for first, new in self.log if first + new.count > start and first < end and start < end
        ]
        assert [(each.first, each.data) for each in found] == [(at, new.data) for at, new in expected[: len(found)]]
        sizes = [len(new.data) for _, new in expected]
        assert len(found) == len(expected) or sum(sizes[: len(found) + 1]) > max_bytes
        assert len(found) <= 1 or sum(sizes[: len(found)]) <= max_bytes

    @precondition(lambda self: self.path is not None)
    @rule()
    def reopen(self):
        self.store.close()
        self.store = Store(self.path, LogBounds(max_bytes=MAX_BYTES))

    @invariant()
    def agrees(self):
        check(self.store)
        assert (self.store.first, self.store.next) == (self.first, self.next)
        assert self.store.groups() == self.groups
        assert {each: self.store.mark_of(each) for each in self.marks} == self.marks
        assert self.store.staged_bytes == sum(len(new.data) for at in self.staged.values() for new in at.values())
        for first, new in self.log[:1] + self.log[-1:]:
            found = next(each for each in entries_of(self.store) if each.first == first)
            assert (found.count, found.kind, found.token, found.sequence) == (
                new.count,
                new.kind,
                new.token,
                new.sequence,
            )
        for write in ("v", "w", "x", "y"):
            known = self.ledger.get(write)
            assert self.store.outcome(write) == (known if known in (None, "aborted") else "committed")

    def teardown(self):
        self.store.delete()


class ModelOnDisk(Model):
    """The same, in a file."""

    def __init__(self):
        self.directory = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.directory.name, "log.db")
        super().__init__()

    def teardown(self):
        super().teardown()
        self.directory.cleanup()


@pytest.mark.parametrize("machine", [Model, ModelOnDisk])
def test_a_log_does_what_its_model_does(machine, monkeypatch):
    monkeypatch.setattr(store_module, "RECENT_BYTES", 500)
    monkeypatch.setattr(store_module, "DELETED_AT_ONCE_BYTES", 300)
    run_state_machine_as_test(machine, settings=settings(max_examples=60, stateful_step_count=40, deadline=None))
