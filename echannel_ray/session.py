"""Joining a namespace and leaving it: one session per process and namespace."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import ray
from typing_extensions import override

from echannel_ray import errors
from echannel_ray.actors import startup
from echannel_ray.actors.storage import SOCKET_NAME
from echannel_ray.client.departure import leave, leave_node, node_is_drained
from echannel_ray.consumers.handler_loop import handler_loop
from echannel_ray.core import messages
from echannel_ray.endpoint.greeting import greet
from echannel_ray.endpoint.ownership import OwnedByProcess
from echannel_ray.endpoint.process_endpoint import ProcessEndpoint
from echannel_ray.formats.trace_context import switch
from echannel_ray.ids import check_namespace, node_number
from echannel_ray.retained.log_calls import ANSWERS
from echannel_ray.transport.connection import Connection
from echannel_ray.transport.presence import mark_left
from echannel_ray.transport.unix import SocketDirectory, connect_unix, is_draining

if TYPE_CHECKING:
    from echannel_ray.gateway.address import Endpoint as GatewayEndpoint
    from echannel_ray.models import Status

DEFAULT_NAMESPACE = "default"
EXIT_DRAIN_SECONDS = 5.0
_RECONNECT_PAUSE_SECONDS = 0.02
# A concentrator that is not back after this was not restarted by Ray: it retired, or its node's record is gone.
_RESTART_PATIENCE_SECONDS = 4.0

_sessions: dict[str, Session] = {}
_current: str | None = None
_lock = threading.RLock()
_exit_registered = False


class Session(OwnedByProcess):
    """This process in one namespace; also a context manager that leaves at its end."""

    _advice = "a session belongs to its process: call echannel_ray.connect() in the other one"

    def __init__(self, namespace: str, managers: int) -> None:
        self.namespace = namespace
        self._managers = managers
        context = ray.get_runtime_context()
        self._ray = _ray_identity()
        self._ray_node_id: str = context.get_node_id()
        directory = SocketDirectory(namespace, node_number(self._ray_node_id))
        self._socket_path = directory.socket_path(SOCKET_NAME)
        self._endpoint = ProcessEndpoint(namespace, node_number(self._ray_node_id), self._connect)
        self._endpoint.calls.serve({}, ANSWERS)  # of the log hosts
        self._endpoint.on_node_drains = self._leave_node
        self._endpoint.start()

    @override
    def __repr__(self) -> str:
        return f"<echannel_ray session in namespace {self.namespace!r}{' (closed)' if self._endpoint.closed else ''}>"

    @property
    def _is_usable(self) -> bool:
        """Whether it can still do something: it was not closed, and Ray is the one that it joined."""
        return not self._endpoint.closed and self._endpoint.broken is None and _ray_identity() == self._ray

    @override
    def close(self, drain_seconds: float | None = None) -> None:
        """Leave: what was published is drained first (for as long as it takes, or so many seconds)."""
        global _current
        with _lock:
            if _sessions.get(self.namespace) is self:
                del _sessions[self.namespace]
                if _current == self.namespace:
                    _current = None
        if self._endpoint.closed:
            return
        deadline = None if drain_seconds is None else time.monotonic() + drain_seconds
        try:
            if self._endpoint.broken is None:
                leave(self._endpoint, deadline)
        finally:
            for inbox in [*self._endpoint.inboxes.values()]:
                inbox.close()
            self._end()

    def _end(self) -> None:
        """Leave, and tell nobody but the concentrator."""
        self._endpoint.close()
        # It may be dead, and its successor would wait for us.
        mark_left(os.path.dirname(self._socket_path), self._endpoint.id)

    def _leave_node(self, seconds: float) -> None:
        """Leave a node that is to be removed."""
        try:
            leave_node(self._endpoint, seconds)
        finally:
            self._end()

    def gateway(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        publish: Sequence[str] = ("*",),
        subscribe: Sequence[str] = ("*",),
        derive: Sequence[str] = (),
        files: Sequence[str] = ("*",),
        *,
        max_events_per_second: float | None = None,
        max_bytes_per_second: float | None = None,
        max_event_bytes: int | None = None,
        events_port: int = 0,
    ) -> GatewayEndpoint:
        """Have two ports of this node's concentrator for clients that are not in Ray, one for record batches and one
        for events, and what they need to reach them: `str` of that has the address, the server's key and a token, so it
        is a secret.

        Clients may publish to channels whose names match one of the patterns in `publish`, read those in `subscribe`,
        and run E-code at the producers of those in `derive`; `files` are patterns of the paths of Parquet files that
        they may hand over in the place of rows. Who publishes faster than the rates is held back; an event (or a record
        batch) that is larger than `max_event_bytes` is refused.

        The same call gives the same gateway, which comes back with its concentrator, at the same address. One with
        other rights takes its place, and has other secrets: what `grant` had given is no good any more.
        """
        rights = _rights(
            publish, subscribe, derive, files, max_events_per_second, max_bytes_per_second, max_event_bytes
        )  # fmt: skip
        if not isinstance(host, str):
            raise TypeError(f"host is a name or an address of this node, not {host!r}")
        for each in (port, events_port):
            if type(each) is not int or not 0 <= each < 65536:
                raise ValueError(f"a port is a number from 0 (any) to 65535, not {each!r}")
        return self._ask_gateway(messages.OpenGateway(host, port, events_port=events_port, **rights))

    def grant(
        self,
        publish: Sequence[str] = (),
        subscribe: Sequence[str] = (),
        derive: Sequence[str] = (),
        files: Sequence[str] = (),
        *,
        max_events_per_second: float | None = None,
        max_bytes_per_second: float | None = None,
        max_event_bytes: int | None = None,
        expires_after_seconds: float | None = None,
    ) -> GatewayEndpoint:
        """Another token for the gateway of this node, with rights of its own: see `gateway`. It is good until it is
        revoked, has expired, or another gateway takes the place of this one; and it can't be had again.
        """
        from echannel_ray.gateway.rights import is_above_zero

        rights = _rights(
            publish, subscribe, derive, files, max_events_per_second, max_bytes_per_second, max_event_bytes
        )  # fmt: skip
        if expires_after_seconds is not None and not is_above_zero(expires_after_seconds):
            raise ValueError(f"expires_after_seconds is a number above 0, or None; not {expires_after_seconds!r}")
        return self._ask_gateway(messages.GrantAtGateway(**rights, expires_after_seconds=expires_after_seconds))

    def revoke(self, endpoint: GatewayEndpoint | str) -> None:
        """End a token that `grant` has given in a session of this node: its connections end within a second."""
        from echannel_ray.gateway.address import Endpoint as GatewayEndpoint
        from echannel_ray.gateway.tokens import digest_of

        token = GatewayEndpoint.parse(str(endpoint)).token
        self._endpoint.requests.ask(messages.RevokeAtGateway(digest_of(token)))

    def _ask_gateway(self, request: messages.GatewayRequest) -> GatewayEndpoint:
        from echannel_ray.gateway.address import Endpoint as GatewayEndpoint

        return GatewayEndpoint.parse(self._endpoint.requests.ask(request))

    def status(self) -> Status:
        """The namespace and all its parts."""
        from echannel_ray.models import status_of

        return status_of(self._endpoint.requests.ask(messages.GetStatus()))

    # ---- the link ----

    def _connect(self, endpoint: ProcessEndpoint) -> Connection:
        """A greeted link to the concentrator of this node; make it, if it is missing."""
        path = self._socket_path
        first = endpoint.connection is None and endpoint.reconnections == 0
        patience_until = time.monotonic() + (0.0 if first else _RESTART_PATIENCE_SECONDS)
        pause = threading.Event()
        while True:
            if endpoint.closed:
                raise errors.Closed("this process has left the namespace", what="session")
            if first and is_draining(endpoint.node):
                raise node_is_drained(self.namespace, endpoint.node)
            try:
                connection = greet(connect_unix(path, 1.0), self.namespace, endpoint)
                endpoint.direct.listen(os.path.dirname(path))
                return connection
            except (OSError, errors.Disconnected):
                pass  # it is being restarted, or there is none
            if not ray.is_initialized() or _ray_identity() != self._ray:
                raise errors.Disconnected(
                    "Ray was shut down, and the event channels of this process with it: call ray.init() and "
                    "echannel_ray.connect() again"
                )
            if time.monotonic() >= patience_until:
                if is_draining(endpoint.node):  # it has retired
                    raise node_is_drained(self.namespace, endpoint.node)
                # It may have another idea of the temporary directory than this process has.
                path = self._socket_path = _make_concentrator(self.namespace, self._ray_node_id, self._managers)
                patience_until = time.monotonic() + _RESTART_PATIENCE_SECONDS
            pause.wait(_RECONNECT_PAUSE_SECONDS)


def _make_concentrator(namespace: str, ray_node_id: str, managers: int) -> str:
    """Have the node's concentrator, made where there is none: the path of its socket."""
    try:
        startup.ensure_managers(namespace, managers)

        def get_or_make() -> startup.Handle:
            return startup.ensure_concentrator(namespace, ray_node_id, managers)

        # One that is about to retire is found, and gone before it answers: then another is made.
        path = startup.call(get_or_make, "ready", timeout=startup.ENSURE_TIMEOUT_SECONDS)
        return str(path)
    except TimeoutError as error:
        raise errors.Disconnected(
            f"the concentrator of this node did not start in namespace {namespace!r}: {error}. "
            "Look at `ray list actors` and the worker logs of Ray's session directory"
        ) from error


def _ray_identity() -> tuple[str, str]:
    if not ray.is_initialized():
        return ("", "")
    context = ray.get_runtime_context()
    return str(context.gcs_address), str(context.get_node_id())


def _rights(*asked: Any) -> dict[str, Any]:
    from echannel_ray.gateway.rights import Rights

    return msgspec.structs.asdict(Rights.checked(*asked))


def connect(
    namespace: str = DEFAULT_NAMESPACE,
    address: str | None = None,
    *,
    managers: int = 2,
    tracing: bool = False,
    segment_bytes: int | None = None,
) -> Session:
    """Join a namespace, and make it the one that later calls use. Starts what is missing, Ray included.

    `managers` is how many channel managers a namespace gets that does not exist yet. With `tracing` whatever this
    process publishes and handles from now on is traced by OpenTelemetry (`docs/watching.md`). `segment_bytes` is how
    much memory this process may share with others of its node for large events: an eighth of what is left, where
    nothing is said; with 0 it shares none.
    """
    global _current
    check_namespace(namespace)
    if segment_bytes is not None and (not isinstance(segment_bytes, int) or segment_bytes < 0):
        raise ValueError(f"segment_bytes is a number of bytes, not {segment_bytes!r}")
    if not isinstance(managers, int) or not 1 <= managers <= 64:
        raise ValueError(f"managers is a number from 1 to 64, not {managers!r}")
    with _lock:
        if tracing:
            _trace()
        _ensure_ray(address)
        session = _sessions.get(namespace)
        if session is not None and not session._is_usable:
            session._end()
            session = None
        if session is None:
            session = _sessions[namespace] = Session(namespace, managers)
            _register_exit()
        if segment_bytes is not None:
            session._endpoint.exchange.limit(segment_bytes)
        _current = namespace
        return session


def _trace() -> None:
    if switch.is_on:
        return
    if any(session._endpoint.inboxes for session in _sessions.values()):
        raise errors.EChannelError(
            "this process has subscriptions already, and tracing is for all of a process: call "
            "connect(tracing=True) before the first subscribe()"
        )
    if importlib.util.find_spec("opentelemetry") is None:
        raise ModuleNotFoundError(
            'tracing needs opentelemetry-api, which is not installed: pip install "echannel-ray[tracing]"'
        )
    switch.is_on = True


def _wanted(namespace: str | None) -> str:
    return (_current or DEFAULT_NAMESPACE) if namespace is None else check_namespace(namespace)


def session_for(namespace: str | None) -> Session:
    """The session that a call uses: of the namespace named, or of the one joined last, or of "default"."""
    with _lock:
        wanted = _wanted(namespace)
        session = _sessions.get(wanted)
        if session is not None and session._is_usable:
            return session
        before = _current
        session = connect(wanted)
        _set_current(before)  # only `connect` chooses what calls without a namespace use
        return session


def endpoint_for(namespace: str | None) -> ProcessEndpoint:
    """What a call sends and receives by: of the session that it uses."""
    return session_for(namespace)._endpoint


def _set_current(namespace: str | None) -> None:
    global _current
    _current = namespace


def disconnect() -> None:
    """Leave all namespaces with this process; what it had published is drained first."""
    for session in [*_sessions.values()]:
        session.close()


def shutdown(namespace: str | None = None) -> None:
    """Stop the namespace's name server, managers and concentrators, for all processes of the cluster."""
    with _lock:
        wanted = _wanted(namespace)
        session = _sessions.get(wanted)
        if session is not None:
            session.close(drain_seconds=EXIT_DRAIN_SECONDS)
        if ray.is_initialized():
            _stop_parts(wanted)


class _Stopped(Exception):
    """There is no name server: it never existed, or somebody has stopped it, perhaps a moment ago."""


def _stop_parts(namespace: str) -> None:
    name = startup.name_server_name(namespace)

    def found() -> startup.Handle:
        try:
            return startup.find(name)
        except LookupError:  # one that is restarted keeps its name
            raise _Stopped from None

    with contextlib.suppress(_Stopped):
        startup.call(found, "stop", timeout=30.0)
        ray.kill(found(), no_restart=True)


def status(namespace: str | None = None) -> Status:
    """The parts of the namespace: name server, managers, concentrators, channels, nodes."""
    return session_for(namespace).status()


def _ensure_ray(address: str | None) -> None:
    if _is_ray_client():
        raise errors.Disconnected(
            "this driver is a Ray Client (ray://), which is not in the cluster: event channels need a driver or job on "
            "a node of the cluster, or a gateway (session.gateway()) for clients outside"
        )
    if not ray.is_initialized():
        ray.init(address=address)


def _is_ray_client() -> bool:
    from ray._private.client_mode_hook import client_mode_should_convert

    return bool(client_mode_should_convert())


def _register_exit() -> None:
    # After Ray's own, so that it runs before it: leaving needs Ray's processes.
    global _exit_registered
    if not _exit_registered:
        _exit_registered = True
        atexit.register(_leave_at_exit)
        os.register_at_fork(after_in_child=_forget_all)


def _leave_at_exit() -> None:
    for session in [*_sessions.values()]:
        try:
            session.close(drain_seconds=EXIT_DRAIN_SECONDS)
        except errors.EChannelError:
            pass  # the process ends in any case


def _forget_all() -> None:
    """Forget all sessions, which are the parent's, in the child of a fork; it joins anew when it first needs to."""
    global _lock, _current
    _lock = threading.RLock()
    handler_loop.forget()
    for session in _sessions.values():
        session._endpoint.forget()
    _sessions.clear()
    _current = None
