"""A link that can be cut: a proxy that stands between two concentrators."""

from __future__ import annotations

import dataclasses
import select
import socket
import threading
from functools import partial
from typing import Any

from ray._private.node import Node

from echannel_ray.actors import startup
from echannel_ray.ids import node_number
from tests.clusters import wait_until
from tests.faults.scene import Scene, kill

_BUFFER_BYTES = 256 << 10


class Proxy:
    """Forwards connections to a port, until it is told to be silent, or to break them and refuse new ones."""

    def __init__(self, target_port: int) -> None:
        self._target = ("127.0.0.1", target_port)
        self._silent = False
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._stopping = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def links(self) -> int:
        """How many connections it forwards."""
        return len(self._pairs) // 2

    def be_silent(self, silent: bool) -> None:
        """Forward nothing, but keep all connections: what a cable that was pulled looks like."""
        self._silent = silent

    def refuse(self) -> None:
        """Break all connections, and listen no more."""
        self._end()

    def accept_again(self) -> None:
        """Listen on the same port, as before."""
        self._stopping = self._silent = False
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """For good."""
        self._end()

    def _end(self) -> None:
        self._stopping = True
        self._thread.join(10)

    def _run(self) -> None:
        while not self._stopping:
            if self._silent:
                select.select([], [], [], 0.02)
                continue
            for ready in select.select([self._listener, *self._pairs], [], [], 0.05)[0]:
                if ready is self._listener:
                    self._connect(self._listener.accept()[0])
                elif ready in self._pairs:
                    self._forward(ready)
        self._listener.close()
        for each in [*self._pairs]:
            each.close()
        self._pairs.clear()

    def _connect(self, source: socket.socket) -> None:
        try:
            target = socket.create_connection(self._target)
        except OSError:
            source.close()
            return
        self._pairs[source], self._pairs[target] = target, source

    def _forward(self, source: socket.socket) -> None:
        target = self._pairs[source]
        try:
            data = source.recv(_BUFFER_BYTES)
            if data:
                target.sendall(data)
                return
        except OSError:
            pass
        for each in (source, target):
            self._pairs.pop(each, None)
            each.close()


def put_between(scene: Scene) -> Proxy:
    """Have the two concentrators linked through a proxy.

    The one with the lower node number dials, at the port that the directory names for the other. So the directory gets
    another port (the name server takes it for news of that concentrator), and the one that dials is started again.
    """
    dialling, listening = sorted(scene.cluster.nodes[:2], key=lambda node: node_number(node.node_id))
    while True:
        info = scene.describe(listening)["info"]
        proxy = Proxy(info.port)
        rejoined = dataclasses.replace(info, port=proxy.port, incarnation=info.incarnation + 1)
        startup.call(partial(_name_server, scene), "join", rejoined)
        kill(scene.concentrator(dialling).pid)
        wait_until(partial(_is_settled, scene, proxy, info.node))
        if proxy.links:
            wait_until(partial(_has_peers, scene, listening))
            return proxy
        proxy.close()  # the concentrator or the name server was started again meanwhile, by another fault of a soak


def _is_settled(scene: Scene, proxy: Proxy, node: int) -> bool:
    return bool(proxy.links) or _named_port(scene, node) != proxy.port


def _has_peers(scene: Scene, node: Node) -> bool:
    return scene.concentrator(node).peers > 0


def _name_server(scene: Scene) -> Any:
    return startup.find(startup.name_server_name(scene.namespace))


def _named_port(scene: Scene, node: int) -> int:
    """Where the directory says that this node's concentrator is; 0 if it does not."""
    directory = startup.call(partial(_name_server, scene), "directory")
    return next((each.port for each in directory.concentrators if each.node == node), 0)
