"""What a concentrator knows and decides: which link each frame goes on to.

Rules:

* A flow is declared by its producer's endpoint, to the concentrator of its node (its *origin*), which passes the declaration on to the
  concentrators of the other nodes and to its own destinations. The declaration is all that a relay knows of a flow; it can be repeated at any time.
* Packs, probes, and the end of a flow go downstream; acknowledgements go upstream, merged: a node has what the last of its destinations has.
* A destination that is not attached is *expected* (it was attached to this relay's predecessor, and its process lives) or *gone*.
  Whoever sends to it learns of the second by a GONE frame; of the first by silence, which probes end.
* A relay keeps nothing that was sent: what a lost link or relay had in its buffers is sent again by the endpoint that published it.

Links are opaque here. What is to be sent gathers in `outbox`, in order.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

from echannel_ray.protocol import frames
from echannel_ray.protocol.frames import Buffer

Link = Hashable


class Route:
    """One flow, as one relay sees it."""

    __slots__ = ("endpoint", "flow", "links", "local", "merged", "node", "remote", "upstream")

    def __init__(self, declared: frames.Flow, upstream: Link) -> None:
        self.endpoint = declared.endpoint
        self.flow = declared.flow
        self.node = declared.node
        self.upstream = upstream
        self.local: dict[int, int] = {}  # destination on this node -> the last pack that it acknowledged
        self.remote: dict[int, set[int]] = {}  # other node -> its destinations; at the origin only
        self.merged = 0
        self.links: tuple[Link, ...] = ()  # where a pack for everybody goes: derived, kept for the hot path

    def lowest(self) -> int:
        """The last pack that all destinations of this node have."""
        return min(self.local.values(), default=0)


class Relay:
    """The state of one concentrator; every flow that passes its node is routed here."""

    def __init__(self, node: int) -> None:
        self.node = node
        self.endpoints: dict[int, Link] = {}
        self.peers: dict[int, Link] = {}
        self.routes: dict[bytes, Route] = {}
        self.expected: set[int] = set()
        self.outbox: list[tuple[Link, bytes]] = []
        self.dropped_frames = 0  # of unknown flows, or for somebody who is not here

    # ---- who is there ----

    def endpoint_attached(self, endpoint: int, link: Link) -> None:
        """A process of this node has linked up, for the first time or again after this concentrator was restarted."""
        self.expected.discard(endpoint)
        self.endpoints[endpoint] = link
        for route in self.routes.values():
            if endpoint in route.local:
                self._relink(route)

    def endpoint_gone(self, endpoint: int) -> None:
        """A process of this node has died or left: tell whoever sends to it, and whoever it sent to."""
        self.endpoints.pop(endpoint, None)
        self.expected.discard(endpoint)
        everybody = [*self.peers.values()] if self._forget(endpoint) else []
        for link in everybody:
            self._send(link, frames.GONE, frames.NUMBER.pack(endpoint))

    def peer_attached(self, node: int, link: Link) -> None:
        """The link to another node's concentrator is up: declare the flows again that go there, and have them probed."""
        self.peers[node] = link
        concerned = set()
        for route in self.routes.values():
            if node in route.remote:
                self._relink(route)
                self.outbox.append((link, self._declaration(route, node)))
                concerned.add(route.upstream)
        for upstream in concerned:
            self._send(upstream, frames.PATH_RESTORED, frames.NUMBER.pack(node))

    def peer_detached(self, node: int) -> None:
        """The link to another node's concentrator is down: nothing is given up yet."""
        if self.peers.pop(node, None) is not None:
            for route in self.routes.values():
                if node in route.remote:
                    self._relink(route)

    def node_gone(self, node: int) -> None:
        """A node has died: as if each of its endpoints had."""
        self.peer_detached(node)
        dead = {route.endpoint for route in self.routes.values() if route.node == node}
        for route in self.routes.values():
            dead |= route.remote.get(node, set())
        for endpoint in dead:
            self._forget(endpoint)

    def presume_gone(self, endpoints: Iterable[int]) -> None:
        """Processes that were attached to this relay's predecessor, and have died meanwhile."""
        for endpoint in endpoints:
            self.endpoint_gone(endpoint)
            for link in self.peers.values():
                self._send(link, frames.GONE, frames.NUMBER.pack(endpoint))

    # ---- frames ----

    def received(self, link: Link, kind: int, flags: int, body: Buffer) -> None:
        """One frame came in by a link; `body` need only last for this call."""
        if kind == frames.PACK or kind == frames.PROBE:
            endpoint, flow, _, scope = frames.PACK_FIXED.unpack_from(body)
            whole = frames.frame(kind, body, flags)
            for target in self.targets(link, frames.KEY.pack(endpoint, flow), scope):
                self.outbox.append((target, whole))
        elif kind == frames.ACK:
            self._acknowledged(link, *frames.ACK_FIXED.unpack_from(body))
        elif frames.FIRST_ADDRESSED <= kind <= frames.LAST_ADDRESSED:
            node, endpoint = frames.ADDRESS.unpack_from(body)
            target = self.endpoints.get(endpoint) if node == self.node else self.peers.get(node)
            if target is None:
                self.dropped_frames += 1
            else:
                self._send(target, kind, body, flags)
        elif kind == frames.FLOW:
            self._flow_declared(link, frames.parse_flow(body))
        elif kind == frames.UNKNOWN_FLOW:
            self._flow_unknown(link, *frames.KEY.unpack_from(body))
        elif kind == frames.FLOW_ENDED:
            self._flow_ended(link, bytes(body))
        elif kind == frames.GONE:
            self._forget(frames.NUMBER.unpack_from(body)[0])

    def targets(self, link: Link, key: bytes, scope: int) -> Iterable[Link]:
        """The links on which a pack or probe that came by `link` goes on."""
        route = self.routes.get(key)
        if route is None or route.upstream != link:
            self.dropped_frames += 1
            self._send(link, frames.UNKNOWN_FLOW, key)
            return ()
        if scope == 0:
            return route.links
        if scope == self.node:
            return self._local_links(route)
        peer = self.peers.get(scope)
        return () if peer is None or scope not in route.remote else (peer,)

    def _flow_declared(self, link: Link, declared: frames.Flow) -> None:
        key = frames.KEY.pack(declared.endpoint, declared.flow)
        before = self.routes.get(key)
        route = Route(declared, link)
        at_origin = declared.node == self.node
        for node, endpoint in declared.destinations:
            if node == self.node:
                if endpoint in self.endpoints or endpoint in self.expected:
                    route.local[endpoint] = before.local.get(endpoint, 0) if before else 0
                else:
                    self._send(link, frames.GONE, frames.NUMBER.pack(endpoint))
            elif at_origin:
                route.remote.setdefault(node, set()).add(endpoint)
        self.routes[key] = route
        self._relink(route)
        route.merged = before.merged if before else 0
        self._merge(route, repeat=False)
        for target in self._local_links(route):
            self.outbox.append((target, self._declaration(route, self.node)))
        for node in route.remote:
            if node in self.peers:
                self.outbox.append((self.peers[node], self._declaration(route, node)))

    def _flow_unknown(self, link: Link, endpoint: int, flow: int) -> None:
        route = self.routes.get(frames.KEY.pack(endpoint, flow))
        if route is None:
            return
        for node in route.remote:
            if self.peers.get(node) == link:
                self.outbox.append((link, self._declaration(route, node)))
                self._send(route.upstream, frames.PATH_RESTORED, frames.NUMBER.pack(node))
                return
        if link in self._local_links(route):
            self.outbox.append((link, self._declaration(route, self.node)))

    def _flow_ended(self, link: Link, key: bytes) -> None:
        route = self.routes.get(key)
        if route is not None and route.upstream == link:
            del self.routes[key]
            for target in route.links:
                self._send(target, frames.FLOW_ENDED, key)

    def _acknowledged(self, link: Link, endpoint: int, flow: int, number: int, node: int) -> None:
        route = self.routes.get(frames.KEY.pack(endpoint, flow))
        if route is None:
            return
        if node != self.node:  # merged by another node's concentrator already
            self._send(route.upstream, frames.ACK, frames.ACK_FIXED.pack(endpoint, flow, number, node))
            return
        for destination, known in route.local.items():
            if self.endpoints.get(destination) == link:
                route.local[destination] = max(known, number)
                # The same number again: the sender has asked, since an acknowledgement of ours was lost.
                self._merge(route, repeat=number <= known)
                return

    def _merge(self, route: Route, repeat: bool) -> None:
        lowest = route.lowest()
        if lowest > route.merged or (repeat and lowest):
            route.merged = lowest
            fixed = frames.ACK_FIXED.pack(route.endpoint, route.flow, lowest, self.node)
            self._send(route.upstream, frames.ACK, fixed)

    def _forget(self, endpoint: int) -> bool:
        """Drop an endpoint as source and destination, and tell those of our links that know it; say whether anybody did."""
        tell = set()
        known = False
        gone = frames.NUMBER.pack(endpoint)
        for key, route in [*self.routes.items()]:
            if route.endpoint == endpoint:
                known = True
                del self.routes[key]
                tell.update(self._local_links(route))
            elif endpoint in route.local:
                known = True
                # Before the acknowledgement that this may set free: a `deliver` that waits for it must fail, not succeed.
                self._send(route.upstream, frames.GONE, gone)
                del route.local[endpoint]
                self._relink(route)
                self._merge(route, repeat=False)
            else:
                for node, members in [*route.remote.items()]:
                    if endpoint in members:
                        known = True
                        tell.add(route.upstream)
                        members.discard(endpoint)
                        if not members:
                            del route.remote[node]
                            self._relink(route)
        for link in tell:
            self._send(link, frames.GONE, gone)
        return known

    def _declaration(self, route: Route, node: int) -> bytes:
        members = route.local if node == self.node else route.remote[node]
        return frames.flow_declaration(route.endpoint, route.flow, route.node, [(node, e) for e in members])

    def _local_links(self, route: Route) -> tuple[Link, ...]:
        return tuple(self.endpoints[e] for e in route.local if e in self.endpoints)

    def _relink(self, route: Route) -> None:
        peers = (self.peers[n] for n in route.remote if n in self.peers)
        route.links = (*self._local_links(route), *peers)

    def _send(self, link: Link, kind: int, body: Buffer, flags: int = 0) -> None:
        self.outbox.append((link, frames.frame(kind, body, flags)))

    def take_outbox(self) -> Iterator[tuple[Link, bytes]]:
        """What is to be sent now, in order."""
        out, self.outbox = self.outbox, []
        return iter(out)

    def validate(self) -> None:
        """Raise AssertionError where the state contradicts itself."""
        for key, route in self.routes.items():
            assert key == frames.KEY.pack(route.endpoint, route.flow)
            assert route.merged <= route.lowest() or not route.local or route.merged == 0, (route.merged, route.local)
            assert not (route.remote and route.node != self.node), "only the origin knows other nodes"
            for endpoint in route.local:
                assert endpoint in self.endpoints or endpoint in self.expected, f"{endpoint:#x} is not here"
            assert set(route.links) <= {*self.endpoints.values(), *self.peers.values()}
