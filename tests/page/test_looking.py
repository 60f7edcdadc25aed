"""The process that looks at a namespace, where there is no Ray to be seen."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import psutil
import pytest

from echannel_ray.errors import Disconnected
from echannel_ray.page import frames
from echannel_ray.page.looking import Telescope, _put
from tests.clusters import wait_until


@contextlib.asynccontextmanager
async def pointed_at(address):
    telescope = Telescope("default", address)
    task = asyncio.create_task(telescope.run())
    try:
        yield telescope
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture
def nobody():
    """An address where nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


async def test_without_ray_it_says_why_and_tries_again(nobody):
    async with pointed_at(nobody) as telescope:
        with pytest.raises(Disconnected, match="joining Ray"):
            await telescope.look(True)
        await asyncio.to_thread(wait_until, lambda: "no running Ray" in telescope.problem)
        first = telescope.pid
        await asyncio.to_thread(wait_until, lambda: telescope.pid != first)
        with pytest.raises(Disconnected, match=f"no running Ray found at '{nobody}'"):
            await telescope.look(True)
        with pytest.raises(Disconnected, match="no running Ray"):
            await anext(telescope.tap("trades", 5.0))
        assert not telescope.has_joined
        last = telescope.pid
    assert not psutil.pid_exists(last)


async def test_who_reads_a_tap_slowly_still_hears_of_its_end():
    waiting: asyncio.Queue[frames.Answer] = asyncio.Queue(2)
    for number in range(5):
        _put(waiting, frames.Tapped(1, "p", number))
    _put(waiting, frames.Failed(1, "over"))
    assert [waiting.get_nowait() for _ in range(2)] == [frames.Tapped(1, "p", 1), frames.Failed(1, "over")]


@pytest.mark.parametrize(
    "message",
    [frames.Look(3, True), frames.OpenTap(4, "a/<b>", 5.0), frames.CloseTap(4), frames.Failed(0, "x"), frames.Joined()],
)
def test_messages_come_back_as_they_were(message):
    data = frames.packed(message)
    assert frames.length_of(data[: frames.LENGTH_BYTES]) == len(data) - frames.LENGTH_BYTES
    read = frames.question if isinstance(message, frames.Question) else frames.answer
    assert read(data[frames.LENGTH_BYTES :]) == message
