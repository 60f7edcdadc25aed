"""The records that are sent. Nothing is imported here but NumPy: the baselines use them too."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

SIZES = {"100 B": 0, "1 KB": 113, "10 KB": 1238, "100 KB": 12_488}  # of a record: its numbers behind the quote
PRICES = 600  # so many different ones, evenly between 0 and 100
QUOTE = [
    *((name, "f8") for name in ("price", "low", "high", "open", "bid", "ask", "rate")),
    *((name, "i8") for name in ("volume", "time", "sequence")),
    *((name, "i4") for name in ("account", "venue", "flags", "size", "lot")),
]
GRID = np.dtype([("grid", "f8", (253, 37))])
SERIES = np.dtype([("price", "f8"), ("values", "f8", (12_499,))])
# The same size in another form: C has padding behind each `level`.
DEPTH = np.dtype([("price", "f8"), ("entries", np.dtype([("amount", "f8"), ("level", "i4")], align=True), (6249,))])


def quote(numbers: int = 0) -> np.dtype[Any]:
    """Records of fields of several kinds, 100 B in all, with so many numbers behind them."""
    return np.dtype([*QUOTE, ("values", "f8", (numbers,))] if numbers else QUOTE)


@dataclasses.dataclass
class Reading:
    """13 numbers: 104 B."""

    price: float
    low: float = 1.0
    high: float = 2.0
    open: float = 3.0
    close: float = 4.0
    bid: float = 5.0
    ask: float = 6.0
    rate: float = 7.0
    mean: float = 8.0
    spread: float = 9.0
    volume: float = 10.0
    turnover: float = 11.0
    time: float = 12.0


READING = np.dtype([(field.name, "f8") for field in dataclasses.fields(Reading)])


def prices(count: int, seed: int) -> Any:
    """All prices equally often, in any order."""
    each = np.tile((np.arange(PRICES) + 0.5) * (100 / PRICES), -(-count // PRICES))[:count]
    return np.random.default_rng(seed).permutation(each)


def outside(rejected: float) -> str:
    """E-code for prices outside two bounds: it rejects this share of them, in their middle."""
    return f"price < {50 - 50 * rejected!r} or price > {50 + 50 * rejected!r}"


def filled(dtype: np.dtype[Any], count: int, seed: int) -> Any:
    """An array of records with such prices, where they have one; all other numbers are small."""
    array = np.zeros(count, dtype)
    for name in dtype.names or ():
        if dtype[name].base.names is None:
            array[name] = np.random.default_rng(seed).integers(0, 100, array[name].shape)
    if "price" in (dtype.names or ()):
        array["price"] = prices(count, seed)
    return array


def frozen(array: Any) -> Any:
    """The same records where nobody can change them."""
    return np.frombuffer(array.tobytes(), array.dtype)
