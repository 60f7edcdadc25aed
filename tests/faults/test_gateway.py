"""A gateway's clients, while its concentrator is killed: what was committed is there once, and readers go on."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
import ray

import echannel_ray as ec
from echannel_ray.gateway.client import GatewayClient
from echannel_ray.logs.entries import Chosen, Missing, WriteAttempt
from tests.api.parties import Inbox, Party, ask
from tests.clusters import on
from tests.faults.scene import Scene, kill

SCHEMA = pa.schema([("number", pa.int64()), ("word", pa.string())])
ROWS = 1000  # of a batch
ON_DISK = {"disk": True}


def batches(first: int, count: int) -> list[pa.RecordBatch]:
    made = []
    for at in range(first, first + count * ROWS, ROWS):
        numbers = range(at, at + ROWS)
        made.append(pa.record_batch([pa.array(numbers), pa.array([str(each) for each in numbers])], schema=SCHEMA))
    return made


@pytest.fixture(scope="module")
def client(scene: Scene) -> Iterator[GatewayClient]:
    with GatewayClient(str(ec.connect(scene.namespace).gateway())) as made:
        yield made


@pytest.fixture
def name(client: GatewayClient, request: pytest.FixtureRequest) -> str:
    client.channel(request.node.name, SCHEMA, ON_DISK)
    return str(request.node.name)


def kill_concentrator(scene: Scene) -> None:
    head = scene.cluster.nodes[0].node_id[:16]
    kill(scene.pids()[f"{scene.namespace}:concentrator-{head}"])


def numbers_in(client: GatewayClient, name: str) -> list[int]:
    logs = client.offsets(name)
    return [
        number
        for log, (first, behind) in logs.items()
        for batch in client.read(name, log, first, behind)
        for number in batch.column("number").to_pylist()
    ]


@pytest.fixture
def seen(scene: Scene, name: str) -> Iterator[Inbox]:
    """What an ordinary consumer gets, from the beginning on."""
    inbox = Inbox()
    channel = ec.channel(name, namespace=scene.namespace)
    with channel.subscribe(inbox, start="earliest"):
        yield inbox


def numbers_of(inbox: Inbox, count: int) -> list[int]:
    return [record.number for record in inbox.wait(count)]


def test_killed_in_mid_stage(scene, client, name, seen):
    killed = threading.Event()

    def source():
        for i, batch in enumerate(batches(0, 40)):
            if i == 20:
                kill_concentrator(scene)
                killed.set()
            yield batch

    staged = client.stage(name, WriteAttempt("write", 0, 0), source())
    assert killed.is_set()
    assert client.commit(name, "write", [Chosen(0, 0, staged)]).next == 40 * ROWS
    assert numbers_of(seen, 40 * ROWS) == [*range(40 * ROWS)]
    assert numbers_in(client, name) == [*range(40 * ROWS)]


def test_killed_before_the_commit(scene, client, name, seen):
    staged = [
        client.stage(name, WriteAttempt("write", partition, 7), batches(partition * ROWS, 1)) for partition in (0, 1)
    ]
    client.stage(name, WriteAttempt("write", 0, 8), batches(500_000, 3))  # of an attempt that loses
    kill_concentrator(scene)
    done = client.commit(name, "write", [Chosen(i, 7, count) for i, count in enumerate(staged)])
    assert (done.first, done.next, done.repeated) == (0, 2 * ROWS, False)
    assert numbers_of(seen, 2 * ROWS) == [*range(2 * ROWS)]


@pytest.mark.parametrize("delay_seconds", [0.0, 0.001, 0.004])
def test_killed_during_the_commit(scene, client, name, seen, delay_seconds):
    staged = client.stage(name, WriteAttempt("write", 0, 0), batches(0, 20))
    pids = scene.pids()
    head = scene.cluster.nodes[0].node_id[:16]
    killer = threading.Timer(delay_seconds, kill, [pids[f"{scene.namespace}:concentrator-{head}"]])
    killer.start()
    done = client.commit(name, "write", [Chosen(0, 0, staged)])  # said again, where the answer was lost
    killer.join()
    assert (done.first, done.next) == (0, 20 * ROWS)
    assert numbers_of(seen, 20 * ROWS) == [*range(20 * ROWS)]
    assert numbers_in(client, name) == [*range(20 * ROWS)]


def test_killed_after_the_commit_and_said_again(scene, client, name, seen):
    staged = client.stage(name, WriteAttempt("write", 0, 0), batches(0, 2))
    client.commit(name, "write", [Chosen(0, 0, staged)])
    kill_concentrator(scene)
    assert client.commit(name, "write", [Chosen(0, 0, staged)]).repeated
    assert client.abort(name, "write") is False
    client.stage(name, WriteAttempt("write", 0, 1), batches(90_000, 2))  # a straggler
    assert client.staged_bytes(name) == 0
    assert numbers_of(seen, 2 * ROWS) == [*range(2 * ROWS)]
    assert len(numbers_in(client, name)) == 2 * ROWS


def test_a_group_goes_on_where_it_acknowledged(scene, client, name):
    client.publish(name, batches(0, 3))
    ((log, start),) = client.group(name, "query", "earliest", 600).items()
    assert start == 0
    client.acknowledge(name, "query", {log: 2 * ROWS}, 600)
    kill_concentrator(scene)
    assert client.group(name, "query", "earliest", 600) == {log: 2 * ROWS}
    assert numbers_in(client, name) == [*range(3 * ROWS)]


def test_what_actors_publish_on_all_nodes_is_read_by_one_gateway(scene, client, name):
    client.publish(name, batches(0, 1))
    (rows,) = batches(5000, 1)
    namespace = scene.namespace

    def publish(party: Party) -> None:
        with ec.channel(name, SCHEMA, namespace=namespace).producer() as producer:
            producer.publish_many(rows.slice(0, 100))
            producer.drain()

    ask(scene.keep(ray.remote(Party).options(**on(scene.cluster.nodes[1])).remote()), publish)
    logs = client.offsets(name)
    assert sorted(behind for _, behind in logs.values()) == [100, ROWS]
    kill_concentrator(scene)
    assert sorted(numbers_in(client, name)) == [*range(ROWS), *range(5000, 5100)]


def test_what_was_asked_for_and_is_forgotten(scene, client):
    client.channel("bounded", SCHEMA, {**ON_DISK, "max_bytes": 100_000})
    client.publish("bounded", batches(0, 50))
    ((log, (first, behind)),) = client.offsets("bounded").items()
    assert 0 < first < behind == 50 * ROWS
    with pytest.raises(Missing) as caught:
        [*client.read("bounded", log, 0, behind)]
    assert (caught.value.first, caught.value.next) == (0, first)


def test_a_group_with_a_lease_holds_what_it_has_not_acknowledged(client):
    client.channel("held", SCHEMA, {**ON_DISK, "max_bytes": 100_000})
    client.group("held", "query", "earliest", 600)
    client.publish("held", batches(0, 50))
    ((log, (first, behind)),) = client.offsets("held").items()
    assert (first, behind) == (0, 50 * ROWS)
    client.acknowledge("held", "query", {log: 49 * ROWS}, 600)
    client.publish("held", batches(0, 1))
    assert client.offsets("held")[log][0] > 0
