"""Clients across forks, in a process of their own: this one has threads."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from tests.gateway.processes import ROOT

PRELUDE = """
    import os, signal, sys, threading
    from echannel_ray import errors
    from echannel_ray.gateway.client import GatewayClient
    from tests.gateway.rows import ON_DISK, SCHEMA, batches_of, numbers_in

    signal.alarm(60)  # what hangs ends, and is no success
    client = GatewayClient(sys.argv[1])
    client.channel("rows", SCHEMA, ON_DISK)

    def in_child(call):
        pid = os.fork()
        if pid == 0:
            signal.alarm(30)
            try:
                call()
            except BaseException as error:
                print(repr(error), flush=True)
                os._exit(1)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


@pytest.fixture
def run(server):
    server.start()

    def run(script: str) -> None:
        code = textwrap.dedent(PRELUDE) + textwrap.dedent(script)
        command = [sys.executable, "-c", code, server.endpoint]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=90, check=False)
        assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr

    return run


def test_parent_and_children_use_the_same_client(run):
    run("""
    client.publish("rows", batches_of(100))
    for _ in range(3):
        assert in_child(lambda: client.publish("rows", batches_of(100))) == 0
    client.publish("rows", batches_of(100))
    assert numbers_in(client, "rows") == [*range(100)] * 5
    """)


def test_a_child_makes_a_client_of_its_own(run):
    run("""
    def call():
        with GatewayClient(client.endpoint) as other:
            assert other.publish("rows", batches_of(100)) == 100
        assert in_child(lambda: client.publish("rows", batches_of(100))) == 0

    assert in_child(call) == 0
    assert numbers_in(client, "rows") == [*range(100)] * 2
    """)


def test_a_child_of_a_process_in_the_middle_of_a_call_is_told(run):
    run("""
    client.publish("rows", batches_of(200_000, each=50_000))
    reading = client.read("rows", client.channel("rows").log, 0, 200_000)
    rows = next(reading).num_rows

    def call():
        try:
            GatewayClient(client.endpoint).offsets("rows")
        except errors.Closed as error:
            assert "spawn" in str(error)
        else:
            raise AssertionError("it should have been told")

    assert in_child(call) == 0
    assert rows + sum(batch.num_rows for batch in reading) == 200_000
    assert in_child(lambda: client.offsets("rows")) == 0
    """)
