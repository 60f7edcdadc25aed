"""Where a concentrator's credentials come from, and when others take their place; without Ray."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import datetime, timedelta, timezone

import pytest

from echannel_ray.actors.wallet import Wallet
from echannel_ray.transport.security import Credentials
from tests.transport.issuer import Issuer, Mount
from tests.transport.links import credentials

pytestmark = pytest.mark.usefixtures("no_ray")


class NameServer:
    """Issues what it is told to."""

    def __init__(self) -> None:
        self.asked = 0
        self.taken: list[Credentials] = []
        self.next: asyncio.Future[Credentials] = asyncio.get_running_loop().create_future()

    async def ask(self) -> Credentials:
        self.asked += 1
        return await self.next

    def wallet(self) -> Wallet:
        return Wallet(1, self.ask, self.taken.append)


def good_for(seconds: float) -> Credentials:
    return dataclasses.replace(credentials(1), not_after=datetime.now(timezone.utc) + timedelta(seconds=seconds))


async def test_a_certificate_is_renewed_at_half_of_its_life():
    server = NameServer()
    wallet = server.wallet()
    wallet.take(good_for(3600))
    await wallet.look()
    assert server.asked == 0
    wallet.take(good_for(-1))
    looking = asyncio.create_task(wallet.look())
    await asyncio.sleep(0)
    assert server.asked == 1
    renewed = good_for(3600)
    server.next.set_result(renewed)
    await looking
    assert wallet.current is server.taken[-1] is renewed
    await wallet.look()
    assert server.asked == 1


async def test_who_hears_that_its_own_certificate_is_void_asks_for_another():
    server = NameServer()
    wallet = server.wallet()
    wallet.take(good_for(3600))
    assert not wallet.take_revoked(((2, 5),))
    assert not wallet.take_revoked(((2, 5),))
    assert wallet.take_revoked(((1, 7), (2, 5)))
    assert [taken.revoked for taken in server.taken] == [(), ((2, 5),), ((1, 7), (2, 5))]
    assert not wallet.take_revoked(((1, 7), (2, 9)))
    assert wallet.take_revoked(((1, 8), (2, 9)))


async def test_what_is_mounted_goes_before_what_is_issued(monkeypatch, tmp_path):
    issuer = Issuer()
    mount = Mount(tmp_path / "tls", issuer.issue())
    monkeypatch.setenv("ECHANNEL_TLS_DIR", str(mount.path))
    server = NameServer()
    wallet = server.wallet()
    assert wallet.describe() is None
    wallet.take(good_for(-1))
    first = wallet.describe()
    assert first is not None
    assert (first["source"], first["failures"]) == ("mounted", 0)
    assert not wallet.take_revoked(((1, 7),))
    mount.put(issuer.issue())
    for _ in range(3):
        await wallet.look()
    second = wallet.describe()
    assert second is not None
    assert second["sha256"] != first["sha256"]
    mount.put({})
    for _ in range(3):
        await wallet.look()
    assert wallet.describe() == {**second, "failures": 1}
    assert len(server.taken) == 2
    assert server.asked == 0
    assert "PRIVATE" not in repr(wallet.describe())
