"""The events that are sent. Several of each kind take turns, so that nothing is gained by remembering the last one."""

from __future__ import annotations

import array
import random
from typing import Any

import numpy as np

VARIANTS = 64
LARGE_BYTES = 1_000_000


def hundred_bytes(generator: random.Random) -> list[bytes]:
    """Byte strings of 100 B."""
    return [generator.randbytes(100) for _ in range(VARIANTS)]


def small_dicts(generator: random.Random) -> list[dict[str, Any]]:
    """Dicts such as a trade or a sensor's reading."""
    return [
        {
            "symbol": f"S{generator.randrange(1000)}",
            "price": generator.random() * 100,
            "size": generator.randrange(5000),
        }
        for _ in range(VARIANTS)
    ]


def small_values(generator: random.Random) -> dict[str, list[Any]]:
    """Several of each of the smallest events that there are."""
    return {
        "null": [None],
        "integer": [generator.randrange(1 << 30) for _ in range(VARIANTS)],
        "text": [f"event {generator.randrange(1 << 30)}" for _ in range(VARIANTS)],
    }


def jecho_payloads(generator: random.Random) -> dict[str, Any]:
    """The five payloads of JECho's Table 1, with 100 B beside them."""
    numbers = [generator.randrange(1 << 30) for _ in range(100)]
    return {
        "100 bytes": generator.randbytes(100),
        "null": None,
        "100 integers": array.array("i", numbers),
        "400 bytes": generator.randbytes(400),
        "list of 20 integers": numbers[:20],
        "composite": {
            "name": "a composite event",
            "counts": array.array("i", numbers[:50]),
            "weights": array.array("d", [generator.random() for _ in range(25)]),
            "table": {"first": 1, "second": 2},
        },
    }


def touch(event: Any) -> None:
    """Look at each byte of an event of whole words; as all do it alike, it may as well be quick."""
    np.frombuffer(event, np.uint64).max()


def events_of(kind: str, seed: int) -> list[Any]:
    """Events by the name of their kind: for processes that make their own."""
    generator = random.Random(seed)
    if kind == "100 bytes":
        return list(hundred_bytes(generator))
    if kind == "integer":
        return [generator.randrange(1 << 30) for _ in range(VARIANTS)]
    if kind == "text":
        return [f"S{generator.randrange(1000)}: a short text" for _ in range(VARIANTS)]
    if kind == "small dict":
        return list(small_dicts(generator))
    if kind == "1 MB":
        return [generator.randbytes(LARGE_BYTES) for _ in range(4)]
    if kind == "1 MB array":
        return [np.frombuffer(generator.randbytes(LARGE_BYTES), np.float64) for _ in range(4)]
    if kind in (values := small_values(generator)):
        return values[kind]
    if kind in jecho_payloads(generator):
        return [jecho_payloads(generator)[kind] for _ in range(VARIANTS)]
    raise ValueError(f"no events of kind {kind!r}")
