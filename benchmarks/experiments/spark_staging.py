"""How much memory does a concentrator take while two gigabytes are staged there and committed?"""

from __future__ import annotations

import threading

import echannel_ray as ec
from echannel_ray.benchmarks.harness.handoff import Handoff
from echannel_ray.benchmarks.harness.rows import Row, at_most
from echannel_ray.benchmarks.harness.samples import Plan, Samples
from echannel_ray.benchmarks.harness.spark import ROW_BYTES, WARM_UP_ROWS, features, running_spark
from echannel_ray.benchmarks.harness.usage import resident_bytes

CHANNEL = "features"
STAGED_BYTES = 2_000_000_000
SHORT_STAGED_BYTES = 200_000_000
BOUND_BYTES = 192e6
LOOK_SECONDS = 0.05
GOALS = (at_most(BOUND_BYTES, "a concentrator's growth while 2 GB are staged", "growth of the concentrator .*"),)


class Peak:
    """Watches how much memory processes have, as long as its `with` block runs."""

    def __init__(self, pids: list[int]) -> None:
        self._pids = pids
        self.before_bytes = self.peak_bytes = resident_bytes(pids)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            self.peak_bytes = max(self.peak_bytes, resident_bytes(self._pids))

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()


def run(plan: Plan) -> list[Row]:
    """One write, exactly once, that nobody reads."""
    staged_bytes = SHORT_STAGED_BYTES if plan.short else STAGED_BYTES
    with running_spark() as spark, Handoff("bench-spark-staging") as handoff:
        handoff.open(CHANNEL, ec.Retention(disk=True))

        def write(rows: int) -> None:
            writer = features(spark, rows).write.format("echannel").mode("append")
            writer.option("channel", CHANNEL).option("endpoint", handoff.endpoint).save()

        write(WARM_UP_ROWS)  # after which Arrow and the log are there: they are no staged data
        with Peak(handoff.concentrator_pids()) as peak:
            write(staged_bytes // ROW_BYTES)
    growth = Samples("bytes", higher_is_better=False, values=[peak.peak_bytes - peak.before_bytes])
    note = f"{staged_bytes / 1e6:,.0f} MB written, from {peak.before_bytes / 1e6:.0f} MB up"
    return [Row("growth of the concentrator while it stages", "free", growth, note=note)]
