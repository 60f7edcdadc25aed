"""A cluster of two nodes whose certificates are mounted, and an issuer of the tests' own that signs them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import echannel_ray as ec
from tests.clusters import LocalCluster
from tests.faults.scene import Scene, check_all_arrived, seconds_until_flowing
from tests.transport.issuer import Issuer, Mount


class MountedCluster:
    """Two nodes, each with a directory of its own."""

    def __init__(self, folder: Path) -> None:
        self.issuer = Issuer()
        self.mounts = [Mount(folder / f"node-{number}", self.issuer.issue()) for number in range(2)]
        environments = [{"ECHANNEL_TLS_DIR": str(mount.path)} for mount in self.mounts]
        self.running = LocalCluster(nodes=2, cpus=16, environments=environments)

    def settle(self) -> None:
        """As in the beginning."""
        for mount in self.mounts:
            mount.put(self.issuer.issue())


@pytest.fixture(scope="package")
def mounted() -> Iterator[MountedCluster]:
    with tempfile.TemporaryDirectory(prefix="ec") as folder:
        cluster = MountedCluster(Path(folder))
        yield cluster
        cluster.running.stop()


@pytest.fixture(scope="module")
def scene(mounted: MountedCluster, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """A namespace, and who takes part in it."""
    mounted.settle()
    namespace = request.module.__name__.rpartition(".")[2].replace("_", "-")
    ec.connect(namespace=namespace)
    staged = Scene(mounted.running, namespace)
    yield staged
    staged.clear()
    ec.shutdown(namespace)


@pytest.fixture(scope="module")
def undisturbed(scene: Scene) -> Iterator[None]:
    """A load in both directions during all tests of the module, of which everything arrives."""
    consumers = [scene.consumer(node, "load") for node in scene.cluster.nodes]
    loads = {i: scene.load(node, i, "load") for i, node in enumerate(scene.cluster.nodes, 1)}
    seconds_until_flowing(loads, consumers, "load")
    pids = scene.pids()
    yield
    seconds_until_flowing(loads, consumers, "load")
    assert check_all_arrived(loads, consumers, "load") > 0
    assert scene.pids() == pids, "a part was restarted"
