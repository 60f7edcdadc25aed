"""The actors' names, how each is made exactly once, and calls that outlive the restart of who is called.

All are detached, named actors in one Ray namespace of ours, which Ray starts again when they die. `get_if_exists` makes
them once however many processes try. One whose node died is DEAD for Ray, and its name is free: the next `ensure_*`
makes another.

**Whose runtime environment.** Ray hands a job's runtime_env down to every actor that the job makes, detached ones too:
`runtime_env={}` and None inherit all of it, and fields can be replaced but not removed. The actors serve all jobs of a
cluster, so the working directory, packages and variables of the one that came first must not rule them. Therefore the
name server is made by a small driver of its own where the caller has a runtime_env, and makes the other parts itself
(what a detached actor makes inherits from that actor).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import ray
from ray.exceptions import ActorUnschedulableError, GetTimeoutError, RayActorError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from echannel_ray.compilation import is_compiled
from echannel_ray.errors import Disconnected, EChannelError, VersionMismatch
from echannel_ray.ids import RAY_NAMESPACE, WIRE_VERSION, check_namespace, node_number

logger = logging.getLogger(__name__)

Handle = Any  # `ray.actor.ActorHandle`, whose methods type checkers can't see

DEFAULT_MANAGERS = 2
# Creating takes a worker process; Ray starts a few at a time, and a busy machine takes long for each.
ENSURE_TIMEOUT_SECONDS = 60.0
_FIRST_PAUSE_SECONDS = 0.01
_LONGEST_PAUSE_SECONDS = 0.25


def name_server_name(namespace: str) -> str:
    """The name of the namespace's name server."""
    return f"{namespace}:name-server"


def manager_name(namespace: str, slot: int) -> str:
    """The name of one of the namespace's channel managers."""
    return f"{namespace}:manager-{slot}"


def concentrator_name(namespace: str, node: int) -> str:
    """The name of a node's concentrator."""
    return f"{concentrator_prefix(namespace)}{node:016x}"


def concentrator_prefix(namespace: str) -> str:
    """How the names of the namespace's concentrators begin."""
    return f"{namespace}:concentrator-"


def find(name: str) -> Handle:
    """The actor of this name, or LookupError."""
    try:
        return ray.get_actor(name, namespace=RAY_NAMESPACE)
    except ValueError as error:
        raise LookupError(f"there is no actor {name!r}") from error


# ---- calls that outlive restarts ----------------------------------------------------------------------------------


class _Attempts:
    """Decides after each failure whether to try again, and when: what `call` and `ask` have in common."""

    def __init__(self, method: str, timeout: float) -> None:
        self._method = method
        self._deadline = time.monotonic() + timeout
        self._pause = _FIRST_PAUSE_SECONDS

    def remaining(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def pause_after(self, error: Exception) -> float:
        """Seconds to wait before the next attempt; raises when there is none."""
        if isinstance(error, RayTaskError):
            # The method raised. Ray wraps that in a class made up on the spot, which neither pickles nor prints well.
            if isinstance(error.cause, EChannelError):
                raise error.cause from None
            raise error
        # Unschedulable is one that was pinned to a head of which another node has taken the place.
        if not isinstance(error, RayActorError | ActorUnschedulableError | LookupError):
            raise error
        if "No module named 'echannel_ray'" in str(error):
            raise Disconnected(
                "the workers of this Ray cluster can't import echannel_ray: install it on every node (or, on one "
                "machine, in the environment that Ray was started from), and start again"
            ) from None
        pause, self._pause = self._pause, min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
        if pause >= self.remaining():
            raise TimeoutError(f"{self._method!r} was not answered: {error}") from error
        return pause


def call(get_handle: Callable[[], Handle], method: str, *args: Any, timeout: float = 30.0) -> Any:
    """The answer of an actor's method, asked again while the actor is being restarted or replaced.

    The method may run more than once. `get_handle` is asked before each attempt, and may raise LookupError. What the
    method raises is raised, EChannelErrors as they were; TimeoutError when no answer came in time. It blocks.
    """
    attempts = _Attempts(method, timeout)
    while True:
        try:
            return ray.get(getattr(get_handle(), method).remote(*args), timeout=attempts.remaining())
        except GetTimeoutError as error:
            raise TimeoutError(f"{method!r} was not answered within {timeout} s") from error
        except Exception as error:
            time.sleep(attempts.pause_after(error))


# Actors as they were found last: to look them up each time would be a seventh of a request's cost.
_found: dict[str, Handle] = {}


async def ask(name: str, method: str, *args: Any, timeout: float) -> Any:
    """`call` for the loop of an actor, to a part by its name. It is what tests replace that need no Ray."""
    attempts = _Attempts(method, timeout)
    handle = _found.get(name)
    has_failed = False
    while True:
        try:
            if handle is None:
                # The first lookup is answered from Ray's cache as a rule (20 µs); others may wait for the GCS.
                handle = _found[name] = await asyncio.to_thread(find, name) if has_failed else find(name)
            return await asyncio.wait_for(getattr(handle, method).remote(*args), attempts.remaining())
        except (asyncio.TimeoutError, TimeoutError) as error:
            raise TimeoutError(f"{method!r} was not answered within {timeout} s") from error
        except Exception as error:
            await asyncio.sleep(attempts.pause_after(error))
            has_failed = True
            handle = None
            _found.pop(name, None)


# ---- making what is missing ---------------------------------------------------------------------------------------


def ensure_name_server(namespace: str, managers: int = DEFAULT_MANAGERS, *, actor_class: type | None = None) -> Handle:
    """The namespace's name server, made where it is missing; raises VersionMismatch where it is of another version."""
    check_namespace(namespace)
    name = name_server_name(namespace)

    def get_or_create() -> Handle:
        try:
            return find(name)
        except LookupError:
            if actor_class is None and _has_runtime_env() and _create_apart(namespace, managers):
                return find(name)
            from echannel_ray.actors.name_server import NameServer
            from echannel_ray.transport.authority import Authority

            # Whoever comes too late has made a secret for nothing: Ray drops the arguments.
            return create(name, actor_class or NameServer, (namespace, Authority.generate(), managers), head_node_id())

    return _checked(name, get_or_create)


def ensure_managers(
    namespace: str, managers: int = DEFAULT_MANAGERS, *, actor_class: type | None = None
) -> list[Handle]:
    """All channel managers of a namespace, made where they are missing."""
    names = [manager_name(namespace, slot) for slot in range(managers)]
    making = [
        partial(_get_or_have_made, namespace, managers, name, "create_manager", slot, actor_class)
        for slot, name in enumerate(names)
    ]
    for get_or_create in making:
        get_or_create()  # all start before the first is waited for
    return [_checked(name, get_or_create) for name, get_or_create in zip(names, making, strict=True)]


def ensure_concentrator(
    namespace: str, ray_node_id: str, managers: int = DEFAULT_MANAGERS, *, actor_class: type | None = None
) -> Handle:
    """The concentrator of a node, made where it is missing; it may not be `ready()` yet."""
    name = concentrator_name(namespace, node_number(ray_node_id))
    make = partial(_get_or_have_made, namespace, managers, name, "create_concentrator", ray_node_id, actor_class)
    return _checked(name, make)


def _get_or_have_made(namespace: str, managers: int, name: str, method: str, *arguments: Any) -> Handle:
    try:
        return find(name)
    except LookupError:
        server = ensure_name_server(namespace, managers)
        call(lambda: server, method, *arguments, timeout=ENSURE_TIMEOUT_SECONDS)
        return find(name)


def create(name: str, actor_class: type, arguments: tuple[Any, ...], ray_node_id: str | None) -> Handle:
    """Make an actor, or return the one that somebody else has just made; on this node where one is given."""
    placement = None if ray_node_id is None else NodeAffinitySchedulingStrategy(ray_node_id, soft=False)
    remote_class: Any = ray.remote(actor_class)
    return remote_class.options(
        name=name,
        namespace=RAY_NAMESPACE,
        lifetime="detached",
        get_if_exists=True,
        max_restarts=-1,
        num_cpus=0,
        # Requests wait inside (for an endpoint's confirmation, say): a thousand, Ray's default, would hold up the rest.
        max_concurrency=100_000,
        runtime_env={},
        scheduling_strategy=placement,
    ).remote(*arguments)


def ray_nodes() -> list[dict[str, Any]]:
    """Ray's nodes, as Ray sees them: it takes about 15 s to see that one is dead."""
    nodes: list[dict[str, Any]] = ray.nodes()
    return nodes


def head_node_id() -> str | None:
    """The node for name server and managers: the head, as without it there is no GCS either; None without one."""
    for node in ray_nodes():
        if node["Alive"] and "node:__internal_head__" in node["Resources"]:
            return str(node["NodeID"])
    return None


def _checked(name: str, get_or_create: Callable[[], Handle]) -> Handle:
    theirs = call(get_or_create, "wire_version", timeout=ENSURE_TIMEOUT_SECONDS)
    if theirs != WIRE_VERSION:
        raise VersionMismatch(
            f"{name!r} speaks wire version {theirs}, this process {WIRE_VERSION}: install one version of echannel_ray "
            "everywhere, and end the old parts with echannel_ray.shutdown()",
            ours=WIRE_VERSION,
            theirs=theirs,
            part=name,
        )
    return find(name)


# ---- a driver without a runtime_env -------------------------------------------------------------------------------


def _has_runtime_env() -> bool:
    return bool(ray.get_runtime_context().runtime_env.to_dict().keys() - {"config"})


def _create_apart(namespace: str, managers: int) -> bool:
    """Make the name server from a process that has no runtime_env. False where the cluster itself has no echannel_ray:

    then only the caller's runtime_env brings it, and the actors must inherit that.
    """
    context = ray.get_runtime_context()
    theirs = {"RAY_JOB_CONFIG_JSON_ENV_VAR", "RAY_JOB_ID", *context.runtime_env.env_vars()}
    done = subprocess.run(
        [sys.executable, "-m", __name__, str(context.gcs_address), namespace, str(managers)],
        env={name: value for name, value in os.environ.items() if name not in theirs},
        cwd="/",  # which Python puts on the path, and Ray on that of the actors
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=ENSURE_TIMEOUT_SECONDS,
        check=False,
    )
    if done.returncode == 0:
        return True
    reason = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
    logger.warning(
        "namespace %r runs with this job's runtime_env, since without it echannel_ray did not start (%s): install "
        "echannel_ray on the cluster's nodes to avoid that",
        namespace,
        *(reason or ["no reason given"]),
    )
    return False


def _main(address: str, namespace: str, managers: str) -> None:
    ray.init(address=address, configure_logging=False, log_to_driver=False)
    name = name_server_name(namespace)
    try:
        ensure_name_server(namespace, int(managers))
    except RuntimeError:
        # What Ray raises for an actor whose class could not be imported where it runs: it must not keep the name.
        with contextlib.suppress(LookupError):
            ray.kill(find(name))
        raise


def describe_this_actor() -> dict[str, Any]:
    """What `status()` says of any actor; for use inside one."""
    context = ray.get_runtime_context()
    return {
        "name": context.get_actor_name(),
        "pid": os.getpid(),
        "node_id": context.get_node_id(),
        "restarts": _restarts(context.get_actor_id()),
        "wire_version": WIRE_VERSION,
        "compiled": is_compiled(),
    }


def _restarts(actor_id: str | None) -> int:
    # Ray tells the number to its dashboard's API only, which may not run; this is where that gets it from (0.8 ms).
    from ray._private import state

    try:
        return int(state.actors(actor_id)["NumRestarts"])
    except Exception:
        logger.debug("Ray does not say how often actor %s was restarted", actor_id, exc_info=True)
        return int(ray.get_runtime_context().was_current_actor_reconstructed)


if __name__ == "__main__":
    _main(*sys.argv[1:])
