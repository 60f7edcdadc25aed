"""One copy into shared memory: what any program that publishes bytes it keeps could do at best inside a node.

Some slots of a memory file that both processes have mapped. The source copies an event into a free slot and tells its
number over a socket; the sink looks at the slot itself, and tells the number back.
"""

from __future__ import annotations

import mmap
import os
import socket
import tempfile
import time
from collections import deque
from contextlib import ExitStack
from itertools import cycle, islice
from multiprocessing.connection import Connection

from echannel_ray.benchmarks.baselines.relay import connect, listen
from echannel_ray.benchmarks.harness.child import Child, requests
from echannel_ray.benchmarks.harness.closing import Closing
from echannel_ray.benchmarks.harness.payloads import touch

SLOTS = 8


def source(pipe: Connection, address: str, slot_bytes: int) -> None:
    """Copy events into slots, as many as a request says."""
    file = os.memfd_create("slots")
    os.ftruncate(file, SLOTS * slot_bytes)
    slots = memoryview(mmap.mmap(file, SLOTS * slot_bytes))
    link = connect(address)
    socket.send_fds(link, [b"!"], [file])
    free = deque(range(SLOTS))
    for events, count in requests(pipe):
        began = time.perf_counter()
        for event in islice(cycle(events), count):
            if not free:
                free.extend(link.recv(SLOTS))
            slot = free.popleft()
            slots[slot * slot_bytes : slot * slot_bytes + len(event)] = event
            link.send(bytes([slot]))
        while len(free) < SLOTS:
            free.extend(link.recv(SLOTS))
        pipe.send(time.perf_counter() - began)


def sink(pipe: Connection, address: str, slot_bytes: int, is_read: bool) -> None:
    """Look at the slots that are told, at each byte if they are to be read."""
    with listen(address) as listener:
        pipe.send("ready")
        link, _ = listener.accept()
    _, (file,), _, _ = socket.recv_fds(link, 1, 1)
    slots = memoryview(mmap.mmap(file, SLOTS * slot_bytes, prot=mmap.PROT_READ))
    while told := link.recv(SLOTS):
        for slot in told:
            event = slots[slot * slot_bytes : (slot + 1) * slot_bytes]
            if is_read:
                touch(event)
        link.send(told)


class OneCopy(Closing):
    """A source and a sink, a process each, for events of one size; the sink reads them, or has them only."""

    def __init__(self, event_bytes: int, is_read: bool) -> None:
        self._stack = ExitStack()
        folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="one-copy-"))
        end = self._stack.enter_context(Child(sink, f"{folder}/sink", event_bytes, is_read))
        end.answer()
        self._source = self._stack.enter_context(Child(source, f"{folder}/sink", event_bytes))
        self.source_pids, self.other_pids = [self._source.pid], [end.pid]

    def rate(self, events: list[bytes], count: int) -> float:
        """Events a second, until the sink has given back every slot."""
        return count / float(self._source.ask((events, count)))

    def close(self) -> None:
        """End the processes."""
        self._stack.close()
