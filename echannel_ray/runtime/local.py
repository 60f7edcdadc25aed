"""Consumers in the producer's own process: they get the event itself, through their queues."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from echannel_ray.protocol.streams import DROP_NEWEST, DROP_OLDEST
from echannel_ray.runtime.mailbox import Gap, LocalEvent, LocalGap, Mailbox

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
    publisher.stream.dropped += 1
    if publisher.stream.overflow == DROP_NEWEST:
        last = mailbox.queue[-1] if mailbox.queue else None
        if type(last) is LocalGap and last.gap.producer == publisher.name and last.gap.last == sequence - 1:
            mailbox.queue[-1] = LocalGap(Gap(publisher.name, last.gap.first, sequence))
        else:
            mailbox.offer(LocalGap(Gap(publisher.name, sequence, sequence)))
        return False
    mailbox.drop_oldest(publisher.name)
    return True
