"""Consumers in the producer's own process: they get the event itself, through their queues."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from echannel_ray.protocol.streams import DROP_NEWEST, DROP_OLDEST
from echannel_ray.runtime.mailbox import LocalEvent, Mailbox

if TYPE_CHECKING:
    from echannel_ray.runtime.deliveries import Delivery
    from echannel_ray.runtime.outlet import Outlet


def hand_over(outlet: Outlet, event: Any, sequence: int, delivery: Delivery | None) -> int:
    """Hand the event itself to consumers of this process; how many took it."""
    accepted = 0
    for mailbox in outlet.local:
        is_full = mailbox.local_pending >= mailbox.window_events
        if is_full and outlet.stream.overflow in (DROP_NEWEST, DROP_OLDEST) and not _drop(outlet, mailbox, sequence):
            continue
        turn = outlet.turns[mailbox.number]
        mailbox.offer(LocalEvent(event, outlet.name, sequence, time.time(), delivery, turn))
        accepted += 1
    return accepted


def _drop(outlet: Outlet, mailbox: Mailbox, sequence: int) -> bool:
    """Make room by dropping the oldest event of ours in the queue (True), or drop the new one (False)."""
    if outlet.stream.overflow == DROP_NEWEST:
        outlet.stream.dropped += 1
        mailbox.drop_newest(outlet.name, sequence)
        return False
    # Where the queue is full of the events of others, there is nothing of ours to drop.
    outlet.stream.dropped += mailbox.drop_oldest(outlet.name)
    return True
