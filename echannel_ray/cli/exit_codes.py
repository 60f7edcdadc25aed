"""How a command ends: errors as one sentence on standard error, and an exit code.

| code | what happened |
|---|---|
| 0 | it did what it was asked to do |
| 1 | it could not: no Ray was found, a part did not answer, or events did not come in time |
| 2 | it was called wrongly: an unknown option, or an argument that is no JSON |
| 130 | Ctrl-C |
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from echannel_ray.cli.terminal_text import safe
from echannel_ray.errors import EChannelError

FAILED = 1
INTERRUPTED = 130


@contextmanager
def exit_codes() -> Iterator[None]:
    """Turn what ends a command into its exit code; errors of ours without a traceback."""
    try:
        yield
        sys.stdout.flush()
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        # Whoever read our output has enough (`echannel tap … | head`). Python would complain again when it closes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit from None
    except (EChannelError, TimeoutError) as error:
        complain(str(error))
        raise typer.Exit(FAILED) from None


def complain(message: str) -> None:
    """Print one line on standard error."""
    lines = [safe(line) for line in message.splitlines()]  # what an error quotes may be anybody's
    print("echannel: " + "\n".join(lines), file=sys.stderr, flush=True)
