"""Ray's token authentication: event channels work with it, and it guards the certificates that Ray hands out."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

SECONDS = 100

# A local Ray, whose driver says what it did, and then waits until it is told to end.
CLUSTER = """
import ray
import echannel_ray as ec

ray.init("local", num_cpus=2, object_store_memory=100 * 1024 * 1024, include_dashboard=False, log_to_driver=False)

@ray.remote(num_cpus=0)
class Listener:
    def __init__(self, channel):
        self.subscription = channel.subscribe()

    def next(self):
        return self.subscription.get(timeout=30)

channel = ec.channel("guarded", namespace="guarded")
listener = Listener.remote(channel)
ray.get(listener.__ray_ready__.remote())
with channel.producer() as producer:
    producer.publish("an event")
    print(ray.get(listener.next.remote()), flush=True)
print(ray.get_runtime_context().gcs_address, flush=True)
input()
ec.shutdown("guarded")
"""

# Somebody who knows the address, and wants a key.
STRANGER = """
import sys
import ray
from echannel_ray.actors import startup
from echannel_ray.core.messages import ConcentratorInfo

ray.init(sys.argv[1], log_to_driver=False)
info = ConcentratorInfo(5, "5", "nobody", "127.0.0.1", 1, 1, 1, 0)
_, credentials = ray.get(startup.find("guarded:name-server").join.remote(info))
assert b"PRIVATE KEY" in credentials.key_pem
print("node", info.node)
"""


def start(script: str, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    """A driver of its own, by these variables and no other of Ray's authentication."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH_")}
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        env={**inherited, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ec") as name:
        yield Path(name)


def token(folder: Path, content: str) -> dict[str, str]:
    path = folder / content[:8]
    path.touch(mode=0o600)
    path.write_text(content)
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(path)}


@pytest.fixture(scope="module")
def guarded(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The address of a Ray that asks for a token, with a namespace in it, and what has the token."""
    key = token(folder, "right" * 10)
    cluster = start(CLUSTER, **key)
    assert cluster.stdin is not None
    assert cluster.stdout is not None
    try:
        assert cluster.stdout.readline() == "an event\n"
        yield cluster.stdout.readline().strip(), key
    finally:
        _, complained = cluster.communicate("\n", SECONDS)
        print(complained)


def test_channels_work_in_a_ray_that_asks_for_a_token(guarded):
    assert ":" in guarded[0]


def test_who_has_not_rays_token_gets_no_credentials(guarded, folder: Path):
    address, right = guarded
    strangers = {
        "no token": {"RAY_AUTH_MODE": "token", "HOME": str(folder)},
        "another token": token(folder, "wrong" * 10),
        "no authentication": {"RAY_AUTH_MODE": "disabled", "HOME": str(folder)},
        "the token": right,
    }
    # Ray would try 20 times, a second apart.
    running = {
        who: start(STRANGER, address, **variables, RAY_NUM_REDIS_GET_RETRIES="2")
        for who, variables in strangers.items()
    }
    ended = {who: (*process.communicate(timeout=SECONDS), process.returncode) for who, process in running.items()}
    said, complained, code = ended.pop("the token")
    assert (said, code) == ("node 5\n", 0), complained
    for who, (said, complained, code) in ended.items():
        assert code != 0, who
        assert said == "", who
        assert "uthenticat" in complained or "token" in complained, (who, complained)
