"""What clients of a gateway may do, and where."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from echannel_ray import errors
from echannel_ray.gateway.commands import Command


@dataclass(frozen=True)
class Rights:
    """Patterns of the channels (as in file names: `*`, `?`, `[seq]`) for each of what there is to be done."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    derive: tuple[str, ...]

    def check(self, command: Command) -> None:
        """`NotAuthorised` where a command is for a channel that is none of these."""
        granted = {right: getattr(self, right) for right in command.needs}
        if any(fnmatchcase(command.channel, pattern) for patterns in granted.values() for pattern in patterns):
            return
        rules = " or ".join(f"{right}={patterns!r}" for right, patterns in granted.items())
        raise errors.NotAuthorised(
            f"clients of this gateway may not do that with channel {command.channel!r}: what it allows is {rules}. "
            "Choose a channel of these, or give `session.gateway()` another pattern",
            channel=command.channel,
            patterns=sorted({pattern for patterns in granted.values() for pattern in patterns}),
        )


def has_token(headers: Sequence[str], token: str) -> bool:
    """Whether the values of a request's `authorization` are one, with this token; in time that tells nothing of it."""
    shown = headers[0] if len(headers) == 1 else ""
    return hmac.compare_digest(shown.encode(), f"Bearer {token}".encode())
