"""A slow host holds up its clients; and nobody holds up `close`."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from echannel_ray import errors
from echannel_ray.gateway.client import GatewayClient
from echannel_ray.gateway.outgoing_batches import MAX_UNACKNOWLEDGED
from echannel_ray.gateway.server import Gateway
from echannel_ray.logs.entries import WriteAttempt
from tests.gateway.processes import ROOT
from tests.gateway.rows import batch_of, batches_of, numbers_in

HOW = {
    "publish": lambda client, batches: client.publish("rows", batches),
    "stage": lambda client, batches: client.stage("rows", WriteAttempt("w", 0, 0), batches),
}


class _Slow:
    """A host that takes a batch only when it is told to."""

    def __init__(self, host) -> None:
        self._host = host
        self.may_take = threading.Semaphore(0)
        self.is_waiting = threading.Event()
        self.took = threading.Semaphore(0)
        self.taken = 0

    def __getattr__(self, name: str):
        return getattr(self._host, name)

    def publish(self, *arguments) -> None:
        self._wait()
        self._host.publish(*arguments)

    def stage(self, *arguments) -> None:
        self._wait()
        self._host.stage(*arguments)

    def _wait(self) -> None:
        self.is_waiting.set()
        self.may_take.acquire()
        self.taken += 1
        self.took.release()


@pytest.mark.parametrize("send", HOW.values(), ids=HOW)
def test_a_client_is_ahead_of_a_slow_host_by_a_few_batches_only(connect, host, send):
    slow: Any = _Slow(host)
    ahead: list[int] = []

    def batches():
        for batch in batches_of(10_000):
            ahead.append(1 + len(ahead) - slow.taken)
            slow.may_take.release()  # as fast as the client asks for more, and no faster
            yield batch

    # The first is given before any was taken: without acknowledgements, the client would be ahead by all hundred.
    assert send(connect(slow), batches()) in (100, 10_000)
    assert max(ahead) <= MAX_UNACKNOWLEDGED + 1


@pytest.mark.parametrize("send", HOW.values(), ids=HOW)
def test_a_client_waits_while_its_host_takes_nothing(connect, host, send):
    slow: Any = _Slow(host)
    given = 0

    def batches():
        nonlocal given
        for batch in batches_of(10_000):
            given += 1
            yield batch

    client = connect(slow)
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send, client, batches())
        assert slow.is_waiting.wait(30)
        for _ in range(20):
            slow.may_take.release()
        for _ in range(20):
            assert slow.took.acquire(timeout=30)
        assert given <= 20 + MAX_UNACKNOWLEDGED + 1
        for _ in range(80):
            slow.may_take.release()
        sending.result(30)


def test_a_client_that_waits_does_not_hold_up_others(connect, host):
    slow: Any = _Slow(host)
    client = connect(slow)
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(client.publish, "rows", batches_of(100))
        assert slow.is_waiting.wait(30)
        assert numbers_in(client, "rows") == []
        slow.may_take.release()
        assert sending.result(30) == 100


def test_publishing_ends_when_the_host_has_drained(connect, host, monkeypatch):
    drained: list[list[int]] = []
    client = connect()
    monkeypatch.setattr(host, "drain", lambda name: drained.append(numbers_in(client, name)))
    client.publish("rows", batches_of(500))
    assert drained == [list(range(500))]


@pytest.mark.parametrize("send", HOW.values(), ids=HOW)
def test_what_goes_wrong_while_batches_are_made_is_the_callers(client, send):
    def batches():
        yield batch_of(0, 10)
        raise ZeroDivisionError("of the caller")

    with pytest.raises(ZeroDivisionError, match="of the caller"):
        send(client, batches())
    assert send(client, [batch_of(0, 10)]) in (1, 10)


@pytest.mark.parametrize("call", ["stage('rows', WriteAttempt('w', 0, 0), batches())", "publish('rows', batches())"])
def test_a_client_that_dies_in_the_middle_is_no_failure_of_the_gateways(client, caplog, call):
    script = """
import os, signal, sys
from echannel_ray.gateway.client import GatewayClient
from echannel_ray.logs.entries import WriteAttempt
from tests.gateway.rows import batch_of

def batches():
    for number in range(50):
        yield batch_of(100 * number, 100)
    os.kill(os.getpid(), signal.SIGKILL)

"""
    command = [sys.executable, "-c", f"{script}GatewayClient(sys.argv[1]).{call}", str(client.endpoint)]
    assert subprocess.run(command, cwd=ROOT, timeout=60, check=False).returncode == -signal.SIGKILL
    client.publish("rows", batches_of(100))
    client.gateway.close(grace_seconds=30)
    assert "failed" not in caplog.text


def test_closing_does_not_wait_for_a_host_that_waits(host):
    slow: Any = _Slow(host)
    gateway = Gateway(slow, "default")
    client = GatewayClient(gateway.start(), patience_seconds=0.1)
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(client.publish, "rows", batches_of(1000))
        assert slow.is_waiting.wait(30)
        began = time.monotonic()
        gateway.close(grace_seconds=0.2)
        assert time.monotonic() - began < 5
        slow.may_take.release()  # what waited may go on, and no other is taken
        with pytest.raises(errors.Disconnected):
            sending.result(30)
    assert slow.taken == 1
    with pytest.raises(errors.Disconnected):
        client.channel("rows")


@pytest.mark.parametrize("last_act", ["gateway.close(0.2)", "pass"])
def test_a_process_ends_though_a_call_waits(tmp_path, last_act):
    script = f"""
import sys, threading
from echannel_ray.gateway.server import Gateway
from tests.gateway.local import LocalHost
from tests.gateway.processes import ROOT
from tests.gateway.rows import ON_DISK, SCHEMA

class Stuck(LocalHost):
    def publish(self, name, batch):
        called.set()
        threading.Event().wait()

called = threading.Event()
host = Stuck({str(tmp_path)!r})
host.channel("rows", SCHEMA, ON_DISK)
gateway = Gateway(host, "default")
print(gateway.start(), flush=True)
called.wait()
{last_act}
"""
    process = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    with process, GatewayClient(process.stdout.readline()) as client, pytest.raises(errors.Disconnected):
        client.publish("rows", batches_of(100))
    assert process.wait(60) == 0


def test_closing_ends_calls_at_their_next_batch(host):
    gateway = Gateway(host, "default")
    client = GatewayClient(gateway.start(), patience_seconds=0)
    host.publish("rows", batch_of(0, 200_000))
    host.publish("rows", batch_of(0, 200_000))
    reading = client.read("rows", client.channel("rows").log, 0, 400_000)
    next(reading)
    gateway.close()
    with pytest.raises(errors.Disconnected):
        list(reading)


def test_a_gateway_that_was_closed_leaves_its_port_and_its_name_to_a_successor(host):
    first = Gateway(host, "default")
    client = GatewayClient(first.start())
    client.publish("rows", batches_of(100))
    first.close()
    first.close()
    with closing(Gateway(host, "default", identity=first.identity)) as successor:
        assert successor.start() == client.endpoint
        assert numbers_in(client, "rows") == list(range(100))
