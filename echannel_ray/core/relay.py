"""What a concentrator knows and decides: which link each frame goes on to.

Rules:

* A flow is declared by its producer's endpoint, to the concentrator of its node (its *origin*), which passes the
  declaration on to the concentrators of the other nodes and to its own destinations. The declaration is all that a
  relay knows of a flow; it can be repeated at any time.
* Packs, probes, and the end of a flow go downstream; acknowledgements go upstream, merged: a node has what the last
  of its destinations has.
* A destination that outlived an earlier relay declares the flows that it receives too, and a flow that a peer came
  back without stays. Such a *claimed* flow carries nothing (its `upstream` is None): it is there so that the
  destination hears of the producer's death. The producer is asked, by an UNKNOWN_FLOW frame that goes upstream, to
  declare the flow or to say that it has ended.
* A destination that is not attached is *expected* (it was attached to this relay's predecessor, and its process
  lives) or *gone*. Whoever sends to it learns of the second by a GONE frame; of the first by silence, which probes end.
  A call to one that is gone is returned; the caller repeats one to which there is silence.
* A relay keeps nothing that was sent: what a lost link or relay had in its buffers is sent again by the endpoint that
  published it.

Links are opaque here. What is to be sent gathers in `outbox`, in order.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

from echannel_ray.core import frames
from echannel_ray.core.frames import (
    FIRST_ADDRESSED,
    HEADER_BYTES,
    KEY_BYTES,
    LAST_ADDRESSED,
    PACK,
    PACK_SCOPE_AT,
    PROBE,
    Buffer,
)
from echannel_ray.core.framing import Found

Link = Hashable

# A peer that missed more deaths than these was away for long: it keeps the flows and streams of the others for
# nothing.
MAX_DEPARTED = 4096
_MAX_SOUGHT = 1024
_NUMBER_FROM = frames.NUMBER.unpack_from


class RelayedFlow:
    """One flow, as one relay sees it."""

    __slots__ = ("endpoint", "flow", "links", "local", "merged", "node", "remote", "upstream")

    def __init__(self, declared: frames.Flow, upstream: Link | None) -> None:
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
        self.flows: dict[bytes, RelayedFlow] = {}
        self.expected: set[int] = set()
        self.gone_nodes: set[int] = set()
        # Endpoints of this node whose death a peer may have missed: its link was down, or the predecessor of this relay
        # knew it.
        self.departed: dict[int, None] = {}
        self.sought: set[int] = set()  # nodes that were called and that this relay knows nothing of
        self._inherited: set[int] = set()
        self._asked: dict[int, set[bytes]] = {}  # of an expected endpoint: flows that somebody wants it to declare
        self.outbox: list[tuple[Link, Buffer]] = []
        self.packs_routed = 0
        self.dropped_frames = 0  # of unknown flows, or for somebody who is not here

    # ---- who is there ----

    def endpoint_attached(self, endpoint: int, link: Link) -> None:
        """A process of this node has linked up, for the first time or again after this concentrator was restarted."""
        if endpoint in self.expected:
            self.expected.discard(endpoint)
            self._inherited.add(endpoint)
        self.endpoints[endpoint] = link
        for key in self._asked.pop(endpoint, ()):
            self._send(link, frames.UNKNOWN_FLOW, key)
        for relayed in self.flows.values():
            if relayed.endpoint == endpoint and relayed.node == self.node:
                # It declares its flows again; of one that ended while it had no link, it says so.
                relayed.upstream = None
                self._ask_upstream(relayed)
            if endpoint in relayed.local:
                self._relink(relayed)
                self.outbox.append((link, self._declaration(relayed, self.node)))

    def endpoint_gone(self, endpoint: int) -> None:
        """A process of this node has died or left: tell whoever sends to it, and whoever it sent to."""
        self.endpoints.pop(endpoint, None)
        # One that this relay's predecessor knew may not have declared its flows again: its peers know of it all the
        # same.
        known = endpoint in self.expected or endpoint in self._inherited
        self.expected.discard(endpoint)
        self._inherited.discard(endpoint)
        self._asked.pop(endpoint, None)
        if self._forget(endpoint) or known:
            self.departed[endpoint] = None
            if len(self.departed) > MAX_DEPARTED:
                del self.departed[next(iter(self.departed))]
            for link in self.peers.values():
                self._send(link, frames.GONE, frames.NUMBER.pack(endpoint))

    def peer_attached(self, node: int, link: Link) -> None:
        """The link to another node is up: say again what it may have missed, and have its flows probed."""
        self.peers[node] = link
        self.gone_nodes.discard(node)
        self.sought.discard(node)
        for endpoint in self.departed:
            self._send(link, frames.GONE, frames.NUMBER.pack(endpoint))
        concerned = set()
        for relayed in self.flows.values():
            if node in relayed.remote and relayed.upstream is not None:
                self._relink(relayed)
                self.outbox.append((link, self._declaration(relayed, node)))
                concerned.add(relayed.upstream)
        # These were all: the peer asks for what it knows besides them.
        self._send(link, frames.PATH_RESTORED, frames.NUMBER.pack(self.node))
        for upstream in concerned:
            self._send(upstream, frames.PATH_RESTORED, frames.NUMBER.pack(node))

    def peer_detached(self, node: int) -> None:
        """The link to another node's concentrator is down: nothing is given up yet."""
        if self.peers.pop(node, None) is not None:
            for relayed in self.flows.values():
                if node in relayed.remote:
                    self._relink(relayed)

    def node_gone(self, node: int) -> None:
        """Note that each endpoint of a node is gone: the node has died."""
        self.peer_detached(node)
        self.gone_nodes.add(node)
        self.sought.discard(node)
        dead = {relayed.endpoint for relayed in self.flows.values() if relayed.node == node}
        for relayed in self.flows.values():
            dead |= relayed.remote.get(node, set())
        for endpoint in dead:
            self._forget(endpoint)

    def presume_gone(self, endpoints: Iterable[int]) -> None:
        """Processes that were attached to this relay's predecessor, and have died meanwhile."""
        for endpoint in endpoints:
            self._inherited.add(endpoint)
            self.endpoint_gone(endpoint)

    # ---- frames ----

    def route(self, link: Link, found_frames: Iterator[Found], view: memoryview) -> Iterator[Found]:
        """Send on the frames that a link has brought, in order, and take in those that are for this relay.

        Those that are for the concentrator around it are given back, one by one. What is sent on stays where it lies in
        `view`, frames that follow each other on the same links as one piece: `take_outbox` before that is used again.
        """
        run_links: tuple[Link, ...] = ()
        run_start = run_stop = 0
        for found in found_frames:
            kind, flags, start, stop = found
            passes = True
            if kind == PACK or kind == PROBE:  # noqa: SIM109 (a set costs more, and this is the path of each pack)
                links = self._links_of_flow(link, kind, view, start)
            elif FIRST_ADDRESSED <= kind <= LAST_ADDRESSED:
                links = self._links_to_addressee(link, kind, view, start)
            else:
                passes, links = False, ()
            if links is not run_links and links != run_links:
                if run_links:
                    data = view[run_start:run_stop]
                    for each in run_links:
                        self.outbox.append((each, data))
                run_links, run_start = links, start - HEADER_BYTES
            run_stop = stop
            if not passes and not self.received(link, kind, flags, view[start:stop]):
                yield found
        if run_links:
            data = view[run_start:run_stop]
            for each in run_links:
                self.outbox.append((each, data))

    def _links_to_addressee(self, link: Link, kind: int, view: memoryview, start: int) -> tuple[Link, ...]:
        """The link on which an addressed frame goes on."""
        node, endpoint = frames.ADDRESS.unpack_from(view, start)
        target = self.endpoints.get(endpoint) if node == self.node else self.peers.get(node)
        if target is not None:
            return (target,)
        self.dropped_frames += 1
        if kind == frames.CALL:
            self.call_failed(link, view, start)
        return ()

    def _links_of_flow(self, link: Link, kind: int, view: memoryview, start: int) -> tuple[Link, ...]:
        """The links on which a pack or a probe goes on."""
        self.packs_routed += kind == PACK
        key = bytes(view[start : start + KEY_BYTES])
        relayed = self.flows.get(key)
        if relayed is None or relayed.upstream != link:
            self.dropped_frames += 1
            self._send(link, frames.UNKNOWN_FLOW, key)
            return ()
        (scope,) = _NUMBER_FROM(view, start + PACK_SCOPE_AT)
        if scope == 0:
            return relayed.links
        if scope == self.node:
            return self._local_links(relayed)
        peer = self.peers.get(scope)
        return () if peer is None or scope not in relayed.remote else (peer,)

    def received(self, link: Link, kind: int, flags: int, body: Buffer) -> bool:
        """A frame that relays read came in by a link; `body` need only last for this call. False where it is none."""
        if kind == frames.ACK:
            self._acknowledged(link, *frames.ACK_FIXED.unpack(body))
        elif kind == frames.FLOW:
            self._flow_declared(link, frames.parse_flow(body))
        elif kind == frames.UNKNOWN_FLOW:
            self._flow_unknown(link, *frames.KEY.unpack(body))
        elif kind == frames.FLOW_ENDED:
            self._flow_ended(link, bytes(body))
        elif kind == frames.GONE:
            if self._node_of(link) is None:
                self.dropped_frames += 1  # of an endpoint's death only a concentrator can tell
            else:
                self._forget(frames.NUMBER.unpack(body)[0])
        elif kind == frames.PATH_RESTORED:
            self._peer_declared_all(link)
        else:
            return False
        return True

    def call_failed(self, link: Link, buffer: Buffer, start: int) -> None:
        """A call that came by `link` has no addressee: say so where it will never have one, else be silent."""
        node, endpoint, caller_node, caller, number = frames.CALL_FIXED.unpack_from(buffer, start)
        if node == self.node:
            is_gone = endpoint not in self.expected
        else:
            is_gone = node in self.gone_nodes
            if not is_gone and len(self.sought) < _MAX_SOUGHT:
                self.sought.add(node)
        if is_gone:
            fixed = frames.RETURNED_FIXED.pack(caller_node, caller, endpoint, number)
            self._send(link, frames.RETURNED, fixed, frames.IS_NOBODY)

    def _flow_declared(self, link: Link, declared: frames.Flow) -> None:
        key = frames.KEY.pack(declared.endpoint, declared.flow)
        before = self.flows.get(key)
        if not self._may_declare(link, declared):
            self._flow_claimed(link, declared, key, before)
            return
        relayed = RelayedFlow(declared, link)
        at_origin = declared.node == self.node
        for node, endpoint in declared.destinations:
            if node == self.node:
                if endpoint in self.endpoints or endpoint in self.expected:
                    relayed.local[endpoint] = before.local.get(endpoint, 0) if before else 0
                else:
                    self._send(link, frames.GONE, frames.NUMBER.pack(endpoint))
            elif at_origin and node in self.gone_nodes:
                self._send(link, frames.GONE, frames.NUMBER.pack(endpoint))
            elif at_origin:
                relayed.remote.setdefault(node, set()).add(endpoint)
        if not relayed.local and not at_origin:
            self.flows.pop(key, None)
            return
        self.flows[key] = relayed
        self._relink(relayed)
        # Of a claimed flow only some destinations were known: what these have, all need not have.
        relayed.merged = min(before.merged, relayed.lowest()) if before else 0
        self._merge(relayed, repeat=False)
        for target in self._local_links(relayed):
            self.outbox.append((target, self._declaration(relayed, self.node)))
        for node in relayed.remote:
            if node in self.peers:
                self.outbox.append((self.peers[node], self._declaration(relayed, node)))

    def _may_declare(self, link: Link, declared: frames.Flow) -> bool:
        """An endpoint declares its own flows only, and another node's concentrator those of its node."""
        if declared.node == self.node:
            return self.endpoints.get(declared.endpoint, self) == link
        before = self.flows.get(frames.KEY.pack(declared.endpoint, declared.flow))
        is_ours = declared.endpoint in self.endpoints or (before is not None and before.node != declared.node)
        return self.peers.get(declared.node, self) == link and not is_ours

    def _flow_claimed(self, link: Link, declared: frames.Flow, key: bytes, before: RelayedFlow | None) -> None:
        """An endpoint says that it receives this flow; nobody can say so for another."""
        claims = [e for n, e in declared.destinations if n == self.node and self.endpoints.get(e, self) == link]
        if not claims or declared.endpoint in claims:
            self.dropped_frames += 1
            return
        is_local = declared.node == self.node
        is_here = declared.endpoint in self.endpoints or declared.endpoint in self.expected
        if declared.node in self.gone_nodes or (is_local and not is_here):
            self._send(link, frames.GONE, frames.NUMBER.pack(declared.endpoint))
        elif before is None:
            before = self.flows[key] = RelayedFlow(declared, None)
        if before is not None and before.upstream is None:
            before.local[claims[0]] = before.merged = 0
            self._relink(before)
            self._ask_upstream(before)

    def _ask_upstream(self, relayed: RelayedFlow) -> None:
        """Have the producer of a claimed flow declare it again, or say that it has ended."""
        key = frames.KEY.pack(relayed.endpoint, relayed.flow)
        if relayed.node != self.node:
            self._send(self.peers.get(relayed.node), frames.UNKNOWN_FLOW, key)
        elif relayed.endpoint in self.endpoints:
            self._send(self.endpoints[relayed.endpoint], frames.UNKNOWN_FLOW, key)
        else:
            self._asked.setdefault(relayed.endpoint, set()).add(key)

    def _node_of(self, link: Link) -> int | None:
        return next((node for node, each in self.peers.items() if each == link), None)

    def _peer_declared_all(self, link: Link) -> None:
        """What came by an earlier link from this node, and was not declared again, may have ended meanwhile."""
        node = self._node_of(link)
        for relayed in self.flows.values() if node is not None else ():
            if relayed.node == node and relayed.upstream != link:
                relayed.upstream = None
                self._ask_upstream(relayed)

    def _flow_unknown(self, link: Link, endpoint: int, flow: int) -> None:
        relayed = self.flows.get(frames.KEY.pack(endpoint, flow))
        if relayed is None or relayed.upstream is None:
            self._ask_producer(link, endpoint, frames.KEY.pack(endpoint, flow))
            return
        for node in relayed.remote:
            if self.peers.get(node) == link:
                self.outbox.append((link, self._declaration(relayed, node)))
                self._send(relayed.upstream, frames.PATH_RESTORED, frames.NUMBER.pack(node))
                return
        if link in self._local_links(relayed):
            self.outbox.append((link, self._declaration(relayed, self.node)))

    def _ask_producer(self, link: Link, endpoint: int, key: bytes) -> None:
        """A peer has heard of a flow from this node that this relay knows nothing of."""
        if self._node_of(link) is None:
            return
        if endpoint in self.endpoints:
            self._send(self.endpoints[endpoint], frames.UNKNOWN_FLOW, key)
        elif endpoint in self.expected:
            self._asked.setdefault(endpoint, set()).add(key)
        else:
            self._send(link, frames.GONE, frames.NUMBER.pack(endpoint))

    def _flow_ended(self, link: Link, key: bytes) -> None:
        relayed = self.flows.get(key)
        endpoint, _ = frames.KEY.unpack(key)
        if relayed is None or relayed.upstream is None:
            # The answer to a question of ours, or of a peer, which the producer can't tell apart.
            if self.endpoints.get(endpoint, self) == link:
                targets = [*self.peers.values()]
            elif relayed is not None and self.peers.get(relayed.node, self) == link:
                targets = []
            else:
                return
            targets += self._local_links(relayed) if relayed is not None else ()
        elif relayed.upstream == link:
            targets = [*relayed.links]
        else:
            return
        self.flows.pop(key, None)
        for target in targets:
            self._send(target, frames.FLOW_ENDED, key)

    def _acknowledged(self, link: Link, endpoint: int, flow: int, number: int, node: int) -> None:
        relayed = self.flows.get(frames.KEY.pack(endpoint, flow))
        if relayed is None:
            return
        if node != self.node:  # merged by another node's concentrator already
            if self.peers.get(node) != link:
                self.dropped_frames += 1
                return
            self._send(relayed.upstream, frames.ACK, frames.ACK_FIXED.pack(endpoint, flow, number, node))
            return
        for destination, known in relayed.local.items():
            if self.endpoints.get(destination) == link:
                relayed.local[destination] = max(known, number)
                # The same number again: the sender has asked, since an acknowledgement of ours was lost.
                self._merge(relayed, repeat=number <= known)
                return

    def _merge(self, relayed: RelayedFlow, repeat: bool) -> None:
        lowest = relayed.lowest()
        if lowest > relayed.merged or (repeat and lowest):
            relayed.merged = lowest
            fixed = frames.ACK_FIXED.pack(relayed.endpoint, relayed.flow, lowest, self.node)
            self._send(relayed.upstream, frames.ACK, fixed)

    def _forget(self, endpoint: int) -> bool:
        """Drop an endpoint as source and destination, and tell those links that know it; whether any did."""
        tell: set[Link | None] = set()
        known = False
        gone = frames.NUMBER.pack(endpoint)
        for key, relayed in [*self.flows.items()]:
            if relayed.endpoint == endpoint:
                known = True
                del self.flows[key]
                tell.update(self._local_links(relayed))
            elif endpoint in relayed.local:
                known = True
                # Before the acknowledgement that this may set free: a `deliver` that waits for it must fail, not
                # succeed.
                self._send(relayed.upstream, frames.GONE, gone)
                del relayed.local[endpoint]
                if relayed.local or relayed.node == self.node:
                    self._relink(relayed)
                    self._merge(relayed, repeat=False)
                else:
                    del self.flows[key]  # the origin sends nothing here any more, its end neither
            else:
                for node, members in [*relayed.remote.items()]:
                    if endpoint in members:
                        known = True
                        tell.add(relayed.upstream)
                        members.discard(endpoint)
                        if not members:
                            del relayed.remote[node]
                            self._relink(relayed)
        for link in tell:
            self._send(link, frames.GONE, gone)
        return known

    def _declaration(self, relayed: RelayedFlow, node: int) -> bytes:
        members = relayed.local if node == self.node else relayed.remote[node]
        return frames.flow_declaration(relayed.endpoint, relayed.flow, relayed.node, [(node, e) for e in members])

    def _local_links(self, relayed: RelayedFlow) -> tuple[Link, ...]:
        return tuple(self.endpoints[e] for e in relayed.local if e in self.endpoints)

    def _relink(self, relayed: RelayedFlow) -> None:
        peers = (self.peers[n] for n in relayed.remote if n in self.peers)
        relayed.links = (*self._local_links(relayed), *peers)

    def _send(self, link: Link | None, kind: int, body: Buffer, flags: int = 0) -> None:
        if link is not None:
            self.outbox.append((link, frames.frame(kind, body, flags)))

    def take_outbox(self) -> list[tuple[Link, Buffer]]:
        """What is to be sent now, in order."""
        out, self.outbox = self.outbox, []
        return out

    def validate(self) -> None:
        """Raise AssertionError where the state contradicts itself."""
        for key, relayed in self.flows.items():
            assert key == frames.KEY.pack(relayed.endpoint, relayed.flow)
            assert relayed.merged <= relayed.lowest() or not relayed.local or relayed.merged == 0, (
                relayed.merged,
                relayed.local,
            )
            assert not (relayed.remote and relayed.node != self.node), "only the origin knows other nodes"
            for endpoint in relayed.local:
                assert endpoint in self.endpoints or endpoint in self.expected, f"{endpoint:#x} is not here"
            assert set(relayed.links) <= {*self.endpoints.values(), *self.peers.values()}
