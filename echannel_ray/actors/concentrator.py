"""The concentrator: the hub of its node, which alone talks to Ray's actors on behalf of the node's processes."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from echannel_ray import errors
from echannel_ray.actors.actor_door import open_actors_door, silent_among
from echannel_ray.actors.gateway_memory import forget_gateway
from echannel_ray.actors.hub import Hub
from echannel_ray.actors.metrics import Metrics, start_metrics
from echannel_ray.actors.namespace_actor import NamespaceActor
from echannel_ray.actors.node_drain import NodeDrain
from echannel_ray.actors.peers import PEER_TIMEOUT_SECONDS, Peers
from echannel_ray.actors.registry import Registry
from echannel_ray.actors.restoration import Restoration
from echannel_ray.actors.startup import ask, concentrator_name, describe_this_actor, name_server_name, ray_nodes
from echannel_ray.actors.storage import SOCKET_NAME, Storage
from echannel_ray.actors.wallet import LOOK_SECONDS, Wallet
from echannel_ray.core import frames, messages
from echannel_ray.core.messages import ConcentratorInfo, Directory, ManagerRequest, Registrations
from echannel_ray.core.name_book import slot_of
from echannel_ray.core.relay import Relay
from echannel_ray.core.states import Life
from echannel_ray.ids import node_number
from echannel_ray.transport import wire
from echannel_ray.transport.connection import Peer
from echannel_ray.transport.presence import forget_endpoint, former_endpoints, note_endpoint
from echannel_ray.transport.security import Credentials
from echannel_ray.transport.tcp import TcpListener
from echannel_ray.transport.unix import SocketDirectory, UnixListener, sweep

logger = logging.getLogger(__name__)

# A node's concentrator without endpoints stays so long, since the next process often comes soon; then it retires, so
# that an autoscaler can remove the node.
LINGER_SECONDS = 30.0
_ASK_AGAIN_SECONDS = 0.2
_WATCH_SECONDS = 0.25
_REQUEST_SECONDS = 3600.0
_RECOVERY_SECONDS = 5.0
_ACTIVE_SECONDS = 2.0

_REFUSED: Final = ("refused", "refused, and said so")
# The life of a concentrator.
CONCENTRATOR_TRANSITIONS: Final[dict[tuple[str, str], str]] = {
    ("starting", "joined"): "serving",
    ("starting", "refused"): "refused",  # by its credentials, say: an administrator can mend that
    ("refused", "told"): "refused, and said so",
    ("refused, and said so", "told"): "refused, and said so",
    ("refused, and said so", "asked again"): "starting",
    ("serving", "idle"): "retiring",
    ("retiring", "needed"): "serving",
    ("retiring", "withdraw"): "withdrawn",
    **{(state, "drain"): "draining" for state in ("starting", *_REFUSED, "serving", "retiring", "draining")},
    **{("draining", event): "draining" for event in ("joined", "refused", "told")},
    ("draining", "withdraw"): "withdrawn",
    # What was under way when it began to withdraw; and a drain that comes while it retires does so once more.
    **{("withdrawn", event): "withdrawn" for event in ("joined", "refused", "told", "withdraw")},
}
# What others are told of it.
_SHOWN: Final = {**dict.fromkeys(_REFUSED, "starting"), "retiring": "serving", "withdrawn": "draining"}


class Concentrator(NamespaceActor):
    """The hub of its node, to which all endpoints link; an actor. Large: each call of the other parts is a method."""

    def __init__(self, namespace: str, ray_node_id: str, linger_seconds: float = LINGER_SECONDS) -> None:
        self.node = node_number(ray_node_id)
        super().__init__(f"the concentrator of node {self.node:016x}")
        self.namespace = namespace
        self._ray_node_id = ray_node_id
        self._linger_seconds = linger_seconds
        self._incarnation = time.time_ns() // 1_000_000  # rises with every start
        self._started_at = time.monotonic()
        self._loop = asyncio.get_running_loop()
        self._relay = Relay(self.node)
        self._hub = Hub(namespace, self.node, self._incarnation, self._relay, self)
        self._life = Life(self._description, CONCENTRATOR_TRANSITIONS, "starting")
        self._serving = asyncio.Event()  # or it is known why not
        self._failure: errors.EChannelError | None = None
        self._recovered = asyncio.Event()
        self.storage = Storage(namespace, self.node)
        self._registry = Registry(self.node)
        me = wire.Hello(namespace, self.node, 0, os.getpid(), self._incarnation)
        self._peers = Peers(me, self._relay, self._hub, self._ask_name_server, self._in_background)
        self._managers_known = 0  # as many as the directory names
        self._pids: dict[int, int] = {}
        self._attached: dict[int, asyncio.Event] = {}  # former endpoints, until they are back or gone
        self._info: ConcentratorInfo | None = None
        self._listeners: list[UnixListener | TcpListener] = []
        self._wallet: Wallet | None = None
        self._metrics: Metrics | None = None  # none where they are switched off
        # Somebody has asked for it, and may take long to link up on a busy machine.
        self._idle_since = time.monotonic() + LINGER_SECONDS
        self._draining = NodeDrain(self, self._withdraw)
        self._unreported: set[int] = set()  # endpoints that have gone, which not all managers know yet
        answers: dict[str, Callable[..., Coroutine[Any, Any, Any]]] = {"health": self.health, "drain": self.drain}
        self._restoring: asyncio.Task[None] | None = None
        self._door = open_actors_door(concentrator_name(namespace, self.node), answers, self._door_answered)
        # Ray runs this constructor on the actor's loop, also when it restarts the actor.
        self._in_background(self._start())

    async def _start(self) -> None:
        try:
            await self._begin()
        except errors.EChannelError as error:
            self._failure = error  # whoever waits for `ready` is told
            self._life.become("refused")
            self._serving.set()
        except Exception:
            # Ray starts this actor again. One that answered and did nothing would stay.
            logger.exception("the concentrator of node %016x can't start", self.node)
            os._exit(1)

    async def _begin(self) -> None:
        # What an administrator can mend comes first, with nothing begun that would be there twice: see `ready`.
        self._wallet = Wallet(self.node, self._ask_for_certificate, self._credentials_changed)
        self._directory_path = SocketDirectory(self.namespace, self.node)
        self._metrics = start_metrics(self.namespace, self.node, bool(describe_this_actor()["restarts"]))
        self._expect_former_endpoints()
        endpoints = UnixListener(self._directory_path.socket_path(SOCKET_NAME))
        self._listeners.append(endpoints)
        self._hub.add_listener(endpoints)
        self._hub.start()
        restoring = Restoration(self.namespace, self._manager_names, self._wallet.renew)
        await restoring.about_to_join()
        peers = await self._join(self._wallet)
        self._listeners.append(peers)
        self._hub.post(partial(self._hub.add_listener, peers))
        self._life.become("joined")
        self._serving.set()
        self._in_background(self._watch())
        self._in_background(self._watch_credentials(self._wallet))
        self._restoring = self._loop.create_task(restoring.run())
        self._in_background(asyncio.to_thread(self.storage.recover))
        await asyncio.to_thread(sweep, self._directory_path)

    async def _join(self, wallet: Wallet) -> TcpListener:
        mine = next(each for each in ray_nodes() if each["NodeID"] == self._ray_node_id)
        host = str(mine["NodeManagerAddress"])
        # The certificate comes with joining, and joining names the port: so the port is taken first.
        probe = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        # As the listener's: both may be bound at once, so nobody else gets the port before it listens.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, 0))
        port = probe.getsockname()[1]
        self._info = ConcentratorInfo(
            node=self.node,
            ray_node_id=self._ray_node_id,
            actor_name=describe_this_actor()["name"] or "",
            host=host,
            port=port,
            raylet_port=int(mine["NodeManagerPort"]),
            pid=os.getpid(),
            incarnation=self._incarnation,
        )
        await wallet.renew()
        assert wallet.current is not None
        listener = TcpListener(host, port, wallet.current)
        probe.close()
        return listener

    def _expect_former_endpoints(self) -> None:
        dead = []
        for former in former_endpoints(self._directory_path):
            if former.alive:
                self._relay.expected.add(former.endpoint_id)
                self._pids[former.endpoint_id] = former.pid
                self._attached[former.endpoint_id] = asyncio.Event()
            else:
                dead.append(former.endpoint_id)
        if dead:
            self._hub.post(partial(self._relay.presume_gone, dead))
            self._in_background(self._report_gone(dead))
        if not self._attached:
            self._recovered.set()

    # ---- what the hub tells; on its thread, which it must not hold up ----

    def endpoint_attached(self, hello: wire.Hello) -> None:
        """A process of this node has linked up."""
        note_endpoint(self._directory_path, hello.endpoint, hello.pid)
        self._pids[hello.endpoint] = hello.pid
        # It counts as back when it has said what it has open: see `_registered`.
        self._loop.call_soon_threadsafe(self._registry.attached, hello.endpoint)

    def endpoint_gone(self, endpoint: int) -> None:
        """A process of this node has died or left."""
        self._loop.call_soon_threadsafe(self._in_background, self._release_endpoint(endpoint))

    def peer_attached(self, node: int) -> None:
        """The link to another node is up."""
        self._loop.call_soon_threadsafe(self._peers.is_back, node)

    def peer_detached(self, node: int) -> None:
        """The link to another node is down."""
        self._loop.call_soon_threadsafe(self._peers.is_lost, node)

    def is_manager(self, peer: Peer, node: int) -> bool:
        """Whether it is a manager of that node who has greeted so."""
        return self._peers.is_manager(peer, node)

    def requested(self, endpoint: int, request: int, payload: bytes) -> None:
        """An endpoint asks something: a manager, as a rule, and then this thread passes it on."""
        if self._managers_known:
            try:
                message = wire.decode(payload)
            except (wire.MalformedMessage, errors.EChannelError):
                message = None  # as below, which says so
            if isinstance(message, ManagerRequest):
                slot = slot_of(message.channel, self._managers_known)
                self._hub.manager_links.forward(slot, endpoint, request, message, payload)
                return
        self._loop.call_soon_threadsafe(self._in_background, self._answer(endpoint, request, payload))

    def answered(self, endpoint: int, message: ManagerRequest, answer: bytes) -> None:
        """A manager has answered an endpoint's request."""
        self._loop.call_soon_threadsafe(self._note, endpoint, message, answer)

    def _note(self, endpoint: int, message: ManagerRequest, answer: bytes) -> None:
        try:
            self._registry.answered(endpoint, message, wire.decode(answer))
        except errors.EChannelError:
            pass  # what was refused, it does not have

    def hub_failed(self) -> None:
        """The hub's thread ends by an error: nothing moves any more."""
        # Ray starts this actor again, and that loses nothing. One that answered calls and moved no event would stay.
        os._exit(1)

    # ---- endpoints ----

    def _mark_recovered(self, endpoint: int) -> None:
        event = self._attached.pop(endpoint, None)
        if event is not None:
            event.set()
        if not self._attached:
            self._recovered.set()

    async def _release_endpoint(self, endpoint: int) -> None:
        self._registry.gone(endpoint)
        if self._metrics is not None:
            self._metrics.gone(endpoint)
        self._pids.pop(endpoint, None)
        self._mark_recovered(endpoint)
        self._hub.post(partial(self._hub.manager_links.endpoint_gone, endpoint))  # it may have been expected back
        self._idle_since = time.monotonic()
        self._unreported.add(endpoint)
        await self._report_gone([endpoint])
        self._unreported.discard(endpoint)

    async def _report_gone(self, endpoints: list[int]) -> None:
        for manager in await self._managers():
            await self._ask_until_answered(manager, "endpoints_gone", self.node, endpoints)
        # Not before the managers know: a successor of this actor must be able to tell them.
        for endpoint in endpoints:
            forget_endpoint(self._directory_path, endpoint)

    async def _answer(self, endpoint: int, request: int, payload: bytes) -> None:
        try:
            message = wire.decode(payload)
            if isinstance(message, wire.Registered):
                await self._registered(endpoint, message)
                return
            if isinstance(message, wire.Told):
                if self._metrics is not None:
                    self._metrics.told(endpoint, message.tallies)
                return
            if isinstance(message, ManagerRequest):  # it came before the managers were known
                await self._serving.wait()
                if self._failure is not None:
                    raise self._failure
                self._hub.post(partial(self.requested, endpoint, request, payload))
                return
            answer = wire.encode(await self._perform(message))
        except errors.EChannelError as error:
            answer = wire.encode_error(error)
        except wire.MalformedMessage as error:
            logger.warning("endpoint %016x: %s", endpoint, error)
            answer = wire.encode_error(errors.EChannelError(str(error)))
        except Exception as error:
            logger.exception("a request of endpoint %016x failed", endpoint)
            answer = wire.encode_error(errors.EChannelError(f"the request failed in the concentrator: {error!r}"))
        if request:
            frame = frames.frame(frames.REPLY, frames.REQUEST_ID.pack(request) + answer)
            self._hub.post(partial(self._hub.send_to_endpoint, endpoint, frame))

    async def _perform(self, message: Any) -> Any:
        await self._serving.wait()
        if isinstance(message, messages.GetStatus):
            return await self._ask_name_server("status")
        if isinstance(message, messages.OpenLog):
            return await asyncio.to_thread(self.storage.open_log, message)
        if isinstance(message, messages.GatewayRequest):
            return await asyncio.to_thread(self.storage.ask_gateway, message)
        raise wire.MalformedMessage(f"{type(message).__name__} is no request")

    async def _registered(self, endpoint: int, message: wire.Registered) -> None:
        self._registry.reported(endpoint, message.registrations)
        if message.complete:
            managers = await self._managers()
            for slot, manager in enumerate(managers):
                mine = self._registry.of_slot(slot, len(managers), endpoint)
                if mine:
                    await self._ask_until_answered(manager, "report", mine, self.node, self._incarnation)
            self._mark_recovered(endpoint)

    # ---- what managers and the name server call ----

    async def ready(self) -> str:
        """Answered when endpoints can link up and their requests are answered: where its socket is."""
        if self._life.state == "refused, and said so":
            # Who asks again may have mended it.
            self._failure = None
            self._life.become("asked again")
            self._serving.clear()
            self._in_background(self._start())
        await self._serving.wait()
        if self._failure is not None:
            self._life.become("told")
            raise self._failure
        return self._directory_path.socket_path(SOCKET_NAME)

    async def push(self, endpoint: int, message: bytes) -> bytes:
        """What an endpoint of this node answers: None for one that is gone, `Unconfirmed` where nothing came yet."""
        future: asyncio.Future[bytes] = self._loop.create_future()

        def confirmed(answers: list[bytes]) -> None:
            self._loop.call_soon_threadsafe(future.set_result, answers[0])

        self._hub.post(partial(self._hub.manager_links.push, (endpoint,), message, confirmed))
        return await future

    async def registrations(self, slot: int, managers: int) -> list[Registrations]:
        """What the endpoints of this node have open on the channels of one manager."""
        # Without those that were attached to a predecessor and are not back yet the answer would be wrong.
        # One whose process is stopped may stay away for long: then the others must not wait any more.
        if time.monotonic() - self._started_at < PEER_TIMEOUT_SECONDS:
            await asyncio.wait_for(self._recovered.wait(), _RECOVERY_SECONDS)
        return self._registry.of_slot(slot, managers)

    async def directory_changed(self, directory: Directory) -> None:
        """Take in a new directory: concentrators came or left."""
        # Not before the answer to joining, which brings the certificate that is needed to reach them.
        await self._serving.wait()
        self._take_directory(directory)

    def _take_directory(self, directory: Directory) -> None:
        self._peers.take_directory(directory)
        self._managers_known = len(self._manager_names())
        assert self._wallet is not None
        assert self._peers.directory is not None
        if self._wallet.take_revoked(self._peers.directory.revoked):
            self._in_background(self._wallet.renew())

    async def describe(self) -> dict[str, Any]:
        """Who this is, and how its links are."""
        suspected = self._hub.suspected()
        refused = sum((each.refused for each in self._listeners), self._hub.refused)
        return {
            **describe_this_actor(),
            "state": self._state,
            "info": self._info,
            "directory_epoch": self._peers.directory.epoch if self._peers.directory else 0,
            "revoked": self._peers.directory.revoked if self._peers.directory else (),
            "certificate": self._wallet.describe() if self._wallet else None,
            "endpoints": len(self._relay.endpoints),
            "peers": len(self._relay.peers),
            "flows": len(self._relay.flows),
            "suspected": [link.node for link in suspected if link.node],
            "suspected_endpoints": [f"{link.endpoint:016x}" for link in suspected if link.endpoint],
            "queued_bytes": self._hub.queued_bytes(),
            "malformed_frames": self._hub.malformed_frames,
            "refused_links": refused.total(),
            "refused": dict(refused),
            "dropped_frames": self._relay.dropped_frames,
            "packs_forwarded": self._relay.packs_routed,
            "bytes_between_nodes": self._hub.bytes_between_nodes,
            "gateway": self.storage.gateway_stats(),
        }

    async def health(self) -> dict[str, Any]:
        """The concentrator's state, and which actors it needs that don't answer: for the probe of its pod."""
        names = [name_server_name(self.namespace)]
        if self._peers.directory is not None:
            names += self._peers.directory.managers
        has_turned = asyncio.Event()
        self._hub.post(lambda: self._loop.call_soon_threadsafe(has_turned.set))
        return {"state": self._state, "silent": await silent_among(names, {"its hub": has_turned.wait()})}

    @property
    def _state(self) -> str:
        return _SHOWN.get(self._life.state, self._life.state)

    async def drain(self, seconds: float) -> list[int]:
        """The node is to be removed: have its processes leave within this time, and withdraw. See `NodeDrain`."""
        if self._life.state != "withdrawn":
            self._life.become("drain")
        return await self._draining.begin(seconds)

    def endpoints_here(self) -> dict[int, int]:
        """Endpoints of this node that are linked, or expected back, or gone and not reported yet, with the processes
        that they are in: 0 for one that is gone.
        """
        own = self.storage.endpoint_id
        here = {*self._relay.endpoints.copy(), *self._relay.expected.copy(), *self._unreported} - {own}
        return {endpoint: self._pids.get(endpoint, 0) for endpoint in here}

    def _door_answered(self, question: str) -> None:
        if question == "drain" and self._life.state == "withdrawn":
            self._loop.call_soon_threadsafe(self._in_background, self._retire_soon())

    async def stop(self) -> None:
        """Close all links, and leave no file behind: the namespace ends. The caller ends the actor."""
        # Without a word the endpoints would start the namespace again.
        farewell = errors.Disconnected(
            f"namespace {self.namespace!r} was stopped by echannel_ray.shutdown(): use it again to start it anew",
            namespace=self.namespace,
        )
        await self._close(frames.frame(frames.REFUSED, wire.encode_error(farewell)), is_stopped=True)
        forget_gateway(self.namespace, self.node)

    async def _close(self, farewell: bytes, is_stopped: bool = False) -> None:
        if self._restoring is not None:
            self._restoring.cancel()  # what ends now must not be made again
        await asyncio.to_thread(self.storage.close, is_stopped)
        await asyncio.to_thread(self._hub.stop, farewell)
        for endpoint in [*self._pids]:
            forget_endpoint(self._directory_path, endpoint)
        try:
            os.rmdir(self._directory_path)
        except OSError:
            pass  # a successor has begun already
        if self._door is not None:
            self._door.close()

    async def retire(self) -> None:
        """End for good, if no endpoint has come meanwhile."""
        import ray

        if self._life.state not in ("retiring", "withdrawn"):
            return
        if self._life.state == "retiring":
            if self._relay.endpoints or self._relay.expected:
                self._life.become("needed")
                return
            # Without a farewell: whoever has linked up in this moment makes a successor.
            await self._withdraw(b"")
        ray.actor.exit_actor()

    async def _withdraw(self, farewell: bytes) -> None:
        """Stop being one of the namespace's concentrators."""
        self._life.become("withdraw")
        await self._close(farewell)
        await self._ask_name_server("leave", self.node, self._incarnation)

    # ---- watching ----

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            try:
                await self._look_around(time.monotonic())
            except Exception:  # of one look: the next must follow
                logger.exception("the concentrator of node %016x goes on watching", self.node)

    async def _look_around(self, now: float) -> None:
        if expected := [*self._relay.expected]:
            alive = {each.endpoint_id for each in former_endpoints(self._directory_path) if each.alive}
            for endpoint in expected:
                if endpoint not in alive:
                    self._hub.post(partial(self._relay.presume_gone, [endpoint]))
                    self._in_background(self._release_endpoint(endpoint))
        self._peers.watch(now)
        if self._metrics is not None:
            active = self._metrics.tick(now)
            if active:
                self._in_background(self._tell_active(active))
        if self._relay.endpoints or self._relay.expected:
            self._idle_since = now
        elif now - self._idle_since > self._linger_seconds and self._life.state == "serving":
            self._life.become("idle")
            self._in_background(self._retire_soon())

    async def _tell_active(self, channels: list[str]) -> None:
        """Have the managers look at the lags of these channels; what is lost is told again if it goes on."""
        managers = await self._managers()
        for slot, manager in enumerate(managers):
            mine = [channel for channel in channels if slot_of(channel, len(managers)) == slot]
            if mine:
                try:
                    await ask(manager, "active", mine, timeout=_ACTIVE_SECONDS)
                except Exception as error:
                    logger.debug("%s was not told which channels are active: %s", manager, error)

    async def _watch_credentials(self, wallet: Wallet) -> None:
        """Apart from `_watch`: the name server may be away for longer than links can go without a look."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await wallet.look()
            except Exception:  # as above
                logger.exception("the concentrator of node %016x keeps its credentials", self.node)

    async def _ask_for_certificate(self) -> Credentials:
        """Join, for the first time or again."""
        directory, credentials = await self._ask_name_server("join", self._info)
        self._take_directory(directory)
        issued: Credentials = credentials
        return issued

    def _credentials_changed(self, credentials: Credentials) -> None:
        self._peers.take_credentials(credentials)
        for listener in self._listeners:
            if isinstance(listener, TcpListener):
                listener.renew(credentials)  # now: who revoked a key is answered when nobody is let in by it

    async def _retire_soon(self) -> None:
        import ray

        # Only a method that was called can end its actor.
        await ray.get_runtime_context().current_actor.retire.remote()

    # ---- asking ----

    def _manager_names(self) -> tuple[str, ...]:
        return self._peers.directory.managers if self._peers.directory is not None else ()

    async def _managers(self) -> tuple[str, ...]:
        await self._serving.wait()
        return self._manager_names()

    async def _ask_name_server(self, method: str, *args: Any) -> Any:
        return await self._ask_until_answered(name_server_name(self.namespace), method, *args)

    async def _ask_until_answered(self, name: str, method: str, *args: Any) -> Any:
        has_failed = False
        while True:
            try:
                return await ask(name, method, *args, timeout=_REQUEST_SECONDS)
            except errors.EChannelError:
                raise
            except Exception as error:
                if not has_failed:
                    logger.warning("%s does not answer %r, and is asked until it does: %s", name, method, error)
                has_failed = True
                await asyncio.sleep(_ASK_AGAIN_SECONDS)
