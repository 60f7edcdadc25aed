"""A clock that tests turn by hand."""

from __future__ import annotations

import pytest

from echannel_ray.modulators import clustering, sampling, throttling, windows


class Clock:
    """The time in seconds, as `.now`."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Modulators of this test take their time from here."""
    clock = Clock()
    for module in (clustering, sampling, throttling, windows):
        monkeypatch.setattr(module, "monotonic", clock)
    return clock
