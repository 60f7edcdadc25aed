"""Where the logs of a node are that are kept on disk."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Final

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
