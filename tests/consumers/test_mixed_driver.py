"""The driver of events that come in mixed packs, without an endpoint."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

from echannel_ray.consumers.mixed_driver import MixedDriver

SOON = 10


class Pack:
    """A mixed pack of one subscription."""

    stamp = 0.0

    def __init__(self, events: list[Any], target: Any) -> None:
        self.events = events
        self._target = target

    def targets(self) -> list[Any]:
        return [self._target] * len(self.events)

    def subscription(self, place: int) -> int:
        return 1

    def count_into(self, counts: Any, count: int) -> Any:
        return counts

    def sampled(self, count: int, mask: int) -> list[int]:
        return []


def test_who_comes_second_leaves_the_one_at_work_alone():
    asked: list[Any] = []
    endpoint = SimpleNamespace(
        lock=threading.Lock(),
        crew=SimpleNamespace(submit=asked.append, leads=True),
        core=SimpleNamespace(mixed_handled=lambda pack, count: None),
        inboxes={},
    )
    driver = MixedDriver(cast("Any", endpoint))
    handled: list[Any] = []
    began, go_on = threading.Event(), threading.Event()

    def handler(event: Any) -> None:
        began.set()
        assert go_on.wait(SOON)
        handled.append(event)

    driver.put(cast("Any", Pack([1], handler)))
    driver.hand_over()  # before anybody has begun; to an inbox that is gone
    driver.put(cast("Any", Pack([2, 3], handler)))
    assert asked == [driver, driver]
    at_work = threading.Thread(target=driver.run)
    at_work.start()
    assert began.wait(SOON)
    driver.run()  # what was asked for first
    assert driver.is_busy
    go_on.set()
    at_work.join(SOON)
    assert handled == [2, 3]
    assert not driver.is_busy
