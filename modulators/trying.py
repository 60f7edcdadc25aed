"""A modulator at work in this process, without channels and without Ray: for tests, notebooks and documentation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import cloudpickle

from echannel_ray.formats import plain
from echannel_ray.modulation.modulator import Demodulator, Modulator
from echannel_ray.modulation.replica import Replica
from echannel_ray.modulation.services import Services


def try_out(modulator: Modulator, events: Iterable[Any], demodulator: Demodulator | None = None) -> list[Any]:
    """What a handler gets of these events, which all wait until the last is published and the producer drains.

    The modulator is shipped, as to a producer, so the one given stays as it is. What it emits must be what an isolated
    modulator may emit. It has no services here, and its timer does not run.

    >>> try_out(FIFOModulator(), ["an event", "another"])
    ['an event', 'another']
    """
    replica = Replica(cloudpickle.loads(cloudpickle.dumps(modulator)), Services((), _refuse))
    events = list(events)
    replica.enqueue(events)
    replica.flush()
    sent = replica.dequeue(len(replica.waiting)) if replica.queues else replica.take()
    given = {id(event) for event in events}
    travelled = [event if id(event) in given else plain.decode(plain.encode(event)) for event in sent]
    if demodulator is None:
        return travelled
    return [received for event in travelled for received in demodulator.receive(event)]


def _refuse(service: str, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    raise RuntimeError(f"{service} is not here: try_out grants no services")
