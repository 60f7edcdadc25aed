"""Batches of Arrow into another process, with nothing between: by Arrow Flight into an actor, and by a TCP socket."""

from __future__ import annotations

import time
from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import Any

import pyarrow as pa
import ray
from pyarrow import flight

from echannel_ray.benchmarks.baselines.ends import sink, source
from echannel_ray.benchmarks.harness.child import Child, requests
from echannel_ray.benchmarks.harness.closing import Closing
from echannel_ray.benchmarks.harness.field import answer, start


class _Server(flight.FlightServerBase):  # type: ignore[misc]
    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        for chunk in reader:
            assert chunk.data.num_rows


class FlightTaker:
    """Takes batches."""

    def __init__(self) -> None:
        self._server = _Server("grpc+tcp://127.0.0.1:0")

    def port(self) -> int:
        """Where it listens."""
        return int(self._server.port)


def _put(pipe: Connection, port: int, batch: pa.RecordBatch) -> None:
    """The client: puts the batch as often as it is told."""
    with flight.connect(f"grpc+tcp://127.0.0.1:{port}") as client:
        for count in requests(pipe):
            began = time.perf_counter()
            writer, _ = client.do_put(flight.FlightDescriptor.for_path("batches"), batch.schema)
            for _ in range(count):
                writer.write_batch(batch)
            writer.close()  # when the server has taken all
            pipe.send(time.perf_counter() - began)


class FlightPut(Closing):
    """A client and an actor, without encryption."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._actor = start(FlightTaker)
        self._client = Child(_put, int(answer(self._actor.port.remote())), batch)

    def rate(self, count: int) -> float:
        """Batches a second."""
        return count / float(self._client.ask(count))

    def close(self) -> None:
        """End both."""
        self._client.close()
        ray.kill(self._actor)


class TcpPut(Closing):
    """A socket between two processes, and no encoding."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._stack = ExitStack()
        end = self._stack.enter_context(Child(sink, None))
        self._source = self._stack.enter_context(Child(source, tuple(end.answer()), 1))

    def rate(self, count: int) -> float:
        """Bodies a second."""
        return count / float(self._source.ask(("large", [self._body], count, 1)))

    def close(self) -> None:
        """End both."""
        self._stack.close()
