"""Whether this pod works: its command, its Ray, and the parts of event channels that run in it."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from echannel_ray.pod import ray_node
from echannel_ray.pod.pod_drain import PodDrain
from echannel_ray.transport.door import Unanswered, ask, doors, part_of

_CACHED_SECONDS: Final = 1.0
# Longer than a part waits for the others that it asks.
_ANSWER_SECONDS: Final = 1.5
_AT_ONCE: Final = 16
_SERVING: Final = "serving"


class Health:
    """The health of one pod. It looks when it is asked, and not again for a second, however many ask."""

    def __init__(self, directory: str, drain: PodDrain) -> None:
        self._directory = directory
        self._drain = drain
        self.command_pid = 0  # once it runs
        self._lock = threading.Lock()
        self._looked_at = -_CACHED_SECONDS
        self._document: dict[str, Any] = {}

    def document(self) -> dict[str, Any]:
        """What `/readyz` says: `ready`, what is wrong (`problems`), and the `parts` that were asked."""
        with self._lock:
            if self._drain.has_begun:
                return {"ready": False, "problems": ["this node is being drained, to be removed"], "parts": {}}
            if time.monotonic() - self._looked_at >= _CACHED_SECONDS:
                self._document = self._look()
                self._looked_at = time.monotonic()
            return self._document

    def _look(self) -> dict[str, Any]:
        found = doors(self._directory)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            of_ray = pool.submit(ray_node.problems, self.command_pid)
            looks = dict(zip(map(part_of, found), pool.map(_look_at, found), strict=True))
        problems = [*of_ray.result()]
        parts = {}
        for name, look in looks.items():
            if look is None:
                continue  # it has retired
            state, complaints = look
            parts[name] = state
            problems += [complaint for complaint in complaints if complaint not in problems]
        return {"ready": not problems, "problems": problems, "parts": parts}


def _look_at(door: str) -> tuple[str, list[str]] | None:
    """The state of a part, and what is wrong with it and those that it needs."""
    name = part_of(door)
    try:
        answer = ask(door, "health", _ANSWER_SECONDS)
    except FileNotFoundError:
        return None
    except ConnectionRefusedError:
        return "gone", [f"{name} has ended, and has not been started again yet"]
    except Unanswered as error:
        return "silent", [f"{name} does not answer: {error}"]
    state = answer["state"]
    own = [f"{name} is {state}"] if state != _SERVING else []
    return state, own + [f"{name}: {complaint}" for complaint in answer["silent"]]
