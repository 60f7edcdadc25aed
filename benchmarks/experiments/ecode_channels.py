"""What do filters at the producer save all processes together, and a transformation the network?"""

from __future__ import annotations

import threading

from echannel_ray.benchmarks.experiments.ecode import AVERAGE, LOOPS
from echannel_ray.benchmarks.harness.field import answer
from echannel_ray.benchmarks.harness.records import GRID, READING, Reading, outside
from echannel_ray.benchmarks.harness.rows import Row, at_least, at_most
from echannel_ray.benchmarks.harness.samples import Plan, Samples
from echannel_ray.benchmarks.harness.typed import ARRAY_RECORDS, TypedField
from echannel_ray.benchmarks.harness.usage import cpu_seconds

REJECTED = {"1 in 30": 1 / 30, "none": 0.0, "half": 0.5, "all": 1.0}
UNTIL_NATIVE_SECONDS = 2.0  # filters begin in another form
GRIDS = 200


def run(plan: Plan) -> list[Row]:
    """Filters of records that come one by one and in bulk, then the transformation."""
    with TypedField(plan, "bench-ecode") as field:
        rows = _filtering(plan, field, "one by one", (60_000 if plan.short else 240_000))
        rows += _filtering(plan, field, "in bulk", ARRAY_RECORDS * (100 if plan.short else 400))
        rows.append(_averaging(field))
    return rows


def _filtering(plan: Plan, field: TypedField, way: str, events: int) -> list[Row]:
    in_bulk = way == "in bulk"
    event_type, batches = (READING, "numpy") if in_bulk else (Reading, None)
    texts = {"no filter": None} | {rejected: outside(share) for rejected, share in REJECTED.items()}
    for name, text in texts.items():
        field.connect_typed(f"{way}, {name}", event_type, text=text, batches=batches)
    field.place("two")
    for name in texts:
        _publish(field, way, name, ARRAY_RECORDS)
    threading.Event().wait(UNTIL_NATIVE_SECONDS)
    field.place("two")  # the threads that compile, too
    costs = {name: Samples("s", higher_is_better=False) for name in texts}
    order, generator = list(texts), plan.random()
    for _ in range(plan.rounds):
        generator.shuffle(order)
        for name in order:
            before = cpu_seconds(field.pids())
            _publish(field, way, name, events)
            costs[name].values.append((cpu_seconds(field.pids()) - before) / events)
    return [
        Row(
            f"CPU of all processes per 104 B record published {way}, a filter that rejects {rejected}",
            "two",
            costs[rejected],
            "no filter",
            costs["no filter"],
            at_most(1) if rejected == "1 in 30" else None,
        )
        for rejected in REJECTED
    ]


def _publish(field: TypedField, way: str, name: str, events: int) -> None:
    """Until all that pass have been handled, and all is acknowledged."""
    consumer, producer = field.consumers[0], field.producer
    passing = events - round(events * REJECTED.get(name, 0.0))
    channel = f"{way}, {name}"
    answer(consumer.expect.remote(passing))
    if way == "in bulk":
        answer(producer.publish_in_bulk.remote("readings", events, channel))
    else:
        answer(producer.publish.remote("readings", events, [channel]))
    if passing:
        answer(consumer.ended.remote())


def _averaging(field: TypedField) -> Row:
    plain = field.connect_typed("grids", GRID, batches="numpy")
    derived = str(answer(field.consumers[0].subscribe_typed.remote("grids", GRID, LOOPS, AVERAGE, "numpy")))
    answer(field.consumers[0].expect.remote(2 * GRIDS))
    answer(field.producer.publish.remote("grids", GRIDS, ["grids"]))
    answer(field.consumers[0].ended.remote())
    sizes = answer(field.producer.bytes_per_event.remote("grids"))
    whole = Samples("bytes", higher_is_better=True, values=[sizes[plain]])
    average = Samples("bytes", higher_is_better=True, values=[sizes[derived]])
    what = "bytes per event of 37 by 253 numbers"
    return Row(what, "two", whole, "their average, on the derived channel", average, at_least(9000))
