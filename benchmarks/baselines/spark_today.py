"""How rows of Spark get into a Ray actor without channels: rows pickled into a socket, collected, or as Parquet."""

from __future__ import annotations

import pickle
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import ray

from echannel_ray.benchmarks.baselines import frames
from echannel_ray.benchmarks.harness.closing import Closing
from echannel_ray.benchmarks.harness.field import answer, start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

ROWS_OF_A_FRAME = 1000  # rows one by one would be slower still
ARRIVAL_SECONDS = 120.0


class RowTaker:
    """Takes rows in each of the ways, and counts them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._rows = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    def address(self) -> Any:
        """Where the socket listens."""
        return self._listener.getsockname()

    def _accept(self) -> None:
        while True:
            link, _ = self._listener.accept()
            threading.Thread(target=self._take, args=(link,), daemon=True).start()

    def _take(self, link: socket.socket) -> None:
        with link:
            for _, body in frames.frames(link):
                rows = pickle.loads(body)
                with self._changed:
                    self._rows += len(rows)
                    self._changed.notify_all()

    def await_rows(self, rows: int) -> None:
        """Until so many came by the socket since the last call."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._rows >= rows, ARRIVAL_SECONDS):
                raise TimeoutError(f"only {self._rows} of {rows} rows came")
            self._rows = 0

    def take(self, rows: Any) -> int:
        """What `ray.put` was given."""
        return len(rows)

    def read(self, folder: str) -> tuple[int, float]:
        """The rows of a folder of Parquet; the time when the first batch was here."""
        rows, first_at = 0, 0.0
        for batch in ds.dataset(folder, format="parquet").to_batches():
            first_at = first_at or time.monotonic()
            rows += batch.num_rows
        return rows, first_at


class SparkToday(Closing):
    """An actor, and what programs do to give it a DataFrame's rows: each method returns when it has them all."""

    def __init__(self) -> None:
        self._actor = start(RowTaker)
        self._address = answer(self._actor.address.remote())
        self._folder = tempfile.mkdtemp(prefix="parquet-")

    def pickle_rows(self, frame: DataFrame, rows: int) -> None:
        """`foreachPartition`, tuples pickled by the thousand, and a socket to the actor."""
        frame.foreachPartition(sender(tuple(self._address)))
        answer(self._actor.await_rows.remote(rows))

    def collect(self, frame: DataFrame, rows: int) -> None:
        """`collect` and `ray.put`."""
        self._put(frame.collect(), rows)

    def to_pandas(self, frame: DataFrame, rows: int) -> None:
        """`toPandas` and `ray.put`."""
        self._put(frame.toPandas(), rows)

    def to_arrow(self, frame: DataFrame, rows: int) -> None:
        """`toArrow` and `ray.put`."""
        self._put(frame.toArrow(), rows)

    def _put(self, value: Any, rows: int) -> None:
        assert answer(self._actor.take.remote(ray.put(value))) == rows

    def parquet(self, frame: DataFrame, rows: int) -> float:
        """Parquet, written and then read in the actor; the time when its first batch was there."""
        path = Path(self._folder, "rows")
        try:
            frame.write.mode("overwrite").parquet(str(path))
            count, first_at = answer(self._actor.read.remote(str(path)))
        finally:
            shutil.rmtree(path, ignore_errors=True)
        assert count == rows
        return float(first_at)

    def close(self) -> None:
        """End the actor."""
        ray.kill(self._actor)
        shutil.rmtree(self._folder, ignore_errors=True)


def sender(address: tuple[str, int]) -> Callable[[Iterable[Row]], None]:
    """What a task does with its rows."""

    def send(rows: Iterable[Row]) -> None:
        with socket.create_connection(address) as link:
            taken = iter(rows)
            while some := [tuple(row) for row in islice(taken, ROWS_OF_A_FRAME)]:
                frames.send_large(link, frames.RAW, pickle.dumps(some, 5))

    return send
