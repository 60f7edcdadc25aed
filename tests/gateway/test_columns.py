"""Batches as entries of logs, and entries of all kinds as batches."""

from __future__ import annotations

import json
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from echannel_ray import errors
from echannel_ray.core.kinds import BLOCK, PICKLED, RECORD
from echannel_ray.logs.columns import ColumnReader, ColumnWriter
from echannel_ray.logs.entries import FILE, Chosen, Entry, Missing, NewEntry, WriteAttempt
from echannel_ray.logs.files import Files, entries_of_file, file_entry
from echannel_ray.records import known
from echannel_ray.records.layouts import format_of_dtype
from echannel_ray.records.writer import Writer, block_of
from echannel_ray.schemas.declarations import schema_of
from tests.gateway.rows import SCHEMA, batch_of, batches_of, numbers_in, numbers_of


@dataclass
class Row:
    number: int
    text: str


def placed(new: NewEntry, first: int = 0) -> Entry:
    return Entry(first, *new)


def reader() -> ColumnReader:
    return ColumnReader(SCHEMA, schema_of(SCHEMA))


def test_a_batch_becomes_an_entry_and_again_a_batch():
    new = ColumnWriter(SCHEMA).entry(batch_of(5, 100), "somebody", 7, 1.5)
    assert (new.count, new.kind, new.producer, new.sequence, new.published_at) == (100, BLOCK, "somebody", 7, 1.5)
    (batch,) = reader().batches(placed(new, 40), 0, 1000)
    assert batch == batch_of(5, 100)


def test_only_what_lies_between_the_offsets_is_given():
    entry = placed(ColumnWriter(SCHEMA).entry(batch_of(0, 100), "", 0, 0.0), 1000)
    for start, stop in [(0, 5000), (1000, 1100), (1010, 1011), (990, 1001), (1099, 2000)]:
        expected = [number for number in range(100) if start <= 1000 + number < stop]
        assert numbers_of(reader().batches(entry, start, stop)) == expected
    assert list(reader().batches(entry, 1100, 1200)) == []
    assert list(reader().batches(entry, 0, 1000)) == []


def test_a_slice_of_a_batch_is_all_that_is_kept():
    large = batch_of(0, 100_000)
    new = ColumnWriter(SCHEMA).entry(large.slice(50_000, 10), "", 0, 0.0)
    assert len(new.data) < 2000
    assert numbers_of(reader().batches(placed(new), 0, 10)) == list(range(50_000, 50_010))


def test_columns_are_found_by_name():
    batch = batch_of(0, 3)
    swapped = pa.record_batch([batch.column("text"), batch.column("number")], names=["text", "number"])
    assert numbers_of(reader().batches(placed(ColumnWriter(SCHEMA).entry(swapped, "", 0, 0.0)), 0, 3)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("columns", "field"),
    [
        ({"number": [1]}, "text"),
        ({"number": [1], "text": ["a"], "more": [1]}, "more"),
        ({"number": [1.5], "text": ["a"]}, "number"),
        ({"number": [1], "text": [b"a"]}, "text"),
    ],
)
def test_other_columns_are_refused(columns, field):
    with pytest.raises(errors.TypeMismatch, match=field) as mismatch:
        ColumnWriter(SCHEMA).entry(pa.record_batch(columns), "", 0, 0.0)
    assert mismatch.value.field == field


def test_nulls_go_where_the_channel_has_place_for_them():
    optional = pa.schema([pa.field("number", pa.int64()), pa.field("text", pa.string(), metadata={"optional": "true"})])
    batch = pa.record_batch({"number": pa.array([1, 2]), "text": pa.array(["a", None])})
    new = ColumnWriter(optional).entry(batch, "", 0, 0.0)
    (read,) = ColumnReader(optional, schema_of(optional)).batches(placed(new), 0, 2)
    assert read.column("text").to_pylist() == ["a", None]
    with pytest.raises(errors.NotSerialisable, match="text"):
        ColumnWriter(SCHEMA).entry(batch, "", 0, 0.0)


@pytest.mark.parametrize("kind", [RECORD, BLOCK])
def test_records_of_other_encodings_become_rows(kind):
    if kind == RECORD:
        write = Writer(Row, schema_of(Row))
        format, data = write.format, msgspec.msgpack.encode([write(Row(n, f"row {n}")) for n in range(3)])  # noqa: A001
        wanted = SCHEMA
    else:
        array = np.array([(n, n / 2) for n in range(3)], dtype=[("number", "i8"), ("half", "f8")])
        format, data = format_of_dtype(array.dtype, schema_of(array.dtype)), bytes(block_of(array))  # noqa: A001
        wanted = pa.schema([pa.field("number", pa.int64()), pa.field("half", pa.float64())])
    entry = Entry(0, 3, kind, known.learn(format), data, "", 0, 0.0)
    (batch,) = ColumnReader(wanted, schema_of(wanted)).batches(entry, 0, 3)
    assert numbers_of([batch]) == [0, 1, 2]
    assert batch.schema == wanted


def test_events_of_no_type_are_no_rows():
    entry = Entry(0, 1, PICKLED, 0, msgspec.msgpack.encode([b"a pickle"]), "", 0, 0.0)
    with pytest.raises(errors.NotSerialisable, match="create the channel with a type"):
        list(reader().batches(entry, 0, 1))


def test_formats_that_are_lost_are_an_error():
    entry = placed(ColumnWriter(SCHEMA).entry(batch_of(0, 3), "", 0, 0.0), 10)
    with pytest.raises(errors.NotSerialisable, match="10 to 12"):
        list(ColumnReader(SCHEMA, schema_of(SCHEMA), lambda _: None).batches(entry, 10, 13))


def test_a_block_that_is_none_is_an_error():
    entry = placed(ColumnWriter(SCHEMA).entry(batch_of(0, 3), "", 0, 0.0))
    with pytest.raises(ValueError, match="4 records"):
        list(reader().batches(Entry(0, 4, *entry_rest(entry)), 0, 4))
    with pytest.raises(ValueError, match="block"):
        list(reader().batches(Entry(0, 3, BLOCK, entry.token, entry.data[:50], "", 0, 0.0), 0, 3))


def entry_rest(entry: Entry) -> tuple:
    return (entry.kind, entry.token, entry.data, entry.producer, entry.sequence, entry.published_at)


# ---- rows in files ----


@pytest.fixture
def parquet(tmp_path):
    """A file with 1000 rows in ten row groups."""
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_batches([batch_of(0, 1000)]), path, row_group_size=100)
    return path


def test_rows_in_a_file_are_read_by_their_offsets(parquet):
    entry = placed(file_entry(Files((str(parquet),), (1000,)), "", 0, 0.0), 5000)
    assert (entry.kind, entry.count) == (FILE, 1000)
    for start, stop in [(0, 9000), (5000, 6000), (5150, 5350), (5999, 6000), (5100, 5200)]:
        batches = list(reader().batches(entry, start, stop))
        assert numbers_of(batches) == [number for number in range(1000) if start <= 5000 + number < stop]
        assert all(batch.schema == SCHEMA for batch in batches)


def test_only_the_row_groups_that_are_asked_for_are_read(parquet, monkeypatch):
    read: list[int] = []
    of_parquet = pq.ParquetFile.read_row_group

    def read_row_group(file, number):
        read.append(number)
        return of_parquet(file, number)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", read_row_group)
    entry = placed(file_entry(Files((str(parquet),), (1000,)), "", 0, 0.0))
    next(reader().batches(entry, 350, 1000))
    assert read == [3]


def test_rows_in_a_file_become_blocks_for_who_knows_no_files(parquet):
    entry = placed(file_entry(Files((str(parquet),), (1000,)), "p", 70, 2.0), 500)
    blocks = list(entries_of_file(entry))
    assert [block.first for block in blocks] == list(range(500, 1500, 100))
    assert [block.sequence for block in blocks] == list(range(70, 1070, 100))
    assert {(block.kind, block.producer, block.published_at) for block in blocks} == {(BLOCK, "p", 2.0)}
    assert numbers_of(batch for block in blocks for batch in reader().batches(block, 0, 9999)) == list(range(1000))


def test_a_file_that_was_changed_or_is_gone_is_an_error(parquet):
    entry = placed(file_entry(Files((str(parquet),), (999,)), "", 0, 0.0))
    with pytest.raises(ValueError, match="1000 rows, and had 999"):
        list(reader().batches(entry, 0, 10))
    parquet.write_bytes(b"something else")
    with pytest.raises(ValueError, match="not the file that was published"):
        list(reader().batches(entry, 0, 10))
    parquet.unlink()
    with pytest.raises(FileNotFoundError):
        list(reader().batches(entry, 0, 10))


def test_a_file_of_other_columns_is_an_error(tmp_path):
    path = tmp_path / "other.parquet"
    pq.write_table(pa.table({"other": [1]}), path)
    with pytest.raises(ValueError, match="columns of its channel"):
        list(reader().batches(placed(file_entry(Files((str(path),), (1,)), "", 0, 0.0)), 0, 1))


def test_files_are_staged_and_read_through_a_gateway(client, parquet):
    client.publish("rows", batches_of(100, first=7000))
    files = Files((str(parquet), str(parquet)), (1000, 1000))
    assert client.stage_files("rows", WriteAttempt("w", 0, 0), files) == 2
    assert client.commit("rows", "w", [Chosen(0, 0, 2)]).next == 2100
    assert numbers_in(client, "rows") == [*range(7000, 7100), *range(1000), *range(1000)]
    log = client.channel("rows").log
    assert numbers_of(client.read("rows", log, 1050, 1150)) == [*range(950, 1000), *range(50)]
    parquet.unlink()
    with pytest.raises(Missing) as missing:
        list(client.read("rows", log, 0, 2100))
    assert json.dumps([missing.value.first, missing.value.next]) == "[100, 1100]"
