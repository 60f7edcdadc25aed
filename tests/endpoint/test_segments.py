"""Large events in memory that processes share: who sees what, and when it is used again."""

from __future__ import annotations

import gc
import os
import pickle
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from echannel_ray.core.kinds import PLAIN
from echannel_ray.core.segments import (
    BOUND,
    DESCRIPTORS,
    IDLE_SECONDS,
    KERNEL,
    UNMAPPED,
    VIEWED,
    Placed,
)
from echannel_ray.endpoint import segment_store
from echannel_ray.endpoint.borrowed_segments import LentBytes
from echannel_ray.formats.packs import MalformedPack
from tests.clusters import wait_until
from tests.endpoint.sharing import PRODUCER, Sharing

ARRAY = np.arange(50_000, dtype=np.float64)  # 400 KB


@pytest.fixture
def sharing() -> Sharing:
    shared = Sharing()
    shared.place(ARRAY)  # hands the first arena over
    return shared


# ---- what arrives ----


def test_the_first_event_finds_no_segment_and_the_next_ones_do():
    shared = Sharing()
    assert not isinstance(shared.place(ARRAY)[1], Placed)
    assert shared.refused == {UNMAPPED: 1}
    assert isinstance(shared.place(ARRAY)[1], Placed)


def test_an_array_arrives_as_a_view_that_nobody_can_write(sharing):
    arrived = sharing.travel(ARRAY)
    assert type(arrived) is np.ndarray
    assert np.array_equal(arrived, ARRAY)
    assert not arrived.flags.writeable
    assert not arrived.flags.owndata
    with pytest.raises(ValueError, match=r"cannot set WRITEABLE|read-only"):
        arrived.flags.writeable = True


@pytest.mark.parametrize(
    "event",
    [
        {"image": ARRAY, "step": 7, "more": [ARRAY[:10], ARRAY[::2]]},
        (ARRAY.reshape(50, 1000).T, "f"),
        [np.frombuffer(ARRAY.tobytes(), np.uint8), None],
    ],
)
def test_arrays_within_an_event_are_views_too(sharing, event):
    arrived = sharing.travel(event)
    assert pickle.dumps(arrived) == pickle.dumps(event)


def test_bytes_arrive_as_bytes_of_their_own(sharing):
    event = ARRAY.tobytes()
    arrived = sharing.travel(event)
    assert type(arrived) is bytes
    assert arrived == event
    assert sharing.used_slots() == 0


def test_bytes_are_copied_when_they_are_handled():
    view = memoryview(bytes(range(100)))
    lent = LentBytes(view)
    assert len(lent) == 1
    assert lent[0] == bytes(view)
    assert lent[0:1] == [bytes(view)]
    assert [*lent] == [bytes(view)]
    assert lent[0] is lent[0]


def test_what_the_caller_changes_afterwards_does_not_arrive(sharing):
    event = ARRAY.copy()
    kind, placed = sharing.place(event)
    event[:] = 0
    assert np.array_equal(sharing.arrives(sharing.pack(kind, placed)), ARRAY)


# ---- when a slot is used again ----


def test_a_slot_is_free_when_it_is_acknowledged_and_nobody_looks_at_it(sharing):
    arrived = sharing.travel(ARRAY)
    assert sharing.used_slots() == 1
    part = arrived[10:20]
    del arrived
    assert sharing.used_slots() == 1, "a view of the view is one too"
    del part
    assert sharing.used_slots() == 0


def test_a_slot_stays_until_it_is_acknowledged(sharing):
    kind, placed = sharing.place(ARRAY)
    body = sharing.pack(kind, placed)
    del placed
    arrived = sharing.arrives(body)
    del arrived
    assert sharing.used_slots() == 1
    sharing.acknowledged()
    assert sharing.used_slots() == 0


def test_a_refused_pack_that_is_decoded_again_is_whole(sharing):
    kind, placed = sharing.place(ARRAY)
    body = sharing.pack(kind, placed)
    del placed
    refused = sharing.arrives(body)
    del refused
    for _ in range(20):
        sharing.place(np.zeros_like(ARRAY))  # which look for free slots
    assert np.array_equal(sharing.arrives(body), ARRAY)


def test_an_event_for_two_consumers_is_kept_for_the_slower_one():
    shared = Sharing((1, 2))
    shared.place(ARRAY)
    kind, placed = shared.place(ARRAY)
    body = shared.pack(kind, placed)
    del placed
    first, second = shared.arrives(body, 1), shared.arrives(body, 2)
    shared.acknowledged()
    del first
    for _ in range(20):
        shared.place(np.zeros_like(ARRAY))
    assert np.array_equal(second, ARRAY)
    del second
    assert shared.used_slots() == 0


def test_views_that_are_kept_keep_their_segments_and_later_events_are_copies():
    shared = Sharing(max_bytes=8 << 20)  # of which a quarter may be held
    shared.place(ARRAY)
    kept = [shared.travel(ARRAY + i) for i in range(40)]
    for i, arrived in enumerate(kept):
        assert np.array_equal(arrived, ARRAY + i)
    (consumer,) = shared.consumers.values()
    assert consumer.viewed == 5  # of 400 KB each: six would be more than 2 MiB
    assert consumer.copied == 35
    assert shared.used_slots() == 5
    assert shared.refused == {UNMAPPED: 1}
    kept.clear()
    del arrived
    assert shared.used_slots() == 0
    shared.travel(ARRAY)
    assert consumer.viewed == 6


def test_views_may_be_let_go_of_in_any_thread(sharing):
    arrived = [sharing.travel(ARRAY + i) for i in range(8)]
    cycle: list[object] = [arrived.pop()]
    cycle.append(cycle)
    del cycle
    threads = [threading.Thread(target=arrived.pop) for _ in range(7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert sharing.used_slots() == 0


def test_a_place_of_which_nothing_is_known_makes_a_pack_malformed(sharing):
    kind, placed = sharing.place(ARRAY)
    body = sharing.pack(kind, placed)
    sharing.consumers[1].withdrawn(PRODUCER, 1)
    with pytest.raises(MalformedPack, match="lies where nothing is"):
        sharing.arrives(body)


def test_who_comes_too_late_for_a_slot_gets_nothing_of_another_event(sharing):
    kind, placed = sharing.place(ARRAY)
    body = sharing.pack(kind, placed)
    del placed
    sharing.acknowledged()  # as if this consumer had been gone
    _, again = sharing.place(np.zeros_like(ARRAY))
    with pytest.raises(MalformedPack, match="generation"):
        sharing.arrives(body)
    del again
    assert sharing.used_slots() == 0


# ---- loans ----


def test_a_loaned_array_is_not_copied(sharing):
    loaned = sharing.loan((200, 50), np.dtype("f8"))
    loaned[:] = 3.5
    address = loaned.ctypes.data
    arrived = sharing.publish_loan(loaned)
    assert arrived.shape == (200, 50)
    assert arrived.dtype == np.float64
    assert (arrived == 3.5).all()
    assert loaned.ctypes.data == address
    del loaned, arrived
    assert sharing.used_slots() == 0


@pytest.mark.parametrize("dtype", ["u1", "f8", "<i2", ">f4", "c16", [("price", "f8"), ("name", "S9")], "?"])
@pytest.mark.parametrize("shape", [(70_000,), (300, 400), (1, 70_000, 1)])
def test_loans_of_all_types_and_shapes_arrive(sharing, dtype, shape):
    loaned = sharing.loan(shape, np.dtype(dtype))
    loaned[...] = np.zeros((), dtype)
    arrived = sharing.publish_loan(loaned)
    assert arrived.dtype == np.dtype(dtype)
    assert arrived.shape == shape
    assert arrived.tobytes() == loaned.tobytes()


def test_a_loan_of_times_is_copied(sharing):
    loaned = sharing.loan((10_000,), np.dtype("M8[ns]"))  # whose pickle has them within
    loaned[:] = np.datetime64("2026-01-01")
    assert sharing.publish_loan(loaned) is None
    assert (sharing.travel(loaned) == loaned).all()


def test_a_published_loan_can_not_be_written(sharing):
    loaned = sharing.loan((10_000,), np.dtype("i8"))
    loaned[:] = 1
    arrived = sharing.publish_loan(loaned)
    with pytest.raises(ValueError, match="read-only"):
        loaned[0] = 2
    assert (arrived == 1).all()


def test_a_loan_of_which_there_is_another_view_is_copied_and_becomes_read_only(sharing):
    loaned = sharing.loan((10_000,), np.dtype("i8"))
    view = loaned[:50]
    assert sharing.publish_loan(loaned) is None
    assert sharing.refused[VIEWED] == 1
    assert not loaned.flags.writeable
    view[:] = 9  # and nobody has seen it
    del view
    assert (sharing.publish_loan(loaned)[:50] == 9).all()  # published again, when nobody can write it


def test_a_loan_may_be_published_again(sharing):
    loaned = sharing.loan((10_000,), np.dtype("i8"))
    loaned[:] = 4
    first, second = sharing.publish_loan(loaned), sharing.publish_loan(loaned)
    assert (first == second).all()
    del loaned, first
    assert sharing.used_slots() == 1
    assert (second == 4).all()


def test_a_loan_that_is_dropped_goes_back(sharing):
    loaned = sharing.loan((10_000,), np.dtype("i8"))
    assert sharing.used_slots() == 1
    del loaned
    assert sharing.used_slots() == 0


def test_a_loan_that_the_producer_keeps_is_not_used_again(sharing):
    loaned = sharing.loan(ARRAY.shape, ARRAY.dtype)
    loaned[:] = ARRAY
    arrived = sharing.publish_loan(loaned)
    del arrived
    for _ in range(40):
        sharing.travel(np.zeros_like(ARRAY))
    assert np.array_equal(loaned, ARRAY)


def test_a_small_loan_is_in_no_segment_and_given_up_too(sharing):
    loaned = sharing.loan((100,), np.dtype("f8"))
    assert sharing.used_slots() == 0
    assert sharing.refused == {UNMAPPED: 1}
    assert sharing.publish_loan(loaned) is None
    assert not loaned.flags.writeable


def test_other_arrays_are_no_loans(sharing):
    for other in (np.zeros(10), np.zeros(10)[2:], np.frombuffer(bytes(80))):
        sharing.store.give_up(other, sharing.refuse)
        assert sharing.store.placed(other) is None


# ---- bounds and refusals ----


def test_nothing_is_reserved_past_the_bound():
    shared = Sharing(max_bytes=4 << 20)
    shared.place(ARRAY)
    leased = [shared.place(ARRAY)[1] for _ in range(12)]
    in_segments = [each for each in leased if isinstance(each, Placed)]
    assert len(in_segments) == 9  # slots of 448 KiB, and one granule for their generations
    assert shared.refused == {UNMAPPED: 1, BOUND: 3}
    assert shared.store._arenas.reserved_bytes <= 4 << 20
    del leased, in_segments
    assert isinstance(shared.place(ARRAY)[1], Placed)
    shared.store.validate()


def test_what_is_larger_than_the_bound_goes_otherwise():
    shared = Sharing(max_bytes=1 << 20)
    assert not isinstance(shared.place(np.zeros(1 << 18))[1], Placed)
    assert shared.refused == {BOUND: 1}
    shared.loan((1 << 18,), np.dtype("f8"))
    assert shared.used_slots() == 0


def test_without_a_bound_it_is_a_share_of_what_is_left(monkeypatch):
    monkeypatch.setattr(segment_store, "left_bytes", lambda: 64 << 20)
    shared = Sharing(max_bytes=None)
    shared.place(ARRAY)
    leased = [shared.place(ARRAY) for _ in range(40)]
    reserved = shared.store._arenas.reserved_bytes
    assert 0 < reserved <= ((64 << 20) + reserved) / 8
    assert shared.refused[BOUND] > 0
    del leased


def test_a_given_bound_is_cut_to_what_is_left(monkeypatch):
    monkeypatch.setattr(segment_store, "left_bytes", lambda: 2 << 20)
    shared = Sharing(max_bytes=1 << 40)
    assert not isinstance(shared.place(np.zeros(1 << 18))[1], Placed)  # 2 MiB, where one may be had
    assert shared.refused == {BOUND: 1}
    assert shared.store._arenas.reserved_bytes == 0


def test_where_the_kernel_refuses_the_event_goes_otherwise(monkeypatch):
    def refuse(*arguments: object, is_ours: bool) -> None:
        raise OSError(12, "no memory")

    monkeypatch.setattr(segment_store, "MemoryFile", refuse)
    shared = Sharing()
    for _ in range(3):
        assert not isinstance(shared.place(ARRAY)[1], Placed)
    assert shared.refused == {KERNEL: 3}


def test_what_is_not_used_is_given_back(sharing):
    arrived = sharing.travel(ARRAY)
    sharing.store.tick(1e9)
    assert sharing.withdrawn == []
    del arrived
    sharing.store.tick(2e9)
    assert sharing.withdrawn == [(1, 1)]
    assert sharing.store._arenas.reserved_bytes == 0
    sharing.place(ARRAY)
    assert np.array_equal(sharing.travel(ARRAY), ARRAY)
    assert IDLE_SECONDS > 0


def test_views_outlive_an_arena_that_was_withdrawn(sharing):
    arrived = sharing.travel(ARRAY)
    sharing.consumers[1].withdrawn(PRODUCER, 1)
    sharing.consumers[1].endpoint_gone(PRODUCER)
    sharing.store.close()
    gc.collect()
    assert np.array_equal(arrived, ARRAY)


def test_nothing_is_reserved_for_whom_it_can_not_be_handed_over():
    shared = Sharing((1, 2))
    shared.unreachable.add(2)
    assert not isinstance(shared.place(ARRAY)[1], Placed)
    assert shared.store._arenas.reserved_bytes == 0
    shared.unreachable.clear()
    shared.place(ARRAY)
    assert isinstance(shared.place(ARRAY)[1], Placed)


def test_what_was_offered_on_a_link_that_is_lost_is_offered_again(monkeypatch):
    shared = Sharing()
    offers: list[object] = []

    def offer(*offer: object) -> bool:
        offers.append(offer)
        return True

    monkeypatch.setattr(shared, "offer", offer)
    for _ in range(3):
        shared.place(ARRAY)
    assert len(offers) == 1
    shared.store.path_lost(1)
    shared.place(ARRAY)
    assert len(offers) == 2


# ---- limits of the system ----


def test_without_descriptors_events_go_otherwise_and_nobody_fails():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_now = max(int(name) for name in os.listdir("/proc/self/fd"))
    shared = Sharing()
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 1, hard))
        spare = []
        while True:
            try:
                spare.append(os.dup(0))
            except OSError:
                break
        assert not isinstance(shared.place(ARRAY)[1], Placed)
        assert shared.refused == {DESCRIPTORS: 1}
        shared.loan((10_000,), np.dtype("f8"))
        assert shared.used_slots() == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in spare:
            os.close(descriptor)
    wait_until(lambda: isinstance(shared.place(ARRAY)[1], Placed))


def test_a_consumer_without_descriptors_declines(sharing):
    consumer = sharing.consumers[1]
    assert consumer.offered(PRODUCER, 99, 1 << 20, []) is False
    assert np.array_equal(sharing.travel(ARRAY), ARRAY)


CGROUPS = Path("/sys/fs/cgroup")
IN_A_GROUP = """
import os, sys
from pathlib import Path
Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
import numpy as np
from echannel_ray.core.segments import Placed
from tests.endpoint.sharing import Sharing
shared = Sharing(max_bytes=None)
array = np.zeros(100_000)
leased = [shared.place(array)[1] for _ in range(600)]
print(shared.store._arenas.reserved_bytes, sum(isinstance(each, Placed) for each in leased), dict(shared.refused))
"""


def _group(name: str, limit_bytes: int) -> Path | None:
    """A control group with that much memory, if one can be made here."""
    for folder, limit in ((CGROUPS, "memory.max"), (CGROUPS / "memory", "memory.limit_in_bytes")):
        path = folder / name
        try:
            path.mkdir()
        except OSError:
            continue
        if (path / limit).exists():
            (path / limit).write_text(str(limit_bytes))
            return path
        path.rmdir()
    return None


def test_in_a_control_group_segments_have_a_share_of_what_that_has_left():
    limit_bytes = 1 << 30
    group = _group(f"echannel-test-{os.getpid()}", limit_bytes)
    if group is None:
        pytest.skip("needs a control group for memory, and none can be made here")
    try:
        ran = subprocess.run(
            [sys.executable, "-c", IN_A_GROUP, str(group)],
            check=False,
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert ran.returncode == 0, ran.stderr
        reserved, in_segments, refused = ran.stdout.split(maxsplit=2)
        assert 0 < int(reserved) <= limit_bytes / 8
        assert 0 < int(in_segments) < 600
        assert "bound" in refused
    finally:
        wait_until(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


# ---- deaths ----


def test_what_a_process_held_is_free_when_it_has_died(sharing):
    arrived = sharing.travel(ARRAY)
    held = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    sharing.store.mapped(1, 1, held.pid)
    os.kill(held.pid, signal.SIGKILL)
    held.wait(timeout=30)
    sharing.store.endpoint_gone(1)
    assert sharing.used_slots() == 0
    del arrived


def test_what_a_process_holds_that_has_left_stays_until_it_lets_go(sharing):
    arrived = sharing.travel(ARRAY)
    sharing.store.endpoint_gone(1)
    sharing.place(ARRAY, ())
    assert sharing.used_slots() >= 1
    assert np.array_equal(arrived, ARRAY)
    del arrived
    assert sharing.used_slots() == 0


def test_a_child_of_a_fork_frees_nothing_of_its_parent(sharing):
    arrived = sharing.travel(ARRAY)
    child = os.fork()
    if not child:
        sharing.consumers[1].forget()
        del arrived
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert sharing.used_slots() == 1
    assert np.array_equal(arrived, ARRAY)


def test_the_kinds_of_the_pack_are_the_inner_ones(sharing):
    kind, placed = sharing.place(ARRAY.tobytes())
    assert kind == PLAIN
    assert sharing.arrives(sharing.pack(kind, placed)) == ARRAY.tobytes()
