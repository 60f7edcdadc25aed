"""A simulated network, the same in every run of one seed: time is a number, links are queues that may fail.

Links deliver in order by default. What a *lossy* one may do, real sockets do only by breaking (drops, delays) or never
(reordering, duplicates); the protocol has to survive all of it.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from typing import Any

from echannel_ray.core import frames

_CONSTANTS = {name: value for name, value in vars(frames).items() if name.isupper() and isinstance(value, int)}
NAMES = {v: name for name, v in _CONSTANTS.items() if v < 64 and not name.startswith(("IS_", "FIRST_", "LAST_"))}
# Only a link that breaks loses these, and then the parts at both of its ends hear of it and say them again.
NEVER_LOST = frozenset({frames.GONE, frames.FLOW_ENDED, frames.FLOW})
# Without these, a relay may go on routing a flow that has ended: harmless, and no real link loses one frame alone.
HOUSEKEEPING = frozenset({frames.PATH_RESTORED, frames.UNKNOWN_FLOW})


class End:
    """One end of a link, as the process there holds it."""

    __slots__ = ("busy_until", "ended", "is_open", "lossy", "name", "network", "other", "receive")

    def __init__(self, network: Network, name: str) -> None:
        self.network = network
        self.name = name
        self.is_open = True
        self.lossy = False
        self.busy_until = 0.0
        self.other: End = self
        self.receive: Callable[[End, bytes], None] = lambda end, data: None
        self.ended: Callable[[End], None] = lambda end: None

    def send(self, data: bytes) -> None:
        """Hand bytes to the link: they arrive, or don't."""
        self.network.transmit(self, data)

    def __repr__(self) -> str:
        return self.name


class Network:
    """The clock, what is due, and the links."""

    def __init__(self, rng: random.Random, fault_rate: float = 0.0) -> None:
        self.rng = rng
        self.now = 0.0
        self.fault_rate = fault_rate
        self.is_tidy = True  # until a link has failed in a way that leaves something behind, as no real one does
        self.trace: deque[tuple[Any, ...]] = deque(maxlen=300)
        self._due: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    def at(self, when: float, act: Callable[..., None], *arguments: Any) -> None:
        """Have `act` called at this time."""
        self._count += 1
        heapq.heappush(self._due, (when, self._count, act, arguments))

    def after(self, seconds: float, act: Callable[..., None], *arguments: Any) -> None:
        """Have `act` called when this time has passed."""
        self.at(self.now + seconds, act, *arguments)

    def run(self, until: float, max_steps: int = 200_000) -> bool:
        """Let time pass; True where nothing is left to happen."""
        due = self._due
        for _ in range(max_steps):
            if not due or due[0][0] > until:
                self.now = max(self.now, until) if due else self.now
                return not due
            self.now, _, act, arguments = heapq.heappop(due)
            act(*arguments)
        raise AssertionError(f"still busy after {max_steps} steps: something sends for ever")

    # ---- links ----

    def connect(self, one: str, other: str, lossy: bool = False) -> tuple[End, End]:
        """A new link: its ends."""
        a, b = End(self, f"{one}>{other}"), End(self, f"{other}>{one}")
        a.other, b.other = b, a
        a.lossy = b.lossy = lossy
        return a, b

    def transmit(self, end: End, data: bytes) -> None:
        """Called by `End.send`."""
        if not end.is_open:
            return
        rng = self.rng
        latency = 0.0005 + 0.001 * rng.random()
        if end.lossy and rng.random() < self.fault_rate:
            fault = rng.choice(("drop", "drop", "delay", "duplicate", "reorder", "cut"))
            if fault == "drop" and data[4] not in NEVER_LOST:
                self.note("drop", end, data)
                self.is_tidy &= data[4] not in HOUSEKEEPING
                return
            if fault == "delay":
                latency += 0.5 * rng.random()
            elif fault == "duplicate":
                self.is_tidy = False
                self.after(latency + 0.3 * rng.random(), self._arrive, end.other, data)
            elif fault == "reorder":
                self.is_tidy = False
                self.after(latency + 0.3 * rng.random(), self._arrive, end.other, data)
                return
            elif fault == "cut":
                self.note("cut", end, data)
                self.cut(end)
                return
        end.busy_until = max(end.busy_until, self.now + latency)
        self.at(end.busy_until, self._arrive, end.other, data)

    def _arrive(self, end: End, data: bytes) -> None:
        if end.is_open:
            self.note("got", end, data)
            end.receive(end, data)

    def cut(self, end: End) -> None:
        """The link is lost, with all that is in it; both ends learn of it, each in its time."""
        for each in (end, end.other):
            if each.is_open:
                each.is_open = False
                self.after(0.01 + 0.3 * self.rng.random(), each.ended, each)

    def died(self, end: End) -> None:
        """The process at this end is dead: what it sent may still arrive (or not), then the end of file."""
        if not end.is_open:
            return
        end.is_open = False
        other = end.other
        if self.rng.random() < 0.3:
            other.is_open = False
        self.at(max(end.busy_until, self.now + 0.0001), self._end_of_file, other)

    def _end_of_file(self, end: End) -> None:
        end.is_open = False
        end.ended(end)

    # ---- for failing runs ----

    def note(self, what: str, where: object, data: bytes = b"", detail: object = None) -> None:
        """Remember one step for the report of a failing run."""
        self.trace.append((self.now, what, where, data, detail))

    def story(self, last: int = 120) -> str:
        """The last steps, readable."""
        return "\n".join(_line(*each) for each in [*self.trace][-last:])


def _line(now: float, what: str, where: object, data: bytes, detail: object) -> str:
    text = f"{now:8.4f} {what:10} {where!s:14}"
    if data:
        kind, flags, body = data[4], data[5], data[frames.HEADER_BYTES :]
        text += f" {NAMES.get(kind, kind)} flags={flags}"
        if kind in (frames.PACK, frames.PROBE):
            text += " endpoint={:x} flow={} number={} scope={:x}".format(*frames.PACK_FIXED.unpack_from(body))
        elif kind == frames.ACK:
            text += " endpoint={:x} flow={} number={} node={:x}".format(*frames.ACK_FIXED.unpack_from(body))
        elif kind == frames.FLOW:
            text += f" {frames.parse_flow(body)}"
        elif kind in (frames.UNKNOWN_FLOW, frames.FLOW_ENDED):
            text += " endpoint={:x} flow={}".format(*frames.KEY.unpack_from(body))
        elif kind in (frames.GONE, frames.PATH_RESTORED):
            text += f" {frames.NUMBER.unpack_from(body)[0]:x}"
        elif kind == frames.ANSWER:
            text += " to={:x}/{:x} flow={} by={:x}/{:x} received={} probed={}".format(
                *frames.ANSWER_FIXED.unpack_from(body)
            )
        elif kind == frames.CREDIT:
            text += " to={:x}/{:x} stream={} by={:x}/{} mark={}".format(*frames.CREDIT_FIXED.unpack_from(body))
        elif kind == frames.CREDIT_WANTED:
            text += " to={:x}/{:x} by={:x}/{:x} stream={} subscription={} mark={}".format(
                *frames.CREDIT_WANTED_FIXED.unpack_from(body)
            )
    return text if detail is None else f"{text} {detail}"
