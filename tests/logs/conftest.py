"""Logs to test with: each test that asks for `store` runs with one on disk and with a temporary one."""

import pytest

from echannel_ray.logs.entries import LogBounds
from echannel_ray.logs.store import Store


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "log.db")


@pytest.fixture(params=["disk", "temporary"])
def open_store(request, path):
    """Call it with bounds (none by default) to have a store; it is closed when the test ends."""
    opened = []

    def open_store(bounds=LogBounds()):  # noqa: B008
        opened.append(Store(path if request.param == "disk" else None, bounds))
        return opened[-1]

    yield open_store
    for each in opened:
        each.close()


@pytest.fixture
def store(open_store):
    return open_store()
