"""Rounds of reading, for all viewers together."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from echannel_ray.errors import Disconnected
from echannel_ray.page import namespace_watch
from echannel_ray.page.namespace_watch import NamespaceWatch, changes_since, rest_after
from echannel_ray.page.painter import Painter
from echannel_ray.page.picture import ChannelRow
from tests.page.made import FakeTelescope, line, painted


@pytest.fixture
def telescope(monkeypatch):
    monkeypatch.setattr(namespace_watch, "_EVERY_SECONDS", 0.01)
    monkeypatch.setattr(namespace_watch, "_RETRY_SECONDS", 0.01)
    return FakeTelescope()


@contextlib.asynccontextmanager
async def running(watch):
    task = asyncio.create_task(watch.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_it_looks_only_while_somebody_does(telescope):
    telescope.seen = [painted([line()])]
    watch = NamespaceWatch(telescope.look)
    async with running(watch):
        await asyncio.sleep(0.05)
        assert telescope.looks == []
        async with contextlib.aclosing(watch.changes()) as changes:
            for _ in range(3):
                await anext(changes)
        await asyncio.sleep(0.05)
        looks = len(telescope.looks)
        await asyncio.sleep(0.05)
        assert len(telescope.looks) == looks
        assert telescope.looks[:2] == [True, False]
        async with contextlib.aclosing(watch.changes()) as changes:
            await anext(changes)
        assert telescope.looks[looks] is True  # a rate over the pause would be of no use


async def test_viewers_share_rounds(telescope):
    telescope.seen = [painted([line()])]
    watch = NamespaceWatch(telescope.look)
    async with running(watch):
        viewers = [watch.changes() for _ in range(5)]
        for _ in range(4):
            await asyncio.gather(*(anext(viewer) for viewer in viewers))
        assert len(telescope.looks) <= 6
        for viewer in viewers:
            await viewer.aclose()
        assert watch.viewers == 0


async def test_a_failure_is_told_and_so_is_what_comes_after(telescope):
    telescope.seen = [painted([line()]), Disconnected("no running Ray"), painted([line()])]
    watch = NamespaceWatch(telescope.look)
    async with running(watch), contextlib.aclosing(watch.changes()) as changes:
        told = [await anext(changes) for _ in range(3)]
    assert [each.problem for each in told] == [None, "no running Ray", None]
    assert telescope.looks[2] is True


def test_a_viewer_is_told_what_has_changed():
    painter = Painter()
    known: dict[str, ChannelRow] = {}
    first = changes_since(known, painted([line("a", events_published=1), line("b"), line("c")], 1.0, painter))
    assert [row.channel for row in first.changed] == ["a", "b", "c"]
    changes_since(known, painted([line("a", events_published=1), line("b"), line("c")], 2.0, painter))
    third = changes_since(known, painted([line("a", events_published=9), line("b")], 3.0, painter))
    assert [row.channel for row in third.changed] == ["a"]
    assert third.gone == ["c"]
    assert known.keys() == {"a", "b"}


@pytest.mark.parametrize(("took", "rest"), [(0.01, 0.99), (0.2, 0.8), (0.5, 2.0), (5.0, 20.0), (30.0, 60.0)])
def test_rounds_that_take_long_are_rare(took, rest):
    assert rest_after(took) == pytest.approx(rest)
