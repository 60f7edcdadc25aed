"""A namespace under load on two nodes, the server of its page, and a browser: one of each for a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import echannel_ray as ec
from tests.clusters import LocalCluster
from tests.faults.scene import Scene
from tests.page.browsing import CHROMIUM, DRIVER, Viewer, chromium
from tests.page.serving import TOKEN, Server

NAMESPACE = "page"


@pytest.fixture(scope="module")
def scene(two_nodes: LocalCluster) -> Iterator[Scene]:
    """Two nodes, and who takes part."""
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("chromium and chromium-driver are not installed")
    staged = Scene(two_nodes, NAMESPACE)
    ec.connect(NAMESPACE)
    yield staged
    staged.clear()


@pytest.fixture(scope="module")
def server(scene: Scene) -> Iterator[Server]:
    """Of the page."""
    running = Server(scene.cluster.address, NAMESPACE)
    yield running
    running.end()


@pytest.fixture(scope="module")
def browser(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Viewer]:
    """Who has logged in."""
    with chromium(tmp_path_factory.mktemp("profile")) as driver:
        driver.get(f"{server.url}?token={TOKEN.replace(' ', '+')}")
        yield Viewer(driver, server.url)


@pytest.fixture
def viewer(browser: Viewer) -> Iterator[Viewer]:
    """The same for each test, with a wide, light page; the console has to be silent."""
    browser.prefer(prefers_color_scheme="light", prefers_reduced_motion="no-preference")
    browser.resize(1280, 1000)
    browser.go()
    yield browser
    assert browser.complaints() == []
