from __future__ import annotations

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from echannel_ray.core.messages import ConcentratorInfo, Definition
from echannel_ray.core.name_book import LISTING_TRANSITIONS, NameBook, slot_of


def info(node: int, incarnation: int = 1) -> ConcentratorInfo:
    return ConcentratorInfo(node, f"{node:056x}", f"c-{node}", "127.0.0.1", 1, 2, 3, incarnation)


def book() -> NameBook:
    return NameBook(5, ("m0", "m1"))


def test_slots_are_the_same_in_every_process():
    code = "from echannel_ray.core.name_book import slot_of; print([slot_of(f'c{i}', 3) for i in range(30)])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    slots = [slot_of(f"c{i}", 3) for i in range(30)]
    assert told.strip() == str(slots)
    assert set(slots) == {0, 1, 2}


def test_the_latest_incarnation_of_a_concentrator_counts():
    names = book()
    assert names.joined(info(1, 10))
    version = names.directory().version
    assert not names.joined(info(1, 10))
    assert not names.joined(info(1, 9))
    assert names.directory().version == version
    assert names.joined(info(1, 11))
    assert names.directory().version > version
    assert not names.left(1, 10)
    assert names.left(1, 11)
    assert not names.joined(info(1, 11)), "a late report of what has left"
    assert names.directory().concentrators == ()
    assert names.joined(info(1, 12))
    names.validate()


def test_a_node_that_never_joined_can_be_gone():
    names = book()
    assert not names.left(1, -1)
    assert names.state(1) == "left"
    assert names.joined(info(1, 0))
    names.validate()


def test_of_two_reports_that_a_node_was_revoked_the_later_one_counts():
    names = book()
    assert (names.directory().revoked, names.revoked_before(1)) == ((), 0)
    names.revoked(2, 100)
    names.revoked(1, 50)
    version = names.directory().version
    names.revoked(2, 90)
    assert names.directory().version == version
    names.revoked(1, 51)
    assert names.directory().version > version
    assert names.directory().revoked == ((1, 51), (2, 100))


def test_definitions_are_shared_out_by_slot_and_forgotten_for_good():
    names = book()
    old = [Definition(f"c{i}", None, {}, 1) for i in range(20)]
    names.recorded(old)
    slots = [names.definitions(slot, 2) for slot in range(2)]
    assert sorted(d.channel for ds in slots for d in ds) == sorted(names.channels()) == sorted(d.channel for d in old)
    names.forgotten([old[3]])
    names.recorded([old[3]])
    assert "c3" not in names.channels()
    again = Definition("c3", None, {}, 2)
    names.recorded([again])
    names.forgotten([old[3]])
    assert again in names.definitions(slot_of("c3", 2), 2)
    names.validate()


def test_epochs_rise_also_when_the_clock_was_set_back():
    names = book()
    names.epoch_seen(1000)
    assert names.next_epoch(2000) == 2000
    assert names.next_epoch(500) == 2001
    names.restart_epoch(600)
    assert names.directory().epoch == 2002
    names.validate()


@given(st.lists(st.tuples(st.sampled_from(["joined", "left"]), st.integers(0, 2), st.integers(0, 4))))
def test_concentrators_follow_their_table_and_versions_rise(events):
    names = book()
    for event, node, incarnation in events:
        before, directory = names.state(node), names.directory()
        news = names.joined(info(node, incarnation)) if event == "joined" else names.left(node, incarnation)
        assert names.state(node) in (before, LISTING_TRANSITIONS[before, event])
        assert (names.directory().version > directory.version) == news
        assert (names.directory().concentrators != directory.concentrators) == news
        names.validate()
