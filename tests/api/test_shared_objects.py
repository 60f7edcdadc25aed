"""Shared objects between processes: driver, actors of each kind, tasks, events, on two nodes."""

from __future__ import annotations

import asyncio
import gc
import pickle
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import ray
from pydantic import BaseModel, model_validator

import echannel_ray as ec
from tests.api.parties import AsyncPartyActor, Inbox, PartyActor, ThreadedPartyActor, ask
from tests.api.scripts import run
from tests.clusters import LocalCluster, on, wait_until

KINDS = {"sync": PartyActor, "threaded": ThreadedPartyActor, "async": AsyncPartyActor}


class Point(BaseModel):
    x: int = 0


class Window(ec.SharedObject):
    low: float = 75.5
    high: float = 78.5
    items: list[int] = []  # noqa: RUF012 (pydantic copies defaults)
    corner: Point = Point()


class Counter(ec.SharedObject):
    count: int = 0
    other: int = 0

    @model_validator(mode="after")
    def _never_below_zero(self) -> Counter:
        if self.count < 0:
            raise ValueError("below zero")
        return self


def keep(party: Any, shared: Any) -> tuple[int, Any]:
    """Hold a copy: its version and fields as it came."""
    party.kept["shared"] = shared
    return shared.version, shared.model_dump()


def see(party: Any) -> tuple[int, Any]:
    seen = party.kept["shared"].snapshot()
    return seen.version, seen.model_dump()


def assign(party: Any, **fields: Any) -> None:
    for name, value in fields.items():
        setattr(party.kept["shared"], name, value)


def publish(party: Any, fields: dict[str, Any], expected: int | None = None) -> int:
    assign(party, **fields)
    version: int = party.kept["shared"].publish(expected)
    return version


def make(party: Any, cls: Any = Window) -> Any:
    shared = party.kept["shared"] = cls()
    return shared


# ---- prompt ----


@pytest.mark.parametrize("node", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_publish_is_everywhere_when_it_returns(new_party: Callable[..., Any], kind: str, node: int):
    party = new_party(KINDS[kind], node)
    window = Window()
    assert ask(party, keep, window) == (0, Window().model_dump())
    window.low = 70
    window.items.append(4)
    window.corner = Point(x=3)
    assert ask(party, see)[0] == 0
    assert window.publish() == 1
    assert ask(party, see) == (1, window.model_dump())


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_publishes_to_its_master_and_to_all_other_copies(new_party: Callable[..., Any], far: Any, kind: str):
    window = Window()
    party = new_party(KINDS[kind])
    ask(party, keep, window)
    ask(far, keep, window)
    assert ask(party, publish, {"low": 60.0, "corner": {"x": 5}}) == 1
    assert (window.version, window.low, window.corner) == (1, 60.0, Point(x=5))
    assert ask(far, see) == ask(party, see) == (1, window.model_dump())


def test_a_task_gets_a_copy_too(nodes: LocalCluster):
    @ray.remote(num_cpus=1)
    def narrow(window: Window) -> int:
        window.high = 71.0
        return window.publish()

    window = Window()
    options = narrow.options(**on(nodes.nodes[1]))
    assert [ray.get(options.remote(window), timeout=60) for _ in range(2)] == [1, 1]
    assert window.high == 71.0


def test_copies_of_copies_have_one_master(near: Any, far: Any):
    window = Window()
    copied = ask(near, lambda party, each: each, window)
    ask(far, keep, copied)
    ask(far, publish, {"low": 1.0})
    assert (window.low, copied.low, window.version, copied.version) == (1.0, 1.0, 1, 1)
    window.high = 90.0
    window.publish()
    assert copied.snapshot() == window


def test_who_comes_late_begins_with_the_newest_version(near: Any):
    window = Window()
    pickled = pickle.dumps(window)
    for low in (1.0, 2.0, 3.0):
        window.low = low
        window.publish()
    late = pickle.loads(pickled)
    assert (late.version, late.low) == (3, 3.0)
    assert ask(near, lambda party, data: (pickle.loads(data).version, pickle.loads(data).low), pickled) == (3, 3.0)


def test_the_master_may_be_in_an_actor(near: Any, far: Any):
    window = ask(far, make)
    ask(near, keep, window)
    window.low = 5.0
    assert window.publish() == 1
    assert ask(far, see) == ask(near, see) == (1, window.model_dump())
    assert ask(far, publish, {"high": 6.0}) == 2
    assert (window.version, window.high) == (2, 6.0)


def test_several_copies_in_one_process_are_objects_of_their_own():
    window = Window()
    one, two = pickle.loads(pickle.dumps((window, [window])))[0], pickle.loads(pickle.dumps(window))
    one.items.append(1)
    assert two.items == []
    assert one.publish() == 1
    assert window.items == two.items == [1]
    two.items.append(2)
    assert (one.items, window.items) == ([1], [1])


def test_a_pickle_twice_in_one_argument_is_one_copy(near: Any):
    window = Window()
    assert ask(near, lambda party, pair: pair[0] is pair[1], (window, window))


def test_a_shared_object_inside_an_event(channel: ec.EventChannel, far: Any):
    """It comes with the event's values, and gets the newest ones at once."""
    window = Window()
    ask(far, lambda party, channel: party.kept.update(s=channel.subscribe(lambda w: keep(party, w))), channel)
    window.low = 3.0
    window.publish()
    with channel.producer() as producer:
        producer.deliver(window).result(timeout=20)
    assert ask(far, see) == (1, window.model_dump())
    wait_until(lambda: window._echannel.master is not None and len(window._echannel.master._secondaries) == 1)
    window.low = 4.0
    assert window.publish() == 2
    assert ask(far, see)[0] == 2


def test_copies_that_are_garbage_are_forgotten(near: Any):
    window = Window()
    ask(near, keep, window)
    mine = pickle.loads(pickle.dumps(window))
    master = window._echannel.master
    assert master is not None
    assert len(master._secondaries) == 2
    ask(near, lambda party: party.kept.clear() or gc.collect() * 0)
    del mine
    gc.collect()

    def is_forgotten() -> bool:
        window.low += 1
        window.publish()
        return not master._secondaries

    wait_until(is_forgotten)


def test_a_master_lives_on_while_nobody_holds_it():
    copied = pickle.loads(pickle.dumps(Window(low=1)))
    gc.collect()
    copied.low = 2
    assert copied.publish() == 1
    assert copied.pull() == 1


# ---- lazy ----


def test_lazy_copies_get_it_when_they_pull(near: Any, far: Any):
    window = Window()
    ask(near, keep, window)
    ask(far, keep, window)
    window.policy = "lazy"
    window.low = 1.0
    assert window.publish() == 1
    assert ask(near, see)[0] == 0
    assert ask(near, lambda party: party.kept["shared"].pull()) == 1
    assert ask(near, see) == (1, window.model_dump())
    assert ask(far, publish, {"high": 2.0}) == 2
    assert ask(far, see) == (2, window.model_dump())
    assert ask(near, see)[0] == 1


def test_a_policy_counts_from_the_next_publish_on(near: Any):
    window = Window()
    ask(near, keep, window)
    window.policy = "lazy"
    for low in (1.0, 2.0):
        window.low = low
        window.publish()
    window.policy = "prompt"
    assert ask(near, see)[0] == 0
    assert window.publish() == 2
    assert ask(near, see) == (2, window.model_dump())


# ---- many at once ----


def count_up(party: Any, times: int) -> int:
    """Add one, again where somebody was faster; how often that was."""
    shared, stale = party.kept["shared"], 0
    for _ in range(times):
        while True:
            shared.pull()
            seen = shared.snapshot()
            shared.count = seen.count + 1
            try:
                shared.publish(expected_version=seen.version)
                break
            except ec.StaleVersion:
                stale += 1
    return stale


def test_with_expected_versions_no_update_is_lost(near: Any, far: Any, parties: dict[str, Any]):
    counter = Counter()
    actors = [near, far, parties["threaded"]]
    for actor in actors:
        ask(actor, keep, counter)
    working = [actor.run.remote(count_up, 60) for actor in actors]
    mine = type("Mine", (), {"kept": {"shared": counter}})
    count_up(mine, 60)
    ray.get(working, timeout=100)
    assert (counter.count, counter.version) == (240, 240)
    for actor in actors:
        assert ask(actor, see) == (240, counter.model_dump())


def test_without_them_fields_are_merged(near: Any, far: Any):
    def climb(party: Any, name: str) -> list[int]:
        versions = []
        for value in range(1, 101):
            setattr(party.kept["shared"], name, value)
            versions.append(party.kept["shared"].publish())
        return versions

    counter = Counter()
    ask(near, keep, counter)
    ask(far, keep, counter)
    one, two = ray.get([near.run.remote(climb, "count"), far.run.remote(climb, "other")], timeout=60)
    assert sorted(one + two) == list(range(1, 201))
    assert (counter.count, counter.other, counter.version) == (100, 100, 200)
    assert ask(near, see) == ask(far, see) == (200, counter.model_dump())


def test_what_is_published_together_is_seen_together(near: Any, far: Any):
    def look(party: Any, seconds: float) -> list[Any]:
        torn, last, until = [], -1, time.monotonic() + seconds
        while time.monotonic() < until:
            seen = party.kept["shared"].snapshot()
            if seen.count != seen.other or seen.count != seen.version or seen.version < last:
                torn.append(seen.model_dump())
            last = seen.version
        return torn

    counter = Counter()
    ask(near, keep, counter)
    ask(far, keep, counter)
    looking = [actor.run.remote(look, 1.5) for actor in (near, far)]
    until = time.monotonic() + 1.5
    while time.monotonic() < until:
        counter.count += 1
        counter.other += 1
        counter.publish()
    assert ray.get(looking, timeout=60) == [[], []]
    assert counter.version > 50


def test_threads_of_one_process_share_a_copy(near: Any):
    def climb(party: Any) -> int:
        shared = party.kept["shared"]

        def work(name: str) -> None:
            for value in range(1, 51):
                setattr(shared, name, value)
                shared.publish()

        threads = [threading.Thread(target=work, args=[name]) for name in ("count", "other")]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        version: int = shared.publish()
        return version

    counter = Counter()
    ask(near, keep, counter)
    version = ask(near, climb)
    assert (counter.count, counter.other, counter.version) == (50, 50, version)


# ---- where it is called ----


def test_inside_a_handler(channel: ec.EventChannel, near: Any):
    def subscribe(party: Any, channel: ec.EventChannel, shared: Counter) -> None:
        def handle(event: int) -> None:
            shared.count = event
            shared.publish()
            shared.pull()

        party.kept["subscription"] = channel.subscribe(handle)

    counter = Counter()
    ask(near, subscribe, channel, counter)
    with channel.producer() as producer:
        for number in range(1, 20):
            producer.deliver(number).result(timeout=20)
            assert (counter.count, counter.version) == (number, number)


def test_a_handler_of_the_masters_process_may_publish_while_copies_publish(channel: ec.EventChannel, near: Any):
    counter = Counter()
    ask(near, keep, counter)

    def handle(event: int) -> None:
        counter.other = event
        counter.publish()

    with channel.subscribe(handle), channel.producer() as producer:
        working = near.run.remote(count_up, 30)
        for number in range(1, 31):
            producer.deliver(number).result(timeout=20)
        ray.get(working, timeout=60)
    assert (counter.count, counter.other) == (30, 30)


async def test_coroutines_await(parties: dict[str, Any]):
    async def climb(party: Any, shared: Counter) -> int:
        for value in range(1, 11):
            shared.count = value
            await shared.apublish()
        await shared.apull()
        return shared.version

    counter = Counter()
    answer = parties["asynchronous"].run.remote(climb, counter)
    counter.other = 1
    await counter.apublish(timeout=20)
    assert await asyncio.wait_for(answer, 60) >= 10
    assert await counter.apull() == 11


# ---- what is refused ----


def test_what_the_master_refuses_raises_at_the_copy(near: Any):
    def bad(party: Any) -> str:
        shared = party.kept["shared"]
        with pytest.raises(ValueError, match="below zero"):
            shared._echannel.link.publish({"count": -1}, None)
        with pytest.raises(ValueError, match="no field 'nothing'"):
            shared._echannel.link.publish({"nothing": 1}, None)
        return "refused"

    counter = Counter()
    ask(near, keep, counter)
    assert ask(near, bad) == "refused"
    assert counter.version == 0
    assert ask(near, publish, {"count": 1}) == 1


def test_a_stale_version_says_which_one_is_current(near: Any):
    window = Window()
    ask(near, keep, window)
    window.low = 1.0
    window.publish()
    with pytest.raises(ray.exceptions.RayTaskError) as raised:
        ask(near, publish, {"high": 3.0}, 0)
    cause = raised.value.cause
    assert isinstance(cause, ec.StaleVersion)
    assert (cause.expected, cause.current) == (0, 1)
    with pytest.raises(ec.StaleVersion):
        window.publish(expected_version=7)


def test_errors_survive_pickling():
    for error in (ec.MasterLost("gone", node="1"), ec.StaleVersion("late", expected=1, current=2)):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), again.facts, str(again)) == (type(error), error.facts, str(error))


def test_a_master_that_is_too_large_or_no_plain_data_can_not_be_sent():
    class Loose(ec.SharedObject):
        data: Any = None

    for value in (object(), b"." * (8 << 20)):
        with pytest.raises(ec.NotSerialisable):
            pickle.dumps(Loose(data=value))


def test_large_ones_travel(near: Any):
    class Loose(ec.SharedObject):
        data: Any = None

    def size(party: Any, shared: Any) -> int:
        party.kept["shared"] = shared
        return len(shared.data)

    loose = Loose(data=b"." * 3_000_000)
    assert ask(near, size, loose) == 3_000_000
    loose.data = b"." * 6_000_000
    loose.publish()
    assert ask(near, lambda party: len(party.kept["shared"].data)) == 6_000_000


def test_two_namespaces(near: Any):
    """A copy belongs to the namespace of its master, whatever its process has joined."""
    with ec.connect(namespace="shared-elsewhere"):
        window = Window()
        ask(near, keep, window)
        ec.connect(namespace="default")
        window.low = 1.0
        assert window.publish() == 1
        assert ask(near, see)[0] == 1
        ask(near, lambda party: party.kept.clear())


def test_after_leaving(new_party: Callable[..., Any]):
    party = new_party()

    def leave(party: Any) -> list[str]:
        mine, copied = party.kept["shared"], party.kept["copy"]
        ec.disconnect()
        raised = []
        for act in (mine.publish, copied.publish, copied.pull):
            try:
                act()
            except ec.Closed as error:
                raised.append(type(error).__name__)
        return raised

    window = Window()
    ask(party, lambda party, shared: party.kept.update(copy=shared), window)
    theirs = ask(party, make)
    theirs.low = 1.0
    theirs.publish()
    assert ask(party, leave) == ["Closed"] * 3
    window.low = 1.0
    assert window.publish(timeout=20) == 1  # it is not waited for
    for act in (theirs.publish, theirs.pull):
        with pytest.raises(ec.MasterLost):
            act(timeout=20)
    assert (theirs.low, theirs.version) == (1.0, 1)
    late = pickle.loads(pickle.dumps(theirs))
    assert (late.low, late.version) == (1.0, 1)
    with pytest.raises(ec.MasterLost):
        late.pull()


_DRIVER = """
import ray, cloudpickle, ray.cloudpickle
import echannel_ray as ec
from pydantic import BaseModel

class Inner(BaseModel):
    n: int = 0

class View(ec.SharedObject):
    low: float = 0.0
    inner: Inner = Inner()
    def twice(self): return 2 * self.low

@ray.remote(num_cpus=0)
class Holder:
    def hold(self, view):
        self.view = view
        return type(view).__name__, view.twice(), type(view.inner).__name__
    def change(self, low):
        self.view.low = low
        self.view.inner = {"n": 5}
        return self.view.publish()
    def version(self): return self.view.version

ray.init(ADDRESS, log_to_driver=False)
view, holder = View(low=2), Holder.remote()
assert ray.get(holder.hold.remote(view)) == ("View", 4.0, "Inner")
assert ray.get(holder.change.remote(7)) == 1
assert (view.low, view.inner.n, type(view.inner)) == (7.0, 5, Inner)
for pickler in (cloudpickle, ray.cloudpickle):
    copied = pickler.loads(pickler.dumps(view))
    assert isinstance(copied, View) and copied.twice() == 14
    copied.low += 1
    copied.publish()
    view.low = 7
    view.publish()
channel = ec.channel("views-of-main")
got = []
with channel.subscribe(got.append), channel.producer() as producer:
    producer.deliver(view).result(10)
assert got == [view]
assert ray.get(holder.version.remote()) == view.version
print("done")
"""


def test_classes_of_a_main_script(nodes: LocalCluster):
    ended = run(_DRIVER.replace("ADDRESS", repr(nodes.address)))
    assert (ended.code, ended.output.splitlines()[-1:]) == (0, ["done"]), ended.output


def test_inboxes_of_many_copies(parties: dict[str, Any]):
    """All copies have a version when a publish returns, also where several processes publish at once."""
    counter, inbox = Counter(), Inbox()
    for party in parties.values():
        ask(party, keep, counter)
    for number in range(1, 30):
        counter.count = number
        version = counter.publish()
        seen = ray.get([party.run.remote(see) for party in parties.values()], timeout=60)
        inbox((version, {each[0] for each in seen}))
    assert all(found == {version} for version, found in inbox.items)
