"""How many bytes a second does a client outside the cluster put into an actor, by a gateway, by Flight and by a socket?

Record batches of 1 MB from one process. A gateway's way has two hops more than a socket's: its concentrator, and the
link from there; and it is encrypted, which the others are not. What is staged goes no further than to the log.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection

import numpy as np
import pyarrow as pa

import echannel_ray as ec
from echannel_ray.benchmarks.baselines.flight import FlightPut, TcpPut
from echannel_ray.benchmarks.harness.child import Child, requests
from echannel_ray.benchmarks.harness.handoff import Handoff
from echannel_ray.benchmarks.harness.rows import Row
from echannel_ray.benchmarks.harness.samples import Measure, Plan, interleave, sized
from echannel_ray.gateway.client import GatewayClient
from echannel_ray.logs.entries import Chosen, WriteAttempt

COLUMNS, ROWS = 8, 15_625  # of 8 bytes each
BATCH_MEGABYTES = COLUMNS * ROWS * 8 / 1e6
FIRST_COUNT = 50
MAX_COUNT = 2000
PUBLISHED, RETAINED, STAGED = "published to an actor", "published to an actor, logged", "staged and committed"
FLIGHT, SOCKET = "Flight into an actor", "a TCP socket"


def run(plan: Plan) -> list[Row]:
    """All in turns; each is as quick as the machine lets it."""
    batch = _batch(plan)
    with ExitStack() as stack:
        flight = stack.enter_context(FlightPut(batch))
        tcp = stack.enter_context(TcpPut(b"".join(column.buffers()[1].to_pybytes() for column in batch)))
        handoff = stack.enter_context(Handoff("bench-gateway"))
        for name in (RETAINED, STAGED):
            handoff.open(_channel(name), ec.Retention(disk=True))
        client = stack.enter_context(Child(_client, handoff.endpoint, batch))
        client.answer()  # all channels are there
        for name in (PUBLISHED, RETAINED):
            handoff.take(_channel(name))
        rates: dict[str, Callable[[int], float]] = {
            PUBLISHED: partial(_taken_rate, client, handoff, PUBLISHED),
            RETAINED: partial(_taken_rate, client, handoff, RETAINED),
            STAGED: lambda count: count / float(client.ask((STAGED, count))),
            FLIGHT: flight.rate,
            SOCKET: tcp.rate,
        }
        variants = {name: _megabytes(sized(plan, rate, FIRST_COUNT, MAX_COUNT)) for name, rate in rates.items()}
        samples = interleave(plan, variants, "MB/s", higher_is_better=True)
    return [
        Row(name, "free", samples[name], against, samples[against])
        for name, against in itertools.product((PUBLISHED, RETAINED, STAGED, FLIGHT), (FLIGHT, SOCKET))
        if name != against
    ]


def _batch(plan: Plan) -> pa.RecordBatch:
    generator = np.random.default_rng(plan.seed)
    arrays = [pa.array(generator.random(ROWS)) for _ in range(COLUMNS)]
    return pa.record_batch(arrays, schema=pa.schema([pa.field(f"c{i}", pa.float64(), False) for i in range(COLUMNS)]))


def _channel(name: str) -> str:
    return name.replace(" ", "-").replace(",", "")


def _taken_rate(client: Child, handoff: Handoff, name: str, count: int) -> float:
    began = time.monotonic()
    client.ask((name, count))
    _, last_at = handoff.await_rows(count * ROWS)
    return count / (last_at - began)


def _megabytes(rate: Measure) -> Measure:
    return lambda: rate() * BATCH_MEGABYTES


def _client(pipe: Connection, endpoint: str, batch: pa.RecordBatch) -> None:
    """Outside the cluster: answers each request with the seconds that it took."""
    with GatewayClient(endpoint) as client:
        for name in (PUBLISHED, RETAINED, STAGED):
            client.channel(_channel(name), batch.schema, None if name == PUBLISHED else {"disk": True})
        pipe.send(None)
        writes = itertools.count()
        for name, count in requests(pipe):
            began = time.perf_counter()
            if name == STAGED:
                write = f"write-{next(writes)}"
                entries = client.stage(_channel(name), WriteAttempt(write, 0, 0), itertools.repeat(batch, count))
                client.commit(_channel(name), write, [Chosen(0, 0, entries)])
            else:
                client.publish(_channel(name), itertools.repeat(batch, count))
            pipe.send(time.perf_counter() - began)
