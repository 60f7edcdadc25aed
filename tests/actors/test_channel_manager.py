"""The manager's shell against scripted parts: without Ray."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from echannel_ray.actors import channel_manager, startup
from echannel_ray.actors.channel_manager import ChannelManager
from echannel_ray.core.counters import add_up, node_key
from echannel_ray.core.messages import (
    ConcentratorInfo,
    Definition,
    DeleteChannel,
    Derive,
    Derived,
    Directory,
    GetChannelStats,
    GetModulator,
    Installed,
    Membership,
    OpenChannel,
    RefusedModulator,
    RegisterProducer,
    Registrations,
    Release,
    Shipment,
    StatsWanted,
    Subscribe,
    Unconfirmed,
    Unsubscribe,
)
from echannel_ray.errors import ChannelDeleted, Closed, EChannelError, ModulatorRefused, ServiceNotGranted
from echannel_ray.transport import wire

pytestmark = pytest.mark.usefixtures("no_ray")

NODE, OTHER_NODE = 1, 2
MODULATOR = Shipment("Modulator", "isolated", pickle.dumps((dict, {"low": 1}), protocol=5))
OTHER_MODULATOR = Shipment("Modulator", "isolated", pickle.dumps((dict, {"low": 2}), protocol=5))
IDLE = Definition("idle", None, {}, 3)


def info(node: int) -> ConcentratorInfo:
    name = startup.concentrator_name("ns", node)
    return ConcentratorInfo(node, f"{node:016x}", name, "127.0.0.1", 1, 2, 3, 1)


class Parts:
    """A name server and two concentrators, as `ask` and the links show them. One that is `down` does not answer."""

    def __init__(self) -> None:
        self.down: set[int] = set()
        self.dead: set[int] = set()
        self.held: dict[int, asyncio.Event] = {}
        self.waiting: set[int] = set()  # those whose push is held
        self.registrations: dict[int, list[Registrations]] = {}
        self.pushed: list[tuple[int, int, Any]] = []
        self.recorded: list[tuple[list[Definition], list[Definition]]] = []
        self.calls_to_name_server = 0
        self.failures_of_name_server = 0  # so many of the next calls
        self.suspicions = 0
        self.unconfirmed: dict[int, int] = {}  # endpoint: so many of its next answers are late
        self.refusing: dict[int, EChannelError] = {}  # endpoint: why it takes no modulator
        self.manager: ChannelManager

    async def ask(self, name: str, method: str, *args: Any, timeout: float) -> Any:
        await asyncio.sleep(0)
        if name == startup.name_server_name("ns"):
            self.calls_to_name_server += 1
            if self.failures_of_name_server:
                self.failures_of_name_server -= 1
                raise TimeoutError(name)
            return await self.name_server(method, *args)
        node = next(node for node in (NODE, OTHER_NODE) if name == startup.concentrator_name("ns", node))
        if node in self.down | self.dead:
            raise TimeoutError(name)
        assert method == "registrations"
        return self.registrations.get(node, [])

    # What the manager's links are asked for.

    def begin(self) -> None:
        pass

    def take_directory(self, directory: Directory) -> None:
        pass

    async def push(self, node: int, endpoints: list[int], message: Any, timeout: float) -> list[Any]:
        await asyncio.sleep(0)
        if node in self.down | self.dead:
            raise TimeoutError(node)
        if node in self.held:
            self.waiting.add(node)
            await self.held[node].wait()
        self.pushed += [(node, endpoint, message) for endpoint in endpoints]
        return [self.answer(endpoint, message) for endpoint in endpoints]

    def answer(self, endpoint: int, pushed: Any) -> Any:
        if isinstance(pushed, StatsWanted):
            return {"events_published": 1}
        if self.unconfirmed.get(endpoint):
            self.unconfirmed[endpoint] -= 1
            return Unconfirmed()
        error = self.refusing.get(endpoint)
        if error is None:
            return Installed()
        return Installed(
            tuple(RefusedModulator(derived.key, 1, wire.encode_error(error)) for derived in pushed.derived)
        )

    async def name_server(self, method: str, *args: Any) -> Any:
        if method == "manager_started":
            return 100, Directory(1, 1, ("m",), (info(NODE), info(OTHER_NODE))), [IDLE]
        if method == "node_gone":
            self.suspicions += 1
            if args[0] in self.dead:
                await self.manager.node_gone(args[0])
            return args[0] in self.dead
        assert method == "record_definitions"
        self.recorded.append(args)
        return None


@pytest.fixture
def parts() -> Parts:
    return Parts()


@pytest.fixture
async def manager(parts: Parts) -> ChannelManager:
    links: Any = parts
    parts.manager = ChannelManager("ns", 0, 1, parts.ask, links)
    return parts.manager


async def until(predicate: Callable[[], object]) -> None:
    deadline = asyncio.get_running_loop().time() + 10
    while not predicate():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.001)


async def prepare(manager: ChannelManager) -> Definition:
    definition: Definition = await manager.request(NODE, 10, OpenChannel("c", None, {}))
    await manager.request(NODE, 10, RegisterProducer("c", 1))
    return definition


async def test_subscribe_is_answered_when_every_producer_has_confirmed(manager, parts):
    await prepare(manager)
    await manager.request(OTHER_NODE, 20, RegisterProducer("c", 1))
    parts.held[NODE] = asyncio.Event()
    waiting = asyncio.ensure_future(manager.request(OTHER_NODE, 21, Subscribe("c", 1, None, "")))
    await until(lambda: parts.pushed)
    assert NODE in parts.waiting
    assert not waiting.done()
    parts.held[NODE].set()
    membership = await waiting
    assert {(node, endpoint) for node, endpoint, pushed in parts.pushed if pushed == membership} == {(1, 10), (2, 20)}


async def test_subscribes_that_come_together_are_pushed_together(manager, parts):
    await prepare(manager)
    parts.held[NODE] = asyncio.Event()
    first = asyncio.ensure_future(manager.request(NODE, 30, Subscribe("c", 0, None, "")))
    await until(lambda: NODE in parts.waiting)
    others = [asyncio.ensure_future(manager.request(NODE, 30, Subscribe("c", n, None, ""))) for n in range(1, 50)]
    await asyncio.sleep(0.01)
    parts.held[NODE].set()
    await asyncio.gather(first, *others)
    versions = [pushed.version for _, _, pushed in parts.pushed]
    assert len(versions) == 2, "the one that was under way, and the newest for all others"
    assert len(parts.pushed[-1][2].consumers) == 50


async def test_one_that_is_held_up_delays_no_other_channel(manager, parts):
    await prepare(manager)
    await manager.request(NODE, 11, OpenChannel("d", None, {}))
    await manager.request(OTHER_NODE, 11, RegisterProducer("d", 1))
    parts.held[NODE] = asyncio.Event()
    waiting = asyncio.ensure_future(manager.request(NODE, 30, Subscribe("c", 1, None, "")))
    await manager.request(NODE, 30, Subscribe("d", 2, None, ""))
    assert not waiting.done()
    assert {pushed.channel for _, _, pushed in parts.pushed} == {"d"}
    parts.held[NODE].set()
    assert (await waiting).consumers


async def test_a_push_is_repeated_until_the_concentrator_is_back(manager, parts):
    await prepare(manager)
    parts.down.add(NODE)
    waiting = asyncio.ensure_future(manager.request(OTHER_NODE, 20, Subscribe("c", 1, None, "")))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    parts.down.clear()
    assert (await waiting).consumers


async def test_a_node_that_is_dead_need_not_confirm(manager, parts):
    await prepare(manager)
    parts.dead.add(NODE)
    membership = await manager.request(OTHER_NODE, 20, Subscribe("c", 1, None, ""))
    assert [consumer.endpoint for consumer in membership.consumers] == [20]
    await manager.request(OTHER_NODE, 20, Unsubscribe("c", 1, {}))
    assert parts.pushed == []


async def test_an_endpoint_that_died_need_not_confirm(manager, parts):
    await prepare(manager)
    parts.down.add(NODE)
    waiting = asyncio.ensure_future(manager.request(OTHER_NODE, 20, Subscribe("c", 1, None, "")))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    await manager.endpoints_gone(NODE, [10])
    assert [consumer.endpoint for consumer in (await waiting).consumers] == [20]
    assert parts.pushed == []


async def test_requests_wait_until_all_have_said_what_they_have(manager, parts):
    parts.down.add(OTHER_NODE)
    definition = Definition("c", None, {}, 7)
    parts.registrations = {
        NODE: [Registrations(NODE, 10, "c", definition, ((1, ""),), ())],
        OTHER_NODE: [Registrations(OTHER_NODE, 20, "c", definition, (), ((1, None, "", "", 0),))],
    }
    waiting = asyncio.ensure_future(manager.request(NODE, 10, RegisterProducer("c", 2)))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    assert await manager.state() == "rebuilding"
    parts.down.clear()
    membership = await waiting
    assert [consumer.endpoint for consumer in membership.consumers] == [20]
    await until(lambda: parts.pushed and parts.recorded)
    assert parts.pushed == [(NODE, 10, membership)]
    assert {definition.channel for kept, _ in parts.recorded for definition in kept} == {"c", "idle"}


async def test_a_deletion_is_told_to_all_and_recorded_before_it_is_answered(manager, parts):
    definition = await prepare(manager)
    await manager.request(OTHER_NODE, 20, Subscribe("c", 1, None, ""))
    parts.pushed.clear()
    await manager.request(OTHER_NODE, 21, DeleteChannel("c"))
    assert {(node, endpoint) for node, endpoint, _ in parts.pushed} == {(NODE, 10), (OTHER_NODE, 20)}
    assert all(isinstance(pushed, Membership) and pushed.deleted for _, _, pushed in parts.pushed)
    assert any(definition in deleted for _, deleted in parts.recorded)


async def test_an_outage_of_the_name_server_is_logged_when_it_begins_and_ends(manager, parts, monkeypatch, caplog):
    monkeypatch.setattr(channel_manager, "_PAUSE_SECONDS", 0.001)
    await until(lambda: parts.recorded)  # what it does when it has started
    for channel in ("c", "d"):
        calls, parts.failures_of_name_server = parts.calls_to_name_server, 5
        caplog.clear()
        await manager.request(NODE, 10, OpenChannel(channel, None, {}))
        await until(lambda: parts.calls_to_name_server == calls + 6)  # noqa: B023
        await asyncio.sleep(0.01)
        first, last = (record.getMessage() for record in caplog.records)
        assert "no answer" in first
        assert "again" in last
        assert parts.recorded[-1][0][0].channel == channel


async def test_late_reports_of_an_earlier_concentrator_do_not_count(manager, parts):
    definition = await prepare(manager)
    await manager.report([], OTHER_NODE, 5)
    registrations = [Registrations(OTHER_NODE, 20, "c", definition, (), ((1, None, "", "", 0),))]
    await manager.report(registrations, OTHER_NODE, 4)
    assert not (await manager.request(NODE, 10, RegisterProducer("c", 1))).consumers
    await manager.report(registrations, OTHER_NODE, 5)
    assert (await manager.request(NODE, 10, RegisterProducer("c", 1))).consumers
    await until(lambda: parts.pushed)


async def test_stats_are_summed_and_a_silent_node_is_missing(manager, parts):
    await prepare(manager)
    await manager.request(OTHER_NODE, 20, RegisterProducer("c", 1))
    parts.down.add(OTHER_NODE)
    stats = await manager.request(NODE, 10, GetChannelStats("c"))
    nodes = {node_key(NODE): {"producers": 1, "events_published": 1}, node_key(OTHER_NODE): {"producers": 1}}
    assert stats.pop("nodes") == nodes
    assert stats == {"events_published": 1, "producers": 2, "consumers": 0, "consumer_lag_events": 0}


# ---- what is derived ------------------------------------------------------------------------------------------------


def with_modulator(subscription: int = 1, shipment: Shipment = MODULATOR, **more: Any) -> Subscribe:
    return Subscribe("c", subscription, None, shipment.code.hex(), shipment=shipment, **more)


def memberships(parts: Parts, endpoint: int) -> list[Membership]:
    return [pushed for _, to, pushed in parts.pushed if to == endpoint]


async def test_a_modulator_is_installed_before_its_consumer_is_told(manager, parts):
    await prepare(manager)
    membership = await manager.request(OTHER_NODE, 20, with_modulator())
    first, second = memberships(parts, 10)
    assert not first.consumers
    assert first.derived[0].shipment == MODULATOR
    assert [consumer.derived for consumer in second.consumers] == [first.derived[0].key]
    assert membership == second


async def test_who_wants_what_is_installed_does_not_wait_twice(manager, parts):
    await prepare(manager)
    await manager.request(OTHER_NODE, 20, with_modulator())
    parts.pushed.clear()
    await manager.request(NODE, 30, with_modulator())
    assert len(memberships(parts, 10)) == 1


async def test_a_refusal_leaves_nothing_and_is_raised(manager, parts):
    await prepare(manager)
    await manager.request(OTHER_NODE, 11, RegisterProducer("c", 1))
    parts.refusing[11] = ServiceNotGranted("no Directory here", service="Directory", producer="11")
    with pytest.raises(ServiceNotGranted) as caught:
        await manager.request(OTHER_NODE, 20, with_modulator())
    assert caught.value.facts == {"service": "Directory", "producer": "11"}
    for endpoint in (10, 11):
        last = memberships(parts, endpoint)[-1]
        assert (last.derived, last.consumers) == ((), ())
    with pytest.raises(ServiceNotGranted):
        await manager.request(OTHER_NODE, 20, Derive("c", 1, "", MODULATOR))


async def test_who_comes_during_an_installation_has_its_outcome(manager, parts):
    await prepare(manager)
    for error in (None, ModulatorRefused("too large", reason="size")):
        parts.pushed.clear()
        parts.held[NODE] = asyncio.Event()
        parts.waiting.clear()
        first = asyncio.ensure_future(manager.request(OTHER_NODE, 20, with_modulator()))
        await until(lambda: NODE in parts.waiting)
        second = asyncio.ensure_future(manager.request(NODE, 30, Derive("c", 1, "", MODULATOR)))
        await asyncio.sleep(0.01)
        if error is not None:
            parts.refusing[10] = error
        parts.held[NODE].set()
        results = await asyncio.gather(first, second, return_exceptions=True)
        if error is None:
            membership, derived = results
            assert membership.consumers[0].derived == derived.key
            assert len(memberships(parts, 10)) == 2
            await manager.request(NODE, 30, Release("c", 1))
            await manager.request(OTHER_NODE, 20, Unsubscribe("c", 1, {}))
        else:
            assert [type(result) for result in results] == [ModulatorRefused] * 2
            assert memberships(parts, 10)[-1].derived == ()


async def test_a_slow_installation_is_asked_for_again_and_nobody_is_suspected(manager, parts):
    await prepare(manager)
    await manager.request(NODE, 11, RegisterProducer("c", 1))
    parts.unconfirmed[10] = 3
    await manager.request(OTHER_NODE, 20, with_modulator())
    assert parts.suspicions == 0
    versions = [membership.version for membership in memberships(parts, 10)]
    assert len(versions) == 5
    assert len(memberships(parts, 11)) == 2, "who has confirmed is not asked again"


async def test_a_subscription_that_is_closed_meanwhile_does_not_come_to_life(manager, parts):
    await prepare(manager)
    parts.held[NODE] = asyncio.Event()
    waiting = asyncio.ensure_future(manager.request(OTHER_NODE, 20, with_modulator()))
    await until(lambda: NODE in parts.waiting)
    closing = asyncio.ensure_future(manager.request(OTHER_NODE, 20, Unsubscribe("c", 1, {})))
    await asyncio.sleep(0.01)
    parts.held[NODE].set()
    await closing
    with pytest.raises(Closed):
        await waiting
    last = memberships(parts, 10)[-1]
    assert (last.derived, last.consumers) == ((), ())


async def test_a_deletion_ends_who_waits_for_an_installation(manager, parts):
    await prepare(manager)
    parts.held[NODE] = asyncio.Event()
    waiting = asyncio.ensure_future(manager.request(OTHER_NODE, 20, with_modulator()))
    await until(lambda: NODE in parts.waiting)
    deleting = asyncio.ensure_future(manager.request(OTHER_NODE, 21, DeleteChannel("c")))
    await asyncio.sleep(0.01)
    parts.held[NODE].set()
    await deleting
    with pytest.raises(ChannelDeleted):
        await waiting


async def test_a_reset_is_one_change(manager, parts):
    await prepare(manager)
    await manager.request(OTHER_NODE, 20, with_modulator())
    parts.pushed.clear()
    await manager.request(OTHER_NODE, 20, with_modulator(shipment=OTHER_MODULATOR, handler_version=1))
    before, after = memberships(parts, 10)
    assert (len(before.derived), len(after.derived)) == (2, 1)
    assert before.consumers[0].handler_version == 0
    assert (after.consumers[0].handler_version, after.consumers[0].derived) == (1, after.derived[0].key)
    parts.pushed.clear()
    await manager.request(OTHER_NODE, 20, Subscribe("c", 1, None, "", handler_version=2))
    (last,) = memberships(parts, 10)
    assert (last.derived, last.consumers[0].derived) == ((), "")


async def test_code_is_given_to_who_asks(manager, parts):
    await prepare(manager)
    derived = await manager.request(OTHER_NODE, 20, Derive("c", 1, "", MODULATOR))
    assert isinstance(derived, Derived)
    assert await manager.request(NODE, 10, GetModulator("c", derived.key)) == derived
    await manager.request(OTHER_NODE, 20, Release("c", 1))
    assert await manager.request(NODE, 10, GetModulator("c", derived.key)) is None
    await until(lambda: memberships(parts, 10)[-1].derived == ())


async def test_what_is_no_modulator_is_refused_before_anybody_is_told(manager, parts):
    await prepare(manager)
    with pytest.raises(ModulatorRefused):
        await manager.request(OTHER_NODE, 20, with_modulator(shipment=Shipment("M", "isolated", b"nonsense")))
    assert parts.pushed == []


async def test_counters_of_what_is_derived_have_its_name(manager, parts):
    await prepare(manager)
    derived = await manager.request(OTHER_NODE, 20, Derive("c", 1, "", MODULATOR))
    await manager.request(OTHER_NODE, 20, with_modulator())
    stats = await manager.request(NODE, 10, GetChannelStats("c"))
    assert stats["consumers"] == 0
    assert stats["derived"] == {
        derived.key: {
            "channel": f"c~{derived.key[:12]}",
            "parent": "c",
            "modulator": "Modulator",
            "producers": 0,
            "consumers": 1,
            "nodes": {node_key(OTHER_NODE): {"consumers": 1}},
        }
    }


def test_counters_are_added_by_name():
    sums: dict[str, Any] = {}
    add_up(sums, {"n": 1, "links": {"a": 2}, "what": "x"})
    add_up(sums, {"n": 2, "links": {"a": 1, "b": 1}})
    assert sums == {"n": 3, "links": {"a": 3, "b": 1}, "what": "x"}
