"""How a consumer and a derived channel get into the books of a channel's manager, or nothing stays of them."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from echannel_ray.core.messages import (
    REPLAY,
    Derive,
    Derived,
    Membership,
    Release,
    Shipment,
    Subscribe,
    Unsubscribe,
)

if TYPE_CHECKING:
    from echannel_ray.runtime.endpoint import Endpoint
    from echannel_ray.runtime.inbox import Inbox


def enter(
    endpoint: Endpoint,
    mailbox: Inbox,
    request: Subscribe,
    timeout: float | None,
    begin: Callable[[Membership], None],
) -> Membership:
    """Have all producers know of a subscription, and `begin` with what there is then."""
    endpoint.open_mailbox(mailbox)
    try:
        what = f"the subscription of channel {mailbox.channel!r}"
        membership: Membership = endpoint.requests.ask(request, timeout, what)
        begin(membership)
        return membership
    except BaseException:
        endpoint.requests.tell(Unsubscribe(mailbox.channel, mailbox.number, {}))
        endpoint.close_mailbox(mailbox)
        raise


def entered(endpoint: Endpoint, mailbox: Inbox, membership: Membership, shipment: Shipment | None) -> None:
    """Producers know of it: note what it consumes, for managers that are restarted."""
    for consumer in membership.consumers:
        if (consumer.endpoint, consumer.subscription) == (endpoint.id, mailbox.number):
            mailbox.derived = consumer.derived
    with endpoint.lock:
        for derived in membership.derived:
            if derived.key == mailbox.derived and shipment is not None:
                endpoint.derivations.learned(mailbox.channel, replace(derived, shipment=shipment))
    endpoint.installer.learned(membership)


def install_derived(
    endpoint: Endpoint, channel: str, parent: str, shipment: Shipment, incarnation: int
) -> tuple[Derived, int]:
    """Have a derived channel installed at all producers: what it is, and the handle that holds it."""
    handle = endpoint.new_subscription()
    request = Derive(channel, handle, parent, shipment, incarnation)
    try:
        derived: Derived = endpoint.requests.ask(request, None, f"deriving from channel {channel!r}")
    except BaseException:
        endpoint.requests.tell(Release(channel, handle))
        raise
    with endpoint.lock:
        endpoint.derivations.learned(channel, replace(derived, shipment=shipment))
        endpoint.derivations.handle_made(handle, channel, derived.key)
    return derived, handle


def replay_from(start: str, group: str | None) -> Shipment:
    """What a replay is derived by. Members of a group share one; all others have their own."""
    whose = secrets.token_hex(8) if group is None else group
    return Shipment("replay", REPLAY, f"{start}\n{whose}".encode(), start=start)
