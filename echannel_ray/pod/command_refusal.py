"""What ends the command with a sentence instead of a traceback."""

from __future__ import annotations


class CommandRefused(Exception):
    """Raised where somebody asked for what can't be; it says what to do instead."""
