"""What clients of a gateway may do, and where."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final, Literal

import msgspec

from echannel_ray import errors

Right = Literal["publish", "subscribe", "derive"]
DEFAULT_EVENT_BYTES: Final = 1 << 20
MAX_EVENT_BYTES: Final = 64 << 20
_SUFFIX: Final = ".parquet"


def is_above_zero(value: object) -> bool:
    """Whether the value is a number above zero, so that it can be a limit."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


class Rights(msgspec.Struct, frozen=True):
    """Patterns of the channels (as in file names: `*`, `?`, `[seq]`) for each of what there is to be done, and limits
    of what is published: rates, over which a client is held back, and the size of an event (or a record batch).
    """

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    derive: tuple[str, ...]
    files: tuple[str, ...] = ("*",)  # of paths
    max_events_per_second: float | None = None
    max_bytes_per_second: float | None = None
    max_event_bytes: int | None = None  # None: `DEFAULT_EVENT_BYTES` for an event, and what a batch may have anyhow

    @staticmethod
    def checked(
        publish: Sequence[str],
        subscribe: Sequence[str],
        derive: Sequence[str],
        files: Sequence[str],
        max_events_per_second: float | None,
        max_bytes_per_second: float | None,
        max_event_bytes: int | None,
    ) -> Rights:
        """Rights as a program asks for them; `TypeError` and `ValueError` that say what is wrong."""
        for patterns in (publish, subscribe, derive, files):
            if isinstance(patterns, str) or not all(isinstance(each, str) for each in patterns):
                raise TypeError(
                    f'publish, subscribe, derive and files are patterns, as in ("sensors/*",), not {patterns!r}'
                )
        for limit in (max_events_per_second, max_bytes_per_second, max_event_bytes):
            if limit is not None and not is_above_zero(limit):
                raise ValueError(f"a limit is a number above 0, or None for no limit of its own; not {limit!r}")
        if max_event_bytes is not None and (not isinstance(max_event_bytes, int) or max_event_bytes > MAX_EVENT_BYTES):
            raise ValueError(f"max_event_bytes is a whole number up to {MAX_EVENT_BYTES}, not {max_event_bytes!r}")
        return Rights(
            tuple(publish), tuple(subscribe), tuple(derive), tuple(files), max_events_per_second, max_bytes_per_second,
            max_event_bytes,
        )  # fmt: skip

    @property
    def event_bytes(self) -> int:
        """How large an event may be."""
        return DEFAULT_EVENT_BYTES if self.max_event_bytes is None else self.max_event_bytes

    def check(self, channel: str, *rights: Right) -> None:
        """`NotAuthorised` where none of these rights is granted for a channel."""
        granted = {right: getattr(self, right) for right in rights}
        if any(fnmatchcase(channel, pattern) for patterns in granted.values() for pattern in patterns):
            return
        rules = " or ".join(f"{right}={patterns!r}" for right, patterns in granted.items())
        raise errors.NotAuthorised(
            f"this token does not give the right to {' or '.join(rights)} on channel {channel!r}: what it allows is "
            f"{rules}. Choose a channel of these, or have `session.gateway()` or `session.grant()` give another "
            f"pattern, such as {rights[0]}=({channel!r},)",
            channel=channel,
            right=rights[0],
            patterns=sorted({pattern for patterns in granted.values() for pattern in patterns}),
        )

    def check_files(self, paths: Sequence[str]) -> None:
        """`NotAuthorised` where one of these may not be handed over in the place of rows."""
        for path in paths:
            is_allowed = any(fnmatchcase(path, pattern) for pattern in self.files)
            if not is_allowed or not path.endswith(_SUFFIX) or ".." in path.split("/"):
                raise errors.NotAuthorised(
                    f"clients of this gateway may not hand over {path!r}: it has to be a {_SUFFIX} file whose path "
                    f"matches files={self.files!r}. Write elsewhere, or give `session.gateway()` another pattern",
                    path=path,
                )

    def check_size(self, size_bytes: int, what: str) -> None:
        """`NotAuthorised` where an event or a batch is larger than the token allows."""
        if self.max_event_bytes is not None and size_bytes > self.max_event_bytes:
            raise errors.NotAuthorised(
                f"{what} of {size_bytes} bytes came, and this token allows {self.max_event_bytes}: send smaller ones, "
                "or have `session.gateway()` or `session.grant()` give another max_event_bytes",
                size_bytes=size_bytes,
                max_event_bytes=self.max_event_bytes,
            )
