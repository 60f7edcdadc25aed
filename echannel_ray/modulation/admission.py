"""What a producer lets in, and what it may use there."""

from __future__ import annotations

from dataclasses import dataclass

TIERS = ("ecode", "isolated", "inline")

# What isolated modulators may import unless a producer says otherwise: computes, and reaches nothing.
DEFAULT_MODULES = (
    "array", "base64", "bisect", "bz2", "cmath", "collections", "contextlib", "copy", "dataclasses", "datetime",
    "decimal", "enum", "fractions", "functools", "hashlib", "heapq", "hmac", "itertools", "json", "lzma", "math",
    "numbers", "numpy", "operator", "random", "re", "secrets", "statistics", "string", "struct", "time", "typing",
    "unicodedata", "uuid", "zlib",
)  # fmt: skip


@dataclass(frozen=True)
class Admission:
    """The limits of one producer; given to `EventChannel.producer`. What is refused raises `ModulatorRefused` there
    where it was asked for.

    * `tiers`: where modulators may run: "ecode", "isolated" (in a sandbox), "inline" (in the producer: trusted code).
    * `max_seconds_per_event`: CPU time; one that takes more is removed.
    * `max_cpu_fraction`: the same as a rate, of one core, over a second or more.
    * `max_memory_bytes`: of one sandbox, what it holds back included.
    * `max_modulators`, `max_modulators_per_consumer`: so many at a time.
    * `max_shipped_bytes`: of one modulator's code and state.
    * `max_restarts`: how often one that raised or died begins anew before it is removed.
    * `max_cost`: of E-code, the steps that it takes for an event at most, computed before it runs. A million take
      a millisecond as machine code, and 50 before it is compiled.
    * `modules`: what isolated modulators, and the classes of the events that they get, may import;
      `echannel_ray.modulators` can be imported always.
    """

    tiers: tuple[str, ...] = ("ecode", "isolated")
    max_seconds_per_event: float = 0.1
    max_cpu_fraction: float = 1.0
    max_memory_bytes: int = 256 << 20
    max_modulators: int = 64
    max_modulators_per_consumer: int = 16
    max_shipped_bytes: int = 1 << 20
    max_restarts: int = 3
    max_cost: int = 1_000_000
    modules: tuple[str, ...] = DEFAULT_MODULES

    def __post_init__(self) -> None:
        object.__setattr__(self, "tiers", tuple(self.tiers))
        object.__setattr__(self, "modules", tuple(self.modules))
        unknown = [tier for tier in self.tiers if tier not in TIERS]
        if unknown:
            raise ValueError(f"the tiers of an Admission are of {', '.join(TIERS)}, not {unknown[0]!r}")
        for name in ("max_seconds_per_event", "max_cpu_fraction", "max_memory_bytes", "max_shipped_bytes", "max_cost"):
            if not _is_number(getattr(self, name)) or getattr(self, name) <= 0:
                raise ValueError(f"{name} of an Admission is a number above 0, not {getattr(self, name)!r}")
        for name in ("max_modulators", "max_modulators_per_consumer", "max_restarts"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 0:
                raise ValueError(f"{name} of an Admission is a count, not {getattr(self, name)!r}")
        if not all(isinstance(module, str) for module in self.modules):
            raise ValueError("the modules of an Admission are names")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
