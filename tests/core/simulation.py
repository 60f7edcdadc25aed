"""Nodes, a manager that is trivially right, and faults, on the simulated network; what must hold is in `promises`."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from echannel_ray.core.framing import Framer
from echannel_ray.core.messages import Consumer
from echannel_ray.core.relay import Relay
from echannel_ray.core.windows import BLOCK, RAISE
from tests.core.network import End, Network
from tests.core.processes import Process, write
from tests.core.promises import check_drained
from tests.core.published import Family, Published, Subscription


class Node:
    """One node: its concentrator, which may be dead for a while, and its processes."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.relay: Relay | None = None
        self.links: list[End] = []
        self.endpoints: dict[int, Process] = {}
        self.former: set[int] = set()  # processes that a restarted concentrator has to look for
        self.dead = False


class World:
    """Everything. Endpoints are numbered 1, 2, …, nodes 0x100, 0x200, …"""

    def __init__(self, seed: int, nodes: int, fault_rate: float = 0.0, lossy_local_links: bool = False) -> None:
        self.rng = random.Random(seed)
        self.network = Network(self.rng, fault_rate)
        self.lossy_local_links = lossy_local_links
        self.nodes = {number: Node(number) for number in (0x100 * (i + 1) for i in range(nodes))}
        self.endpoints: dict[int, Process] = {}
        self.published: list[Published] = []
        self.subscriptions: list[Subscription] = []
        self.deaths = 0
        self.is_healed = False
        self._consumers: dict[tuple[int, int], Consumer] = {}  # `derived` is the channel
        self._version = 0
        self._waiting: list[tuple[Subscription, int]] = []
        self._next_endpoint = 1
        for number in self.nodes:
            self._start_relay(self.nodes[number])

    # ---- concentrators and their links ----

    def _start_relay(self, node: Node) -> None:
        if node.dead or node.relay is not None:
            return
        node.relay = Relay(node.number)
        alive = {number for number in node.former if not self.endpoints[number].dead}
        node.relay.expected |= alive
        node.relay.presume_gone(node.former - alive)
        node.former = set(alive)
        for other in self.nodes.values():
            if other.dead:
                node.relay.node_gone(other.number)
            elif other is not node:
                self._connect_nodes(node, other)
        for endpoint in node.endpoints.values():
            self.network.after(0.2 * self.rng.random(), self._connect_endpoint, endpoint)
        self._forward(node)

    def _connect_nodes(self, one: Node, other: Node) -> None:
        if (
            one.relay is None
            or other.relay is None
            or any(isinstance(each, End) and each.is_open for each in self._between(one, other))
        ):
            return
        a, b = self.network.connect(f"{one.number:x}", f"{other.number:x}", lossy=True)
        for here, there, end in ((one, other, a), (other, one, b)):
            end.receive = partial(self._at_relay, here)
            end.ended = partial(self._peer_ended, here, there)
            here.links.append(end)
        one.relay.peer_attached(other.number, a)
        other.relay.peer_attached(one.number, b)
        self._forward(one)
        self._forward(other)

    def _between(self, one: Node, other: Node) -> list[object]:
        found: list[object] = []
        for here, there in ((one, other), (other, one)):
            if here.relay is not None and there.number in here.relay.peers:
                found.append(here.relay.peers[there.number])
        return found

    def _peer_ended(self, here: Node, there: Node, end: End) -> None:
        if here.relay is not None and here.relay.peers.get(there.number) is end:
            here.relay.peer_detached(there.number)
            self._forward(here)
        self.network.after(0.05 + 0.2 * self.rng.random(), self._connect_nodes, here, there)

    def _connect_endpoint(self, endpoint: Process) -> None:
        node = self.nodes[endpoint.node]
        if node.relay is None or endpoint.dead or (endpoint.link is not None and endpoint.link.is_open):
            return
        near, far = self.network.connect(f"e{endpoint.number}", f"{node.number:x}", lossy=self.lossy_local_links)
        near.ended = lambda end: self._lost_concentrator(endpoint, end)
        far.receive = lambda end, data: self._at_relay(node, end, data)
        far.ended = lambda end: self._endpoint_ended(node, endpoint, end)
        node.links.append(far)
        node.relay.endpoint_attached(endpoint.number, far)
        self._forward(node)
        endpoint.attached(near)

    def _lost_concentrator(self, endpoint: Process, end: End) -> None:
        if endpoint.link is end and not endpoint.dead:
            endpoint.link = None
            self.network.after(0.05 + 0.1 * self.rng.random(), self._connect_endpoint, endpoint)

    def _endpoint_ended(self, node: Node, endpoint: Process, end: End) -> None:
        if node.relay is None or node.relay.endpoints.get(endpoint.number) is not end:
            return
        if endpoint.dead:
            node.relay.endpoint_gone(endpoint.number)
            self._forward(node)
        else:  # a local link that broke: the process lives, and comes back
            del node.relay.endpoints[endpoint.number]
            node.relay.expected.add(endpoint.number)

    def _at_relay(self, node: Node, end: End, data: bytes) -> None:
        if node.relay is not None:
            found = Framer().frames(data, len(data))
            assert not [*node.relay.route(end, found, memoryview(data))], "an endpoint asks managers nothing here"
            self._forward(node)

    def _forward(self, node: Node) -> None:
        assert node.relay is not None
        for link, data in node.relay.take_outbox():
            assert isinstance(link, End)
            write(link, [data])

    def connect_directly(self, one: Process, other: Process) -> None:
        """Two processes of a node get a direct link, if they have none."""
        if one is other or one.node != other.node or one.dead or other.dead or other.number in one.direct:
            return
        a, b = self.network.connect(f"e{one.number}", f"e{other.number}", lossy=self.lossy_local_links)
        one.linked_directly(other.number, a)
        # The other side learns of it from its first bytes.
        self.network.after(0.01 * self.rng.random(), self._linked_directly, other, one, b)

    def _linked_directly(self, process: Process, other: Process, end: End) -> None:
        if not process.dead and end.is_open:
            process.linked_directly(other.number, end)

    def close_directly(self, process: Process) -> None:
        """A process closes one of its direct links, with whatever is in it."""
        if process.direct and not process.dead:
            self.network.cut(self.rng.choice([*process.direct.values()]))

    # ---- processes ----

    def start_endpoint(self, node: int) -> Process:
        """A process starts, and links up."""
        endpoint = Process(self.network, node, self._next_endpoint, ack_bytes=self.rng.choice((1, 400, 10_000)))
        endpoint.drained = self._drained
        self._next_endpoint += 1
        self.endpoints[endpoint.number] = self.nodes[node].endpoints[endpoint.number] = endpoint
        self.nodes[node].former.add(endpoint.number)
        self._connect_endpoint(endpoint)
        return endpoint

    def open_stream(self, endpoint: Process, channel: str, overflow: str, window_bytes: int) -> Family:
        """A producer is made: it has the consumers before it publishes."""
        return self.open_family(endpoint, [channel], overflow, window_bytes)

    def open_family(self, endpoint: Process, channels: Iterable[str], overflow: str, window_bytes: int) -> Family:
        """A producer that has a stream for each of these channels."""
        streams = {}
        for channel in channels:
            stream = endpoint.core.open_stream(channel, overflow, window_bytes)
            streams[channel] = endpoint.published[stream.number] = Published(endpoint.number, stream)
        self.published += streams.values()
        family = Family(streams)
        self._apply(family, self._version, [*self._consumers.values()])
        return family

    def _drained(self, published: Published, sequence: int) -> None:
        self.network.note("drained", f"e{published.endpoint}", detail=(published.stream.number, sequence))
        check_drained(published, sequence, self.subscriptions)

    # ---- the manager ----

    def subscribe(self, endpoint: Process, channel: str, group: str | None = None) -> Subscription:
        """A subscription is asked for; `starts` is set when `subscribe` would return."""
        number = len(self.subscriptions) + 1
        subscription = Subscription(endpoint.number, number, channel, group)
        self.subscriptions.append(subscription)
        endpoint.subscriptions[number] = subscription
        endpoint.core.subscription_opened(number)
        self._consumers[endpoint.number, number] = Consumer(endpoint.node, endpoint.number, number, group, channel)
        self._push()
        self._waiting.append((subscription, self._version))
        self._confirm()
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """A subscription is closed, with whatever it has not handled."""
        self.endpoints[subscription.endpoint].close_subscription(subscription)
        self._consumers.pop((subscription.endpoint, subscription.number), None)
        self._push()

    def reset(self, subscription: Subscription, channel: str) -> None:
        """A subscription goes over to another handler version: on this channel, which may be the one that it is on."""
        who = (subscription.endpoint, subscription.number)
        consumer = self._consumers.get(who)
        if consumer is not None:
            subscription.handler_version += 1
            subscription.channel = channel
            self._consumers[who] = replace(consumer, derived=channel, handler_version=subscription.handler_version)
            self._push()

    def _push(self) -> None:
        self._version += 1
        consumers = [*self._consumers.values()]
        for family in {id(published.family): published.family for published in self.published}.values():
            first = next(iter(family.streams.values()))
            if not first.killed and not first.finished:
                self.network.after(0.2 * self.rng.random() ** 2, self._apply, family, self._version, consumers)

    def _apply(self, family: Family, version: int, consumers: list[Consumer]) -> None:
        endpoint = self.endpoints[family.endpoint]
        streams = [*family.streams.values()]
        if endpoint.dead or version < family.version or streams[0].finished:
            return
        family.version = version
        endpoint.mixtures.absorb()
        remote = [consumer for consumer in consumers if consumer.endpoint != endpoint.number]
        cutover_points = {}
        for each in remote:
            who = (each.endpoint, each.subscription)
            channel, _ = family.places.get(who, (each.derived, 0))
            if channel != each.derived:
                cutover_point = endpoint.core.cutover_point_of(family.streams[channel].stream, *who)
                if cutover_point is not None:
                    cutover_points[who] = cutover_point
        family.cut({(each.endpoint, each.subscription): (each.derived, each.handler_version) for each in remote})
        for published in self.rng.sample(streams, len(streams)):
            own = [each for each in remote if each.derived == published.stream.channel]
            endpoint.core.members_changed(published.stream, (1, version), own, cutover_points=cutover_points)
        self.network.note(
            "membership", f"e{endpoint.number}", detail=(streams[0].stream.number, version, cutover_points)
        )
        for published in streams:
            endpoint.pump(published)
        endpoint.flush()
        endpoint.perform()
        self._confirm()

    def _confirm(self) -> None:
        for subscription, version in [*self._waiting]:
            concerned = [p for p in self.published if p.stream.channel == subscription.channel]
            if all(p.killed or p.finished or p.stream.version >= (1, version) for p in concerned):
                self._waiting.remove((subscription, version))
                if subscription.closed or subscription.dead:
                    continue
                subscription.starts = {(p.endpoint, p.stream.number): p.last + 1 for p in concerned}
                if subscription.group is not None:
                    for published in concerned:
                        published.group_start.setdefault(subscription.group, published.last + 1)

    # ---- faults ----

    def kill_endpoint(self, endpoint: Process) -> None:
        """The process dies: its concentrator, or the successor of that, sees it; the manager hears of it."""
        if endpoint.dead:
            return
        self.network.note("killed", f"e{endpoint.number}")
        self._mark_dead(endpoint)
        for end in endpoint.direct.values():
            self.network.died(end)
        node = self.nodes[endpoint.node]
        if endpoint.link is not None and endpoint.link.is_open:
            self.network.died(endpoint.link)
        else:
            self.network.after(0.3, self._gone_unlinked, node, endpoint)

    def _gone_unlinked(self, node: Node, endpoint: Process) -> None:
        if node.relay is not None and endpoint.number not in node.relay.endpoints:
            node.relay.endpoint_gone(endpoint.number)
            self._forward(node)

    def _mark_dead(self, endpoint: Process) -> None:
        endpoint.dead = True
        self.deaths += 1
        for published in endpoint.published.values():
            # What a policy dropped last is told when the producer closes, and may be lost with a process that dies.
            is_said = published.stream.overflow in (BLOCK, RAISE) or not any(
                flow.kept for flow in endpoint.core.sender.flows.values()
            )
            published.killed |= not (published.finished and is_said)
        for subscription in endpoint.subscriptions.values():
            subscription.dead = True
        self.network.after(0.05 + 0.4 * self.rng.random(), self._deregister, endpoint)

    def _deregister(self, endpoint: Process) -> None:
        mine = [key for key in self._consumers if key[0] == endpoint.number]
        for key in mine:
            del self._consumers[key]
        if mine:
            self._push()
        self._confirm()

    def kill_relay(self, node: Node, seconds: float | None) -> None:
        """The concentrator dies with all that it knew, and is started again after a while."""
        if node.relay is None:
            return
        self.network.note("killed", f"{node.number:x}")
        node.former |= {*node.relay.endpoints, *node.relay.expected}
        node.relay = None
        for end in node.links:
            self.network.died(end)
        node.links.clear()
        if seconds is not None:
            self.network.after(seconds, self._start_relay, node)

    def kill_node(self, node: Node) -> None:
        """Everything on a node dies; after a while the others are sure of it."""
        if node.dead:
            return
        self.kill_relay(node, None)
        node.dead = True
        for endpoint in node.endpoints.values():
            if not endpoint.dead:
                self._mark_dead(endpoint)
                for end in endpoint.direct.values():
                    self.network.died(end)
        self.network.after(0.5 + self.rng.random(), self._node_gone, node)

    def _node_gone(self, node: Node) -> None:
        for other in self.nodes.values():
            if other.relay is not None:
                other.relay.node_gone(node.number)
                self._forward(other)

    def cut(self, one: Node, other: Node) -> None:
        """The link between two nodes breaks; it is made again when both have noticed."""
        if (
            one.relay is not None
            and other.relay is not None
            and isinstance(end := one.relay.peers.get(other.number), End)
        ):
            self.network.note("cut", end)
            self.network.cut(end)

    def pause(self, subscription: Subscription, seconds: float) -> None:
        """The handler does nothing for a while."""
        subscription.paused = True
        self.network.after(seconds, self._resume, subscription)

    def _resume(self, subscription: Subscription) -> None:
        subscription.paused = False
        endpoint = self.endpoints[subscription.endpoint]
        if not endpoint.dead:
            endpoint.work(subscription)

    # ---- the end ----

    def quiesce(self, seconds: float = 120.0) -> None:
        """Faults stop; time runs on until nothing happens any more."""
        self.network.fault_rate = 0.0
        self.is_healed = True
        if not self.network.run(self.network.now + seconds):
            raise AssertionError(f"not quiet after {seconds} s")
        self.validate()

    def validate(self) -> None:
        """Every state machine's own check."""
        for node in self.nodes.values():
            if node.relay is not None:
                node.relay.validate()
        for endpoint in self.endpoints.values():
            if not endpoint.dead:
                endpoint.core.validate()
