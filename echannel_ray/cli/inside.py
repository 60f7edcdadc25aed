"""`tap` and `publish`: events from and to the shell. Both join the namespace as any other process does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import echannel_ray as ec
from echannel_ray.cli.exit_codes import complain
from echannel_ray.cli.lines import TapRequest, event_line, gap_line


@contextmanager
def joined(namespace: str) -> Iterator[None]:
    """Have this process in the namespace within."""
    ec.connect(namespace)
    try:
        yield
    finally:
        ec.disconnect()


def tap(channel: str, wanted: TapRequest, out: TextIO) -> None:
    """Print events as they come; TimeoutError if fewer came in time than were to come."""
    opened = _opened(channel)
    if wanted.where is not None:
        opened = opened.derive(wanted.where)
    if wanted.rate is None:
        _show(channel, opened, wanted, out)
        return
    from echannel_ray.cli.sample import Sample

    sample = Sample(opened, wanted.rate)
    try:
        with sample.watched():
            _show(channel, sample.channel, wanted, out)
    finally:
        if wanted.as_lines:
            facts = {"events": sample.events, "left_out": sample.left_out}
            print(json.dumps({"sampled": facts}), file=out, flush=True)
        else:
            complain(f"{sample.left_out:,} of {sample.events:,} events were left out, at their producers")


def _show(name: str, channel: ec.EventChannel, wanted: TapRequest, out: TextIO) -> None:
    seen = 0
    with channel.subscribe(on_error=_report) as subscription:
        timer = None
        if wanted.timeout is not None:
            timer = threading.Timer(wanted.timeout, subscription.close)  # which ends the iteration
            timer.daemon = True
            timer.start()
        for message in subscription.messages():
            if isinstance(message, ec.Gap):
                print(gap_line(message, wanted.as_lines), file=out, flush=True)
                continue
            print(event_line(message, wanted.as_lines), file=out, flush=True)
            seen += 1
            if seen == wanted.count:
                break
        if timer is not None:
            timer.cancel()
    wanted.check(name, seen)


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
