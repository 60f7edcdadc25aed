"""Modulators and demodulators for everyday use. docs/modulators.md has the table of all, and how to write more.

Names load on first use: who filters by a range need not load compression and encryption. All of it can be imported
where Ray can't, since modulators run in sandboxes too.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from echannel_ray.modulators.backpressure import NewestOnly as NewestOnly
    from echannel_ray.modulators.backpressure import Priority as Priority
    from echannel_ray.modulators.backpressure import TopK as TopK
    from echannel_ray.modulators.clustering import Cluster as Cluster
    from echannel_ray.modulators.clustering import Uncluster as Uncluster
    from echannel_ray.modulators.compression import Compress as Compress
    from echannel_ray.modulators.compression import Decompress as Decompress
    from echannel_ray.modulators.differences import Difference as Difference
    from echannel_ray.modulators.encryption import Decrypt as Decrypt
    from echannel_ray.modulators.encryption import Encrypt as Encrypt
    from echannel_ray.modulators.filters import Matching as Matching
    from echannel_ray.modulators.filters import Range as Range
    from echannel_ray.modulators.filters import Where as Where
    from echannel_ray.modulators.filters import Within as Within
    from echannel_ray.modulators.projection import Project as Project
    from echannel_ray.modulators.quantisation import Dequantise as Dequantise
    from echannel_ray.modulators.quantisation import Quantise as Quantise
    from echannel_ray.modulators.sampling import AtMostRate as AtMostRate
    from echannel_ray.modulators.sampling import EveryNth as EveryNth
    from echannel_ray.modulators.sampling import WithProbability as WithProbability
    from echannel_ray.modulators.throttling import Throttle as Throttle
    from echannel_ray.modulators.trying import try_out as try_out
    from echannel_ray.modulators.windows import MovingAverage as MovingAverage
    from echannel_ray.modulators.windows import SlidingWindow as SlidingWindow

_HOMES = {
    "backpressure": ("NewestOnly", "Priority", "TopK"),
    "clustering": ("Cluster", "Uncluster"),
    "compression": ("Compress", "Decompress"),
    "differences": ("Difference",),
    "encryption": ("Decrypt", "Encrypt"),
    "filters": ("Matching", "Range", "Where", "Within"),
    "projection": ("Project",),
    "quantisation": ("Dequantise", "Quantise"),
    "sampling": ("AtMostRate", "EveryNth", "WithProbability"),
    "throttling": ("Throttle",),
    "trying": ("try_out",),
    "windows": ("MovingAverage", "SlidingWindow"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'echannel_ray.modulators' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"echannel_ray.modulators.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
