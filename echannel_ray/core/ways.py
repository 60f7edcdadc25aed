"""The ways on which an endpoint's frames leave: by the concentrator of its node, or by direct links to neighbours.

Rules:

* A flow goes by a direct link where its only destination is that neighbour. All others go by the concentrator, which
  knows every flow by its declaration: it tells both ends of the other's death.
* What else is for a neighbour alone (answers, credit, results) goes by its direct link, too.
* While a flow goes over to another way its packs are held until all before them have arrived, since the two ways keep
  no order between them; at the latest for `CHANGE_SECONDS`, as what is on the former way may be lost.
* A direct link may be lost at any time. Its flows go by the concentrator then, and probes find out what is missing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from echannel_ray.core import frames
from echannel_ray.core.flows import FlowSender, SentPack, WayChange
from echannel_ray.core.frames import Buffer

if TYPE_CHECKING:
    from echannel_ray.core.endpoint import EndpointCore

# Whoever sends so many packs to one endpoint between two looks wants a direct link to it: each pack costs the
# concentrator a turn.
BUSY_PACKS = 16
CHANGE_SECONDS = 0.1


class Ways:
    """Which way frames leave from one endpoint."""

    def __init__(self, core: EndpointCore) -> None:
        self._core = core
        self.neighbours: dict[int, deque[Buffer]] = core.sender.neighbours
        # Endpoints of this node without a direct link that much was sent to of late; the shell takes them.
        self.wanted: set[int] = set()

    def to(self, node: int, endpoint: int) -> deque[Buffer]:
        """Where frames for an endpoint are put."""
        out = self._core.out
        return self.neighbours.get(endpoint, out) if node == self._core.node else out

    def linked(self, endpoint: int, out: deque[Buffer], now: float) -> None:
        """There is a direct link to another endpoint of this node; what is put into `out` leaves by it."""
        if endpoint in self.neighbours:
            self.lost(endpoint, now)
        self.neighbours[endpoint] = out
        self.wanted.discard(endpoint)
        for flow in self._core.sender.flows.values():
            if flow.sole_destination(self._core.node) == endpoint:
                self._change(flow, out, now)

    def lost(self, endpoint: int, now: float) -> None:
        """A direct link has ended, with whatever was in it: its flows go by the concentrator."""
        core = self._core
        lost = self.neighbours.pop(endpoint, None)
        for flow in core.sender.flows.values() if lost is not None else ():
            if flow.change is not None and flow.change.next is lost:
                flow.change.next = core.out
                self.end_change(flow)
            elif flow.out is lost:
                flow.out = core.out
                self._declare(flow)
                core.probe([flow], now, at_once=True)

    def _change(self, flow: FlowSender, out: deque[Buffer], now: float) -> None:
        if flow.lowest_acked == flow.last_sent:
            flow.out = out
            self._declare(flow)
            return
        flow.change = WayChange(out, flow.last_sent, now + CHANGE_SECONDS)
        flow.out.append(frames.probe(self._core.endpoint, flow.number, flow.last_sent, self._core.node))
        flow.out = flow.change.held

    def end_change(self, flow: FlowSender, lost: Iterable[SentPack] = ()) -> None:
        """Have a flow go on by its next way, with what was lost on the former one first."""
        change, flow.change = flow.change, None
        assert change is not None
        flow.out = change.next
        self._declare(flow)
        for pack in lost:
            self._core.resend(flow, pack, self._core.node)
        flow.out.extend(change.held)

    def _declare(self, flow: FlowSender) -> None:
        # One that has carried nothing yet is declared with its first pack.
        if flow not in self._core.sender.new_flows:
            self._core.declare(flow)

    def look(self, now: float) -> None:
        """Note who wants a direct link, and have nobody wait for ever for what is lost on the former way."""
        core = self._core
        for flow in core.sender.flows.values():
            if flow.change is not None and now >= flow.change.until:
                self.end_change(flow)
                core.probe([flow], now, at_once=True)
            if flow.last_sent - flow.looked_at >= BUSY_PACKS and flow.out is core.out:
                neighbour = flow.sole_destination(core.node)
                if neighbour is not None:
                    self.wanted.add(neighbour)
            flow.looked_at = flow.last_sent
