"""The process that looks at a namespace, where there is no Ray to be seen."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import psutil
import pytest

from echannel_ray.errors import Disconnected
from echannel_ray.page import looker_frames
from echannel_ray.page.telescope import Telescope, _put
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
    waiting: asyncio.Queue[looker_frames.Answer] = asyncio.Queue(2)
    for number in range(5):
        _put(waiting, looker_frames.Tapped(1, "p", number))
    _put(waiting, looker_frames.LookFailed(1, "over"))
    assert [waiting.get_nowait() for _ in range(2)] == [
        looker_frames.Tapped(1, "p", 1),
        looker_frames.LookFailed(1, "over"),
    ]


@pytest.mark.parametrize(
    "message",
    [
        looker_frames.LookAround(3, True),
        looker_frames.OpenTap(4, "a/<b>", 5.0),
        looker_frames.CloseTap(4),
        looker_frames.LookFailed(0, "x"),
        looker_frames.LookerJoined(),
    ],
)
def test_messages_come_back_as_they_were(message):
    data = looker_frames.packed(message)
    assert looker_frames.length_of(data[: looker_frames.LENGTH_BYTES]) == len(data) - looker_frames.LENGTH_BYTES
    read = looker_frames.question if isinstance(message, looker_frames.Question) else looker_frames.answer
    assert read(data[looker_frames.LENGTH_BYTES :]) == message
