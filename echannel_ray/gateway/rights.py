"""What clients of a gateway may do, and where."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from echannel_ray import errors
from echannel_ray.gateway.commands import Command, StageFiles

_SUFFIX: Final = ".parquet"


@dataclass(frozen=True)
class Rights:
    """Patterns of the channels (as in file names: `*`, `?`, `[seq]`) for each of what there is to be done."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    derive: tuple[str, ...]
    files: tuple[str, ...] = ("*",)  # of paths

    def check(self, command: Command) -> None:
        """`NotAuthorised` where a command is for a channel that is none of these."""
        granted = {right: getattr(self, right) for right in command.needs}
        if any(fnmatchcase(command.channel, pattern) for patterns in granted.values() for pattern in patterns):
            if isinstance(command, StageFiles):
                self._check_files(command.paths)
            return
        rules = " or ".join(f"{right}={patterns!r}" for right, patterns in granted.items())
        raise errors.NotAuthorised(
            f"clients of this gateway may not do that with channel {command.channel!r}: what it allows is {rules}. "
            "Choose a channel of these, or give `session.gateway()` another pattern",
            channel=command.channel,
            patterns=sorted({pattern for patterns in granted.values() for pattern in patterns}),
        )

    def _check_files(self, paths: Sequence[str]) -> None:
        for path in paths:
            is_allowed = any(fnmatchcase(path, pattern) for pattern in self.files)
            if not is_allowed or not path.endswith(_SUFFIX) or ".." in path.split("/"):
                raise errors.NotAuthorised(
                    f"clients of this gateway may not hand over {path!r}: it has to be a {_SUFFIX} file whose path "
                    f"matches files={self.files!r}. Write elsewhere, or give `session.gateway()` another pattern",
                    path=path,
                )


def has_token(headers: Sequence[str], token: str) -> bool:
    """Whether the values of a request's `authorization` are one, with this token; in time that tells nothing of it."""
    shown = headers[0] if len(headers) == 1 else ""
    return hmac.compare_digest(shown.encode(), f"Bearer {token}".encode())
