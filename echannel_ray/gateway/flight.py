"""Arrow Flight, which carries what goes through gateways; only they need it, so it is imported on first use."""

from __future__ import annotations

from typing import Any


def flight() -> Any:
    """The module `pyarrow.flight`; an ImportError that says how to get it."""
    try:
        import pyarrow.flight
    except ImportError as error:
        raise ImportError(
            'gateways need pyarrow with Arrow Flight, which is not installed: pip install "echannel-ray[spark]"'
        ) from error
    return pyarrow.flight
