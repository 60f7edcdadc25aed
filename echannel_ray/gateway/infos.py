"""A channel as clients of a gateway see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class ChannelInfo:
    """What clients are told of a channel at the port for record batches."""

    name: str
    schema: pa.Schema | None  # None: it is untyped
    is_retained: bool
    is_on_disk: bool
    log: str = ""  # of the gateway's own node, where what is published here goes
