"""`tap` and `publish` from outside the cluster, by a gateway: nothing here needs Ray."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from echannel_ray.cli.documents import NoDocument
from echannel_ray.cli.exit_codes import complain
from echannel_ray.cli.lines import TapRequest, event_line, gap_line
from echannel_ray.errors import ChannelDeleted, Closed, Disconnected, EChannelError
from echannel_ray.gateway.event_client import EventClient, EventGap, EventSubscription

_PATIENCE_SECONDS = 10.0


@contextmanager
def client_of(endpoint: str) -> Iterator[EventClient]:
    """A client of the gateway; what it says in errors of Python's own is said in one of ours."""
    try:
        with EventClient(endpoint, _PATIENCE_SECONDS) as client:
            yield client
    except NoDocument:
        raise
    except (LookupError, TypeError, ValueError) as error:
        raise EChannelError(str(error.args[0] if error.args else error)) from error


def tap(client: EventClient, channel: str, wanted: TapRequest, out: TextIO) -> None:
    """Print events as they come; TimeoutError if fewer came in time than were to come."""
    _open(client, channel)
    deadline = None if wanted.timeout is None else time.monotonic() + wanted.timeout
    seen = 0
    with client.subscribe(channel, where=wanted.where) as subscription:
        while seen != wanted.count:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                seen += _show_next(subscription, left, wanted.as_lines, out)
            except (TimeoutError, Closed):
                break
    wanted.check(channel, seen)


def publish(client: EventClient, channel: str, events: Iterable[Any]) -> dict[str, Any]:
    """Publish the events, and wait until they are acknowledged. Who consumes them, a client is not told."""
    _open(client, channel)
    return {"channel": channel, "published": client.publish(channel, events), "consumers": None}


def _open(client: EventClient, channel: str) -> None:
    try:
        client.open(channel)
    except LookupError:
        client.open(channel, {})
        complain(f"channel {channel!r} did not exist: it was created now, untyped")


def _show_next(subscription: EventSubscription, timeout: float | None, as_lines: bool, out: TextIO) -> int:
    """Print the next event or gap; how many events that were: a gap is none."""
    try:
        message = subscription.get(timeout)
    except (ChannelDeleted, Closed, Disconnected):
        raise
    except EChannelError as error:  # told in the place of events, which go on
        complain(error.message)
        return 0
    if isinstance(message, EventGap):
        print(gap_line(message, as_lines), file=out, flush=True)
        return 0
    print(event_line(message, as_lines), file=out, flush=True)
    return 1
