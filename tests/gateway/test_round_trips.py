"""What goes in by a gateway comes out of it."""

from __future__ import annotations

import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from echannel_ray.gateway.client import GatewayClient
from echannel_ray.gateway.server import Gateway
from echannel_ray.logs.entries import Chosen, Committed, WriteAttempt
from tests.gateway.rows import ON_DISK, SCHEMA, batch_of, batches_of, numbers_in, numbers_of


def test_channels_are_made_and_opened(client):
    made = client.channel("new", SCHEMA, {"disk": True, "max_bytes": 1 << 30})
    assert (made.name, made.schema, made.is_retained, made.is_on_disk) == ("new", SCHEMA, True, True)
    assert client.channel("new") == made
    assert client.channel("new", SCHEMA).log == made.log
    assert set(client.offsets("new")) == {made.log}


def test_published_rows_are_read_again(client):
    assert client.publish("rows", batches_of(5000)) == 5000
    assert numbers_in(client, "rows") == list(range(5000))


def test_a_range_of_the_rows_is_read(client):
    client.publish("rows", batches_of(1000))
    log = client.channel("rows").log
    assert numbers_of(client.read("rows", log, 150, 720)) == list(range(150, 720))
    assert list(client.read("rows", log, 700, 700)) == []


def test_the_schema_of_what_is_read_is_the_channels(client):
    client.publish("rows", [batch_of(0, 3).replace_schema_metadata({"of": "somebody"})])
    (batch,) = client.read("rows", client.channel("rows").log, 0, 3)
    assert batch.schema.equals(SCHEMA, check_metadata=True)


def test_nothing_is_published_or_staged_of_an_empty_stream(client):
    place = WriteAttempt("w", 0, 0)
    for nothing in ([], [batch_of(0, 0)], iter(())):
        assert client.publish("rows", nothing) == 0
        assert client.stage("rows", place, nothing) == 0
    assert client.commit("rows", "w", []) == Committed(0, 0)
    assert client.is_committed("rows", "w")


def test_large_batches_travel_in_pieces(client):
    rows = 300_000
    entries = client.stage("rows", WriteAttempt("w", 0, 0), [batch_of(0, rows)])
    assert entries >= batch_of(0, rows).nbytes >> 20 > 3
    assert client.stage("rows", WriteAttempt("w", 1, 0), [batch_of(rows, 10)], max_batch_bytes=100) >= 3
    assert client.staged_bytes("rows") > 4 << 20
    client.commit("rows", "w", [Chosen(0, 0, entries)])
    ((log, (_, behind)),) = client.offsets("rows").items()
    batches = list(client.read("rows", log, 0, behind))
    assert numbers_of(batches) == list(range(rows))
    assert max(batch.nbytes for batch in batches) < 1.2 * (1 << 20)


def test_a_write_is_committed_once_and_in_the_order_of_its_partitions(client):
    late = client.stage("rows", WriteAttempt("w", 1, 5), batches_of(200, first=300))
    early = client.stage("rows", WriteAttempt("w", 0, 0), batches_of(300))
    client.stage("rows", WriteAttempt("w", 0, 1), batches_of(100, first=9000))  # an attempt that loses
    chosen = [Chosen(1, 5, late), Chosen(0, 0, early)]
    assert client.commit("rows", "w", chosen) == Committed(0, 500)
    assert client.commit("rows", "w", chosen) == Committed(0, 500, repeated=True)
    assert numbers_in(client, "rows") == list(range(500))
    assert client.staged_bytes("rows") == 0


def test_an_abort_after_the_commit_changes_nothing(client):
    entries = client.stage("rows", WriteAttempt("w", 0, 0), batches_of(300))
    client.commit("rows", "w", [Chosen(0, 0, entries)])
    assert client.abort("rows", "w") is False
    assert client.is_committed("rows", "w")
    assert len(numbers_in(client, "rows")) == 300


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_what_is_staged_after_the_end_of_its_write_is_dropped(client, end):
    entries = client.stage("rows", WriteAttempt("w", 0, 0), batches_of(300))
    if end == "commit":
        client.commit("rows", "w", [Chosen(0, 0, entries)])
    else:
        assert client.abort("rows", "w") is True
    client.stage("rows", WriteAttempt("w", 0, 1), batches_of(300))
    assert client.staged_bytes("rows") == 0
    assert len(numbers_in(client, "rows")) == (300 if end == "commit" else 0)


def test_groups_go_on_where_they_acknowledged(client):
    client.publish("rows", batches_of(300))
    log = client.channel("rows").log
    assert client.group("rows", "early", "earliest", 60) == {log: 0}
    assert client.group("rows", "late", "latest", 60) == {log: 300}
    client.acknowledge("rows", "early", {log: 120}, 60)
    assert client.group("rows", "early", "earliest", 60) == {log: 120}


def test_rows_in_types_of_all_sorts(client):
    optional = {"optional": "true"}
    fields = [
        pa.field("n", pa.int8(), metadata=optional),
        pa.field("l", pa.list_(pa.field("item", pa.float64(), metadata=optional)), metadata=optional),
        pa.field("s", pa.struct([pa.field("x", pa.float32()), pa.field("y", pa.string())]), metadata=optional),
        pa.field("b", pa.binary()),
        pa.field("t", pa.timestamp("us", tz="UTC")),
    ]
    rows = [
        {"n": 1, "l": [1.5, None], "s": {"x": 1.5, "y": "é"}, "b": b"\0\xff", "t": 0},
        {"n": None, "l": None, "s": None, "b": b"", "t": -1},
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=pa.schema(fields))
    client.channel("all", batch.schema, ON_DISK)
    client.publish("all", [batch])
    (read,) = client.read("all", client.channel("all").log, 0, 2)
    assert read.equals(batch)


def test_dictionaries_are_decoded_on_their_way(client):
    texts = pa.array(["a", "b", "a"]).dictionary_encode()
    batch = pa.record_batch([pa.array([1, 2, 3], pa.int64()), texts], names=["number", "text"])
    client.publish("rows", [batch])
    (read,) = client.read("rows", client.channel("rows").log, 0, 3)
    assert read.column("text").to_pylist() == ["a", "b", "a"]
    assert read.schema == SCHEMA


def test_many_threads_share_a_client(client):
    def write(partition: int) -> Chosen:
        staged = client.stage("rows", WriteAttempt("w", partition, 0), batches_of(1000, first=partition * 1000))
        return Chosen(partition, 0, staged)

    with ThreadPoolExecutor(8) as pool:
        chosen = list(pool.map(write, range(8)))
    client.commit("rows", "w", chosen)
    assert numbers_in(client, "rows") == list(range(8000))


def test_clients_share_a_gateway(client):
    with GatewayClient(client.endpoint) as other, ThreadPoolExecutor(2) as pool:
        sent = list(pool.map(lambda each: each.publish("rows", batches_of(3000)), (client, other)))
    assert sent == [3000, 3000]
    assert sorted(numbers_in(client, "rows")) == sorted([*range(3000)] * 2)


def test_what_went_through_is_counted(client):
    client.publish("rows", batches_of(500))
    numbers_in(client, "rows")
    stats = client.gateway.stats()
    assert (stats["rows_in"], stats["batches_in"], stats["rows_out"]) == (500, 5, 500)
    assert stats["bytes_in"] == sum(batch.nbytes for batch in batches_of(500))
    assert stats["bytes_out"] > 0
    assert stats["clients"] == 1


def test_nothing_is_pickled(client, monkeypatch):
    def forbidden(*_, **__):
        raise AssertionError("gateways do not pickle")

    for name in ("dumps", "loads", "dump", "load", "Pickler", "Unpickler"):
        monkeypatch.setattr(pickle, name, forbidden)
    client.publish("rows", batches_of(200))
    assert numbers_in(client, "rows") == list(range(200))
    with pytest.raises(LookupError):
        client.channel("nowhere")


def test_a_gateway_and_its_client_do_without_ray():
    modules = "echannel_ray.gateway.client, echannel_ray.gateway.server, echannel_ray.logs.columns"
    check = f"import sys, {modules}; sys.exit('ray' in sys.modules or 'pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], timeout=60, check=False).returncode == 0


def test_without_pyarrow_it_is_said_what_to_install(host, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.flight", None)
    with pytest.raises(ImportError, match=r"echannel-ray\[spark\]"):
        Gateway(host, "default").start()
