"""Files that a log stands for, and that are no longer what was published: what is gone is told, and the rest comes."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import echannel_ray as ec
from echannel_ray.gateway.client import GatewayClient
from echannel_ray.logs.entries import Chosen, WriteAttempt
from echannel_ray.logs.files import Files
from tests.api.parties import SOON

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])
READERS = {
    "directly": lambda channel: channel.subscribe(start="earliest"),
    "behind-a-modulator": lambda channel: channel.subscribe(start="earliest", modulator=ec.FIFOModulator()),
    "behind-ecode": lambda channel: channel.derive("id >= 0").subscribe(start="earliest"),
}


def write(path, first, count=10):
    pq.write_table(pa.table([range(first, first + count)], schema=SCHEMA), path)


def replace(path):
    write(path, 0, count=3)


def replace_by_nonsense(path):
    path.write_bytes(b"this is no Parquet")


def delete(path):
    path.unlink()


@pytest.fixture
def files(nodes, name, tmp_path):
    """Three of them, of ten rows each, are what the channel of this name retains."""
    paths = [tmp_path / f"{number}.parquet" for number in range(3)]
    endpoint = ec.connect().gateway(files=(f"{tmp_path}/*",))
    with GatewayClient(str(endpoint), patience_seconds=SOON) as client:
        client.channel(name, SCHEMA, {"disk": True})
        for number, path in enumerate(paths):
            write(path, 10 * number)
            staged = client.stage_files(name, WriteAttempt(path.name, 0, 0), Files((str(path),), (10,)))
            client.commit(name, path.name, [Chosen(0, 0, staged)])
    return paths


def next_of(subscription):
    try:
        return subscription.get(timeout=SOON)["id"]
    except ec.EventsMissing as missing:
        return "can't be read" in str(missing), missing.first, missing.last


@pytest.mark.parametrize("harm", [replace, replace_by_nonsense, delete])
@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_what_a_file_held_is_missing_and_what_follows_comes(files, name, harm, reader):
    harm(files[1])
    with reader(ec.channel(name)) as subscription:
        came = [next_of(subscription) for _ in range(21)]
        assert subscription.stats().dropped == 10
        subscription.drain(timeout=SOON)  # what was told does not wait to be handled
    told = (True, 10, 19)
    assert [each for each in came if each != told] == [*range(10), *range(20, 30)]
    # What a sandbox has at that time may come later than what is told.
    assert reader is READERS["behind-a-modulator"] or came.index(told) == 10
