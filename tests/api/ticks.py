"""Records and helpers of the tests of E-code."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

import echannel_ray as ec
from tests.api.parties import SOON, Party, ask

OPEN = ec.Admission(tiers=("ecode", "isolated", "inline"))


def ecode(source: str | Callable[..., Any], output: Any = None) -> Any:
    """A program, as programs of users make it."""
    return ec.ecode(source, output)


@dataclasses.dataclass
class Tick:
    """Of fixed size: its records are a layout."""

    number: int
    price: float


TICK = np.dtype([("number", "<i8"), ("price", "<f8")])


@dataclasses.dataclass
class Quote:
    """Of any size: its records are msgpack."""

    number: int
    price: float
    symbol: str = ""
    sizes: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Doubled:
    number: int
    double: float


class Shown(msgspec.Struct):
    """What a consumer without all the fields asks for."""

    double: float


class Window(ec.SharedObject):
    """What a program and its consumer share."""

    low: float = 3.0
    high: float = 6.0
    count: int = 0
    symbol: str = "RAY"


BOTH: list[Any] = [Tick, Quote]


def ticks(first: int, last: int, event_type: Any = Tick) -> list[Any]:
    return [event_type(number, number / 2) for number in range(first, last + 1)]


def array(first: int, last: int) -> np.ndarray:
    made = np.zeros(last - first + 1, TICK)
    made["number"] = np.arange(first, last + 1)
    made["price"] = made["number"] / 2
    return made


def batch(first: int, last: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({name: pa.array(array(first, last)[name]) for name in TICK.names})


SOURCES: dict[str, Callable[[int, int], Any]] = {"singles": ticks, "arrays": array, "batches": batch}


def produce(party: Any, channel: ec.EventChannel, **options: Any) -> str:
    """Have a producer that stays: its name."""
    producer = channel.producer(**{"admission": OPEN, **options})
    party.kept["producer"] = producer
    return producer.name


def publish(party: Any, events: Any) -> None:
    party.kept["producer"].publish_many(events)
    party.kept["producer"].drain(SOON)


def numbers(events: list[Any]) -> list[int]:
    return [int(event["number"] if isinstance(event, np.void) else event.number) for event in events]


def at(parties: dict[str, Any], where: str, here: Party) -> Callable[..., Any]:
    """Calls functions there."""
    return (lambda f, *a: f(here, *a)) if where == "here" else (lambda f, *a: ask(parties[where], f, *a))


DOUBLING = "output.number = number\noutput.double = price * 2\nreturn number % 2 == 0"


def dataclass_of(**types: Any) -> type:
    return dataclasses.make_dataclass("Made", list(types.items()))
