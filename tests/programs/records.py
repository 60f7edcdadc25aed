"""Records, and short ways from a text to what it gives."""

from types import SimpleNamespace

import pytest

from echannel_ray.errors import ModulatorRefused
from echannel_ray.formats import plain
from echannel_ray.programs.frontend import check
from echannel_ray.programs.interpreter import Interpreted
from echannel_ray.schemas import schema
from echannel_ray.schemas.schema import Array, Bool, Bytes, Enum, Field, Float, Int, List, Optional, RecordType, Text

POSITION = RecordType((Field("x", Float()), Field("y", Float())))
TRADE = RecordType(
    (
        Field("price", Float()),
        Field("size", Int()),
        Field("small", Int(8)),
        Field("volume", Int(64, False)),
        Field("short", Float(32)),
        Field("is_buy", Bool()),
        Field("symbol", Text()),
        Field("venue", Text()),
        Field("tag", Bytes()),
        Field("side", Enum((("BUY", "buy"), ("SELL", "sell")))),
        Field("level", Enum((("LOW", 1), ("HIGH", 2)))),
        Field("position", POSITION),
        Field("points", Array(POSITION, (3,))),
        Field("grid", Array(Int(32), (2, 3))),
        Field("values", List(Float())),
        Field("rates", Array(Float(), (4,))),
        Field("limit", Optional(Float())),
        Field("when", schema.Timestamp()),
    )
)
OUTPUT = RecordType(
    (
        Field("mean", Float()),
        Field("half", Float(16)),
        Field("count", Int(8)),
        Field("volume", Int(64, False)),
        Field("is_good", Bool()),
        Field("factor", Float(), plain.encode(2)),
        Field("grid", Array(Int(32), (2, 3))),
        Field("position", POSITION),
        Field("label", Text(), plain.encode("none")),
        Field("when", Optional(schema.Timestamp())),
    )
)
VALUES = {
    "price": 77.5,
    "size": 10,
    "small": -3,
    "volume": 2**63 + 5,
    "short": 0.1,
    "is_buy": True,
    "symbol": "IBM",
    "venue": "NYSE",
    "tag": b"ab",
    "side": "buy",
    "level": 2,
    "position": SimpleNamespace(x=1.5, y=-2.5),
    "points": [SimpleNamespace(x=float(i), y=10.0 * i) for i in range(3)],
    "grid": [[1, 2, 3], [4, 5, 6]],
    "values": [1.0, 2.0, 3.0],
    "rates": [0.5, 1.5, 2.5, 3.5],
    "limit": None,
    "when": "noon",
}


def event(**others):
    return SimpleNamespace(**(VALUES | others))


def passes(text, params=None, **others):
    """Whether the event passes a filter."""
    return run(text, params, **others).passes


def run(text, params=None, output=None, **others):
    params = params or {}
    program = check(text, TRADE, output, {name: kind for name, (kind, _) in params.items()})
    given = [params[each.name][1] for each in program.params]
    return Interpreted(program).run_event(event(**others), given)


def output_of(interpreted, given):
    """The output that an event becomes."""
    return interpreted.run_event(given).output


def value_of(expression, **others):
    """What an expression is, as a floating point number."""
    output = RecordType((Field("result", Float()),))
    return run(f"output.result = {expression}", output=output, **others).output["result"]


def whole_of(expression, **others):
    """What an expression is, as a whole number."""
    output = RecordType((Field("result", Int()),))
    return run(f"output.result = {expression}", output=output, **others).output["result"]


def refused(text, output=None, params=None):
    """The error of a text that is none."""
    with pytest.raises(ModulatorRefused) as caught:
        check(text, TRADE, output, params or {})
    return caught.value
