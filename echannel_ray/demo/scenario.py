"""What happens in the demonstration, in the order in which it does."""

from __future__ import annotations

import io
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any, NamedTuple

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from rich.console import Console

import echannel_ray as ec
from echannel_ray.demo.parties import CountingConsumer, NumberedSource, ReceivedTally
from echannel_ray.demo.screen import Screen, ScreenRow
from echannel_ray.demo.verdict import ConsumerVerdict, find, microseconds, print_findings

RATE = 10_000
STEADY_SECONDS = 2.5
FLAT_OUT_SECONDS = 2.0
ROUND_TRIPS = 200
ACTOR_CALLS = 100
# The slow consumer handles at most 100 events each 11.5 ms, somewhat less than are published.
SLOW_EVERY, SLOW_SECONDS = 100, 0.0115
_POLL_SECONDS = 0.25
_ANSWER_SECONDS = 60


class Party(NamedTuple):
    """An actor that takes part, and its row on the screen."""

    row: ScreenRow
    actor: Any


class Scenario:
    """The parties on both nodes, and the driver, which is a consumer too."""

    def __init__(self, nodes: list[str]) -> None:
        channel = ec.channel("trades")
        self.mine = ScreenRow("driver", "node 1")
        self.tally = ReceivedTally()
        channel.subscribe(self.tally.count)
        consumers = [
            (ScreenRow("plain", "node 1"), (channel, None, 0, 0.0)),
            (ScreenRow("slow", "node 1"), (channel, None, SLOW_EVERY, SLOW_SECONDS)),
            (ScreenRow("worker a", "node 1"), (channel, "workers", 0, 0.0)),
            (ScreenRow("worker b", "node 2"), (channel, "workers", 0, 0.0)),
        ]
        made = [Party(row, _on(nodes, row, CountingConsumer).remote(*arguments)) for row, arguments in consumers]
        self.plain, self.slow, self.worker_a, self.worker_b = made
        self.consumers = made
        row = ScreenRow("producer", "node 2")
        self.source = Party(row, _on(nodes, row, NumberedSource).remote(channel))
        self.rows = [row, *(party.row for party in made), self.mine]
        self.work: list[Any] = []  # what the producer is doing, as references
        self._polled_at = time.monotonic()
        self.poll()

    def poll(self) -> None:
        """Read all counters; raise what the producer has raised."""
        ray.get(ray.wait(self.work, num_returns=len(self.work), timeout=0)[0] if self.work else [])
        parties = [self.source, *self.consumers]
        counters = ray.get([party.actor.events.remote() for party in parties], timeout=_ANSWER_SECONDS)
        now = time.monotonic()
        for party, events in zip(parties, counters, strict=True):
            party.row.counted(events, now - self._polled_at)
        self.mine.counted(self.tally.received, now - self._polled_at)
        self._polled_at = now

    def watch(self, screen: Screen, until: Callable[[], bool]) -> None:
        """Show the rates until a condition holds."""
        while not until():
            time.sleep(_POLL_SECONDS)
            self.poll()
            screen.show()


def play(nodes: list[str]) -> bool:
    """The whole of it; whether every event arrived, once and in order."""
    console = Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 120)
    # Ray prints that a worker was killed, at length: here that is the plot.
    with redirect_stdout(io.StringIO()):
        try:
            return _play(nodes, console)
        finally:
            ec.disconnect()


def _play(nodes: list[str], console: Console) -> bool:
    console.print("Joining from two Ray nodes on this machine: a producer and five consumers ...")
    scenario = Scenario(nodes)
    source = scenario.source.actor
    with Screen(scenario.rows, console) as screen:
        screen.say(f"the producer publishes {RATE:,} events/s; the slow consumer takes fewer, and holds up nobody")
        publishing = source.publish_at.remote(RATE)
        scenario.work.append(publishing)
        scenario.watch(screen, _after(STEADY_SECONDS))
        restarted = _kill_concentrator(nodes[1], scenario, screen)
        scenario.watch(screen, _after(STEADY_SECONDS))
        ray.get(source.stop.remote(), timeout=_ANSWER_SECONDS)
        steady = ray.get(publishing, timeout=_ANSWER_SECONDS)
        screen.say(f"{steady:,} published; the slow consumer catches up, and it and the group leave")
        deadline = time.monotonic() + _ANSWER_SECONDS
        scenario.watch(screen, lambda: scenario.slow.row.events >= steady or time.monotonic() > deadline)
        leaving = [party.actor.leave.remote() for party in scenario.consumers if party is not scenario.plain]
        ray.get(leaving, timeout=_ANSWER_SECONDS)
        screen.say("now as fast as it goes, on the cores that there are, to the two that stay")
        flat_out = source.publish_flat_out.remote(FLAT_OUT_SECONDS)
        scenario.work.append(flat_out)
        scenario.watch(screen, lambda: bool(ray.wait([flat_out], timeout=0)[0]))
        screen.say(f"and {ROUND_TRIPS} times `deliver`: each waits until both consumers have handled the event")
        round_trips = ray.get(source.round_trips.remote(ROUND_TRIPS), timeout=_ANSWER_SECONDS)
        calls = _actor_calls(scenario.plain.actor)
        published = ray.get(source.events.remote(), timeout=_ANSWER_SECONDS)
        deadline = time.monotonic() + _ANSWER_SECONDS
        staying = (scenario.plain.row, scenario.mine)
        scenario.watch(screen, lambda: all(r.events >= published for r in staying) or time.monotonic() > deadline)
    findings = _findings(scenario, steady, published)
    rate = ray.get(flat_out)
    console.print()
    print_findings(findings, console)
    console.print(
        f"\n{published:,} events published; flat out {rate:,.0f} events/s from one node to two consumers on the other\n"
        f"deliver, to both and back: {microseconds(round_trips)} (one Ray actor call here: {microseconds(calls)})\n"
        f"the concentrator of node 2 was killed under load, and was back after {restarted:.1f} s"
    )
    flawless = all(finding.is_flawless for finding in findings)
    console.print(
        "nothing lost, nothing twice, all in order" if flawless else "EVENTS WERE LOST, REPEATED OR REORDERED",
        style="bold green" if flawless else "bold red",
    )
    return flawless


def _on(nodes: list[str], row: ScreenRow, party: type) -> Any:
    node = nodes[0] if row.where == "node 1" else nodes[1]
    placed = NodeAffinitySchedulingStrategy(node, soft=False)
    remote: Any = ray.remote(party)
    return remote.options(num_cpus=0, max_concurrency=4, scheduling_strategy=placed)


def _kill_concentrator(node: str, scenario: Scenario, screen: Screen) -> float:
    """`kill -9` to what carries all events of the producer's node; seconds until its successor answers."""
    pid = next(part.pid for part in ec.status().concentrators if part.node_id == node)
    os.kill(pid, signal.SIGKILL)
    begun = time.monotonic()
    screen.say(f"kill -9 {pid}: the concentrator of node 2, through which all that the producer publishes travels")
    while not any(part.node_id == node and part.pid not in (0, pid) for part in ec.status().concentrators):
        if time.monotonic() - begun > _ANSWER_SECONDS:
            raise TimeoutError("the concentrator of node 2 was not started again")
        scenario.poll()
        screen.show()
    seconds = time.monotonic() - begun
    screen.say(f"Ray has started it again after {seconds:.1f} s; what was lost on the way is sent again")
    return seconds


def _after(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end


def _actor_calls(actor: Any) -> list[float]:
    found = []
    for _ in range(ACTOR_CALLS):
        begun = time.perf_counter()
        ray.get(actor.events.remote())
        found.append(time.perf_counter() - begun)
    return found


def _findings(scenario: Scenario, steady: int, published: int) -> list[ConsumerVerdict]:
    asked = [party.actor.result.remote() for party in scenario.consumers]
    plain, slow, worker_a, worker_b = ray.get(asked, timeout=_ANSWER_SECONDS)
    workers = [scenario.worker_a.row, scenario.worker_b.row]
    return [
        find([scenario.plain.row], [plain], published),
        find([scenario.slow.row], [slow], steady),
        find(workers, [worker_a, worker_b], steady),
        find([scenario.mine], [scenario.tally], published),
    ]
