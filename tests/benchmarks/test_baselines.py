"""Baselines in processes of their own: all that is sent arrives, and they end."""

from __future__ import annotations

from collections.abc import Callable

import psutil
import pytest

from echannel_ray.benchmarks.baselines.one_copy import SLOTS, OneCopy
from echannel_ray.benchmarks.baselines.peers import Peers
from echannel_ray.benchmarks.baselines.pyzmq import BareDealers
from echannel_ray.benchmarks.baselines.sockets import BareSockets
from echannel_ray.benchmarks.baselines.zenoh_shared import ZenohShared
from echannel_ray.benchmarks.harness import payloads

EVENTS = [bytes(range(256)) * 32, bytes(8192)]
COUNT = 5 * SLOTS + 3  # slots are used again, and not all of them equally often


def ended(*pids: int) -> bool:
    return not any(psutil.pid_exists(pid) for pid in pids)


@pytest.mark.parametrize("is_read", [True, False])
def test_one_copy_carries_more_than_it_has_slots(is_read):
    with OneCopy(len(EVENTS[0]), is_read) as pair:
        pids = [*pair.source_pids, *pair.other_pids]
        assert pair.rate(EVENTS, COUNT) > 0
        assert pair.rate(EVENTS, 1) > 0
    assert ended(*pids)


@pytest.mark.parametrize("nodes", [0, 1])
def test_bare_sockets_go_straight_or_by_a_relay(nodes):
    with BareSockets(nodes) as bare:
        pids = [*bare.source_pids, *bare.other_pids]
        assert len(pids) == 2 + nodes
        assert bare.round_trip_seconds(b"there and back", 10) > 0
        assert bare.large_rate(EVENTS, COUNT) > 0  # which counts what has arrived
        assert bare.large_rate(EVENTS, COUNT, is_read=True) > 0
    assert ended(*pids)


@pytest.mark.parametrize("make", [lambda: BareDealers("tcp"), lambda: BareDealers("ipc")], ids=["tcp", "ipc"])
def test_bare_dealers_answer(make: Callable[[], Peers]):
    with make() as peers:
        pids = [*peers.source_pids, *peers.other_pids]
        assert peers.round_trip_seconds(b"there and back", 10) > 0
        assert peers.lost_share == 0
    assert ended(*pids)


def test_zenoh_carries_what_is_in_shared_memory():
    with ZenohShared() as pair:
        pids = [*pair.source_pids, *pair.other_pids]
        assert pair.rate(EVENTS, COUNT) > 0
        assert pair.lost_share == 0
    assert ended(*pids)


def test_small_events_are_of_their_kind():
    for kind, cls in {"null": type(None), "integer": int, "text": str, "small dict": dict}.items():
        assert {type(event) for event in payloads.events_of(kind, seed=1)} == {cls}
