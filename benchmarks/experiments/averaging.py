"""Who averages a grid of numbers: the producer by E-code, so that one number travels, or the consumer that gets it all?

Grids of 37 columns; those of the paper have 253 rows. The consumer takes the mean by NumPy. The time is until all is
acknowledged, for each grid: what the producer's process computes, and how long it waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from echannel_ray.benchmarks.harness.field import answer
from echannel_ray.benchmarks.harness.programs import AVERAGE, averaging
from echannel_ray.benchmarks.harness.records import COLUMNS, ROWS, grid
from echannel_ray.benchmarks.harness.rows import Figure, Row, at_least
from echannel_ray.benchmarks.harness.samples import Plan, Samples
from echannel_ray.benchmarks.harness.typed import TypedField
from echannel_ray.benchmarks.harness.usage import cpu_seconds

SIZES = (8, 32, 128, ROWS)  # rows of a grid
PRODUCER, CONSUMER = "the producer averages", "the consumer averages"
PAPER = "ECho, figure 8B (2001)"
FIGURES = tuple(
    Figure(name, title, "size of a grid (bytes)", "CPU time for each grid", log_x=True, log_y=True, paper=PAPER)
    for name, title in (
        ("producer", "Averages of grids: the producer's CPU"),
        ("all processes", "Averages of grids: the CPU of all processes"),
    )
)
GOALS = (at_least(9000, "bytes of a grid, against those of its average", "bytes per event of .*", "their average, .*"),)
MEASURES = {
    "CPU of the producer": "producer",
    "CPU of all processes": "all processes",
    "time of the producer, waiting included": "",
}


def run(plan: Plan) -> list[Row]:
    """Grids of each size; then how many bytes travel."""
    rows = []
    with TypedField(plan, "bench-averaging") as field:
        for height in SIZES:
            _connect(field, height)
        field.place("two")
        for height in SIZES:
            for who in (PRODUCER, CONSUMER):
                _publish(field, height, who, 10)
        field.settle("two")
        for height in SIZES:
            rows += _costs(plan, field, height)
        rows.append(_bytes(field))
    return rows


def _channel(height: int, who: str) -> str:
    return f"{height} rows, {who}"


def _connect(field: TypedField, height: int) -> None:
    dtype = grid(height)
    field.make(f"{height} rows", dtype)
    field.connect_typed(_channel(height, PRODUCER), dtype, text=averaging(height), output=AVERAGE)
    field.connect_typed(_channel(height, CONSUMER), dtype, work=_mean)


def _mean(event: Any) -> Any:
    return event["grid"].mean()


def _publish(field: TypedField, height: int, who: str, grids: int) -> Mapping[str, float]:
    """Until all has been handled; for each grid, what `MEASURES` names."""
    answer(field.consumers[0].expect.remote(grids))
    before, producer_before = cpu_seconds(field.pids()), cpu_seconds([field.producer_pid])
    seconds = answer(field.producer.publish_seconds.remote(f"{height} rows", grids, _channel(height, who)))
    answer(field.consumers[0].ended.remote())
    used, used_by_producer = cpu_seconds(field.pids()) - before, cpu_seconds([field.producer_pid]) - producer_before
    return dict(zip(MEASURES, (used_by_producer / grids, used / grids, float(seconds) / grids), strict=True))


def _costs(plan: Plan, field: TypedField, height: int) -> list[Row]:
    grids = 400 if plan.short else 2000
    costs = {(who, what): Samples("s", higher_is_better=False) for who in (PRODUCER, CONSUMER) for what in MEASURES}
    order, generator = [PRODUCER, CONSUMER], plan.random()
    for _ in range(plan.rounds):
        generator.shuffle(order)
        for who in order:
            for what, value in _publish(field, height, who, grids).items():
                costs[who, what].values.append(value)
    return [
        Row(
            f"{what}, for each grid of {COLUMNS} by {height} numbers",
            "two",
            costs[PRODUCER, what],
            CONSUMER,
            costs[CONSUMER, what],
            figure=figure,
            x=grid(height).itemsize,
            series=PRODUCER,
        )
        for what, figure in MEASURES.items()
    ]


def _bytes(field: TypedField) -> Row:
    whole, average = (
        list(answer(field.producer.bytes_per_event.remote(_channel(ROWS, who))).values())
        for who in (CONSUMER, PRODUCER)
    )
    what = f"bytes per event of {COLUMNS} by {ROWS} numbers"
    return Row(
        what,
        "two",
        Samples("bytes", higher_is_better=True, values=whole),
        "their average, on the derived channel",
        Samples("bytes", higher_is_better=True, values=average),
    )
