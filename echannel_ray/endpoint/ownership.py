"""What a process owns (a producer, a subscription, a session): closed at the end of a `with`, and never pickled."""

from __future__ import annotations

from typing import Any, TypeVar

from typing_extensions import override

T = TypeVar("T", bound="OwnedByProcess")


class OwnedByProcess:
    """Closes itself as a context manager; can't be pickled, and `_advice` says what to do instead."""

    _advice: str

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @override
    def __reduce__(self) -> Any:
        raise TypeError(self._advice)

    def close(self) -> None:
        """End what this is; a second call does nothing."""
        raise NotImplementedError
