"""How a process leaves a namespace, or a node that is to be removed: what it has published, and has to handle, is not
lost by it.

A process that ends drains its producers, and then takes its subscriptions and producers out of the books. On a node
that is removed others go on publishing, so there the order is another one: first the subscriptions, since their
handlers may publish: no more comes for them, what has come is handled, and groups hand over to members elsewhere. Then
the producers: they refuse what comes, and what they had taken is drained.
"""

from __future__ import annotations

import contextlib
import logging
import time
from typing import Final

from echannel_ray import errors
from echannel_ray.client.consumption import AS_MUCH_AS_CAN_BE, end_all
from echannel_ray.endpoint.deadlines import seconds_left
from echannel_ray.endpoint.process_endpoint import ProcessEndpoint
from echannel_ray.producers.publisher import Publisher

logger = logging.getLogger(__name__)

# A handler that hangs must not take all of the time: producers need some.
_SHARE_OF_SUBSCRIPTIONS: Final = 0.5


def node_is_drained(namespace: str, node: int) -> errors.Disconnected:
    """The error that every later call of a process of that node raises."""
    return errors.Disconnected(
        f"node {node:016x} is being drained, to be removed, and its processes have left namespace {namespace!r}: do "
        "this in an actor or task on another node",
        namespace=namespace,
        node=f"{node:016x}",
    )


def leave(endpoint: ProcessEndpoint, deadline: float | None) -> None:
    """Drain all producers, and take them and all subscriptions out of the books. The caller closes the endpoint."""
    publishers = [*endpoint.publishers.values()]
    _drain(publishers, deadline)
    end_all(endpoint, [*endpoint.inboxes.values()], deadline, are_handled=False)
    _retire(endpoint, publishers, deadline)


def leave_node(endpoint: ProcessEndpoint, seconds: float) -> bool:
    """End all subscriptions, and refuse and drain all producers, within this time; whether all of it was done.

    It blocks, so it has a thread of its own. The caller closes the endpoint.
    """
    began = time.monotonic()
    reason = node_is_drained(endpoint.namespace, endpoint.node)
    logger.warning("%s", reason)
    inboxes = [*endpoint.inboxes.values()]
    half_time = began + _SHARE_OF_SUBSCRIPTIONS * seconds
    is_done = end_all(endpoint, inboxes, half_time, are_handled=True)
    publishers = [*endpoint.publishers.values()]
    for publisher in publishers:
        publisher.refuse(reason)
    for error in _drain(publishers, began + seconds):
        logger.warning("%s", error)
        is_done = False
    _retire(endpoint, publishers, began + seconds)
    for inbox in inboxes:
        if not inbox.driver.is_pulled:  # else its iteration has ended
            inbox.report(reason)
    endpoint.fail(reason)
    return is_done


def _drain(publishers: list[Publisher], deadline: float | None) -> list[Exception]:
    """Wait until what they have taken has arrived; why it has not."""
    failures: list[Exception] = []
    for publisher in publishers:
        try:
            if not publisher.stream.deleted:
                publisher.drain(seconds_left(deadline))
        except AS_MUCH_AS_CAN_BE as error:
            failures.append(error)
    return failures


def _retire(endpoint: ProcessEndpoint, publishers: list[Publisher], deadline: float | None) -> None:
    farewells = [publisher.retire() for publisher in publishers]
    with contextlib.suppress(*AS_MUCH_AS_CAN_BE):
        endpoint.requests.ask_all(farewells, seconds_left(deadline))
