"""What of a concentrator deals with retained channels and clients outside: made when it is first asked for."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from echannel_ray import errors
from echannel_ray.actors.gateway_memory import remembered_gateway
from echannel_ray.core.messages import GatewayRequest, LogAddress, OpenLog
from echannel_ray.endpoint.greeting import greet
from echannel_ray.retained.log_directory import has_logs, private_directory
from echannel_ray.transport.connection import Connection
from echannel_ray.transport.unix import SocketDirectory, connect_unix

if TYPE_CHECKING:
    from echannel_ray.actors.gateways import GatewayOfNode
    from echannel_ray.actors.log_host import LogHost
    from echannel_ray.endpoint.process_endpoint import ProcessEndpoint

SOCKET_NAME = "concentrator"


class Storage:
    """The log host and the gateway of one concentrator. Its methods wait: they are not for the loop's thread."""

    def __init__(self, namespace: str, node: int) -> None:
        self._namespace = namespace
        self._node = node
        self._lock = threading.RLock()
        self._log_host: LogHost | None = None
        self._gateway: GatewayOfNode | None = None
        self._closed = False

    def log_host(self) -> LogHost:
        """The log host, which has the logs of this node; made when it is first asked for."""
        # Imported by the first log: most namespaces have none, and SQLite costs memory.
        from echannel_ray.actors.log_host import LogHost

        with self._lock:
            if self._closed:
                raise errors.Closed("this concentrator ends", what="concentrator")
            if self._log_host is None:
                self._log_host = LogHost(self._namespace, self._node, self._connect, self._release_log_host)
            return self._log_host

    def _connect(self, endpoint: ProcessEndpoint) -> Connection:
        if self._closed:
            raise errors.Closed("this concentrator ends", what="concentrator")
        directory = SocketDirectory(self._namespace, self._node)
        connection = greet(connect_unix(directory.socket_path(SOCKET_NAME), 1.0), self._namespace, endpoint)
        endpoint.direct.listen(os.fspath(directory))
        return connection

    def recover(self) -> None:
        """Open what a predecessor of this concentrator had: logs on disk, and the gateway."""
        if has_logs(self._namespace, self._node):
            private_directory(self._namespace, self._node)  # what another user has put there are no logs of ours
            self.log_host().recover()
        request = remembered_gateway(self._namespace, self._node)
        if request is not None:
            self.ask_gateway(request)

    def open_log(self, request: OpenLog) -> LogAddress:
        """Open the log of a channel at this node; its address."""
        while True:
            log_host = self.log_host()
            try:
                return log_host.open(request.channel, request.incarnation)
            except errors.Closed:
                if log_host is self._log_host:  # else it was let go a moment ago
                    raise

    def _release_log_host(self) -> None:
        """The last log is gone: without the log host, a node that nobody uses can be removed."""
        with self._lock:
            log_host = self._log_host
            if log_host is None or not log_host.is_empty or self._gateway is not None:
                return
            self._log_host = None
        log_host.close()

    def ask_gateway(self, request: GatewayRequest) -> str | None:
        """Do what a session asks of the gateway of this node, which is made for that where there is none."""
        from echannel_ray.actors.gateways import GatewayOfNode

        log_host = self.log_host()
        with self._lock:
            if self._gateway is None:
                self._gateway = GatewayOfNode(self._namespace, log_host, self._connect)
            return self._gateway.ask(request)

    def gateway_stats(self) -> dict[str, int]:
        """The gateway's counters; none where there is no gateway."""
        gateway = self._gateway
        return {} if gateway is None else gateway.stats()

    @property
    def endpoint_id(self) -> int:
        """The log host's endpoint; 0 where there is no log host."""
        log_host = self._log_host
        return 0 if log_host is None else log_host.endpoint.id

    def drain(self, deadline: float) -> None:
        """The node is to be removed: take nothing from outside any more, and let everybody read what is logged here."""
        with self._lock:
            log_host = self._log_host
            gateway, self._gateway = self._gateway, None
        if gateway is not None:
            gateway.close()
        if log_host is not None:
            log_host.drain(deadline)

    def close(self, is_stopped: bool = False) -> None:
        """End the gateway and the log host; logs on disk stay (see `LogHost.close`)."""
        with self._lock:
            self._closed = True
            log_host, self._log_host = self._log_host, None
            gateway, self._gateway = self._gateway, None
        if gateway is not None:
            gateway.close()
        if log_host is not None:
            log_host.close(is_stopped)
