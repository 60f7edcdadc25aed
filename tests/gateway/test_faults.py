"""The gateway's process is killed in the middle of things, and comes back: nothing is lost or doubled."""

from __future__ import annotations

import random
import threading
from contextlib import contextmanager

import pytest

from echannel_ray import errors
from echannel_ray.gateway.client import GatewayClient
from echannel_ray.logs.entries import Chosen, Committed, WriteAttempt
from tests.gateway.rows import ON_DISK, SCHEMA, batches_of, numbers_in

ROWS = 2000
ALL = list(range(ROWS))


@contextmanager
def dying(server, fault):
    """A client of a server that will be killed by a fault, and comes back."""
    server.start(fault)
    server.restart_when_dead()
    with GatewayClient(server.endpoint, patience_seconds=60) as client:
        client.channel("rows", SCHEMA, ON_DISK)
        yield client


def write(client, write_id="w", partitions=1) -> Committed:
    """All rows, each partition with some, in 20 batches."""
    each = ROWS // partitions
    chosen = [
        Chosen(
            at,
            0,
            client.stage("rows", WriteAttempt(write_id, at, 0), batches_of(each, each=each // 20, first=at * each)),
        )
        for at in range(partitions)
    ]
    committed: Committed = client.commit("rows", write_id, chosen)
    return committed


@pytest.mark.parametrize("fault", ["stage:1:before", "stage:7:before", "stage:8:after", "stage:20:after"])
def test_killed_while_rows_are_staged(server, fault):
    with dying(server, fault) as client:
        write(client)
        server.restarted()
        assert numbers_in(client, "rows") == ALL


@pytest.mark.parametrize("generator", [True, False])
def test_rows_that_can_be_made_once_only_are_kept_to_be_sent_again(server, generator):
    with dying(server, "stage:11:after") as client:
        batches = batches_of(ROWS)
        entries = client.stage("rows", WriteAttempt("w", 0, 0), iter(batches) if generator else batches)
        server.restarted()
        client.commit("rows", "w", [Chosen(0, 0, entries)])
        assert numbers_in(client, "rows") == ALL


@pytest.mark.parametrize(("fault", "was_done"), [("commit:1:before", False), ("commit:1:after", True)])
def test_killed_at_the_commit(server, fault, was_done):
    """Before it, and after it with its answer lost."""
    with dying(server, fault) as client:
        assert write(client, partitions=4) == Committed(0, ROWS, repeated=was_done)
        server.restarted()
        assert numbers_in(client, "rows") == ALL
        assert client.abort("rows", "w") is False
        assert client.staged_bytes("rows") == 0


@pytest.mark.parametrize("fault", ["abort:1:before", "abort:1:after"])
def test_killed_at_an_abort(server, fault):
    with dying(server, fault) as client:
        client.stage("rows", WriteAttempt("w", 0, 0), batches_of(ROWS))
        client.abort("rows", "w")
        server.restarted()
        client.stage("rows", WriteAttempt("w", 0, 1), batches_of(ROWS))
        assert client.staged_bytes("rows") == 0
        assert numbers_in(client, "rows") == []


@pytest.mark.parametrize("fault", ["read:1:before", "read:5:after"])
def test_killed_while_rows_are_read(server, fault):
    rows = 200_000  # several megabytes
    with dying(server, fault) as client:
        entries = client.stage("rows", WriteAttempt("w", 0, 0), batches_of(rows, each=10_000))
        client.commit("rows", "w", [Chosen(0, 0, entries)])
        assert numbers_in(client, "rows") == list(range(rows))
        server.restarted()


def test_killed_at_random_times(server):
    """Each write is there once, in whole, whenever it was that the process was killed."""
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    rounds = 8
    server.start()
    with GatewayClient(server.endpoint, patience_seconds=60) as client:
        client.channel("rows", SCHEMA, ON_DISK)
        done: list[Committed] = []
        for number in range(rounds):
            killing = threading.Timer(chance.uniform(0, 0.12), server.kill)
            server.restart_when_dead()
            killing.start()
            while killing.is_alive() or server.is_restarting:
                done.append(write(client, f"w{number}-{len(done)}", partitions=4))
            killing.join()
        behind = 0
        for committed in done:
            assert (committed.first, committed.next) == (behind, behind + ROWS), seed
            behind = committed.next
        assert numbers_in(client, "rows") == ALL * len(done), seed


def test_publishing_is_not_repeated(server):
    """Only the caller knows whether rows may come twice."""
    with dying(server, "publish:3:after") as client:
        with pytest.raises(errors.Disconnected, match="call again"):
            client.publish("rows", batches_of(ROWS))
        server.restarted()
        assert numbers_in(client, "rows") == list(range(300))
        assert client.publish("rows", batches_of(100, first=300)) == 100
        assert numbers_in(client, "rows") == list(range(400))


@pytest.mark.parametrize("fault", ["publish:1:before", "publish:11:after"])
def test_publishing_is_repeated_where_rows_may_come_twice(server, fault):
    with dying(server, fault) as client:
        assert client.publish("rows", iter(batches_of(ROWS)), may_repeat=True) == ROWS
        server.restarted()
        numbers = numbers_in(client, "rows")
        assert sorted(set(numbers)) == ALL
        assert len(numbers) < 2 * ROWS  # from the first that was not acknowledged, and not from the beginning


def test_a_group_goes_on_where_it_was(server):
    with dying(server, "acknowledge:2:after") as client:
        client.publish("rows", batches_of(ROWS))
        log = client.channel("rows").log
        client.group("rows", "g", "earliest", 60)
        client.acknowledge("rows", "g", {log: 700}, 60)
        client.acknowledge("rows", "g", {log: 1500}, 60)
        server.restarted()
        assert client.group("rows", "g", "earliest", 60) == {log: 1500}


def test_patience_ends(server):
    server.start("stage:3:before")
    with GatewayClient(server.endpoint, patience_seconds=0.3) as client:
        client.channel("rows", SCHEMA, ON_DISK)
        with pytest.raises(errors.Disconnected, match="can't be reached"):
            client.stage("rows", WriteAttempt("w", 0, 0), batches_of(ROWS))
        with pytest.raises(errors.Disconnected):
            client.commit("rows", "w", [])
