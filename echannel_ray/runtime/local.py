"""Consumers in the producer's own process: they get the event itself, through their queues."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from echannel_ray.protocol.streams import DROP_NEWEST, DROP_OLDEST
from echannel_ray.runtime.mailbox import LocalEvent, Mailbox

if TYPE_CHECKING:
    from echannel_ray.runtime.deliveries import Delivery
    from echannel_ray.runtime.publisher import Publisher


def hand_over(publisher: Publisher, event: Any, sequence: int, delivery: Delivery | None) -> int:
    """Hand the event itself to consumers of this process; how many took it."""
    accepted = 0
    for mailbox in publisher.local:
        is_full = mailbox.local_pending >= mailbox.window_events
        if (
            is_full
            and publisher.stream.overflow in (DROP_NEWEST, DROP_OLDEST)
            and not _drop(publisher, mailbox, sequence)
        ):
            continue
        mailbox.offer(LocalEvent(event, publisher.name, sequence, time.time(), delivery))
        accepted += 1
    return accepted


def _drop(publisher: Publisher, mailbox: Mailbox, sequence: int) -> bool:
    """Make room by dropping the oldest event of ours in the queue (True), or drop the new one (False)."""
    if publisher.stream.overflow == DROP_NEWEST:
        publisher.stream.dropped += 1
        mailbox.drop_newest(publisher.name, sequence)
        return False
    # Where the queue is full of the events of others, there is nothing of ours to drop.
    publisher.stream.dropped += mailbox.drop_oldest(publisher.name)
    return True
