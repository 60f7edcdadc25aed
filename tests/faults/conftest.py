"""The cluster of two nodes for all tests of faults; each module has a namespace of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import echannel_ray as ec
from tests.clusters import LastingCluster, LocalCluster
from tests.faults.scene import Scene


@pytest.fixture(scope="package")
def nodes(lasting: LastingCluster) -> Iterator[LocalCluster]:
    """Two nodes; the driver is on the first, the head."""
    with lasting.joined() as running:
        yield running


@pytest.fixture(scope="module")
def scene(nodes: LocalCluster, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """A namespace, and who takes part in it."""
    namespace = request.module.__name__.rpartition(".")[2].replace("_", "-")
    ec.connect(namespace=namespace)
    staged = Scene(nodes, namespace)
    yield staged
    staged.clear()
    ec.shutdown(namespace)


@pytest.fixture(autouse=True)
def _cleared(request: pytest.FixtureRequest) -> Iterator[None]:
    """No actor of a test outlives it."""
    yield
    if "scene" in request.fixturenames:
        request.getfixturevalue("scene").clear()
