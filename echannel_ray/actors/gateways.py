"""The gateway of a node, as its concentrator has it: imported when it is first asked for."""

from __future__ import annotations

from dataclasses import replace

from echannel_ray import errors
from echannel_ray.actors.remembered import remember_gateway, remembered_gateway, remembered_identity
from echannel_ray.gateway.identity import Identity
from echannel_ray.gateway.server import Gateway
from echannel_ray.protocol.messages import OpenGateway
from echannel_ray.retained.hosting import KeeperHost
from echannel_ray.retained.keeper import Keeper


class GatewayOfNode:
    """At most one at a time; its secrets and its port outlive this process, so that clients find the next one."""

    def __init__(self, namespace: str, keeper: Keeper) -> None:
        self._namespace = namespace
        self._keeper = keeper
        self._request: OpenGateway | None = None
        self._endpoint = ""
        self._gateway: Gateway | None = None
        self._host: KeeperHost | None = None

    def open(self, request: OpenGateway) -> str:
        """Have it so; its endpoint."""
        if request == self._request or (self._request is not None and request == replace(self._request, port=0)):
            return self._endpoint
        former = self._request
        self.close()
        try:
            return self._open(request)
        except OSError as error:
            if former is not None:
                self._open(former)
            raise errors.EChannelError(
                f"the gateway can't listen on {request.host}:{request.port or 'any port'}: {error}; use port=0 for any "
                "port that is free, and a name or an address of this node as host",
                host=request.host,
                port=request.port,
            ) from None

    def _open(self, request: OpenGateway) -> str:
        node = self._keeper.endpoint.node
        before = remembered_gateway(self._namespace, node)
        # Who was given other rights must not get these with the same secrets; and a certificate is for the names by
        # which its gateway is reached.
        is_same = before is not None and replace(before, port=0) == replace(request, port=0)
        data = remembered_identity(self._namespace, node) if is_same else None
        identity = Identity.parse(data) if data is not None else None
        if identity is not None and request.port and identity.port != request.port:
            identity = Identity(identity.token, identity.key_pem, identity.certificate_pem, request.port)
        host = self._host = KeeperHost(self._keeper)
        gateway = self._gateway = Gateway(
            host, self._namespace, request.host, request.port, request.publish, request.subscribe, request.derive,
            identity, request.files,
        )  # fmt: skip
        self._endpoint = str(gateway.start())
        self._request = replace(request, port=gateway.identity.port)
        remember_gateway(self._namespace, node, self._request, bytes(gateway.identity))
        return self._endpoint

    def close(self) -> None:
        """End it; clients find its successor."""
        if self._host is not None:
            self._host.close()
        if self._gateway is not None:
            self._gateway.close()
        self._request = self._gateway = self._host = None
