"""One client per process and gateway.

Spark forks its Python workers and uses them again: a client belongs to the process that made it, and serves all that
runs there later.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from echannel_ray.gateway.client import GatewayClient


def connected(endpoint: str) -> GatewayClient:
    """The client of this process."""
    return _client(endpoint, os.getpid())


@functools.lru_cache(8)
def _client(endpoint: str, pid: int) -> GatewayClient:
    from echannel_ray.gateway.client import GatewayClient

    return GatewayClient(endpoint)
