"""Joining the Ray that runs: who watches never starts one."""

from __future__ import annotations

import logging
import os
import socket
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout

from echannel_ray.errors import Disconnected

_HOW = "say where it is with --address HOST:PORT (or RAY_ADDRESS), or start one with `ray start --head`"
_PROBE_SECONDS = 5.0


@contextmanager
def running_ray(address: str | None) -> Iterator[None]:
    """Have this process be a driver of the Ray at the address (else at RAY_ADDRESS, else on this machine)."""
    wanted = address or os.environ.get("RAY_ADDRESS") or "auto"
    _check(wanted)
    import ray

    # What its parts and threads have to say goes to their logs: here there is one sentence, or an answer.
    logging.getLogger("echannel_ray").setLevel(logging.ERROR)
    try:
        join(wanted, logging.CRITICAL)
    except ConnectionError as error:
        raise Disconnected(f"no running Ray found: {_HOW}") from error
    except (RuntimeError, ValueError, OSError) as error:
        raise Disconnected(
            f"could not join the Ray at {wanted!r}: {first_line(error)}. For another one, {_HOW}"
        ) from error
    try:
        # Ray prints what goes wrong anywhere in the cluster on standard output, which is for our answer.
        with redirect_stdout(sys.stderr):
            yield
    finally:
        ray.shutdown()


def join(address: str, logging_level: int) -> None:
    """Make this process a driver, and say nothing of what Ray advises programs to do, which differs by its version."""
    import ray

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init(address=address, log_to_driver=False, logging_level=logging_level)


def _check(address: str) -> None:
    if address.startswith("ray://"):
        raise Disconnected(
            f"{address!r} is a Ray Client's address, and event channels need a driver inside the cluster: run this "
            "on one of its nodes, with --address auto"
        )
    if address == "local":
        raise Disconnected(f"'local' would start another Ray, which has no channels: {_HOW}")
    host, colon, port = address.rpartition(":")
    if not colon:
        return  # "auto", or something that Ray will refuse
    # Ray would try for a minute, and then end the process.
    try:
        socket.create_connection((host.strip("[]"), int(port)), _PROBE_SECONDS).close()
    except (OSError, ValueError, OverflowError) as error:
        raise Disconnected(f"no running Ray found at {address!r} ({error}): {_HOW}") from error


def first_line(error: Exception) -> str:
    """What there is to say of an error of Ray's in one line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
