"""How long a client tries again."""

from __future__ import annotations

import time
from typing import Final

_FIRST_PAUSE_SECONDS: Final = 0.05
_MAX_PAUSE_SECONDS: Final = 1.0


class Patience:
    """How long one call may be repeated: until so many seconds after the first failure that nothing good followed."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.renew()

    def renew(self) -> None:
        """Begin anew: something went well."""
        self._deadline: float | None = None
        self._pause = _FIRST_PAUSE_SECONDS

    def wait(self, error: Exception) -> None:
        """A pause before the next try; the error, where there is to be none."""
        if not self.pause():
            raise error

    def pause(self) -> bool:
        """Pause before the next try; False where there is to be none."""
        now = time.monotonic()
        self._deadline = now + self._seconds if self._deadline is None else self._deadline
        if now >= self._deadline:
            return False
        time.sleep(min(self._pause, self._deadline - now))
        self._pause = min(2 * self._pause, _MAX_PAUSE_SECONDS)
        return True
