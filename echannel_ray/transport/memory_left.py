"""How much memory is left for this process: what the machine has, and what its control groups let it have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_GROUPS = Path("/sys/fs/cgroup")
_KIB = 1024


def left_bytes(proc: Path = Path("/proc"), groups: Path = _GROUPS) -> int:
    """How much this process could still have; files of the page cache that nobody uses count as left."""
    return max(0, min([_of_machine(proc / "meminfo"), *_of_groups(proc / "self" / "cgroup", groups)]))


def _of_machine(meminfo: Path) -> int:
    for line in meminfo.read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * _KIB
    return 0


def _of_groups(memberships: Path, groups: Path) -> Iterator[int]:
    """What each group that this process is in has left, in both versions of control groups."""
    try:
        lines = memberships.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from _along(groups, path, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            of_memory = groups / "memory"
            yield from _along(of_memory, path, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def _along(mount: Path, path: str, limit: str, usage: str, idle: str) -> Iterator[int]:
    """Of the group itself and of all that it is in; those that can't be seen from here are left out."""
    group = PurePosixPath(path.lstrip("/"))
    for each in (group, *group.parents):
        try:
            most = (mount / each / limit).read_text().strip()
            if most == "max":
                continue
            used = int((mount / each / usage).read_text())
            stat = (mount / each / "memory.stat").read_text().splitlines()
        except OSError:
            continue
        unused = next((int(line.split()[1]) for line in stat if line.startswith(f"{idle} ")), 0)
        yield int(most) - used + unused
