"""Where the logs of a node are that are kept on disk, in a directory that only this user can enter."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Final

from echannel_ray.errors import EChannelError
from echannel_ray.transport.unix import make_private

DIRECTORY_VARIABLE: Final = "ECHANNEL_LOGS"  # else it is in the machine's directory for temporary files


def directory_of(namespace: str, node: int) -> Path:
    """A directory for each namespace and node: several nodes may share a machine."""
    base = os.environ.get(DIRECTORY_VARIABLE)
    root = Path(base) if base else Path(tempfile.gettempdir()) / f"echannel-logs-{os.geteuid()}"
    digest = hashlib.sha256(namespace.encode()).hexdigest()[:12]
    return root / f"{node:016x}-{digest}"


def has_logs(namespace: str, node: int) -> bool:
    """Whether there are any logs on disk."""
    return any(directory_of(namespace, node).glob("*.json"))


def private_directory(namespace: str, node: int) -> Path:
    """Make it, or take it as it is."""
    directory = directory_of(namespace, node)
    try:
        # One that the user names may be shared by others: what is in it is not.
        if DIRECTORY_VARIABLE in os.environ:
            directory.parent.mkdir(parents=True, exist_ok=True)
        else:
            make_private(directory.parent, DIRECTORY_VARIABLE)
        make_private(directory, DIRECTORY_VARIABLE)
    except OSError as error:
        raise EChannelError(
            f"logs can't be kept in {directory}: {error}. Set {DIRECTORY_VARIABLE}, on each node and before Ray starts "
            "there, to a directory that this user can write to",
            path=str(directory),
        ) from None
    return directory
