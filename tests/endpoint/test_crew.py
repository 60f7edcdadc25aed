"""Who leads, who borrows the lead, and who is woken: with a link that gives nothing by itself."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import pytest

from echannel_ray.endpoint.crew import EARLY_SECONDS, Crew, Waiter
from tests.clusters import wait_until

PATIENCE_SECONDS = 20.0


class ScriptedLink:
    """What arrives is put there by the test; a read that finds nothing lasts until it is interrupted."""

    def __init__(self) -> None:
        self.arrived: deque[Callable[[], None]] = deque()
        self.readers: list[int] = []
        self.departures: queue.Queue[float] = queue.Queue()
        self.ticks: queue.Queue[float] = queue.Queue()
        self.idles_for = 0.5
        self._something = threading.Semaphore(0)

    def arrive(self, action: Callable[[], None]) -> None:
        self.arrived.append(action)
        self._something.release()

    def interrupt(self) -> None:
        self._something.release()

    def read(self, timeout_seconds: float | None) -> bool:
        self.readers.append(threading.get_ident())
        if self._something.acquire(timeout=timeout_seconds) and self.arrived:
            self.arrived.popleft()()
        return True

    def restore(self) -> None:
        raise AssertionError("this link is never lost")

    def tick(self) -> bool:
        self.ticks.put(time.monotonic())
        return False

    def depart(self, now: float) -> None:
        self.departures.put(now)

    def about_to_wait(self) -> None:
        pass

    def idle_seconds(self) -> float:
        return self.idles_for


class Job:
    """A handler to be run."""

    def __init__(self, body: Callable[[], object]) -> None:
        self._body = body

    def run(self) -> None:
        self._body()


@pytest.fixture
def link() -> ScriptedLink:
    return ScriptedLink()


@pytest.fixture
def crew(link: ScriptedLink) -> Iterator[Crew]:
    running = Crew("test", link)
    running.start()
    yield running
    running.close()


def test_who_waits_reads_for_itself_and_runs_no_handlers(crew: Crew, link: ScriptedLink):
    waiter = Waiter()
    handled_by: list[int] = []
    done = threading.Event()

    def handle() -> None:
        handled_by.append(threading.get_ident())
        done.set()

    link.arrive(lambda: crew.submit(Job(handle)))
    link.arrive(waiter.set)
    assert crew.wait(waiter, None)
    assert done.wait(PATIENCE_SECONDS)
    assert handled_by != [threading.get_ident()]


def test_what_comes_from_this_process_wakes_who_waits_in_the_link(crew: Crew, link: ScriptedLink):
    """No frame arrives here: without an interrupt the wait would last until the next heartbeat."""
    waiter = Waiter()
    me = threading.get_ident()

    def set_when_it_reads() -> None:
        while me not in link.readers:
            pass
        waiter.set()

    setter = threading.Thread(target=set_when_it_reads)
    setter.start()
    assert crew.wait(waiter, None)
    setter.join()


def test_a_handler_that_blocks_loses_the_lead(crew: Crew, link: ScriptedLink):
    release, second = threading.Event(), threading.Event()
    link.arrive(lambda: crew.submit(Job(lambda: release.wait(PATIENCE_SECONDS))))
    link.arrive(second.set)
    assert second.wait(PATIENCE_SECONDS), "nobody reads while the first handler blocks"
    release.set()


def test_a_handler_may_wait_for_what_has_yet_to_be_read(crew: Crew, link: ScriptedLink):
    waiter = Waiter()
    answered = threading.Event()

    def ask() -> None:
        link.arrive(waiter.set)
        if crew.wait(waiter, None):
            answered.set()

    link.arrive(lambda: crew.submit(Job(ask)))
    assert answered.wait(PATIENCE_SECONDS)


def test_a_wait_beside_a_blocked_handler_gets_the_lead(crew: Crew, link: ScriptedLink):
    release, inside = threading.Event(), threading.Event()

    def block() -> None:
        inside.set()
        release.wait(PATIENCE_SECONDS)

    link.arrive(lambda: crew.submit(Job(block)))
    assert inside.wait(PATIENCE_SECONDS)
    waiter = Waiter()
    link.arrive(waiter.set)
    assert crew.wait(waiter, None)
    release.set()


def test_a_wait_that_takes_too_long_ends_and_somebody_else_reads_on(crew: Crew, link: ScriptedLink):
    assert not crew.wait(Waiter(), time.monotonic() + 0.01)
    arrived = threading.Event()
    link.arrive(arrived.set)
    assert arrived.wait(PATIENCE_SECONDS)


def test_a_close_wakes_everybody(crew: Crew, link: ScriptedLink):
    waiter = Waiter()
    waited: list[bool] = []
    thread = threading.Thread(target=lambda: waited.append(crew.wait(waiter, None)))
    thread.start()
    while not link.readers:
        pass
    crew.close()
    waiter.set()
    thread.join(PATIENCE_SECONDS)
    assert waited == [True]


def wait_until_idle(crew: Crew) -> None:
    """The ticker has nothing to do, and nobody leads for it to watch."""
    while crew.ticking:
        pass


def test_the_ticker_sleeps_after_a_few_ticks_without_anything_to_do(crew: Crew, link: ScriptedLink):
    link.idles_for = PATIENCE_SECONDS
    while not link.readers:  # until somebody leads, that is watched at each tick
        pass
    while not link.ticks.empty():
        link.ticks.get()
    wait_until_idle(crew)
    assert link.ticks.qsize() <= 10


def test_a_departure_is_made_in_time_and_not_before(crew: Crew, link: ScriptedLink):
    link.idles_for = PATIENCE_SECONDS
    wait_until_idle(crew)
    for wait in (0.0, 0.0005, 0.003, 0.03):
        due_at = time.monotonic() + wait
        crew.depart_at(due_at)
        assert link.departures.get(timeout=PATIENCE_SECONDS) >= due_at - EARLY_SECONDS
    assert link.departures.empty()


def test_the_earliest_departure_counts(crew: Crew, link: ScriptedLink):
    link.idles_for = PATIENCE_SECONDS
    wait_until_idle(crew)
    now = time.monotonic()
    for due_at in (now + 60, now + 0.02, now + 40):
        crew.depart_at(due_at)
    assert link.departures.get(timeout=PATIENCE_SECONDS) < now + 40
    assert link.departures.empty()


def test_a_departure_does_not_keep_the_ticker_from_what_it_is_called_for(crew: Crew, link: ScriptedLink):
    link.idles_for = PATIENCE_SECONDS
    wait_until_idle(crew)
    for _ in range(50):
        while crew.ticking:
            pass
        while not link.ticks.empty():
            link.ticks.get()
        crew.depart_at(time.monotonic())
        crew.wake_ticker()
        assert link.departures.get(timeout=PATIENCE_SECONDS)
        assert link.ticks.get(timeout=PATIENCE_SECONDS / 2)


def test_a_link_that_fails_to_depart_is_asked_again(crew: Crew, link: ScriptedLink, caplog: pytest.LogCaptureFixture):
    failed = threading.Event()

    def fail(now: float) -> None:
        failed.set()
        raise RuntimeError("once")

    link.depart = fail  # type: ignore[method-assign]
    crew.depart_at(time.monotonic())
    assert failed.wait(PATIENCE_SECONDS)
    del link.depart
    crew.depart_at(time.monotonic())
    assert link.departures.get(timeout=PATIENCE_SECONDS)
    assert "the ticker goes on after an error" in caplog.text


def test_the_ticker_stays_awake_while_something_is_handled_between_any_two_ticks(crew: Crew, link: ScriptedLink):
    handled = threading.Semaphore(0)
    awake: queue.Queue[bool] = queue.Queue()

    def tick() -> bool:
        if awake.qsize() < 30:
            awake.put(crew.ticking)  # first: what follows would wake it
            before = len(link.readers)
            link.arrive(partial(crew.submit, Job(handled.release)))
            assert handled.acquire(timeout=PATIENCE_SECONDS)
            wait_until(lambda: len(link.readers) > before)  # the leader is in no handler any more
        return False

    link.tick = tick  # type: ignore[method-assign]
    crew.wake_ticker()
    wait_until(lambda: awake.qsize() == 30)
    seen = [awake.get() for _ in range(30)]
    assert all(seen[2:])  # at first it may have been about to fall asleep


def test_the_ticker_stays_awake_while_somebody_waits_anew_at_each_tick(crew: Crew, link: ScriptedLink):
    awake: queue.Queue[bool] = queue.Queue()
    waiting: list[tuple[Waiter, Future[bool]]] = []

    def end_wait() -> None:
        while waiting:
            waiter, outcome = waiting.pop()
            link.arrive(waiter.set)
            assert outcome.result(PATIENCE_SECONDS)

    with ThreadPoolExecutor(1) as pool:
        waiter_thread = pool.submit(threading.get_ident).result()

        def tick() -> bool:
            if awake.qsize() < 30:
                awake.put(crew.ticking)
                end_wait()
                before = len(link.readers)
                waiter = Waiter()
                waiting.append((waiter, pool.submit(crew.wait, waiter, None)))
                wait_until(lambda: waiter_thread in link.readers[before:])
            return False

        link.tick = tick  # type: ignore[method-assign]
        crew.wake_ticker()
        wait_until(lambda: awake.qsize() == 30)
        end_wait()
    seen = [awake.get() for _ in range(30)]
    assert all(seen[2:])
