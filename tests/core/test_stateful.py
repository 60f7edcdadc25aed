"""Hypothesis picks what happens on the simulated network, and shrinks what goes wrong to a short story."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from echannel_ray.core.windows import OVERFLOW_POLICIES
from tests.core.promises import check
from tests.core.simulation import World

EXAMPLES = int(os.environ.get("EXAMPLES", "60"))
indexes = st.integers(0, 7)


class Simulation(RuleBasedStateMachine):
    """Rules act on the world at one moment; time passes only by a rule of its own."""

    @initialize(
        seed=st.integers(0, 2**16),
        nodes=st.integers(1, 3),
        lossy=st.booleans(),
        policy=st.sampled_from(OVERFLOW_POLICIES),
        group=st.sampled_from([None, None, "g"]),
    )
    def begin(self, seed: int, nodes: int, lossy: bool, policy: str, group: str | None) -> None:
        self.world = World(seed, nodes, 0.1 if lossy else 0.0)
        for node in self.world.nodes:
            endpoint = self.world.start_endpoint(node)
            self.world.subscribe(endpoint, "a", group)
            self.world.open_family(endpoint, ["a", "b"], policy, 500)

    def _pick(self, items, index):
        usable = [*items]
        return usable[index % len(usable)] if usable else None

    def _endpoint(self, index):
        return self._pick((e for e in self.world.endpoints.values() if not e.dead), index)

    def _published(self, index):
        return self._pick((p for p in self.world.published if not p.killed and not p.closing), index)

    @rule(index=indexes)
    def start_endpoint(self, index: int) -> None:
        node = self._pick((n for n in self.world.nodes.values() if not n.dead), index)
        if node is not None and len(self.world.endpoints) < 8:
            self.world.start_endpoint(node.number)

    @rule(index=indexes, policy=st.sampled_from(OVERFLOW_POLICIES), window=st.sampled_from([50, 500, 10**6]))
    def open_stream(self, index: int, policy: str, window: int) -> None:
        endpoint = self._endpoint(index)
        if endpoint is not None and len(self.world.published) < 10:
            self.world.open_family(endpoint, ["a", "b"], policy, window)

    @rule(index=indexes, group=st.sampled_from([None, None, "g"]))
    def subscribe(self, index: int, group: str | None) -> None:
        endpoint = self._endpoint(index)
        if endpoint is not None and len(self.world.subscriptions) < 10:
            self.world.subscribe(endpoint, "a", group)

    @rule(
        index=indexes,
        count=st.integers(1, 12),
        size=st.sampled_from([1, 7, 40, 90, 300_000]),
        is_delivered=st.booleans(),
    )
    def publish(self, index: int, count: int, size: int, is_delivered: bool = False) -> None:
        published = self._published(index)
        if published is not None:
            for _ in range(count):
                self.world.endpoints[published.endpoint].publish(published, size, is_delivered)

    @rule(index=indexes, count=st.integers(1, 5), seconds=st.sampled_from([0.0005, 0.002, 0.05]))
    def publish_and_let_time_pass(self, index: int, count: int, seconds: float) -> None:
        for i in range(count):
            self.publish(index + i, 2, 30)
            self.time_passes(seconds)

    @rule(index=indexes)
    def drain(self, index: int) -> None:
        published = self._published(index)
        if published is not None:
            self.world.endpoints[published.endpoint].drain(published)

    @rule(index=indexes)
    def close_stream(self, index: int) -> None:
        published = self._published(index)
        if published is not None:
            self.world.endpoints[published.endpoint].close(published)

    @rule(index=indexes)
    def close_subscription(self, index: int) -> None:
        subscription = self._pick((s for s in self.world.subscriptions if not s.closed and not s.dead), index)
        if subscription is not None:
            self.world.unsubscribe(subscription)

    @rule(index=indexes, channel=st.sampled_from(["a", "b"]))
    def reset_subscription(self, index: int, channel: str) -> None:
        usable = (s for s in self.world.subscriptions if not (s.closed or s.dead or s.group))
        subscription = self._pick(usable, index)
        if subscription is not None:
            self.world.reset(subscription, channel)

    @rule(index=indexes, seconds=st.sampled_from([0.1, 2.0]))
    def pause_handler(self, index: int, seconds: float) -> None:
        if self.world.subscriptions:
            self.world.pause(self._pick(self.world.subscriptions, index), seconds)

    @rule(index=indexes, seconds=st.sampled_from([0.01, 0.4, 3.0]))
    def kill_relay(self, index: int, seconds: float) -> None:
        self.world.kill_relay(self._pick(self.world.nodes.values(), index), seconds)

    @precondition(lambda self: self.world.deaths < 3)
    @rule(index=indexes)
    def kill_endpoint(self, index: int) -> None:
        endpoint = self._endpoint(index)
        if endpoint is not None:
            self.world.kill_endpoint(endpoint)

    @precondition(lambda self: self.world.deaths < 3)
    @rule(index=indexes)
    def kill_node(self, index: int) -> None:
        self.world.kill_node(self._pick(self.world.nodes.values(), index))

    @rule(one=indexes, other=indexes)
    def cut(self, one: int, other: int) -> None:
        nodes = [*self.world.nodes.values()]
        a, b = nodes[one % len(nodes)], nodes[other % len(nodes)]
        if a is not b:
            self.world.cut(a, b)

    @rule(seconds=st.sampled_from([0.001, 0.003, 0.05, 0.5]))
    def time_passes(self, seconds: float) -> None:
        self.world.network.run(self.world.network.now + seconds)

    @invariant()
    def all_state_is_sound(self) -> None:
        if hasattr(self, "world"):
            self.world.validate()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            try:
                self.world.quiesce()
                check(self.world)
            except AssertionError as error:
                raise AssertionError(f"{error}\n{self.world.network.story(60)}") from error


TestSimulation = Simulation.TestCase
TestSimulation.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=30,
    derandomize="EXAMPLES" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
