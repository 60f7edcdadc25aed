"""Consumers in the producer's own process: they get the event itself, through their queues."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from echannel_ray.core.kinds import Block, token_of
from echannel_ray.core.windows import DROP_THIS, LOCAL, holds_up, on_full
from echannel_ray.formats.events import decode
from echannel_ray.runtime.mailbox import LocalEvent, Mailbox

if TYPE_CHECKING:
    from echannel_ray.runtime.deliveries import PendingDelivery
    from echannel_ray.runtime.outlet import Outlet

NOTHING: Any = object()  # where there is no object, only its bytes


def hand_over(
    outlet: Outlet, event: Any, encoded: tuple[int, Any, int] | None, sequence: int, delivery: PendingDelivery | None
) -> int:
    """Hand the event itself to consumers of this process, or its record to those who want it in another form; how many
    took it.
    """
    accepted = 0
    for mailbox in outlet.local:
        is_full = mailbox.local_pending >= mailbox.window_events
        if is_full and not holds_up(outlet.stream.overflow) and not _drop(outlet, mailbox, sequence):
            continue
        turn = outlet.turns[mailbox.number]
        kind = 0
        given = event
        if mailbox.records is not None and (event is NOTHING or not mailbox.records.is_same(event)):
            encoded = encoded or outlet.encode(event)
            if token_of(encoded[0]):
                kind, given = encoded[0], encoded[1]
        if given is NOTHING:
            assert encoded is not None
            given = event = decode(encoded[0], encoded[1])
        if not kind and mailbox.records is not None:
            given = mailbox.records.convert(given)  # what a modulator emitted
        mailbox.offer(LocalEvent(given, outlet.name, sequence, time.time(), delivery, turn, kind))
        accepted += 1
    return accepted


def hand_over_block(outlet: Outlet, kind: int, block: bytes | memoryview, count: int, first: int) -> None:
    """Hand many records to consumers of this process; no policy drops them."""
    for mailbox in outlet.local:
        turn = outlet.turns[mailbox.number]
        mailbox.offer(LocalEvent(Block(block, count), outlet.name, first, time.time(), None, turn, kind, count))


def _drop(outlet: Outlet, mailbox: Mailbox, sequence: int) -> bool:
    """Make room by dropping the oldest event of ours in the queue (True), or drop the new one (False)."""
    if on_full(outlet.stream, LOCAL) == DROP_THIS:
        outlet.stream.drop_by_policy()
        mailbox.drop_newest(outlet.name, sequence)
        return False
    # Where the queue is full of the events of others, there is nothing of ours to drop.
    if mailbox.drop_oldest(outlet.name):
        outlet.stream.drop_by_policy()
    return True
