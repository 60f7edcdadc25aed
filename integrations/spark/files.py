"""Rows that go by files: attempts write Parquet into a directory of their write, and the channel says which count."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from echannel_ray.logs.entries import WriteAttempt
from echannel_ray.logs.files import Files

if TYPE_CHECKING:
    from echannel_ray.gateway.client import GatewayClient

# Of Arrow's. A reader takes a file at a time; a writer holds a group, and Spark's batches would be small ones.
_MAX_FILE_BYTES: Final = 256 << 20
_ROW_GROUP_BYTES: Final = 16 << 20


def staged(
    client: GatewayClient,
    channel: str,
    place: WriteAttempt,
    batches: Iterable[pa.RecordBatch],
    directory: str,
    schema: pa.Schema,
) -> tuple[str, ...]:
    """Write the batches into files, and stage these; where they are.

    When a write ends, all files of it that were not chosen are deleted. One that is made after that deletes itself.
    """
    prefix = _directory_of(directory, place.write) / f"{place.partition}-{place.attempt:x}"
    prefix.parent.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    rows: list[int] = []
    try:
        for part in _runs(batches, _MAX_FILE_BYTES):
            paths.append(prefix.with_name(f"{prefix.name}-{len(paths)}.parquet"))
            # Once written, once read: what makes files smaller or queries faster costs more than it brings.
            with pq.ParquetWriter(paths[-1], schema, use_dictionary=False, write_statistics=False) as writer:
                if client.is_committed(channel, place.write) or client.is_aborted(channel, place.write):
                    _remove(paths)
                    _leave(prefix.parent)
                    return ()
                rows.append(_written(part, writer))
        texts = tuple(map(str, paths))
        if texts:
            client.stage_files(channel, place, Files(texts, tuple(rows)))
    except BaseException:
        _remove(paths)
        raise
    return texts


def _runs(batches: Iterable[pa.RecordBatch], max_bytes: int) -> Iterator[Iterator[pa.RecordBatch]]:
    """The batches in runs of about so many bytes; each has to be taken before the next."""
    waiting = iter(batches)
    for first in waiting:
        yield _run(first, waiting, max_bytes)


def _run(first: pa.RecordBatch, waiting: Iterator[pa.RecordBatch], max_bytes: int) -> Iterator[pa.RecordBatch]:
    size = first.nbytes
    yield first
    while size < max_bytes and (batch := next(waiting, None)) is not None:
        size += batch.nbytes
        yield batch


def _written(batches: Iterator[pa.RecordBatch], writer: pq.ParquetWriter) -> int:
    """Write a file; how many rows it has."""
    rows = 0
    for group in _runs(batches, _ROW_GROUP_BYTES):
        table = pa.Table.from_batches(group)
        writer.write_table(table)
        rows += table.num_rows
    return rows


def remove_others(directory: str, write: str, chosen: Collection[str]) -> None:
    """Delete what attempts at a write have left that were not chosen."""
    own = _directory_of(directory, write)
    _remove([path for path in own.glob("*.parquet") if str(path) not in chosen])
    if not chosen:
        _leave(own)


def _directory_of(directory: str, write: str) -> Path:
    # People choose the names of writes: what is no part of a path in them must not lead elsewhere.
    return Path(directory).resolve() / hashlib.blake2b(write.encode(), digest_size=16).hexdigest()


def _leave(directory: Path) -> None:
    """Delete the directory of a write that has ended; where a late attempt has just made a file, it will do so."""
    try:
        directory.rmdir()
    except OSError:
        pass  # there are files, or it is gone


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
