"""What the kernel says of processes. (psutil is no dependency, and more than is needed.)"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_LISTENING: Final = "0A"


def descendants(pid: int) -> list[int]:
    """The processes that this one has started, directly or not, zombies left out; the older before the younger."""
    children: dict[int, list[int]] = {}
    for each, parent in _living():
        children.setdefault(parent, []).append(each)
    found = [*children.get(pid, ())]
    for each in found:
        found += children.get(each, ())
    return found


def children(pid: int) -> list[int]:
    """What this process itself has started, and inherited; zombies left out."""
    return [each for each, parent in _living() if parent == pid]


def _living() -> Iterator[tuple[int, int]]:
    """All processes and their parents, zombies left out."""
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            with contextlib.suppress(OSError):  # it has ended
                content = Path("/proc", entry, "stat").read_text(errors="replace")
                # The second field is the command's name in parentheses, which may hold anything.
                state, parent, *_ = content[content.rindex(")") + 2 :].split()
                if state not in "ZX":
                    yield int(entry), int(parent)


def name(pid: int) -> str:
    """The file that it runs, or what it calls itself; nothing where it has ended."""
    return _read(pid, "comm").strip()


def arguments(pid: int) -> list[str]:
    """The command line of a process."""
    return _read(pid, "cmdline").split("\0")


def _read(pid: int, what: str) -> str:
    try:
        return Path(f"/proc/{pid}/{what}").read_text(errors="replace")
    except OSError:
        return ""


def listening_ports(pid: int) -> list[int]:
    """The TCP ports at which a process listens."""
    inodes = set()
    with contextlib.suppress(OSError):
        for descriptor in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                inodes.add(os.readlink(descriptor.path).removeprefix("socket:[").removesuffix("]"))
    ports = []
    for family in ("tcp", "tcp6"):
        for line in _read(pid, f"net/{family}").splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENING and fields[9] in inodes:
                ports.append(int(fields[1].rpartition(":")[2], 16))
    return sorted(ports)
