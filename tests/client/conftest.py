"""An endpoint without Ray for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from echannel_ray.endpoint.process_endpoint import ProcessEndpoint
from tests.client.scripted import Script, scripted


@pytest.fixture
def ends() -> Iterator[tuple[ProcessEndpoint, Script]]:
    endpoint, script = scripted()
    yield endpoint, script
    endpoint.close()
    script.end()


@pytest.fixture
def endpoint(ends: tuple[ProcessEndpoint, Script]) -> ProcessEndpoint:
    return ends[0]


@pytest.fixture
def script(ends: tuple[ProcessEndpoint, Script]) -> Script:
    return ends[1]
