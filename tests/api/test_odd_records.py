"""Records and types that few programs have: each arrives as it was, or is refused where it is given."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pydantic
import pytest

import echannel_ray as ec
from tests.api.parties import SOON

pytestmark = pytest.mark.usefixtures("nodes")

PRICES = np.dtype([("price", "f8"), ("divisor", "i8")])


class Positive(pydantic.BaseModel):
    number: int = pydantic.Field(ge=0)


@dataclasses.dataclass
class Empty:
    pass


@dataclasses.dataclass
class Narrow:
    single: np.float32
    half: np.float16


def prices(count):
    made = np.ones(count, PRICES)
    made["price"] = np.arange(count)
    return made


@pytest.mark.parametrize("program", ["10 // divisor > 0", "price >= 0"], ids=["traps", "passes all"])
def test_what_passes_is_as_it_was_when_the_array_is_used_again(name, program):
    channel = ec.channel(name, PRICES)
    with (
        channel.derive(program).subscribe(batches="numpy", on_error=lambda _: None) as here,
        channel.producer() as producer,
    ):
        array = prices(1000)
        array["divisor"][500] = 0
        producer.publish_many(array)
        array["price"] = -7
        seen = np.concatenate([here.get(SOON) for _ in range(2 if "//" in program else 1)])
    assert seen["price"].tolist() == [i for i in range(1000) if i != 500 or "//" not in program]


def test_programs_that_take_long_see_updates_between_their_records(name):
    """Before machine code is there, a block is run in parts: a publisher is not held up by all of it."""
    channel = ec.channel(name, PRICES)
    slow = "n = divisor\nfor i in range(10000):\n    n = (n * 3 + i) ^ 7\nreturn price % 2 == 0 and n != 1"
    with channel.derive(slow).subscribe(batches="numpy") as here, channel.producer() as producer:
        producer.publish_many(prices(100))
        seen: list[float] = []
        while len(seen) < 50:
            seen += here.get(SOON)["price"].tolist()
    assert seen == [*range(0, 100, 2)]


def test_schemas_of_arrow_that_differ_in_their_metadata_only(name):
    optional = pa.schema([pa.field("n", pa.int64(), metadata={"optional": "true"})])
    plain = pa.schema([pa.field("n", pa.int64())])
    channel = ec.channel(name, optional)
    with channel.subscribe() as subscription, channel.producer() as producer:
        producer.publish_many(pa.RecordBatch.from_pydict({"n": [1, 2]}, schema=plain))
        producer.publish_many(pa.RecordBatch.from_pydict({"n": [3, None]}, schema=optional))
        assert [subscription.get(SOON).n for _ in range(4)] == [1, 2, 3, None]


def test_who_asks_later_for_what_a_producer_refused_is_told(name):
    channel = ec.channel(name, PRICES)
    program = "for i in range(1000):\n    n = 1\nreturn True"
    held = channel.derive(program)
    with channel.producer(admission=ec.Admission(max_cost=10)), pytest.raises(ec.ModulatorRefused, match="max_cost"):
        channel.derive(program).subscribe()
    assert held.name


@pytest.mark.parametrize("field", ["single", "half"])
def test_a_number_that_is_too_large_for_its_field(name, field):
    channel = ec.channel(name, Narrow)
    with channel.producer() as producer, channel.subscribe(event_type=np.dtype([(field, "f8")])):
        values: dict[str, Any] = {"single": 1.0, "half": 1.0, field: 1e300}
        for event in (Narrow(**values), values):
            with pytest.raises(ec.NotSerialisable, match=field):
                producer.publish(event)


def test_a_complex_number_that_is_too_large(name):
    channel = ec.channel(name, np.dtype([("z", "c8")]))
    with channel.producer() as producer, channel.subscribe(), pytest.raises(ec.NotSerialisable):
        producer.publish({"z": 1e300 + 0j})


@pytest.mark.parametrize(
    "publish",
    [
        lambda producer: producer.publish({"number": -1}),
        lambda producer: producer.publish_many([{"number": -1}]),
        lambda producer: producer.publish_many(np.array([(-1,)], [("number", "i8")])),
        lambda producer: producer.publish_many(pa.RecordBatch.from_pydict({"number": [-1]})),
    ],
    ids=["dict", "dicts", "array", "batch"],
)
def test_validation_is_of_everything(name, publish):
    channel = ec.channel(name, Positive)
    with channel.producer(validate=True) as producer, pytest.raises(ec.NotSerialisable, match="number"):
        publish(producer)


def test_fields_that_are_keywords(name):
    struct = msgspec.defstruct("Move", [("from", int), ("to", int)])
    channel = ec.channel(name, struct)
    with channel.subscribe() as own, ec.channel(name).subscribe() as generic, channel.producer() as producer:
        producer.publish({"from": 1, "to": 2})
        assert own.get(SOON) == struct(**{"from": 1, "to": 2})
        assert generic.get(SOON)["from"] == 1


@pytest.mark.parametrize(
    ("event_type", "why"),
    [
        (Empty, "no fields"),
        (pa.schema([]), "no fields"),
        (np.dtype([("a", "S0")]), "no bytes"),
        (np.dtype({"names": ["a", "b"], "formats": ["i4", "i2"], "offsets": [0, 0]}), "'b'"),
    ],
    ids=["empty", "schema", "no bytes", "overlapping"],
)
def test_types_that_can_have_no_records(name, event_type, why):
    with pytest.raises(TypeError, match=why):
        ec.channel(name, event_type)


@pytest.mark.parametrize(
    ("events", "error"),
    [
        (np.zeros(3, [("price", "O")]), ec.TypeMismatch),
        (np.zeros(3, [("price", "f8"), ("at", "M8")]), ec.TypeMismatch),
        (np.ma.masked_array(prices(3)), ec.NotSerialisable),
    ],
    ids=["objects", "no unit", "masked"],
)
def test_arrays_that_can_be_no_records(name, events, error):
    with ec.channel(name, PRICES).producer() as producer, pytest.raises(error):
        producer.publish_many(events)


def test_a_table_of_pandas_says_what_to_do(name):
    pandas = pytest.importorskip("pandas")
    with ec.channel(name, PRICES).producer() as producer, pytest.raises(ec.TypeMismatch, match="to_records"):
        producer.publish_many(pandas.DataFrame({"price": [1.0], "divisor": [1]}))


class Halving(ec.Modulator):
    """Emits records of a dtype that is not the channel's, and does not go with it."""

    def enqueue(self, event):
        self.emit(np.array([(event.number / 2,)], [("half", "f8")])[0])


def test_what_a_modulator_emits_need_not_go_with_the_type(name):
    channel = ec.channel(name, Positive)
    admission = ec.Admission(tiers=("inline",))
    with (
        channel.producer(admission=admission) as producer,
        channel.subscribe(modulator=Halving(), tier="inline") as subscription,
    ):
        for number in range(3):
            producer.publish(Positive(number=number))
        assert [float(subscription.get(SOON)["half"]) for _ in range(3)] == [0.0, 0.5, 1.0]


def test_what_nests_without_end(name):
    nested: list[Any] = []
    for _ in range(5000):
        nested = [nested]
    channel = ec.channel(name, dataclasses.make_dataclass("Any1", [("value", Any)]))
    with channel.producer() as producer, channel.subscribe(), pytest.raises(ec.NotSerialisable, match="value"):
        producer.publish({"value": nested})


def test_fields_may_not_be_added_without_limit(name):
    ec.channel(name, PRICES)
    many = np.dtype([("price", "f8"), ("divisor", "i8"), *[(f"f{i}", "i1") for i in range(1001)]])
    with pytest.raises(ec.TypeMismatch, match="1000 fields"):
        ec.channel(name, many)
