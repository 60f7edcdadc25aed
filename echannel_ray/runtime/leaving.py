"""How a process leaves a node that is to be removed: nothing that it has published, or has to handle, is lost by it.

First the subscriptions, since their handlers may publish: no more comes for them, what has come is handled, and groups
hand over to members elsewhere. Then the producers: they refuse what comes, and what they had taken is drained.
"""

from __future__ import annotations

import contextlib
import logging
import time
from typing import TYPE_CHECKING, Final

from echannel_ray import errors
from echannel_ray.core.messages import Unsubscribe
from echannel_ray.runtime.crew import Waiter

if TYPE_CHECKING:
    from echannel_ray.runtime.endpoint import Endpoint
    from echannel_ray.runtime.inbox import Inbox

logger = logging.getLogger(__name__)

# A handler that hangs must not take all of the time: producers need some.
_SHARE_OF_SUBSCRIPTIONS: Final = 0.5
_AS_MUCH_AS_CAN_BE: Final = (TimeoutError, errors.EChannelError)


def node_is_drained(namespace: str, node: int) -> errors.Disconnected:
    """What every later call of a process of that node raises."""
    return errors.Disconnected(
        f"node {node:016x} is being drained, to be removed, and its processes have left namespace {namespace!r}: do "
        "this in an actor or task on another node",
        namespace=namespace,
        node=f"{node:016x}",
    )


def leave_node(endpoint: Endpoint, seconds: float) -> bool:
    """End all subscriptions, and refuse and drain all producers, within this time; whether all of it was done.

    It blocks, so it has a thread of its own. The caller closes the endpoint.
    """
    began = time.monotonic()
    reason = node_is_drained(endpoint.namespace, endpoint.node)
    logger.warning("%s", reason)
    mailboxes = [*endpoint.mailboxes.values()]
    is_done = _end_subscriptions(endpoint, mailboxes, began + _SHARE_OF_SUBSCRIPTIONS * seconds)
    is_done &= _end_producers(endpoint, reason, began + seconds)
    for mailbox in mailboxes:
        if not mailbox.driver.is_pulled:  # else its iteration has ended
            mailbox.report(reason)
    endpoint.fail(reason)
    return is_done


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


def _end_subscriptions(endpoint: Endpoint, mailboxes: list[Inbox], deadline: float) -> bool:
    readers = [each for each in mailboxes if each.supply.reads_logs]
    for each in readers:  # their logs keep what they have not handled
        endpoint.close_mailbox(each)
    is_done = _are_at_rest(endpoint, readers, deadline)
    for each in readers:
        assert each.supply.reads_logs
        with contextlib.suppress(*_AS_MUCH_AS_CAN_BE):
            each.supply.leave(_left(deadline))
    with contextlib.suppress(*_AS_MUCH_AS_CAN_BE):
        endpoint.requests.ask_all([Unsubscribe(m.channel, m.number, m.totals()) for m in mailboxes], _left(deadline))
    for each in mailboxes:
        # What a member of a group has not begun goes to another; of other subscriptions nobody else would handle it.
        if each.group is None and not each.closed:
            is_done &= endpoint.crew.wait(each.when_idle(), deadline)
        endpoint.close_mailbox(each)
    return _are_at_rest(endpoint, mailboxes, deadline) and is_done


def _are_at_rest(endpoint: Endpoint, closed: list[Inbox], deadline: float) -> bool:
    """Wait until no handler works on an event any more."""
    waiters = []
    for mailbox in closed:
        waiter = Waiter()
        mailbox.at_rest(waiter.set)
        waiters.append(waiter)
    return all(endpoint.crew.wait(waiter, deadline) for waiter in waiters)


def _end_producers(endpoint: Endpoint, reason: errors.Disconnected, deadline: float) -> bool:
    is_done = True
    publishers = [*endpoint.publishers.values()]
    for publisher in publishers:
        publisher.refuse(reason)
    for publisher in publishers:
        try:
            if not publisher.stream.deleted:
                publisher.drain(_left(deadline))
        except _AS_MUCH_AS_CAN_BE as error:
            logger.warning("%s", error)
            is_done = False
    farewells = [publisher.retire() for publisher in publishers]
    with contextlib.suppress(*_AS_MUCH_AS_CAN_BE):
        endpoint.requests.ask_all(farewells, _left(deadline))
    return is_done
