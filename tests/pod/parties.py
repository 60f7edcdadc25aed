"""Actors that publish and consume while their node is drained, and write down what they have done."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import ray

import echannel_ray as ec
from tests.faults.parties import Consumer, Load


class LastingLoad(Load):
    """Publishes until it can't; how many `publish` calls returned stands in a file then, with why the next did not."""

    def __init__(self, namespace: str, number: int, note: Path) -> None:
        super().__init__(namespace, number)
        self._note = note

    def _run(self, burst: int, pause_seconds: float, size_bytes: int) -> None:
        super()._run(burst, pause_seconds, size_bytes)
        temporary = self._note.with_suffix(".new")
        temporary.write_text(f"{self.published} {self._error!r}")
        temporary.rename(self._note)


class Relay:
    """A member of a group that publishes what it gets on another channel; a little slowly, so that something waits."""

    def __init__(self, namespace: str, number: int) -> None:
        ec.connect(namespace=namespace)
        self._number = number
        self._out = ec.channel("out").producer()
        self._pause = threading.Event()
        self._subscription = ec.channel("in").subscribe(self._handle, group="relays")
        self.relayed = 0

    def _handle(self, event: int) -> None:
        self._pause.wait(0.002)
        self._out.publish((self._number, event))
        self.relayed += 1

    def progress(self) -> int:
        return self.relayed


class Source:
    """Publishes numbers for the group."""

    def __init__(self, namespace: str) -> None:
        ec.connect(namespace=namespace)
        self._producer = ec.channel("in").producer()
        self._published = 0

    def publish(self, count: int) -> int:
        """So many more; how many there were in all."""
        for _ in range(count):
            self._published += 1
            self._producer.publish(self._published)
        return self._published


class Sink:
    """Notes what was relayed."""

    def __init__(self, namespace: str) -> None:
        ec.connect(namespace=namespace)
        self.got: list[tuple[int, int]] = []
        self._subscription = ec.channel("out").subscribe(self.got.append)

    def events(self) -> list[tuple[int, int]]:
        return list(self.got)


ConsumerActor: Any = ray.remote(Consumer)
LoadActor: Any = ray.remote(Load)
LastingLoadActor: Any = ray.remote(LastingLoad)
RelayActor: Any = ray.remote(Relay)
SourceActor: Any = ray.remote(Source)
SinkActor: Any = ray.remote(Sink)
