"""The directory of a node's logs, made so that only this user can enter it."""

from __future__ import annotations

import os
from pathlib import Path

from echannel_ray.errors import EChannelError
from echannel_ray.logs.directory import DIRECTORY_VARIABLE, directory_of
from echannel_ray.transport.unix import make_private


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
