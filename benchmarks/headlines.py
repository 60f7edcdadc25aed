"""The figures that the documents show: which rows of which experiments, and what stands beside them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from echannel_ray.benchmarks.cells import quantity
from echannel_ray.benchmarks.harness.rows import Row
from echannel_ray.benchmarks.result import Result

COLUMNS = {"one": "one core", "two": "two cores", "free": "not pinned"}


@dataclass(frozen=True)
class Headline:
    """One line: the rows with this measure; `beside` are the beginnings of the baselines' names."""

    what: str
    experiment: str
    measure: str
    beside: tuple[str, ...] = ()
    is_first: bool = False  # README has only the first ones


CALLS, LOOP, NO_PACKING = "Ray actor calls", "hand-written loop", "no packing"
HEADLINES = (
    Headline(
        "`publish`, one producer, one consumer process",
        "publish_rate",
        "publish, 100 bytes",
        (CALLS, "pyzmq PUB/SUB", LOOP),
        is_first=True,
    ),
    Headline(
        "the same of small dicts", "publish_rate", "publish, small dict", ("loop with pickle", "loop with msgspec")
    ),
    Headline("full speed, packed by the load", "packing", "100 B at full speed, adaptive", (NO_PACKING, "the best")),
    Headline("`publish` to 4 consumer processes, each", "sinks", "1 to 4, 100 B, each", ("pyzmq PUB/SUB", LOOP)),
    Headline(
        "one event every ms, until its handler, median",
        "packing_loads",
        "median latency, 1 every ms, adaptive",
        (NO_PACKING,),
        is_first=True,
    ),
    Headline(
        "`deliver` and its result",
        "round_trip",
        "deliver, 100 bytes",
        ("ray.get of an actor call", "Ray compiled graph", "bare sockets", "pyzmq", "Redis", "NATS"),
        is_first=True,
    ),
    Headline("1 MB events", "large", "1 MB", ("bare sockets", "one copy", "Zenoh"), is_first=True),
    Headline("64 channels in turn", "channels", "64 channels in turn, 100 B", ("1 channel",)),
    Headline("4,096 channels in turn", "channels", "4096 channels in turn, 100 B", ("1 channel",)),
    Headline("channels made one after the other", "channels", "channels created one after the other"),
    Headline(
        "producer's CPU per event with 8 consumers on another node",
        "cpu_fanout",
        "producer's CPU per event, 8 consumers",
        ("1 consumer",),
    ),
    Headline(
        "bytes that cross between the nodes then",
        "cpu_fanout",
        "bytes between nodes per event of 100 B, 8 consumers",
        ("1 consumer",),
    ),
    Headline("producer and consumer in one process", "same_process", "publish and handle in one process"),
    Headline(
        "a modulator that passes everything on, inline",
        "modulators",
        "a pass-through modulator, inline, 100 bytes",
        ("no modulator",),
    ),
    Headline(
        "a modulator that passes everything on, in a sandbox",
        "modulators",
        "a pass-through modulator, isolated, 100 bytes",
        ("no modulator",),
        is_first=True,
    ),
    Headline(
        "typed records of 100 B in bulk",
        "typed_rates",
        "100 B records in bulk, to batches of NumPy",
        is_first=True,
    ),
    Headline("typed records of 104 B one by one", "typed_rates", "104 B records one by one, instances of a class"),
    Headline("typed records of 100 KB in bulk", "typed_rates", "100 KB records, in bulk", ("bare sockets", "mpi4py")),
    Headline("the same, with padding", "typed_rates", "mixed 100 KB records, in bulk", ("mpi4py",)),
    Headline(
        "an E-code range filter over packs of 1,000, for an event",
        "ecode",
        "range filter on 100 B records, packs of 1000, per event, native",
        ("a NumPy expression",),
    ),
    Headline("E-code, from its text until it filters", "ecode", "E-code, from its text until it filters"),
    Headline("and until it is machine code", "ecode", "E-code, from its text until it is machine code"),
    Headline(
        "a filter that rejects 1 in 30: CPU of all processes for a record",
        "rejection",
        "CPU of all processes per 104 B record published one by one, a filter that rejects 1 in 30",
        ("no filter",),
    ),
    Headline(
        "an inline filter that rejects 90 % of small dicts, 4 consumers: producer's CPU for an event",
        "modulators",
        "producer's CPU per small dict event, inline filter that rejects 90 %, 4 consumers",
        ("no filter",),
    ),
    Headline(
        "bytes between nodes of the grid viewer, looking at a part",
        "grid_viewer",
        "bytes between nodes per event published, a view of a part",
        ("the whole atmosphere",),
    ),
    Headline(
        "installing a modulator in a warm sandbox",
        "handlers",
        "installing a modulator with 100 integers, isolated, median",
        ("deliver",),
    ),
    Headline(
        "replacing one there by `reset`",
        "handlers",
        "replacing a modulator with 100 integers, isolated by reset, median",
    ),
    Headline("replacing one inline", "handlers", "replacing a modulator with 100 integers, inline by reset, median"),
    Headline(
        "publishing a shared object, with a copy in an actor",
        "shared",
        "publish a shared object, prompt, one copy in an actor",
        ("deliver",),
    ),
    Headline(
        "the same, with a copy in a sandbox",
        "shared",
        "publish a shared object, prompt, one copy in an isolated modulator",
        ("deliver",),
    ),
    Headline(
        "`subscribe`, until it is effective everywhere",
        "subscribe",
        "subscribe to a channel with a producer elsewhere, median",
        ("ray.get of an actor call",),
    ),
    Headline("an idle concentrator, above an empty actor", "memory", "idle concentrator above an empty actor"),
    Headline("its memory for each idle channel", "memory", "concentrator: per channel without producers and consumers"),
    Headline(
        "Spark into an actor, exactly once, rows",
        "spark_sink",
        "until an actor has them",
        ("a sink that discards", "foreachPartition", "collect", "driver: "),
        is_first=True,
    ),
    Headline("the same by files", "spark_sink", "until an actor has them, by files", ("Parquet",)),
    Headline(
        "the first batch of a stage in an actor", "spark_first_batch", "the first batch in an actor", ("Parquet",)
    ),
    Headline("Spark reading what is retained", "spark_source", "read what is retained", ("a source",)),
    Headline("what a sink adds to a streaming epoch", "spark_epochs", "added by the sink"),
    Headline(
        "a concentrator's growth while 2 GB are staged", "spark_staging", "growth of the concentrator while it stages"
    ),
    Headline(
        "`publish` on a retained channel, on disk",
        "retention",
        "publish, 100 bytes, on disk",
        ("a channel that retains nothing",),
        is_first=True,
    ),
    Headline("replay of it to a handler", "retention", "replay of 1,000,000 events of 100 bytes on disk"),
    Headline(
        "service back after `kill -9` of a concentrator, worst of 20",
        "recovery",
        "kill -9 of a concentrator: events flow, worst",
    ),
    Headline("`subscribe` after that of a manager", "recovery", "kill -9 of a manager: subscribe returns, worst"),
    Headline("`deliver` fails after that of a node", "recovery", "kill -9 of a node: deliver fails, worst"),
)


def table(headlines: Iterable[Headline], results: Sequence[Result]) -> list[str]:
    """Markdown: a line for each headline whose experiment is among the results."""
    lines = ["| measure | " + " | ".join(COLUMNS.values()) + " | beside it, in the same run |", "|---|---|---|---|---|"]
    by_experiment = {result.experiment: result for result in results}
    for headline in headlines:
        result = by_experiment.get(headline.experiment)
        rows = [row for row in result.rows if row.measure == headline.measure and row.ours.values] if result else []
        if rows:
            lines.append(_line(headline, rows))
    return lines


def _line(headline: Headline, rows: Sequence[Row]) -> str:
    by_placement = {row.placement or "free": row for row in rows}
    ours = [
        quantity(by_placement[name].ours_figure, by_placement[name].ours.unit) if name in by_placement else ""
        for name in COLUMNS
    ]
    beside = []
    for beginning in headline.beside:
        theirs = [row for row in rows if row.against.startswith(beginning) and row.baseline is not None]
        if theirs:
            figures = [quantity(row.baseline_figure, row.baseline.unit) for row in theirs if row.baseline is not None]
            beside.append(f"{theirs[0].against.partition(',')[0]} {' and '.join(figures)}")
    return f"| {headline.what} | {' | '.join(ours)} | {'; '.join(beside)} |"
