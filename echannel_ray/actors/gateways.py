"""The gateway of a node, as its concentrator has it: imported when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial

from echannel_ray import errors
from echannel_ray.actors.gateway_memory import (
    remember_gateway,
    remember_tokens,
    remembered_gateway,
    remembered_identity,
    remembered_tokens,
)
from echannel_ray.actors.log_host import LogHost
from echannel_ray.core.messages import GatewayRequest, OpenGateway, RevokeAtGateway
from echannel_ray.endpoint.process_endpoint import ProcessEndpoint
from echannel_ray.gateway.backend import GatewayBackend
from echannel_ray.gateway.identity import Identity
from echannel_ray.gateway.rights import Rights
from echannel_ray.gateway.server import Gateway
from echannel_ray.gateway.tokens import Remembered
from echannel_ray.transport.connection import Connection


class GatewayOfNode:
    """The gateway of one node, if it has one. Its secrets and ports outlive this process: clients find the next one."""

    def __init__(self, namespace: str, log_host: LogHost, connect: Callable[[ProcessEndpoint], Connection]) -> None:
        self._namespace = namespace
        self._log_host = log_host
        self._connect = connect
        self._request: OpenGateway | None = None
        self._endpoint = ""
        self._gateway: Gateway | None = None
        self._backend: GatewayBackend | None = None

    def ask(self, request: GatewayRequest) -> str | None:
        """Do what a session asks of the gateway: open it, grant a token or revoke one."""
        if isinstance(request, OpenGateway):
            return self.open(request)
        if self._gateway is None:
            raise errors.EChannelError("this node has no gateway: call session.gateway() first")
        try:
            if isinstance(request, RevokeAtGateway):
                self._gateway.revoke(request.digest)
                return None
            asked = asdict(request)
            expires_after_seconds = asked.pop("expires_after_seconds")
            return str(self._gateway.grant(Rights(**asked), expires_after_seconds))
        except (LookupError, ValueError) as error:
            raise errors.NotAuthorised(str(error.args[0])) from None

    def open(self, request: OpenGateway) -> str:
        """Have a gateway as it is asked for, another one where there is one that differs; its endpoint."""
        mine = self._request
        if mine is not None and request in (
            replace(mine, port=port, events_port=events_port)
            for port in (mine.port, 0)
            for events_port in (mine.events_port, 0)
        ):
            return self._endpoint
        self.close()
        try:
            return self._open(request)
        except (OSError, TypeError, ValueError) as error:  # the latter two where the host can't be a name
            self.close()
            if mine is not None:
                self._open(mine)
            raise errors.EChannelError(
                f"the gateway can't listen on {request.host}:{request.port or 'any port'} and "
                f"{request.events_port or 'any port'} (events): {error}; use port=0 and events_port=0 for any ports "
                "that are free, and a name or an address of this node as host",
                host=request.host,
                port=request.port,
                events_port=request.events_port,
            ) from None

    def _open(self, request: OpenGateway) -> str:
        node = self._log_host.endpoint.node
        before = remembered_gateway(self._namespace, node)
        # Who was given other rights must not get these with the same secrets; and a certificate is for the names by
        # which its gateway is reached.
        is_same = before is not None and _portless(before) == _portless(request)
        data = remembered_identity(self._namespace, node) if is_same else None
        identity = Identity.parse(data) if data is not None else None
        remembered = Remembered()
        if identity is not None:
            identity = identity.at(request.port or identity.port, request.events_port or identity.events_port)
            remembered = remembered_tokens(self._namespace, node)

        remember = partial(remember_tokens, self._namespace, node)
        rights = Rights(
            request.publish, request.subscribe, request.derive, request.files, request.max_events_per_second,
            request.max_bytes_per_second, request.max_event_bytes,
        )  # fmt: skip
        if identity is None:
            remember(remembered)  # tokens of another gateway, which this one takes the place of, are no good here
        backend = self._backend = GatewayBackend(self._log_host.endpoint, self._log_host.hosted_log, self._connect)
        gateway = self._gateway = Gateway(
            backend, self._namespace, request.host, request.port, events_port=request.events_port, rights=rights,
            identity=identity, remembered=remembered, remember=remember,
        )  # fmt: skip
        self._endpoint = str(gateway.start())
        self._request = replace(request, port=gateway.identity.port, events_port=gateway.identity.events_port)
        remember_gateway(self._namespace, node, self._request, bytes(gateway.identity))
        return self._endpoint

    def stats(self) -> dict[str, int]:
        """The gateway's counters; none where there is no gateway."""
        gateway = self._gateway
        return {} if gateway is None else gateway.stats()

    def close(self) -> None:
        """End the gateway, if there is one; its clients find its successor."""
        if self._backend is not None:
            self._backend.close()
        if self._gateway is not None:
            self._gateway.close()
        self._request = self._gateway = self._backend = None


def _portless(request: OpenGateway) -> OpenGateway:
    return replace(request, port=0, events_port=0)
