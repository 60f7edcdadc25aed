"""What inboxes and their drivers do with what arrives, and with users' functions that misbehave: without a link."""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from echannel_ray.consumers.coroutine_driver import CoroutineDriver
from echannel_ray.consumers.function_driver import FunctionDriver
from echannel_ray.consumers.inbox import Inbox
from echannel_ray.consumers.message import Gap, Message
from echannel_ray.consumers.mixed_driver import MixedDriver
from echannel_ray.consumers.pull_driver import Ledger, PullDriver
from echannel_ray.consumers.trouble import describe
from echannel_ray.core.arrivals import AS_GIVEN, Arrival, Reports
from echannel_ray.core.receiver import Receiver
from echannel_ray.core.streams import NEWEST, OLDEST, SenderStream
from echannel_ray.core.windows import DROP_NEWEST, DROP_OLDEST
from echannel_ray.endpoint.crew import Crew, Job
from echannel_ray.endpoint.process_endpoint import ProcessEndpoint
from echannel_ray.formats.packs import Undecodable
from echannel_ray.producers.local_source import LocalSource, hand_over
from tests.endpoint.test_crew import ScriptedLink

PATIENCE_SECONDS = 10.0
PRODUCER = "producer"


class FakeEndpoint:
    """What a inbox asks of its endpoint, with a crew of its own."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.crew = Crew("fake", ScriptedLink())
        self.core = SimpleNamespace(receiver=Receiver(0, 1, 1))
        self.peculiar_seen = False
        self.broken = None
        self.handled: list[tuple[int, bytes]] = []
        self.released: list[tuple[int, int]] = []
        self.abandoned: list[Inbox] = []
        self.deliveries: dict[int, Any] = {}
        self.mixed = MixedDriver(cast(ProcessEndpoint, self))

    def local_handled(self, inbox: Inbox) -> None:
        pass

    def room_made(self) -> None:
        pass

    def abandon(self, inbox: Inbox) -> None:
        self.abandoned.append(inbox)


@pytest.fixture
def endpoint() -> Iterator[FakeEndpoint]:
    made = FakeEndpoint()
    made.crew.start()
    yield made
    made.crew.close()


@pytest.fixture
def switching() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


class FakeSource:
    """Where runs of another process come from."""

    producer = "another"

    def __init__(self, endpoint: FakeEndpoint) -> None:
        self._endpoint = endpoint

    def position(self, run: Arrival[Any], count: int) -> None:
        pass

    def close_run(self, run: Arrival[Any], outcome: bytes, reports: Reports) -> None:
        self._endpoint.handled.append((run.mark, outcome))

    def release(self, run: Arrival[Any], handled: int, reports: Reports) -> None:
        self._endpoint.released.append((run.mark, handled))


def handled_by(endpoint: Any, handler: Callable[[Any], Any]) -> Inbox:
    return Inbox(endpoint, 1, "channel", None, "", partial(FunctionDriver, handler))


def pulled(endpoint: Any, ledger: Ledger | None = None) -> Inbox:
    return Inbox(endpoint, 1, "channel", None, "", partial(PullDriver, ledger=ledger))


def puller(inbox: Inbox) -> PullDriver:
    assert isinstance(inbox.driver, PullDriver)
    return inbox.driver


def run_for(inbox: Inbox, *events: Any, mark: int = 1, **more: Any) -> Arrival[FakeSource]:
    endpoint: Any = inbox.endpoint
    return Arrival(FakeSource(endpoint), 1, list(events), mark, 0, False, 0)._replace(**more)


def offer_run(inbox: Inbox, *events: Any, **more: Any) -> None:
    with inbox.endpoint.lock:
        inbox.offer(run_for(inbox, *events, **more))


def offer_local(inbox: Inbox, event: Any, sequence: int = 1) -> None:
    with inbox.endpoint.lock:
        LocalSource(PRODUCER, inbox, 0).offer([event], sequence, 0, AS_GIVEN)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise SystemExit("no text")

    __repr__ = __str__


def raise_unspeakable(_event: Any) -> None:
    raise Unspeakable


class TestDescribe:
    def test_a_text_that_can_not_be_had(self):
        assert describe(Unspeakable()) == "Unspeakable"

    @pytest.mark.parametrize("filler", ["é", "x", "\ud800", "€"])
    def test_a_long_text_is_cut_where_a_character_ends(self, filler):
        assert 4000 < len(describe(ValueError("x" + filler * 5000)).encode()) <= 4096


class TestMisbehaviour:
    @pytest.mark.parametrize("offer", [offer_run, offer_local])
    def test_handlers_and_on_error_that_exit(self, endpoint, offer):
        inbox = handled_by(endpoint, raise_unspeakable)
        inbox.on_error = raise_unspeakable
        offer(inbox, 1)
        until(lambda: inbox.counters.failed == 1)
        offer(inbox, 1)
        until(lambda: inbox.counters.failed == 2 and inbox.driver.is_at_rest)
        assert inbox.pending == inbox.local_pending == 0
        if offer is offer_run:
            assert endpoint.handled == [(1, b"Unspeakable")] * 2

    def test_gaps_for_an_on_error_that_exits(self, endpoint):
        seen: list[Any] = []
        inbox = handled_by(endpoint, seen.append)
        inbox.on_error = lambda _: sys.exit()
        offer_run(inbox, gap_last=3)
        offer_run(inbox, "next")
        until(lambda: seen == ["next"])
        assert inbox.counters.dropped == 3

    def test_a_run_that_breaks_off_is_finished(self, endpoint, monkeypatch):
        seen: list[Any] = []
        inbox = handled_by(endpoint, seen.append)
        monkeypatch.setattr(inbox.driver, "_handle_run", raise_unspeakable)
        offer_run(inbox, 1)
        until(lambda: endpoint.handled and inbox.driver.is_at_rest)
        monkeypatch.undo()
        offer_run(inbox, 2, mark=2)
        until(lambda: len(endpoint.handled) == 2)
        assert seen == [2]

    def test_the_crew_goes_on(self, endpoint):
        done = threading.Event()
        for _ in range(10):
            endpoint.crew.submit(Job(raise_unspeakable, None))
        endpoint.crew.submit(Job(done.set))
        assert done.wait(PATIENCE_SECONDS)


def test_on_error_of_a_deleted_channel_does_not_hold_up_the_ticker(endpoint):
    released = threading.Event()
    inbox = handled_by(endpoint, print)
    inbox.on_error = lambda _: released.wait(PATIENCE_SECONDS)
    ending = SimpleNamespace(crew=endpoint.crew, close_inbox=lambda inbox: inbox.close())
    began = time.monotonic()
    ProcessEndpoint._end_deleted(ending, inbox)  # type: ignore[arg-type]
    assert time.monotonic() - began < PATIENCE_SECONDS / 2
    assert inbox.closed
    released.set()


class TestMeasuring:
    def test_a_run_counts_as_far_as_it_has_come(self, endpoint):
        turns: queue.SimpleQueue[str] = queue.SimpleQueue()
        entered: queue.SimpleQueue[int] = queue.SimpleQueue()

        def handler(number: int) -> None:
            entered.put(number)
            if turns.get(timeout=PATIENCE_SECONDS) == "raise":
                raise ValueError(number)

        inbox = handled_by(endpoint, handler)
        offer_run(inbox, *range(4))
        seen = []
        for turn in ("return", "raise", "return", "return"):
            entered.get(timeout=PATIENCE_SECONDS)
            seen.append((inbox.driver.handled, inbox.counters.failed, inbox.gauges()["queue_depth"]))
            turns.put(turn)
        assert seen == [(0, 0, 4), (1, 0, 3), (1, 1, 2), (2, 1, 1)]
        until(lambda: inbox.driver.is_at_rest)
        assert (inbox.driver.handled, inbox.counters.failed, inbox.pending) == (3, 1, 0)

    def test_a_run_has_a_sample_of_its_first_event_and_one_of_its_last(self, endpoint):
        inbox = handled_by(endpoint, lambda seconds: time.sleep(seconds))
        offer_run(inbox, *[0.025] * 8, published_at=time.time())
        until(lambda: inbox.counters.handled == 8 and inbox.driver.is_at_rest)
        counts = inbox.latencies.counts()
        assert [*counts.values()] == [1, 1]
        assert max(map(float, counts)) >= 0.2

    @pytest.mark.parametrize("published_at", [0.0, time.time() - 60], ids=["unknown", "a minute ago"])
    def test_what_was_published_before_it_subscribed_is_no_sample(self, endpoint, published_at):
        inbox = pulled(endpoint)
        offer_run(inbox, 1, 2, published_at=published_at)
        assert puller(inbox).take()
        assert puller(inbox).take()
        assert inbox.latencies.counts() == {}
        offer_run(inbox, 1, 2, published_at=time.time())
        assert puller(inbox).take()
        assert sum(inbox.latencies.counts().values()) == 1
        assert puller(inbox).take()
        assert sum(inbox.latencies.counts().values()) == 2

    def test_of_this_process_some_are_sampled(self, endpoint):
        inbox = pulled(endpoint)
        for sequence in range(1, 33):
            offer_local(inbox, "event", sequence)
            assert puller(inbox).take()
        assert sum(inbox.latencies.counts().values()) == 2


class TestDropping:
    def publisher(self, inbox: Inbox, overflow: str, name: str = PRODUCER) -> Any:
        stream = SenderStream(1, "channel", overflow, 1)
        return SimpleNamespace(local=(LocalSource(name, inbox, 0),), name=name, stream=stream)

    @pytest.mark.usefixtures("switching")
    @pytest.mark.parametrize("overflow", [DROP_NEWEST, DROP_OLDEST])
    def test_beside_a_handler_that_takes(self, endpoint, overflow):
        seen: list[Any] = []
        gaps: list[Gap] = []
        inbox = handled_by(endpoint, seen.append)
        inbox.on_error = gaps.append
        inbox.window_events = 5
        publisher = self.publisher(inbox, overflow)
        total = 30_000
        for sequence in range(1, total + 1):
            with endpoint.lock:
                hand_over(publisher, sequence, None, sequence, None)
        assert endpoint.crew.wait(inbox.when_idle(), time.monotonic() + PATIENCE_SECONDS)
        until(lambda: inbox.driver.is_at_rest)
        lost = [sequence for gap in gaps for sequence in range(gap.first, gap.last + 1)]
        assert seen == sorted(seen)
        assert sorted(seen + lost) == [*range(1, total + 1)]
        assert inbox.counters.dropped == publisher.stream.dropped == len(lost) > 0
        assert [*publisher.stream.drops] == [NEWEST if overflow == DROP_NEWEST else OLDEST]
        assert inbox.counters.received == inbox.counters.handled == len(seen)
        assert inbox.local_pending == inbox.pending == 0

    @pytest.mark.parametrize("overflow", [DROP_NEWEST, DROP_OLDEST])
    def test_gaps_of_several_producers_do_not_pile_up(self, endpoint, overflow):
        inbox = pulled(endpoint)
        inbox.window_events = 4
        publishers = [self.publisher(inbox, overflow, name) for name in ("a", "b")]
        for sequence in range(1, 101):
            for publisher in publishers:
                with endpoint.lock:
                    hand_over(publisher, sequence, None, sequence, None)
        assert len(inbox.queue) == 6
        assert inbox.pending == inbox.local_pending == 4
        assert [publisher.stream.dropped for publisher in publishers] == [98, 98]

    def test_of_a_delivered_event_is_told(self, endpoint):
        inbox = pulled(endpoint)
        inbox.window_events = 1
        told = threading.Event()

        def local_result(failure: str | None, counts: bool) -> None:
            with endpoint.lock:
                told.set()

        delivery: Any = SimpleNamespace(number=3, local_result=local_result)
        endpoint.deliveries[3] = delivery
        publisher = self.publisher(inbox, DROP_OLDEST)
        with endpoint.lock:
            hand_over(publisher, "delivered", None, 1, delivery)
            hand_over(publisher, "new", None, 2, None)
        assert told.wait(PATIENCE_SECONDS)

    def test_where_nothing_of_it_waits_nothing_is_dropped(self, endpoint):
        inbox = pulled(endpoint)
        inbox.window_events = 1
        offer_local(inbox, "of another")
        publisher = self.publisher(inbox, DROP_OLDEST, "a")
        with endpoint.lock:
            assert hand_over(publisher, 1, None, 1, None) == 1
        assert publisher.stream.dropped == 0


class TestCoroutines:
    def run(self, endpoint: Any, body: Callable[[Inbox, list[Any]], Any]) -> Inbox:
        seen: list[Any] = []

        async def handle(event: Any) -> None:
            if event == "cancelled":
                raise asyncio.CancelledError
            if event == "wait":
                await asyncio.sleep(PATIENCE_SECONDS)
            seen.append(event)

        async def main() -> Inbox:
            loop = asyncio.get_running_loop()
            inbox = Inbox(endpoint, 1, "channel", None, "", partial(CoroutineDriver, handle, loop))
            await body(inbox, seen)
            return inbox

        return asyncio.run(main())

    @pytest.mark.skipif(sys.version_info < (3, 11), reason="there a task does not tell whether it is being cancelled")
    def test_a_handler_that_raises_cancelled_error_has_failed(self, endpoint):
        async def body(inbox: Inbox, seen: list[Any]) -> None:
            offer_run(inbox, "cancelled", "next")
            offer_local(inbox, "cancelled")
            offer_local(inbox, "last")
            while "last" not in seen:
                await asyncio.sleep(0.001)
            assert seen == ["next", "last"]

        inbox = self.run(endpoint, body)
        assert endpoint.abandoned == []
        assert (inbox.counters.failed, inbox.counters.handled, inbox.pending) == (2, 2, 0)

    def test_after_ctrl_c_in_the_middle_of_a_run_the_next_task_goes_on(self, endpoint):
        seen: list[Any] = []

        async def handle(event: Any) -> None:
            seen.append(event)
            if event == 2:
                raise KeyboardInterrupt

        loop = asyncio.new_event_loop()
        inbox = Inbox(endpoint, 1, "channel", None, "", partial(CoroutineDriver, handle, loop))
        offer_run(inbox, 1, 2, 3, mark=30)
        with pytest.raises(KeyboardInterrupt):
            loop.run_forever()
        assert seen == [1, 2]
        waiter = inbox.when_idle()
        loop.call_soon(loop.stop)
        while not waiter.done:
            loop.call_soon(loop.stop)
            loop.run_forever()
        loop.close()
        assert seen == [1, 2, 3]
        assert endpoint.handled == [(30, b"")]
        assert (inbox.counters.failed, inbox.counters.handled) == (1, 2)

    def test_objects_of_this_process_need_no_thread_to_be_read(self, endpoint, monkeypatch):
        """Also on a typed channel, where records of a format that is not known yet do."""
        monkeypatch.setattr("echannel_ray.consumers.coroutine_driver.in_thread", lambda action: 1 / 0)
        loop = asyncio.new_event_loop()

        async def handler(event: Any) -> None:
            pass

        drive = partial(CoroutineDriver, handler, loop)
        inbox = Inbox(endpoint, 1, "a", None, "", drive)
        records: Any = SimpleNamespace(knows=lambda kind: False)
        inbox.records = records
        run = Arrival(LocalSource(PRODUCER, inbox, 0), 1, ["an object"], 0, 0, False, 0, kind=AS_GIVEN)
        driver: Any = inbox.driver
        assert loop.run_until_complete(driver._read(run)) == (["an object"], 1)
        loop.close()

    def test_a_task_that_is_cancelled_is_at_rest(self, endpoint):
        async def body(inbox: Inbox, seen: list[Any]) -> None:
            offer_local(inbox, "wait")
            await asyncio.sleep(0.05)

        inbox = self.run(endpoint, body)
        assert endpoint.abandoned == [inbox]
        assert inbox.driver.is_at_rest
        assert inbox.local_pending == 0


class TestPulling:
    def test_drain_ends_with_the_last_event_of_this_process(self, endpoint):
        inbox = pulled(endpoint)
        offer_local(inbox, 1)
        waiter = inbox.when_idle()
        assert not waiter.done
        puller(inbox).take()
        assert waiter.done

    def test_nobody_is_missed_who_waits_while_the_last_is_handled(self, endpoint, monkeypatch):
        inbox = pulled(endpoint)
        offer_local(inbox, 1)

        class Waiters(list[Any]):
            def append(self, waiter: Any) -> None:
                inbox.counters.handled += 1  # by a thread that has seen nobody wait
                super().append(waiter)

        inbox._idle_waiters = Waiters()
        assert inbox.when_idle().done

    @pytest.mark.usefixtures("switching")
    def test_several_take_at_once(self, endpoint):
        inbox = pulled(endpoint)
        total, takers = 20_000, 3
        taken: list[list[Any]] = [[] for _ in range(takers)]

        def take(mine: list[Any]) -> None:
            while True:
                message = puller(inbox).get(PATIENCE_SECONDS)
                assert isinstance(message, Message)
                if message.event is None:
                    return
                mine.append(message.event)

        threads = [threading.Thread(target=take, args=[mine]) for mine in taken]
        for thread in threads:
            thread.start()
        for start in range(0, total, 10):
            offer_run(inbox, *range(start, start + 10))
        offer_run(inbox, *[None] * takers)
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
        assert sorted(event for mine in taken for event in mine) == [*range(total)]
        assert inbox.pending == 0

    def test_one_that_waits_gets_what_another_has_left(self, endpoint):
        inbox = pulled(endpoint)
        taken: list[Any] = []
        waiting = threading.Thread(target=lambda: taken.append(puller(inbox).get(PATIENCE_SECONDS)))

        class Waiters(type(puller(inbox)._waiters)):  # type: ignore[misc]
            def append(self, waiter: Any) -> None:
                # Between its look at the queue and its wait: a run comes, and another takes the first of it.
                inbox.queue.append(run_for(inbox, 1, 2))
                puller(inbox).take()
                super().append(waiter)

        puller(inbox)._waiters = Waiters()
        waiting.start()
        waiting.join(PATIENCE_SECONDS / 2)
        assert [message.event for message in taken] == [2]

    def test_nothing_is_left_of_those_that_gave_up(self, endpoint):
        inbox = pulled(endpoint)

        async def give_up() -> None:
            for _ in range(3):
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(puller(inbox).aget(), 0.01)

        asyncio.run(give_up())
        with pytest.raises(TimeoutError):
            puller(inbox).get(0.01)
        assert not puller(inbox)._async_waiters
        assert not puller(inbox)._waiters


class TestAcknowledging:
    def test_what_was_handed_out_is_handled_when_it_is_acknowledged(self, endpoint):
        inbox = pulled(endpoint, Ledger())
        offer_run(inbox, 1, 2, mark=20)
        offer_run(inbox, 3, mark=30)
        events = [message.event for message in iter(puller(inbox).take, None)]
        assert (events, inbox.pending, endpoint.handled) == ([1, 2, 3], 3, [])
        puller(inbox).acknowledge(1)
        assert (inbox.pending, endpoint.handled) == (2, [])
        puller(inbox).acknowledge(7)  # more than there are
        assert (inbox.pending, endpoint.handled) == (0, [(20, b""), (30, b"")])

    def test_what_can_not_be_read_needs_no_acknowledgement(self, endpoint):
        inbox = pulled(endpoint, Ledger())
        offer_run(inbox, 1, Undecodable(ValueError("odd"), None), mark=20)
        assert puller(inbox).take() is not None
        assert puller(inbox).take() is None
        puller(inbox).acknowledge(1)
        assert endpoint.handled == [(20, b"ValueError: odd")]

    def test_at_the_end_the_rest_is_released(self, endpoint):
        inbox = pulled(endpoint, Ledger())
        offer_run(inbox, 1, 2, 3, mark=20)
        offer_run(inbox, 4, mark=30)
        assert puller(inbox).take()
        assert puller(inbox).take()
        puller(inbox).acknowledge(1)
        inbox.close()
        assert endpoint.handled == []
        assert sorted(endpoint.released) == [(20, 1), (30, 0)]
