"""What becomes of those behind modulators when the log that they get their events from can't be used for a while."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from echannel_ray.retained.log_feed import LogFeed


class Feed(LogFeed):
    """Its log fails as often as is said."""

    def __init__(self, failures: int) -> None:
        self.publisher: Any = SimpleNamespace(derived="")
        self._channel = "orders"
        self._endpoint: Any = SimpleNamespace(node=0xAB, closed=False)
        self.told: list[str] = []
        branch = SimpleNamespace(derived=SimpleNamespace(parent=""), tell=lambda error: self.told.append(str(error)))
        behind_it = SimpleNamespace(derived=SimpleNamespace(parent="another"), tell=None)
        stream = SimpleNamespace(closed=False, deleted=False)
        self._sink: Any = SimpleNamespace(branches=[branch, behind_it], stream=stream)
        self._store: Any = SimpleNamespace(log="log-1", closed=False, wait=lambda at, seconds: False)
        self._failures = failures
        self.runs = 0

    def _run(self) -> None:
        self.runs += 1
        if self.runs <= self._failures:
            raise OSError("no space left")


def test_consumers_are_told_and_it_goes_on_when_the_log_can_be_used_again():
    feed = Feed(failures=2)
    feed._go()
    assert feed.runs == 3
    assert len(feed.told) == 2
    assert "OSError: no space left; see to the disk of node 00000000000000ab" in feed.told[0]


def test_a_log_that_closed_is_not_tried_again():
    feed = Feed(failures=2)
    feed._store.closed = True
    feed._go()
    assert (feed.runs, feed.told) == (1, [])
