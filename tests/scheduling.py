"""Which tests stay together when several processes share them (`pytest -n 2`), and which come first."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from xdist.scheduler import LoadScopeScheduling

# What takes long comes first, so that the processes end at about the same time; folders that are not named follow.
FIRST = ("integrations", "pod", "faults", "cli", "page", "security", "actors", "api", "modulators", "gateway")
# Their files share what takes long to start: a Spark, a browser, a cluster with mounted certificates.
IN_ONE_PROCESS = ("integrations", "page", "security")


class BySharing(LoadScopeScheduling):  # type: ignore[misc]
    """Gives a process one file after the other, or a whole folder."""

    def _split_scope(self, nodeid: str) -> str:
        file = PurePath(nodeid.partition("::")[0])
        return str(file.parent if file.parent.name in IN_ONE_PROCESS else file)

    def _assign_work_unit(self, node: Any) -> None:
        self.workqueue.move_to_end(min(self.workqueue, key=_rank), last=False)
        super()._assign_work_unit(node)


def _rank(scope: str) -> int:
    """Of a folder, or of a file, by its folder."""
    folder = next((part for part in PurePath(scope).parts if part in FIRST), None)
    return len(FIRST) if folder is None else FIRST.index(folder)
