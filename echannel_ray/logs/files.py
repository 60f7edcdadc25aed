"""Rows that stand in Parquet files: a log has the paths, and readers find record batches like any other."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from echannel_ray.logs.columns import ColumnWriter
from echannel_ray.logs.entries import FILE, Entry, NewEntry

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_OF_A_BLOCK: Final = 16_384  # about a megabyte


@dataclass(frozen=True)
class Files:
    """Rows in files that both sides can read, in place of batches."""

    paths: tuple[str, ...]
    rows: tuple[int, ...]  # of each file


def file_entry(files: Files, producer: str, sequence: int, published_at: float) -> NewEntry:
    """The entry of one file, whose rows are its events."""
    (_,), (rows,) = files.paths, files.rows
    return NewEntry(rows, FILE, 0, msgspec.json.encode(files), producer, sequence, published_at)


def batches_of_file(entry: Entry, start: int, stop: int) -> Iterator[pa.RecordBatch]:
    """The rows of such an entry between two offsets, a batch for each of the file's row groups, and nothing of the
    others is read. `ValueError` where it is not the file that was published, `OSError` where it is gone.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    (path,) = msgspec.json.decode(entry.data, type=Files).paths
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # whatever else it is might never end
            raise ValueError("it is no file")
        with pq.ParquetFile(path) as file:
            if file.metadata.num_rows != entry.count:
                raise ValueError(f"it has {file.metadata.num_rows} rows, and had {entry.count}")
            at = entry.first
            for number in range(file.num_row_groups):
                rows = file.metadata.row_group(number).num_rows
                begin, end = max(start - at, 0), min(stop - at, rows)
                if begin < end:
                    for batch in file.read_row_group(number).combine_chunks().to_batches():
                        yield batch.slice(begin, end - begin)
                at += rows
    except (pa.ArrowInvalid, ValueError) as error:
        raise ValueError(f"{path} is not the file that was published: {error}") from error


def entries_of_file(entry: Entry, as_bytes: bool = False) -> Iterator[Entry]:
    """Entries with the rows of a file, for readers that know blocks only. Their format is known in this process, and
    their data are record batches, unless bytes are wanted.
    """
    writer: ColumnWriter | None = None
    at = entry.first
    for batch in batches_of_file(entry, entry.first, entry.next):
        writer = writer or ColumnWriter(batch.schema)
        for begin in range(0, batch.num_rows, _ROWS_OF_A_BLOCK):
            piece = batch.slice(begin, _ROWS_OF_A_BLOCK)
            new = writer.entry(piece, entry.producer, entry.sequence + at - entry.first, entry.published_at, as_bytes)
            yield Entry(at, *new)
            at += piece.num_rows
