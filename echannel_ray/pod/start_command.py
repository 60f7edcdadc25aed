"""`start`: the command, its probes and its drain, put together; and `drain`, which asks that process for it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Final

from echannel_ray.pod.child import SIGNALS, Child, command_of
from echannel_ray.pod.health import Health
from echannel_ray.pod.pod_drain import PodDrain
from echannel_ray.pod.probes import Probes
from echannel_ray.pod.settings import CommandRefused, Settings, directory
from echannel_ray.transport.door import DIRECTORY_VARIABLE, Door, Unanswered, ask, doors

_OWN_DOOR: Final = "pod"
_ANSWER_SECONDS: Final = 10.0
# Ray's own drain, in which Serve's proxies finish what they have begun. It comes after ours, so it may not take as long
# as Ray would: both have to fit into the pod's grace period.
_RAY_DRAIN: Final = ("RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S", "5")


def start(arguments: Sequence[str]) -> int:
    """Run the command until it ends; its exit code."""
    settings = Settings.of(os.environ)
    command = command_of(arguments)
    here = directory()
    own_door = os.path.join(here, _OWN_DOOR)
    _check_alone(own_door)
    _remove_doors(here)
    os.environ[DIRECTORY_VARIABLE] = here
    os.environ.setdefault(*_RAY_DRAIN)
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # also in the threads that are made from here on
    drain = PodDrain(here, settings.drain_seconds)
    health = Health(here, drain)
    with contextlib.ExitStack() as closing:
        probes = closing.enter_context(contextlib.closing(Probes(settings.host, settings.port, health)))
        closing.enter_context(contextlib.closing(Door(own_door, {"pid": os.getpid, "drain": drain.run})))
        child = Child(command)
        health.command_pid = child.pid
        _say(f"probes at {probes.url}/healthz and /readyz; the command is process {child.pid}")
        _supervise(child, drain)
        child.end_leftovers()
    _remove_doors(here)
    assert child.exit_code is not None
    return child.exit_code


def drain() -> int:
    """Have the process that runs this pod drain it, and wait for that; 0 where nothing was left."""
    own_door = os.path.join(directory(), _OWN_DOOR)
    try:
        problems = ask(own_door, "drain", Settings.of(os.environ).drain_seconds + _ANSWER_SECONDS)
    except (FileNotFoundError, ConnectionRefusedError):
        raise CommandRefused(
            "nothing to drain: `python -m echannel_ray.pod start` does not run here, with the same user, TMPDIR and "
            f"{DIRECTORY_VARIABLE} (it would be at {own_door})"
        ) from None
    except Unanswered as error:
        raise CommandRefused(
            f"the process that runs this pod did not drain it: {error}; its own output says more"
        ) from None
    for problem in problems:
        _say(problem)
    return 1 if problems else 0


def _check_alone(own_door: str) -> None:
    with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
        try:
            who = f"process {ask(own_door, 'pid', 1.0)}"
        except Unanswered:
            who = "a process that does not answer"
        raise CommandRefused(
            f"{who} runs a pod here already (at {own_door}): set {DIRECTORY_VARIABLE} to another directory for a second"
        )


def _remove_doors(here: str) -> None:
    for door in doors(here):
        os.unlink(door)


def _supervise(child: Child, drain: PodDrain) -> None:
    """Wait for the command's end. The first signal to end is passed on when the node is drained, others at once."""
    is_ending = False
    while child.exit_code is None:
        number = signal.sigwait(SIGNALS)
        if number == signal.SIGCHLD:
            child.reap()
        elif number in (signal.SIGTERM, signal.SIGINT) and not is_ending:
            is_ending = True
            arguments = (child, drain, number)
            threading.Thread(target=_drain_and_end, args=arguments, name="echannel-drain", daemon=True).start()
        else:
            child.send(number)


def _drain_and_end(child: Child, drain: PodDrain, number: int) -> None:
    try:
        for problem in drain.run():
            _say(problem)
    finally:
        child.send(number)


def _say(what: str) -> None:
    print(f"echannel_ray.pod: {what}", file=sys.stderr, flush=True)
