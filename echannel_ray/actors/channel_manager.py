"""The channel manager: the shell around `core.membership.ChannelBook`.

It answers requests from the book and performs the book's instructions. It never blocks its loop, and a part that does
not answer holds up only what has to wait for that part.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from echannel_ray.actors.actor_door import open_actors_door, silent_among
from echannel_ray.actors.concentrator_links import ConcentratorLinks
from echannel_ray.actors.instruments import RayInstruments, flush_seconds
from echannel_ray.actors.lag_metrics import Lags
from echannel_ray.actors.namespace_actor import NamespaceActor
from echannel_ray.actors.startup import ask, describe_this_actor, manager_name, name_server_name
from echannel_ray.core.counters import add_up, sums_by_node
from echannel_ray.core.lags import LAG, take_off
from echannel_ray.core.membership import ChannelBook, InstallDerived, Instruction, PushMembership, RecordDefinition
from echannel_ray.core.messages import (
    REPLAY,
    ConcentratorInfo,
    Definition,
    DeleteChannel,
    Derive,
    Directory,
    GetChannelStats,
    Installed,
    ManagerRequest,
    RefusedModulator,
    Registrations,
    Shipment,
    StatsWanted,
    Subscribe,
    Unconfirmed,
    Unsubscribe,
)
from echannel_ray.endpoint.metrics_reporter import metrics_are_on
from echannel_ray.errors import EChannelError, ModulatorRefused
from echannel_ray.transport import wire
from echannel_ray.transport.security import Credentials

logger = logging.getLogger(__name__)

Ask = Callable[..., Awaitable[Any]]  # `startup.ask`, or a fake

# After this long without an answer an attempt is made anew, and the name server looks whether that node is still there.
_ATTEMPT_SECONDS = 2.0
# Between a definition and its second copy; meanwhile the process that made the channel has one.
_RECORD_SECONDS = 0.01
# A concentrator that is there for Ray and answers nothing must not keep all channels closed for good. But to go on
# without it takes its consumers for gone: so not before the `PEER_TIMEOUT_SECONDS` of `peers`, after which it answers
# also for endpoints that it misses.
_REBUILD_SECONDS = 40.0
_NAME_SERVER_SECONDS = 30.0
_PAUSE_SECONDS = 1.0
_NOTHING = (0, Installed())


class _Lane:
    """Pushes about one channel to one node: one at a time, and who waits behind one goes along with the next."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0
        self.wanted: set[int] = set()  # endpoints that have to hear
        self.confirmed: dict[int, tuple[int, Installed]] = {}  # endpoint: version, answer


class ChannelManager(NamespaceActor):
    """Keeps the books of its share of a namespace's channels; an actor on the head node, a few per namespace."""

    def __init__(
        self, namespace: str, slot: int, managers: int, ask: Ask = ask, links: ConcentratorLinks | None = None
    ) -> None:
        """`ask` and `links` are for tests, which have other parts there."""
        super().__init__(f"manager {slot} of {namespace!r}")
        self._namespace = namespace
        self._slot = slot
        self._managers = managers
        self._ask = ask
        self._links = links or ConcentratorLinks(namespace, slot, self._answer, self._certify, self._in_background)
        # Requests wait for it, until the name server and all concentrators have said what they know.
        self._serving = asyncio.Event()
        self._book_made = asyncio.Event()
        self._book: ChannelBook
        self._directory: Directory | None = None
        self._incarnations: dict[int, int] = {}  # node: that of its concentrator's latest report
        self._lanes: dict[tuple[int, str], _Lane] = {}
        self._installations: dict[tuple[int, tuple[str, ...]], asyncio.Task[EChannelError | None]] = {}
        self._unrecorded: list[RecordDefinition] = []
        self._recording = asyncio.Lock()
        self._name_server_answers = True
        self._lags = Lags(namespace, self._stats, RayInstruments()) if metrics_are_on() else None
        self._door = open_actors_door(manager_name(namespace, slot), {"health": self.health})
        # Ray runs this constructor on the actor's loop, also when it restarts the actor.
        self._in_background(self._rebuild())

    # ---- what concentrators ask and report -------------------------------------------------------------------------

    async def _answer(self, node: int, endpoint: int, request: bytes) -> bytes:
        """What an endpoint gets for its request; both travel by a link."""
        try:
            return wire.encode(await self.request(node, endpoint, wire.decode(request)))
        except EChannelError as error:
            return wire.encode_error(error)
        except Exception as error:
            logger.exception("a request of endpoint %016x failed", endpoint)
            return wire.encode_error(EChannelError(f"the request failed in its manager: {error!r}"))

    async def request(self, node: int, endpoint: int, message: ManagerRequest) -> Any:
        """The answer to an endpoint's request, or its error; waits for whoever has to confirm first."""
        await self._serving.wait()
        reply, instructions = self._book.requested(node, endpoint, message)
        if isinstance(message, Subscribe | Derive) and reply is None:
            for each in instructions:
                assert isinstance(each, InstallDerived)
                await self._install(each)
            reply, instructions = self._book.resumed(node, endpoint, message)
        if isinstance(message, Subscribe | Unsubscribe | DeleteChannel):
            await asyncio.gather(*map(self._perform, instructions))
            if isinstance(message, Subscribe):
                return self._book.membership(message.channel)  # others came and went while this one waited
        else:
            self._perform_in_background(instructions)
        if isinstance(message, GetChannelStats):
            return await self._stats(message.channel)
        return reply

    async def endpoints_gone(self, node: int, endpoints: Iterable[int]) -> None:
        """Take these processes of a node out of the books: they have ended."""
        await self._book_made.wait()
        for endpoint in endpoints:
            self._perform_in_background(self._book.endpoint_gone(endpoint))

    async def node_gone(self, node: int) -> None:
        """Take a node out of the books: the name server has made sure that it is dead."""
        await self._book_made.wait()
        self._perform_in_background(self._book.node_gone(node))

    async def report(self, registrations: Iterable[Registrations], node: int, incarnation: int) -> None:
        """What endpoints of a node have open, after they attached to its concentrator."""
        await self._book_made.wait()
        if incarnation < self._incarnations.get(node, 0):
            return  # from before that concentrator's restart: what counts is what it said since
        self._incarnations[node] = incarnation
        self._book.nodes_present([node])
        for reported in registrations:
            self._perform_in_background(self._book.registrations_reported(reported))

    async def active(self, channels: list[str]) -> None:
        """Have the lag of these channels asked for: they had something to do on a node lately."""
        if self._lags is not None:
            self._lags.noted(channels)

    # ---- what the name server asks and tells -----------------------------------------------------------------------

    async def directory_changed(self, directory: Directory) -> None:
        """Concentrators came or left. Who left is not taken for dead here: `node_gone` says that."""
        await self._book_made.wait()
        known = self._directory
        if known is None or directory.recency > known.recency:
            self._directory = directory
            self._book.nodes_present(info.node for info in directory.concentrators)
            self._links.take_directory(directory)

    async def definitions(self) -> list[Definition]:
        """The definitions of all its channels: none yet before it has asked the name server for its copy."""
        return self._book.definitions() if self._book_made.is_set() else []

    async def describe(self) -> dict[str, Any]:
        """Who this is and what it keeps; answered in each state."""
        made = self._book_made.is_set()
        return {
            **describe_this_actor(),
            "slot": self._slot,
            "state": await self.state(),
            "epoch": self._book.epoch if made else 0,
            "channels": self._book.channels() if made else [],
            "endpoints": self._book.endpoints() if made else 0,
        }

    async def health(self) -> dict[str, Any]:
        """The manager's state, and which actors it needs that don't answer: for the probe of its pod."""
        return {"state": await self.state(), "silent": await silent_among([name_server_name(self._namespace)])}

    async def state(self) -> str:
        """The manager's state: "rebuilding" after its start, then "serving"."""
        return "serving" if self._serving.is_set() else "rebuilding"

    # ---- rebuilding ------------------------------------------------------------------------------------------------

    async def _rebuild(self) -> None:
        epoch, directory, definitions = await self._ask_name_server("manager_started", self._slot)
        self._directory = directory
        self._links.begin()
        self._links.take_directory(directory)
        self._book = ChannelBook(epoch, _open_schema, _identify)
        self._book.definitions_recovered(definitions)
        self._book_made.set()
        await asyncio.gather(*map(self._collect, directory.concentrators))
        self._serving.set()
        if self._lags is not None:
            self._in_background(self._show_lags(self._lags))
        # Producers have memberships of the epoch before, and who left since may be missing from all reports.
        self._perform_in_background(self._book.all_memberships())
        self._perform_in_background([RecordDefinition(definition) for definition in self._book.definitions()])

    async def _collect(self, concentrator: ConcentratorInfo) -> None:
        deadline = asyncio.get_running_loop().time() + _REBUILD_SECONDS
        while not self._book.is_gone(concentrator.node, 0):
            try:
                registrations = await self._ask(
                    concentrator.actor_name, "registrations", self._slot, self._managers, timeout=_ATTEMPT_SECONDS
                )
            except Exception as error:
                if asyncio.get_running_loop().time() > deadline:
                    logger.warning("%s did not say what its endpoints have open: %s", concentrator.actor_name, error)
                    return
                await self._suspect(concentrator.node)
            else:
                for reported in registrations:
                    self._book.registrations_reported(reported)  # the instructions are given for all at the end
                return

    # ---- performing what the book says -----------------------------------------------------------------------------

    async def _perform(self, instruction: Instruction) -> None:
        if isinstance(instruction, RecordDefinition):
            await self._record(instruction)
        else:
            await self._push_to_all(instruction)

    async def _install(self, install: InstallDerived) -> None:
        """Return when every producer has it installed, and raise what the first one says that refuses."""
        key = (install.number, install.keys)
        task = self._installations.get(key)
        if task is None:
            task = self._installations[key] = asyncio.get_running_loop().create_task(self._installation(install))
        error = await asyncio.shield(task)  # others wait for it too
        if error is not None:
            raise error

    async def _installation(self, install: InstallDerived) -> EChannelError | None:
        try:
            answers = await self._push_to_all(install)
            refused = [(e, each) for _, e in install.to if e in answers for each in answers[e].refused]
            await asyncio.gather(*map(self._perform, self._book.install_ended(install, refused)))
            return next((_error_of(each) for _, each in refused if each.key in install.keys), None)
        finally:
            del self._installations[install.number, install.keys]

    async def _push_to_all(self, instruction: PushMembership | InstallDerived) -> dict[int, Installed]:
        """Return when all have confirmed, or are gone: what each of them answered."""
        nodes: dict[int, list[int]] = defaultdict(list)
        for node, endpoint in instruction.to:
            nodes[node].append(endpoint)
        answers: dict[int, Installed] = {}
        for each in await asyncio.gather(*(self._push(instruction, *item) for item in nodes.items())):
            answers.update(each)
        return answers

    def _perform_in_background(self, instructions: Iterable[Instruction]) -> None:
        if self._serving.is_set():  # before, all is pushed and recorded at the end of rebuilding
            for instruction in instructions:
                self._in_background(self._perform(instruction))

    async def _push(
        self, instruction: PushMembership | InstallDerived, node: int, endpoints: list[int]
    ) -> dict[int, Installed]:
        """Return when these endpoints have confirmed this version or a later one, or are gone: what they answered."""
        key = (node, instruction.channel)
        lane = self._lanes.setdefault(key, _Lane())
        lane.users += 1
        lane.wanted.update(endpoints)
        try:
            async with lane.lock:
                missing = [e for e in endpoints if lane.confirmed.get(e, _NOTHING)[0] < instruction.version]
                if missing:
                    lane.wanted.update(missing)
                    await self._push_newest(lane, node, instruction.channel)
                return {e: lane.confirmed[e][1] for e in endpoints if e in lane.confirmed}
        finally:
            lane.users -= 1
            if not lane.users:
                del self._lanes[key]

    async def _push_newest(self, lane: _Lane, node: int, channel: str) -> None:
        while True:
            endpoints = sorted(endpoint for endpoint in lane.wanted if not self._book.is_gone(node, endpoint))
            membership = self._book.membership(channel)
            if not endpoints or membership is None:
                return
            try:
                answers = await self._links.push(node, endpoints, membership, _ATTEMPT_SECONDS)
            except Exception as error:
                logger.debug("node %016x has not confirmed %r: %s", node, channel, error)
                await self._suspect(node)
                continue
            for endpoint, answer in zip(endpoints, answers, strict=True):
                if not isinstance(answer, Unconfirmed):
                    lane.wanted.discard(endpoint)
                    confirmed = answer if isinstance(answer, Installed) else Installed()  # None: it is not there
                    lane.confirmed[endpoint] = (membership.version, confirmed)

    async def _suspect(self, node: int) -> None:
        """Have the name server look whether the node is there; it tells all managers if not."""
        try:
            await self._ask(name_server_name(self._namespace), "node_gone", node, False, timeout=_ATTEMPT_SECONDS)
        except Exception as error:
            logger.debug("the name server did not say whether node %016x is there: %s", node, error)
        await asyncio.sleep(0.05)  # whatever failed at once must not be tried without a pause

    async def _record(self, instruction: RecordDefinition) -> None:
        self._unrecorded.append(instruction)
        # Those of the next moment go with it: a call for each would be most of what creating a channel costs.
        await asyncio.sleep(_RECORD_SECONDS)
        async with self._recording:
            batch, self._unrecorded = self._unrecorded, []
            if batch:  # else it went with the one before
                kept = [one.definition for one in batch if not one.deleted]
                deleted = [one.definition for one in batch if one.deleted]
                await self._ask_name_server("record_definitions", kept, deleted)

    async def _ask_name_server(self, method: str, *args: Any) -> Any:
        """Ask the name server until it answers: a manager can't do without it."""
        while True:
            try:
                answer = await self._ask(name_server_name(self._namespace), method, *args, timeout=_NAME_SERVER_SECONDS)
            except Exception as error:
                # An outage is two lines, however long it is and however many calls wait for its end.
                if self._name_server_answers:
                    self._name_server_answers = False
                    problem = "manager %d of %r gets no answer from the name server to %r, and asks again: %s"
                    logger.warning(problem, self._slot, self._namespace, method, error)
                await asyncio.sleep(_PAUSE_SECONDS)
            else:
                if not self._name_server_answers:
                    self._name_server_answers = True
                    logger.warning("the name server answers manager %d of %r again", self._slot, self._namespace)
                return answer

    async def _certify(self) -> Credentials:
        issued: Credentials = await self._ask_name_server("certify_manager")
        return issued

    async def _stats(self, channel: str) -> dict[str, Any]:
        nodes: dict[int, list[int]] = defaultdict(list)
        for node, endpoint in self._book.addresses(channel):
            nodes[node].append(endpoint)
        answers = await asyncio.gather(
            *(
                self._links.push(node, endpoints, StatsWanted(channel), _ATTEMPT_SECONDS)
                for node, endpoints in nodes.items()
            ),
            return_exceptions=True,  # the counters of a node that does not answer are missing
        )
        found = {
            node: [counters for counters in replies if isinstance(counters, dict)]  # not of one that is gone, or silent
            for node, replies in zip(nodes, answers, strict=True)
            if isinstance(replies, list)
        }
        take_off([counters for replies in found.values() for counters in replies])
        sums = sums_by_node(found)
        if channel in self._book.channels():
            add_up(sums, self._book.counts(channel))
            behind = sums.get("lag", {})
            add_up(sums, {LAG: sum(behind.get(group, 0) for group in self._book.groups_of_logs(channel))})
        return sums

    async def _show_lags(self, lags: Lags) -> None:
        while True:
            await asyncio.sleep(flush_seconds())
            await lags.show()


def _open_schema(channel: str, defined: dict[str, Any] | None, asked: dict[str, Any]) -> dict[str, Any] | None:
    # Imported by the first channel that has a type: the formats' libraries cost memory.
    from echannel_ray.schemas.types import opened

    return opened(channel, defined, asked)


def _identify(shipment: Shipment) -> str:
    # Imported by the first modulator.
    from echannel_ray.modulation.fingerprint import identity_of, identity_of_text

    masters = [(each.node, each.endpoint, each.number) for each in shipment.shared]
    if shipment.tier in ("ecode", REPLAY):
        return identity_of_text(shipment.code, masters)
    return identity_of(shipment.code, shipment.key, masters)


def _error_of(refused: RefusedModulator) -> EChannelError:
    """What the producer's endpoint says to whoever wants its modulator there."""
    try:
        wire.decode(refused.error)
    except EChannelError as error:
        return error
    except wire.MalformedMessage:
        pass
    return ModulatorRefused("a producer refused this modulator, and did not say why", reason="unknown")
