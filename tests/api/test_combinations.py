"""Features that meet: in cases made at random, each event comes once, in order, and as what it was."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import ray

import echannel_ray as ec
from tests.api.parties import SOON, Inbox, Party, ask
from tests.clusters import wait_until

TOTAL = 900


@dataclasses.dataclass
class Fixed:
    number: int
    weight: float


@dataclasses.dataclass
class Varied:
    number: int
    text: str
    sizes: list[int]


DTYPE = np.dtype([("number", "<i8"), ("weight", "<f8")])
WIDE = np.dtype([("number", "<i8"), ("weight", "<f8"), ("values", "<f8", (500,))])  # in bulk, they go by segments
ARRAY_LENGTH = 20_000  # which is large
SCHEMA = pa.schema([("number", pa.int64()), ("text", pa.string()), ("sizes", pa.list_(pa.int32()))])
TYPES: dict[str, Any] = {
    "untyped": None,
    "arrays": None,
    "class": Fixed,
    "texts": Varied,
    "dtype": DTYPE,
    "wide": WIDE,
    "schema": SCHEMA,
}
UNTYPED = ("untyped", "arrays")
FIXED = ("class", "dtype", "wide")
DEGREES: list[Any] = [1, 64, "adaptive"]


@dataclasses.dataclass(frozen=True)
class Case:
    type_name: str
    retain: str  # "", "memory" or "disk"
    published: str
    publisher: str
    consumers: tuple[str, ...]
    is_group: bool
    batches: str | None
    behind: str  # what is between: "", "ecode" or "fifo"
    degree: Any
    is_loaned: bool

    @property
    def total(self) -> int:
        """How many events there are."""
        return TOTAL // 10 if self.type_name == "arrays" else TOTAL


def case_of(seed: int) -> Case:
    """A case that is allowed."""
    chance = random.Random(seed)
    type_name = chance.choice([*TYPES])
    published = ["singles", "list"]
    batches: list[str | None] = [None]
    if type_name not in UNTYPED:
        published += ["columns", "columns", "mixed"]
        batches += ["arrow", *(["numpy"] if type_name in FIXED else [])]
    # Classes of this module can't be imported in a sandbox.
    behind = {"untyped": ["fifo"], "arrays": ["fifo"], "class": ["ecode"], "texts": ["ecode"]}.get(
        type_name, ["ecode", "fifo"]
    )
    places = ["here", "near", "far"]
    is_group = chance.random() < 0.5
    return Case(
        type_name,
        chance.choice(["", "memory", "disk"]),
        chance.choice(published),
        chance.choice(places),
        tuple(chance.sample(places, chance.choice([1, 2, 3] if is_group else [1, 1, 2]))),
        is_group,
        chance.choice(batches),
        chance.choice(["", "", *behind]),
        chance.choice(DEGREES),
        type_name in ("arrays", "wide") and chance.random() < 0.5,
    )


def columns_of(type_name: str, numbers: range) -> Any:
    """Events in one piece: an array of what has a fixed size, else a record batch."""
    if type_name in FIXED:
        made = np.zeros(len(numbers), WIDE if type_name == "wide" else DTYPE)
        made["number"] = numbers
        made["weight"] = made["number"] / 2
        if type_name == "wide":
            made["values"] = made["number"][:, np.newaxis]
        return made
    rows = [{"number": n, "text": f"Nº {n}", "sizes": [n] * (n % 3)} for n in numbers]
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


def events_of(type_name: str, numbers: range) -> list[Any]:
    """Events one by one, as programs have them."""
    if type_name == "untyped":
        return [*numbers]
    if type_name == "arrays":
        return [np.full(ARRAY_LENGTH, n) for n in numbers]
    if type_name == "wide":
        return [*columns_of(type_name, numbers)]
    if type_name in FIXED:
        return [Fixed(n, n / 2) if type_name == "class" else {"number": n, "weight": n / 2} for n in numbers]
    rows = [(n, f"Nº {n}", [n] * (n % 3)) for n in numbers]
    return [Varied(*row) if type_name == "texts" else dict(zip(SCHEMA.names, row, strict=True)) for row in rows]


def publish(party: Any, channel: ec.EventChannel, case: Case, numbers: range) -> None:
    """All of them, by one producer."""
    with channel.producer() as producer:
        third = len(numbers) // 3
        ways = ("singles", "list", "columns") if case.published == "mixed" else (case.published,) * 3
        for at, way in enumerate(ways):
            part = numbers[at * third : (at + 1) * third]
            if way == "columns":
                columns = columns_of(case.type_name, part)
                producer.publish_many(loan_of(producer, columns) if case.is_loaned else columns)
            elif way == "list":
                producer.publish_many(events_of(case.type_name, part))
            else:
                for event in events_of(case.type_name, part):
                    producer.publish(loan_of(producer, event) if case.is_loaned else event)
        producer.drain(SOON)


def loan_of(producer: ec.Producer, array: Any) -> Any:
    """The same on loan."""
    loaned = producer.loan(array.shape, array.dtype)
    loaned[...] = array
    return loaned


def numbers_of(item: Any) -> list[int]:
    """The numbers of an event or a batch, whose other fields have to be those of them."""
    if isinstance(item, int):
        return [item]
    if isinstance(item, np.ndarray) and item.dtype.names is None:
        assert item.shape == (ARRAY_LENGTH,)
        assert (item == item[0]).all()
        return [int(item[0])]
    if isinstance(item, pa.RecordBatch):
        rows = item.to_pylist()
    elif isinstance(item, np.ndarray | np.void):
        rows = [{name: row[name].tolist() for name in row.dtype.names} for row in np.atleast_1d(item)]
    else:
        rows = [dataclasses.asdict(item) if dataclasses.is_dataclass(item) else dict(item)]  # type: ignore[arg-type]
    for row in rows:
        n = row["number"]
        if "values" in row:
            assert [*row.pop("values")] == [float(n)] * 500
        rest = {"weight": n / 2} if "weight" in row else {"text": f"Nº {n}", "sizes": [n] * (n % 3)}
        assert row == {"number": n, **rest}
    return [row["number"] for row in rows]


def begin(party: Party, channel: ec.EventChannel, case: Case, options: dict[str, Any]) -> None:
    """Consume there."""
    party.kept["inbox"] = Inbox()
    party.kept["subscription"] = channel.subscribe(party.kept["inbox"], **options)


def seen(party: Party) -> list[int]:
    """What has come there, in that order."""
    return [number for item in [*party.kept["inbox"].items] for number in numbers_of(item)]


def check(parties: dict[str, Any], here: Party, name: str, case: Case) -> None:
    """Run it."""

    def on(place: str, function: Any, *arguments: Any) -> Any:
        return function(here, *arguments) if place == "here" else ask(parties[place], function, *arguments)

    retain = ec.Retention(disk=case.retain == "disk") if case.retain else None
    channel = ec.channel(name, TYPES[case.type_name], retain=retain, packing=ec.Packing(degree=case.degree))
    source = channel.derive("number % 3 == 0") if case.behind == "ecode" else channel
    options: dict[str, Any] = {"group": "g"} if case.is_group else {}
    if case.behind == "fifo":
        options["modulator"] = ec.FIFOModulator()
    if case.batches is not None:
        options["batches"] = case.batches
    total = case.total
    before = total // 3 if case.retain else 0
    if case.retain:
        options["start"] = "earliest"
        on(case.publisher, publish, channel, case, range(before))
    for place in case.consumers:
        on(place, begin, source, case, options)
    on(case.publisher, publish, channel, case, range(before, total))
    expected = [number for number in range(total) if case.behind != "ecode" or number % 3 == 0]
    wanted = len(expected) * (1 if case.is_group else len(case.consumers))
    wait_until(lambda: sum(len(on(place, seen)) for place in case.consumers) >= wanted)
    came = [on(place, seen) for place in case.consumers]
    if case.is_group:
        assert sorted(number for each in came for number in each) == expected
    for each in came:
        assert case.is_group or sorted(each) == expected
        for low, high in ((0, before), (before, total)):  # each by a producer of its own
            mine = [number for number in each if low <= number < high]
            assert mine == sorted(mine)
    stats = channel.stats()
    assert (stats.events_published, stats.events_failed, stats.events_dropped) == (total, 0, 0)
    here.leave()
    ray.get([parties[place].leave.remote() for place in ("near", "far")])
    wait_until(lambda: channel.stats().consumers == 0)
    channel.delete()


@pytest.mark.parametrize("seed", range(30))
def test_some(parties, here, name, seed):
    case = case_of(seed)
    print(case)  # which pytest shows where it fails
    check(parties, here, name, case)


@pytest.mark.soak
def test_many(parties, here, name):
    first = random.randrange(1 << 32)
    for seed in range(first, first + 1000):
        print(seed, case_of(seed))
        check(parties, here, f"{name}-{seed}", case_of(seed))
