"""What does a filter at the producer cost or save, by the share of the events that it rejects?

Records of 104 B, one by one and in bulk. First the CPU of all processes at full speed, against no filter. Then at a
fixed rate, as in the paper: how busy the producer is, and all processes together, against a consumer that gets
everything and filters for itself (a comparison in its handler; in bulk a mask of NumPy).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from echannel_ray.benchmarks.harness.field import answer
from echannel_ray.benchmarks.harness.records import ARRAY_RECORDS, READING, Reading, bounds, outside
from echannel_ray.benchmarks.harness.rows import Figure, Row, at_most
from echannel_ray.benchmarks.harness.samples import Plan, Samples
from echannel_ray.benchmarks.harness.typed import PAUSE_SECONDS, TypedField
from echannel_ray.benchmarks.harness.usage import cpu_seconds

SINGLE, BULK = "one by one", "in bulk"
# Arrays and events are used up in whole, so that exactly the share is rejected that is meant to be.
EACH_TURN = {SINGLE: ARRAY_RECORDS // 126, BULK: ARRAY_RECORDS // 6}
EVENTS_PER_SECOND = {way: round(each / PAUSE_SECONDS) for way, each in EACH_TURN.items()}
FIGURES = tuple(
    Figure(
        way,
        f"How busy the producer is: 104 B records {way}, {rate:,} a second",
        "events that are rejected (%)",
        "CPU of the producer (% of a core)",
        paper="ECho, figure 8A (2001)",
    )
    for way, rate in EVENTS_PER_SECOND.items()
)
SHARES = {"1 in 30": 1 / 30, "none": 0.0, "half": 0.5, "all": 1.0}
AT_RATE = ("none", "half", "all")
GOALS = (at_most(1, "a filter that rejects 1 in 30: CPU, against none", "CPU .* that rejects 1 in 30", "no filter"),)
NO_FILTER, CONSUMER = "no filter", "the consumer filters"


def run(plan: Plan) -> list[Row]:
    """Records that come one by one, then in bulk."""
    rows = []
    with TypedField(plan, "bench-rejection") as field:
        field.make("readings", Reading)
        for way, arrays in ((SINGLE, 20), (BULK, 400)):
            events = ARRAY_RECORDS * arrays // (4 if plan.short else 1)
            _connect(field, way)
            rows += _at_full_speed(plan, field, way, events)
            rows += _at_rate(plan, field, way)
    return rows


def _connect(field: TypedField, way: str) -> None:
    """A channel for each filter, for none, and for each that the consumer does by itself."""
    event_type, batches = (Reading, None) if way == SINGLE else (READING, "numpy")
    connect = partial(field.connect_typed, event_type=event_type, batches=batches)
    connect(_channel(way, NO_FILTER))
    for name, share in SHARES.items():
        connect(_channel(way, name), text=outside(share))
    for name in AT_RATE:
        connect(_channel(way, CONSUMER, name), work=partial(_filter, *bounds(SHARES[name])))
    field.place("two")
    for name in (NO_FILTER, *SHARES):
        _publish(field, way, name, ARRAY_RECORDS)
    field.settle("two")


def _channel(way: str, *names: str) -> str:
    return ", ".join((way, *names))


def _filter(low: float, high: float, event: Any) -> Any:
    """What a consumer does that gets everything: of a record or of an array of them."""
    if isinstance(event, Reading):
        return event.price < low or event.price > high
    return event[(event["price"] < low) | (event["price"] > high)]


def _in_turns(plan: Plan, names: Iterable[str]) -> Iterable[str]:
    order, generator = list(names), plan.random()
    for _ in range(plan.rounds):
        generator.shuffle(order)
        yield from order


# ---- at full speed ----


def _at_full_speed(plan: Plan, field: TypedField, way: str, events: int) -> list[Row]:
    costs = {name: Samples("s", higher_is_better=False) for name in (NO_FILTER, *SHARES)}
    for name in _in_turns(plan, costs):
        before = cpu_seconds(field.pids())
        _publish(field, way, name, events)
        costs[name].values.append((cpu_seconds(field.pids()) - before) / events)
    return [
        Row(
            f"CPU of all processes per 104 B record published {way}, a filter that rejects {rejected}",
            "two",
            costs[rejected],
            NO_FILTER,
            costs[NO_FILTER],
        )
        for rejected in SHARES
    ]


def _publish(field: TypedField, way: str, name: str, events: int) -> None:
    """Until all that pass have been handled, and all is acknowledged."""
    consumer, channel = field.consumers[0], _channel(way, name)
    passing = events - round(events * SHARES.get(name, 0.0))
    answer(consumer.expect.remote(passing))
    if way == BULK:
        answer(field.producer.publish_in_bulk.remote("readings", events, channel))
    else:
        answer(field.producer.publish.remote("readings", events, [channel]))
    if passing:
        answer(consumer.ended.remote())


# ---- at a fixed rate ----


def _at_rate(plan: Plan, field: TypedField, way: str) -> list[Row]:
    rate = EVENTS_PER_SECOND[way]
    events = round(rate * plan.sample_seconds * 2 / ARRAY_RECORDS) * ARRAY_RECORDS
    passing = {_channel(way, NO_FILTER): events}
    for name in AT_RATE:
        passing[_channel(way, name)] = events - round(events * SHARES[name])
        passing[_channel(way, CONSUMER, name)] = events
    busy = {who: {name: Samples("%", higher_is_better=False) for name in passing} for who in ("producer", "all")}
    for name in _in_turns(plan, passing):
        before = cpu_seconds(field.pids())
        answer(field.consumers[0].expect.remote(passing[name]))
        seconds = answer(field.producer.cpu_at_rate.remote("readings", events, name, EACH_TURN[way], way == BULK))
        if passing[name]:
            answer(field.consumers[0].ended.remote())
        busy["producer"][name].values.append(100 * seconds * rate / events)
        busy["all"][name].values.append(100 * (cpu_seconds(field.pids()) - before) * rate / events)
    return [row for name in AT_RATE for row in _rows(way, name, busy)]


def _rows(way: str, rejected: str, busy: dict[str, dict[str, Samples]]) -> list[Row]:
    ours, nobody, consumer = _channel(way, rejected), _channel(way, NO_FILTER), _channel(way, CONSUMER, rejected)
    what = f"104 B records published {way}, {EVENTS_PER_SECOND[way]:,} a second, {rejected} rejected"
    producer, everybody = busy["producer"], busy["all"]
    point = partial(Row, f"how busy the producer is: {what}", "two", producer[ours], figure=way)
    x = 100 * SHARES[rejected]
    return [
        point(NO_FILTER, producer[nobody], x=x, series="a filter at the producer"),
        point(CONSUMER, producer[consumer], x=x, series="a filter at the producer"),
        Row(f"how busy all processes are: {what}", "two", everybody[ours], CONSUMER, everybody[consumer]),
    ]
