"""`ray start` as it is, but for its refusal to join a cluster that is on loopback only."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ray.scripts import scripts

# In that module alone: elsewhere this constant is why nothing listens on other addresses.
constants: Any = SimpleNamespace(**{**vars(scripts.ray_constants), "ENABLE_RAY_CLUSTER": True})
scripts.ray_constants = constants

if __name__ == "__main__":
    scripts.main()
