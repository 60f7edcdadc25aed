"""Run by test_by_value.py as a program: classes of `__main__` must arrive in a Ray worker, and come back."""

from __future__ import annotations

import dataclasses
import enum

import numpy as np
import pydantic
import pytest
import ray

from echannel_ray.core.kinds import BUFFERS
from echannel_ray.errors import NotSerialisable
from echannel_ray.formats.events import decode, encode

FACTOR = 10


class Side(enum.Enum):
    BUY = 1
    SELL = 2


@dataclasses.dataclass
class Trade:
    price: float
    side: Side
    extra: object = None

    def value(self):
        return self.price * FACTOR


class Model(pydantic.BaseModel):
    name: str
    count: int


def on_wire(event):
    kind, payload, _ = encode(event)
    return kind, b"".join(payload) if kind == BUFFERS else payload


@ray.remote
class Consumer:
    def ping(self):
        return "pong"

    def check(self, wire, trade):
        first, second, model, handle, function, big = (decode(*each) for each in wire)
        assert type(first) is type(second) is Trade is type(trade)
        assert first.side is Side.BUY is second.side is trade.side
        assert first.value() == 15.0
        assert isinstance(model, Model)
        assert model.count == 3
        assert function(1) == 11
        assert big.extra.sum() == 100_000
        assert not big.extra.flags.writeable
        assert type(handle) is ray.actor.ActorHandle
        return on_wire([first, Trade(2.5, Side.SELL), model]), handle

    def new_class(self, wire):
        return type(decode(*wire)).__qualname__


def main():
    ray.init(address="local", include_dashboard=False, num_cpus=1, object_store_memory=80_000_000, log_to_driver=False)
    consumer = Consumer.remote()
    trade = Trade(1.5, Side.BUY)
    wire = [
        on_wire(trade),
        on_wire(Trade(1.5, Side.BUY)),
        on_wire(Model(name="m", count=3)),
        on_wire(consumer),
        on_wire(lambda x: x + FACTOR),
        on_wire(Trade(0.0, Side.SELL, np.ones(100_000))),
    ]
    back, handle = ray.get(consumer.check.remote(wire, trade))
    # Here, not above: Ray itself sets the attributes of this class anew, with the class of the handle that it returned.
    value = Trade.value
    first, second, model = decode(*back)
    assert type(first) is type(second) is Trade
    assert first == trade
    assert second.side is Side.SELL
    assert type(model) is Model
    # What comes back is this process's class as it is, not one with its attributes set anew.
    assert Trade.value is value
    assert ray.get(handle.ping.remote()) == "pong"

    ref = ray.put(1)
    for event, path in ((ref, "event"), ({"a": [ref]}, "event['a'][0]"), (Trade(1.0, Side.BUY, ref), "event.extra")):
        with pytest.raises(NotSerialisable, match=r"ray\.get") as raised:
            encode(event)
        assert raised.value.path == path
    ray.shutdown()
    print("all is well")


if __name__ == "__main__":
    main()
