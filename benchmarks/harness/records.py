"""The records that are sent. Nothing is imported here but NumPy: the baselines use them too."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

SIZES = {"100 B": 0, "1 KB": 113, "10 KB": 1238, "100 KB": 12_488}  # of a record: its numbers behind the quote
LARGEST = {"1 MB": 124_987}
PRICES = 600  # so many different ones, evenly between 0 and 100
ARRAY_RECORDS = 12_600  # as many of each price, and some blocks
ARRAY_BYTES = 4_800_000
FEWEST_RECORDS = 4
QUOTE = [
    *((name, "f8") for name in ("price", "low", "high", "open", "bid", "ask", "rate")),
    *((name, "i8") for name in ("volume", "time", "sequence")),
    *((name, "i4") for name in ("account", "venue", "flags", "size", "lot")),
]
ROWS, COLUMNS = 253, 37
SERIES = np.dtype([("price", "f8"), ("values", "f8", (12_499,))])
# The same size in another form: C has padding behind each `level`.
DEPTH = np.dtype([("price", "f8"), ("entries", np.dtype([("amount", "f8"), ("level", "i4")], align=True), (6249,))])


def quote(numbers: int = 0) -> np.dtype[Any]:
    """Records of fields of several kinds, 100 B in all, with so many numbers behind them."""
    return np.dtype([*QUOTE, ("values", "f8", (numbers,))] if numbers else QUOTE)


def grid(rows: int = ROWS) -> np.dtype[Any]:
    """Records of one array of 37 columns: what the atmosphere is at a moment."""
    return np.dtype([("grid", "f8", (rows, COLUMNS))])


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


def bounds(rejected: float) -> tuple[float, float]:
    """Between which prices this share of them is, in their middle."""
    return 50 - 50 * rejected, 50 + 50 * rejected


def outside(rejected: float) -> str:
    """E-code for prices outside these bounds: it rejects this share of them."""
    low, high = bounds(rejected)
    return f"price < {low!r} or price > {high!r}"


def filled(dtype: np.dtype[Any], count: int, seed: int) -> Any:
    """An array of records with such prices, where they have one; other reals have all their digits, as measured."""
    array, generator = np.zeros(count, dtype), np.random.default_rng(seed)
    for name in dtype.names or ():
        base, shape = dtype[name].base, array[name].shape
        if base.names is not None:
            array[name] = filled(base, array[name].size, seed).reshape(shape)
        elif base.kind == "f":
            array[name] = generator.random(shape)
        else:
            array[name] = generator.integers(0, 100, shape)
    if "price" in (dtype.names or ()):
        array["price"] = prices(count, seed)
    return array


def frozen(array: Any) -> Any:
    """The same records where nobody can change them."""
    return np.frombuffer(array.tobytes(), array.dtype)


def count_of(dtype: np.dtype[Any]) -> int:
    """How many such records to send from: so many that the next one is seldom in the cache already."""
    return max(FEWEST_RECORDS, min(ARRAY_RECORDS, ARRAY_BYTES // dtype.itemsize))
