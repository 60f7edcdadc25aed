"""Events of all kinds that modulators read, and a modulator at work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pydantic

from echannel_ray.modulation.modulator import Modulator
from echannel_ray.modulation.replica import Replica
from echannel_ray.modulation.services import Services


@dataclass
class Trade:
    symbol: str
    price: float


class TradeModel(pydantic.BaseModel):
    symbol: str
    price: float


class TradeStruct(msgspec.Struct):
    symbol: str
    price: float


class TradeTuple(NamedTuple):
    symbol: str
    price: float


RECORDS = np.array([("RAY", 70.0), ("A", 1.0)], dtype=[("symbol", "U4"), ("price", "f8")])

TRADES: list[Any] = [
    {"symbol": "RAY", "price": 70.0},
    Trade("RAY", 70.0),
    TradeModel(symbol="RAY", price=70.0),
    TradeStruct("RAY", 70.0),
    TradeTuple("RAY", 70.0),
    RECORDS[0],
]


def at_work(modulator: Modulator) -> Replica:
    """A replica of it without services."""
    return Replica(modulator, Services((), lambda *call: None))


def prices(*of: Any, symbol: str = "RAY") -> list[dict[str, Any]]:
    """An event for each price."""
    return [{"symbol": symbol, "price": price} for price in of]
