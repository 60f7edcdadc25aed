"""`tap` and `publish`: events from and to the shell. Both join the namespace as any other process does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import echannel_ray as ec
from echannel_ray.cli.documents import as_json
from echannel_ray.cli.outcomes import complain


@contextmanager
def joined(namespace: str) -> Iterator[None]:
    """This process in the namespace."""
    ec.connect(namespace)
    try:
        yield
    finally:
        ec.disconnect()


def tap(
    channel: str, count: int | None, timeout: float | None, as_lines: bool, out: TextIO, where: str | None = None
) -> None:
    """Print events as they come, `count` of them, for `timeout` seconds; TimeoutError if fewer came than asked for.

    `where` is E-code: only what passes it leaves the producers.
    """
    seen = 0
    opened = _opened(channel)
    with (opened.derive(where) if where is not None else opened).subscribe(on_error=_report) as subscription:
        timer = None
        if timeout is not None:
            timer = threading.Timer(timeout, subscription.close)  # which ends the iteration
            timer.daemon = True
            timer.start()
        for message in subscription.messages() if count != 0 else ():
            print(_json_line(message) if as_lines else _line(message), file=out, flush=True)
            seen += isinstance(message, ec.Message)
            if seen == count:
                break
        if timer is not None:
            timer.cancel()
    if count is not None and seen < count:
        raise TimeoutError(f"{seen} of {count} events came on channel {channel!r} within {timeout:g} s")


def publish(channel: str, events: Iterable[Any]) -> dict[str, Any]:
    """Publish the events, and wait until every consumer's process has them."""
    opened = _opened(channel)
    published = 0
    with opened.producer() as producer:
        consumers = opened.stats().consumers
        for event in events:
            producer.publish(event)
            published += 1
    return {"channel": channel, "published": published, "consumers": consumers}


def _opened(name: str) -> ec.EventChannel:
    if name not in ec.status().channels:
        complain(f"channel {name!r} did not exist: it was created now, untyped")
    return ec.channel(name)


def _report(error: Any) -> None:
    # An event that can't be read here. That the channel was deleted, the iteration raises.
    if not isinstance(error, ec.ChannelDeleted):
        complain(str(error))


def _line(message: ec.Message | ec.Gap) -> str:
    if isinstance(message, ec.Gap):
        return f"{message.producer} #{message.first}-{message.last}  (dropped by the producer's overflow policy)"
    again = "  (redelivered)" if message.redelivered else ""
    return f"{message.producer} #{message.sequence}  {message.event!r}{again}"


def _json_line(message: ec.Message | ec.Gap) -> str:
    if isinstance(message, ec.Gap):
        return json.dumps({"gap": {"producer": message.producer, "first": message.first, "last": message.last}})
    facts = {
        "producer": message.producer,
        "sequence": message.sequence,
        "published_at": message.published_at,
        "redelivered": message.redelivered,
    }
    return f'{json.dumps(facts)[:-1]}, "event": {as_json(message.event)}}}'
