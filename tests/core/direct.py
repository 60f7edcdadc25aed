"""`Sender` and `Receiver` without a network: packs are handed over, late or not at all, as a test says."""

from __future__ import annotations

from collections import deque
from typing import Any

from echannel_ray.core import frames
from echannel_ray.core.flows import FlowSender
from echannel_ray.core.gather import PackColumns
from echannel_ray.core.kinds import PLAIN
from echannel_ray.core.messages import Consumer
from echannel_ray.core.receiver import Delivered, Receiver
from echannel_ray.core.sender import Sender
from echannel_ray.core.streams import SenderStream


class Bench:
    """Endpoint 1 sends to endpoints 2 and 3; what is taken but not handed over is "lost", or late."""

    def __init__(self) -> None:
        self.sender = Sender(0xA, 1, deque())
        self.receivers = {number: Receiver(0xA, number, 10**6) for number in (2, 3)}
        self.version = 0

    def consumer(self, endpoint: int, subscription: int, group: str | None = None) -> Consumer:
        self.receivers[endpoint].subscription_opened(subscription)
        return Consumer(0xA, endpoint, subscription, group)

    def members(self, stream: SenderStream, *consumers: Consumer) -> None:
        self.version += 1
        self.sender.membership_changed(stream, (1, self.version), consumers)

    def publish(self, stream: SenderStream, event: Any, size: int = 10, kind: int = PLAIN) -> bool:
        """By the hot path where it allows."""
        if stream.published_bytes + size <= stream.limit_bytes and size <= frames.CHUNK_BYTES:
            gather = stream.gather
            assert gather is not None
            if gather.stream is not stream or gather.kind != kind:
                gather.begin_run(stream, kind)
            gather.events.append(event)
            stream.published_bytes += size
            return True
        return not self.sender.send_to_all(stream, kind, event, size)[1]

    def taken(self) -> list[tuple[FlowSender, int, PackColumns]]:
        """What leaves now: a pack from each flow that has gathered something."""
        self.sender.new_flows.clear()
        packs = []
        for number, gather in self.sender.gathers.items():
            while gather:
                flow = self.sender.flows[number]
                for columns, _ in gather.take():
                    assert isinstance(columns, PackColumns)
                    packs.append((flow, flow.sent([b"x"], 0, 1, 0.0), columns))
        return packs

    def arrive(self, *packs: tuple[FlowSender, int, PackColumns]) -> list[Delivered]:
        got: list[Delivered] = []
        for flow, number, columns in packs:
            for _, endpoint in flow.destinations:
                receiver = self.receivers[endpoint]
                key = frames.KEY.pack(1, flow.number)
                receiver.flow_declared(key, 0xA, 1, flow.number)
                if receiver.flows[key].is_next(number):
                    got += receiver.pack_received(receiver.flows[key], columns, 100) or []
        return got

    def exchange(self) -> list[Delivered]:
        return self.arrive(*self.taken())

    def handle(self, stream: SenderStream, delivered: list[Delivered]) -> None:
        """Each is handled, and reported at once."""
        for each in delivered:
            each.source.handled(each.mark)
            endpoint = next(n for n, r in self.receivers.items() if each.source.subscription in r.subscriptions)
            self.sender.credited(stream, endpoint, each.source.subscription, each.source.credit())


def seen(delivered: list[Delivered], subscription: int) -> list[Any]:
    """Events in order; a gap as (first, last)."""
    got: list[Any] = []
    for each in delivered:
        if each.source.subscription == subscription:
            got += [(each.first, each.gap_last)] if each.gap_last else each.events
    return got
