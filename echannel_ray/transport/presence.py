"""Which processes have linked to the concentrator of this node, in a place that outlives it.

If a concentrator and one of its processes die together, nobody saw that process end. So a file stands for each endpoint
while it is linked, and the concentrator's successor reads them. All facts are in the file's name: making it is atomic,
and there is no content that a kill could leave half written.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

_PREFIX = "endpoint-"
# A start that no process has: who is noted with it counts as dead.
_NOBODY = 0


class FormerEndpoint(NamedTuple):
    """An endpoint that was linked to this concentrator or its predecessor."""

    endpoint_id: int
    pid: int
    alive: bool


def note_endpoint(directory: str | os.PathLike[str], endpoint_id: int, pid: int) -> None:
    """Write down in the node's directory that an endpoint has linked."""
    # A process that is gone already has no start.
    name = f"{_PREFIX}{endpoint_id:016x}-{pid}-{start_of(pid) or _NOBODY}"
    Path(directory, name).touch(mode=0o600)


def forget_endpoint(directory: str | os.PathLike[str], endpoint_id: int) -> None:
    """Remove what was written down of an endpoint, and its socket: it has gone, and everybody was told."""
    Path(directory, f"{endpoint_id:016x}").unlink(missing_ok=True)
    # Again where `mark_left` has renamed it between the two.
    while paths := [*Path(directory).glob(f"{_PREFIX}{endpoint_id:016x}-*")]:
        for path in paths:
            path.unlink(missing_ok=True)


def mark_left(directory: str | os.PathLike[str], endpoint_id: int) -> None:
    """An endpoint has left, and its process goes on: a concentrator that did not hear of it must not expect it back."""
    for path in Path(directory).glob(f"{_PREFIX}{endpoint_id:016x}-*"):
        with contextlib.suppress(FileNotFoundError):  # forgotten already
            path.rename(path.with_name(f"{path.name.rpartition('-')[0]}-{_NOBODY}"))


def former_endpoints(directory: str | os.PathLike[str]) -> list[FormerEndpoint]:
    """Who was noted and not forgotten, and whether that very process still runs."""
    found = []
    for path in sorted(Path(directory).glob(f"{_PREFIX}*")):
        endpoint, pid, start = path.name.removeprefix(_PREFIX).split("-")
        found.append(FormerEndpoint(int(endpoint, 16), int(pid), start_of(int(pid)) == int(start)))
    return found


def start_of(pid: int) -> int | None:
    """When the process started, in ticks since the machine did (pids are used again); None if it has ended."""
    try:
        content = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the command's name in parentheses, which may hold anything.
    fields = content[content.rindex(b")") + 2 :].split()
    # A zombie has ended; only its parent has not noticed.
    return None if fields[0] in (b"Z", b"X") else int(fields[19])
