"""What a concentrator does when its name server is another one: without Ray."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from echannel_ray.actors import startup
from echannel_ray.actors.restoration import Restoration

pytestmark = pytest.mark.usefixtures("no_ray")

SERVER = startup.name_server_name("ns")


class Names:
    """Which actors there are, and how often this concentrator has joined again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.actors = {SERVER: "first"}
        self.renewals = 0
        self.restoring = Restoration("ns", list, self.renew)
        monkeypatch.setattr(startup, "find", self.find)
        monkeypatch.setattr(startup, "ensure_managers", lambda *arguments: None)

    def find(self, name: str) -> SimpleNamespace:
        if name not in self.actors:
            raise LookupError(name)
        return SimpleNamespace(_actor_id=SimpleNamespace(hex=lambda: self.actors[name]))

    async def renew(self) -> None:
        self.renewals += 1


@pytest.fixture
def names(monkeypatch):
    return Names(monkeypatch)


async def test_the_one_that_was_joined_is_not_joined_again(names):
    await names.restoring.about_to_join()
    for _ in range(3):
        await names.restoring._look()
    assert names.renewals == 0


async def test_one_that_took_its_place_before_the_first_look_is_joined(names):
    await names.restoring.about_to_join()
    names.actors[SERVER] = "second"
    for _ in range(3):
        await names.restoring._look()
    assert names.renewals == 1


async def test_where_nobody_knew_which_was_joined_it_is_joined_again(names):
    names.actors.clear()
    await names.restoring.about_to_join()
    await names.restoring._look()
    names.actors[SERVER] = "first"
    await names.restoring._look()
    assert names.renewals == 1


async def test_what_could_not_be_joined_is_tried_again(names):
    await names.restoring.about_to_join()
    names.actors[SERVER] = "second"
    renew, failures = names.restoring._renew, [TimeoutError()]

    async def fail_first() -> None:
        if failures:
            raise failures.pop()
        await renew()

    names.restoring._renew = fail_first
    with pytest.raises(TimeoutError):
        await names.restoring._look()
    await names.restoring._look()
    assert names.renewals == 1
