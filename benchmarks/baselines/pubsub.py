"""pyzmq PUB/SUB over TCP. It loses events when a queue is full, so what was received counts, and the loss is told."""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from itertools import cycle, islice
from multiprocessing.connection import Connection

from echannel_ray.benchmarks.baselines.servers import need_package
from echannel_ray.benchmarks.harness.child import Child, requests
from echannel_ray.benchmarks.harness.closing import Closing

with suppress(ModuleNotFoundError):  # which is told when the class is made
    import zmq

QUIET_MS = 100  # a subscriber that hears nothing for so long after the end has heard all


def publisher(pipe: Connection, subscribers: int, queue_events: int) -> None:
    """Wait for the subscribers (XPUB is PUB that hears of them), then publish what the requests say."""
    with zmq.Context() as context, context.socket(zmq.XPUB) as socket:
        socket.set_hwm(queue_events)
        socket.xpub_verbose = True  # hear of each subscriber, not of the first only
        socket.linger = 0
        pipe.send(f"tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}")
        for _ in range(subscribers):
            socket.recv()
        for events, count in requests(pipe):
            began, send = time.monotonic(), socket.send
            for event in islice(cycle(events), count):
                send(event)
            pipe.send(began)


def subscriber(pipe: Connection, address: str, queue_events: int) -> None:
    """Count what arrives; answer with the count and the time of the last event."""
    with zmq.Context() as context, context.socket(zmq.SUB) as socket:
        socket.set_hwm(queue_events)
        socket.linger = 0
        socket.rcvtimeo = QUIET_MS
        socket.subscribe(b"")
        socket.connect(address)
        pipe.send("ready")
        for _ in requests(pipe):
            count, receive, over = 0, socket.recv, False
            while not over:
                try:
                    while True:
                        receive()
                        count += 1
                except zmq.Again:
                    over = pipe.poll()
            pipe.recv()
            pipe.send((count, time.monotonic() - QUIET_MS / 1000))


class PubSub(Closing):
    """One publisher and its subscribers, each in a process; `queue_events` is the high-water mark (0: unlimited)."""

    def __init__(self, subscribers: int = 1, queue_events: int = 0) -> None:
        need_package("zmq")
        self._stack = ExitStack()
        self._publisher = self._stack.enter_context(Child(publisher, subscribers, queue_events))
        address = self._publisher.answer()
        self._subscribers = [
            self._stack.enter_context(Child(subscriber, address, queue_events)) for _ in range(subscribers)
        ]
        for child in self._subscribers:
            child.answer()
        self.source_pids = [self._publisher.pid]
        self.other_pids = [child.pid for child in self._subscribers]
        self.lost_share = 0.0

    def received_rate(self, events: list[bytes], count: int) -> float:
        """Events a second that the slowest subscriber received; `lost_share` is the worst loss so far."""
        for child in self._subscribers:
            child.tell("begin")
        began = self._publisher.ask((events, count))
        for child in self._subscribers:
            child.tell("end")
        rates = []
        for child in self._subscribers:
            received, ended = child.answer()
            self.lost_share = max(self.lost_share, 1 - received / count)
            rates.append(received / (ended - began))
        return float(min(rates))

    def close(self) -> None:
        """End the processes."""
        self._stack.close()
