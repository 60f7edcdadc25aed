"""What mailboxes do with what arrives, and with users' functions that misbehave: without Ray and without a link."""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from echannel_ray.core.receiving import Delivered, Receiver
from echannel_ray.core.streams import NEWEST, OLDEST, SenderStream
from echannel_ray.core.windows import DROP_NEWEST, DROP_OLDEST
from echannel_ray.runtime.crew import Crew, Errand
from echannel_ray.runtime.endpoint import Endpoint
from echannel_ray.runtime.handlers import CoroutineMailbox, FunctionMailbox
from echannel_ray.runtime.local import hand_over
from echannel_ray.runtime.mailbox import Gap, LocalEvent, Mailbox, Message, describe
from echannel_ray.runtime.pulling import PullMailbox
from tests.runtime.test_crew import ScriptedLink

PATIENCE_SECONDS = 10.0
PRODUCER = "producer"


class FakeEndpoint:
    """What a mailbox asks of its endpoint, with a crew of its own."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.crew = Crew("fake", ScriptedLink())
        self.core = SimpleNamespace(receiver=Receiver(0, 1, 1))
        self.peculiar_seen = False
        self.broken = None
        self.handled: list[tuple[int, bytes]] = []
        self.abandoned: list[Mailbox] = []

    def run_handled(self, reception: Any, mark: int, delivery: int, outcome: bytes) -> None:
        self.handled.append((mark, outcome))

    def local_handled(self, mailbox: Mailbox) -> None:
        pass

    def room_made(self) -> None:
        pass

    def abandon(self, mailbox: Mailbox) -> None:
        self.abandoned.append(mailbox)


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


def handled_by(endpoint: Any, handler: Callable[[Any], Any]) -> FunctionMailbox:
    return FunctionMailbox(endpoint, 1, "channel", None, "", handler)


def pulled(endpoint: Any) -> PullMailbox:
    return PullMailbox(endpoint, 1, "channel", None, "")


def run_of(*events: Any, mark: int = 1) -> Delivered:
    reception: Any = SimpleNamespace(stream=SimpleNamespace(endpoint=7, number=1, producer=1))
    return Delivered(reception, 1, list(events), mark, 0, False, 0)


def local(event: Any, sequence: int = 1) -> LocalEvent:
    return LocalEvent(event, PRODUCER, sequence, 0.0, None)


def offer(mailbox: Mailbox, item: Any) -> None:
    with mailbox.endpoint.lock:
        mailbox.offer(item)


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
    @pytest.mark.parametrize("item", [run_of(1), local(1)])
    def test_handlers_and_on_error_that_exit(self, endpoint, item):
        mailbox = handled_by(endpoint, raise_unspeakable)
        mailbox.on_error = raise_unspeakable
        offer(mailbox, item)
        until(lambda: mailbox.counters.failed == 1)
        offer(mailbox, item)
        until(lambda: mailbox.counters.failed == 2 and mailbox.is_at_rest)
        assert mailbox.pending == mailbox.local_pending == 0
        if isinstance(item, Delivered):
            assert endpoint.handled == [(1, b"Unspeakable")] * 2

    def test_gaps_for_an_on_error_that_exits(self, endpoint):
        seen: list[Any] = []
        mailbox = handled_by(endpoint, seen.append)
        mailbox.on_error = lambda _: sys.exit()
        offer(mailbox, run_of()._replace(gap_last=3))
        offer(mailbox, run_of("next"))
        until(lambda: seen == ["next"])
        assert mailbox.counters.dropped == 3

    def test_a_run_that_breaks_off_is_finished(self, endpoint, monkeypatch):
        seen: list[Any] = []
        mailbox = handled_by(endpoint, seen.append)
        monkeypatch.setattr(mailbox, "_handle_run", raise_unspeakable)
        offer(mailbox, run_of(1))
        until(lambda: endpoint.handled and mailbox.is_at_rest)
        monkeypatch.undo()
        offer(mailbox, run_of(2, mark=2))
        until(lambda: len(endpoint.handled) == 2)
        assert seen == [2]

    def test_the_crew_goes_on(self, endpoint):
        done = threading.Event()
        for _ in range(10):
            endpoint.crew.submit(Errand(raise_unspeakable, None))
        endpoint.crew.submit(Errand(done.set))
        assert done.wait(PATIENCE_SECONDS)


def test_on_error_of_a_deleted_channel_does_not_hold_up_the_ticker(endpoint):
    released = threading.Event()
    mailbox = handled_by(endpoint, print)
    mailbox.on_error = lambda _: released.wait(PATIENCE_SECONDS)
    ending = SimpleNamespace(crew=endpoint.crew, close_mailbox=lambda mailbox: mailbox.close())
    began = time.monotonic()
    Endpoint._end_deleted(ending, mailbox)  # type: ignore[arg-type]
    assert time.monotonic() - began < PATIENCE_SECONDS / 2
    assert mailbox.closed
    released.set()


class TestMeasuring:
    def test_a_run_counts_as_far_as_it_has_come(self, endpoint):
        turns: queue.SimpleQueue[str] = queue.SimpleQueue()
        entered: queue.SimpleQueue[int] = queue.SimpleQueue()

        def handler(number: int) -> None:
            entered.put(number)
            if turns.get(timeout=PATIENCE_SECONDS) == "raise":
                raise ValueError(number)

        mailbox = handled_by(endpoint, handler)
        offer(mailbox, run_of(*range(4)))
        seen = []
        for turn in ("return", "raise", "return", "return"):
            entered.get(timeout=PATIENCE_SECONDS)
            seen.append((mailbox.handled, mailbox.counters.failed, mailbox.gauges()["queue_depth"]))
            turns.put(turn)
        assert seen == [(0, 0, 4), (1, 0, 3), (1, 1, 2), (2, 1, 1)]
        until(lambda: mailbox.is_at_rest)
        assert (mailbox.handled, mailbox.counters.failed, mailbox.pending) == (3, 1, 0)

    def test_a_run_has_a_sample_of_its_first_event_and_one_of_its_last(self, endpoint):
        mailbox = handled_by(endpoint, lambda seconds: time.sleep(seconds))
        offer(mailbox, run_of(*[0.025] * 8)._replace(published_at=time.time()))
        until(lambda: mailbox.counters.handled == 8 and mailbox.is_at_rest)
        counts = mailbox.latencies.counts()
        assert [*counts.values()] == [1, 1]
        assert max(map(float, counts)) >= 0.2

    @pytest.mark.parametrize("published_at", [0.0, time.time() - 60], ids=["unknown", "a minute ago"])
    def test_what_was_published_before_it_subscribed_is_no_sample(self, endpoint, published_at):
        mailbox = pulled(endpoint)
        offer(mailbox, run_of(1, 2)._replace(published_at=published_at))
        assert mailbox.take()
        assert mailbox.take()
        assert mailbox.latencies.counts() == {}
        offer(mailbox, run_of(1, 2)._replace(published_at=time.time()))
        assert mailbox.take()
        assert sum(mailbox.latencies.counts().values()) == 1
        assert mailbox.take()
        assert sum(mailbox.latencies.counts().values()) == 2

    def test_of_this_process_some_are_sampled(self, endpoint):
        mailbox = pulled(endpoint)
        for sequence in range(1, 33):
            offer(mailbox, local("event", sequence)._replace(published_at=time.time()))
            assert mailbox.take()
        assert sum(mailbox.latencies.counts().values()) == 2


class TestDropping:
    def publisher(self, mailbox: Mailbox, overflow: str, name: str = PRODUCER) -> Any:
        stream = SenderStream(1, "channel", overflow, 1)
        return SimpleNamespace(local=(mailbox,), turns={mailbox.number: 0}, name=name, stream=stream)

    @pytest.mark.usefixtures("switching")
    @pytest.mark.parametrize("overflow", [DROP_NEWEST, DROP_OLDEST])
    def test_beside_a_handler_that_takes(self, endpoint, overflow):
        seen: list[Any] = []
        gaps: list[Gap] = []
        mailbox = handled_by(endpoint, seen.append)
        mailbox.on_error = gaps.append
        mailbox.window_events = 5
        publisher = self.publisher(mailbox, overflow)
        total = 30_000
        for sequence in range(1, total + 1):
            with endpoint.lock:
                hand_over(publisher, sequence, None, sequence, None)
        assert endpoint.crew.wait(mailbox.when_idle(), time.monotonic() + PATIENCE_SECONDS)
        until(lambda: mailbox.is_at_rest)
        lost = [sequence for gap in gaps for sequence in range(gap.first, gap.last + 1)]
        assert seen == sorted(seen)
        assert sorted(seen + lost) == [*range(1, total + 1)]
        assert mailbox.counters.dropped == publisher.stream.dropped == len(lost) > 0
        assert [*publisher.stream.drops] == [NEWEST if overflow == DROP_NEWEST else OLDEST]
        assert mailbox.counters.received == mailbox.counters.handled == len(seen)
        assert mailbox.local_pending == mailbox.pending == 0

    @pytest.mark.parametrize("overflow", [DROP_NEWEST, DROP_OLDEST])
    def test_gaps_of_several_producers_do_not_pile_up(self, endpoint, overflow):
        mailbox = pulled(endpoint)
        mailbox.window_events = 4
        publishers = [self.publisher(mailbox, overflow, name) for name in ("a", "b")]
        for sequence in range(1, 101):
            for publisher in publishers:
                with endpoint.lock:
                    hand_over(publisher, sequence, None, sequence, None)
        assert len(mailbox.queue) == 6
        assert mailbox.pending == mailbox.local_pending == 4
        assert [publisher.stream.dropped for publisher in publishers] == [98, 98]

    def test_of_a_delivered_event_is_told(self, endpoint):
        mailbox = pulled(endpoint)
        mailbox.window_events = 1
        told = threading.Event()

        def local_result(failure: str | None, counts: bool) -> None:
            with endpoint.lock:
                told.set()

        delivery: Any = SimpleNamespace(local_result=local_result)
        publisher = self.publisher(mailbox, DROP_OLDEST)
        with endpoint.lock:
            hand_over(publisher, "delivered", None, 1, delivery)
            hand_over(publisher, "new", None, 2, None)
        assert told.wait(PATIENCE_SECONDS)

    def test_where_nothing_of_it_waits_nothing_is_dropped(self, endpoint):
        mailbox = pulled(endpoint)
        mailbox.window_events = 1
        offer(mailbox, local("of another"))
        publisher = self.publisher(mailbox, DROP_OLDEST, "a")
        with endpoint.lock:
            assert hand_over(publisher, 1, None, 1, None) == 1
        assert publisher.stream.dropped == 0


class TestCoroutines:
    def run(self, endpoint: Any, body: Callable[[CoroutineMailbox, list[Any]], Any]) -> CoroutineMailbox:
        seen: list[Any] = []

        async def handle(event: Any) -> None:
            if event == "cancelled":
                raise asyncio.CancelledError
            if event == "wait":
                await asyncio.sleep(PATIENCE_SECONDS)
            seen.append(event)

        async def main() -> CoroutineMailbox:
            loop = asyncio.get_running_loop()
            mailbox = CoroutineMailbox(endpoint, 1, "channel", None, "", handle, loop)
            await body(mailbox, seen)
            return mailbox

        return asyncio.run(main())

    @pytest.mark.skipif(sys.version_info < (3, 11), reason="there a task does not tell whether it is being cancelled")
    def test_a_handler_that_raises_cancelled_error_has_failed(self, endpoint):
        async def body(mailbox: CoroutineMailbox, seen: list[Any]) -> None:
            offer(mailbox, run_of("cancelled", "next"))
            offer(mailbox, local("cancelled"))
            offer(mailbox, local("last"))
            while "last" not in seen:
                await asyncio.sleep(0.001)
            assert seen == ["next", "last"]

        mailbox = self.run(endpoint, body)
        assert endpoint.abandoned == []
        assert (mailbox.counters.failed, mailbox.counters.handled, mailbox.pending) == (2, 2, 0)

    def test_a_task_that_is_cancelled_is_at_rest(self, endpoint):
        async def body(mailbox: CoroutineMailbox, seen: list[Any]) -> None:
            offer(mailbox, local("wait"))
            await asyncio.sleep(0.05)

        mailbox = self.run(endpoint, body)
        assert endpoint.abandoned == [mailbox]
        assert mailbox.is_at_rest
        assert mailbox.local_pending == 0


class TestPulling:
    def test_drain_ends_with_the_last_event_of_this_process(self, endpoint):
        mailbox = pulled(endpoint)
        offer(mailbox, local(1))
        waiter = mailbox.when_idle()
        assert not waiter.done
        mailbox.take()
        assert waiter.done

    def test_nobody_is_missed_who_waits_while_the_last_is_handled(self, endpoint, monkeypatch):
        mailbox = pulled(endpoint)
        offer(mailbox, local(1))

        class Waiters(list[Any]):
            def append(self, waiter: Any) -> None:
                mailbox.counters.handled += 1  # by a thread that has seen nobody wait
                super().append(waiter)

        mailbox._idle_waiters = Waiters()
        assert mailbox.when_idle().done

    @pytest.mark.usefixtures("switching")
    def test_several_take_at_once(self, endpoint):
        mailbox = pulled(endpoint)
        total, takers = 20_000, 3
        taken: list[list[Any]] = [[] for _ in range(takers)]

        def take(mine: list[Any]) -> None:
            while True:
                message = mailbox.get(PATIENCE_SECONDS)
                assert isinstance(message, Message)
                if message.event is None:
                    return
                mine.append(message.event)

        threads = [threading.Thread(target=take, args=[mine]) for mine in taken]
        for thread in threads:
            thread.start()
        for start in range(0, total, 10):
            offer(mailbox, run_of(*range(start, start + 10)))
        offer(mailbox, run_of(*[None] * takers))
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
        assert sorted(event for mine in taken for event in mine) == [*range(total)]
        assert mailbox.pending == 0

    def test_one_that_waits_gets_what_another_has_left(self, endpoint):
        mailbox = pulled(endpoint)
        taken: list[Any] = []
        waiting = threading.Thread(target=lambda: taken.append(mailbox.get(PATIENCE_SECONDS)))

        class Waiters(type(mailbox._waiters)):  # type: ignore[misc]
            def append(self, waiter: Any) -> None:
                # Between its look at the queue and its wait: a run comes, and another takes the first of it.
                mailbox.queue.append(run_of(1, 2))
                mailbox.take()
                super().append(waiter)

        mailbox._waiters = Waiters()
        waiting.start()
        waiting.join(PATIENCE_SECONDS / 2)
        assert [message.event for message in taken] == [2]

    def test_nothing_is_left_of_those_that_gave_up(self, endpoint):
        mailbox = pulled(endpoint)

        async def give_up() -> None:
            for _ in range(3):
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(mailbox.aget(), 0.01)

        asyncio.run(give_up())
        with pytest.raises(TimeoutError):
            mailbox.get(0.01)
        assert not mailbox._async_waiters
        assert not mailbox._waiters
