"""Programs at work: arithmetic at its edges, traps, what is read from events, and random expressions against Python."""

import dataclasses
import enum
import math
import struct
from types import SimpleNamespace

import msgspec
import numpy
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echannel_ray.errors import ModulatorRefused
from echannel_ray.programs import tree
from echannel_ray.programs.frontend import check
from echannel_ray.programs.interpreter import Interpreted
from echannel_ray.programs.outputs import copied, program_outputs
from echannel_ray.programs.program import Leaf, Program, Trap, Type, Where
from echannel_ray.schemas.schema import Array, Enum, Field, Float, Int, RecordType, Text
from tests.programs.records import OUTPUT, TRADE, event, output_of, passes, run, value_of, whole_of
from tests.programs.reference import Failed, evaluate

HERE = Where(1, 1)
NAN, INF = math.nan, math.inf


def test_a_program_made_by_hand():
    leaf = Leaf(("x",), (3,), Type.INT, 16)
    add = tree.Binary(
        Type.INT, "+", tree.Local(Type.INT, 0), tree.Load(Type.INT, leaf, (tree.Local(Type.INT, 1),), HERE), HERE
    )
    loop = tree.For(1, tree.Const(Type.INT, 0), tree.Const(Type.INT, 3), 1, (tree.SetLocal(0, add),), 3)
    program = Program(
        body=(
            tree.SetLocal(0, tree.Const(Type.INT, 0)),
            loop,
            tree.Return(tree.Compare(Type.BOOL, "==", tree.Local(Type.INT, 0), tree.Const(Type.INT, 6))),
        ),
        locals=(Type.INT, Type.INT),
        statics=(),
        params=(),
        leaves=(leaf,),
        input=RecordType((Field("x", Array(Int(16), (3,))),)),
        output=None,
        cost=1,
    )
    assert Interpreted(program).run(([1, 2, 3],)) == (True, None)
    assert Interpreted(program).run(([1, 2, 4],)) == (False, None)


def test_outputs_are_parallel_to_its_leaves():
    program = check("output.count = 300\noutput.label = symbol\noutput.grid[1][2] = 7", TRADE, OUTPUT)
    leaves = program_outputs(OUTPUT)
    assert [leaf.path for leaf in leaves] == [
        ("mean",),
        ("half",),
        ("count",),
        ("volume",),
        ("is_good",),
        ("factor",),
        ("grid",),
        ("position", "x"),
        ("position", "y"),
    ]
    assert copied(program) == (("label",),)
    values = Interpreted(program).run(())
    assert values == (True, [0.0, 0.0, 44, 0, False, 2.0, [[0, 0, 0], [0, 0, 7]], 0.0, 0.0, ("symbol",)])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("size + 1", -(2**63)), ("-size - 2", 2**63 - 1), ("size * 2", -2), ("size + size + size", 2**63 - 3),
        ("size * size", 1), ("-(-size - 1)", -(2**63)), ("abs(-size - 1)", -(2**63)), ("(-size - 1) // -1", -(2**63)),
        ("(-size - 1) % -1", 0), ("size << 1", -2), ("(size + 1) >> 63", -1), ("~size", -(2**63)),
        ("(size + 1 - 1) // 2", 2**62 - 1), ("size - (-1)", -(2**63)), ("min(size + 1, 0)", -(2**63)),
        ("size ** 2", 1), ("size ^ -1", -(2**63)),
    ],
)  # fmt: skip
def test_whole_numbers_wrap_around(text, expected):
    assert whole_of(text, size=2**63 - 1) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("price / 0", INF), ("-price / 0.0", -INF), ("price / -0.0", -INF), ("0.0 * price / 0", NAN), ("size / 0", INF),
        ("price // 0", INF), ("-price // 0.0", -INF), ("price % 0", NAN), ("price // 0.0 - price // 0.0", NAN),
        ("1e308 * 10", INF), ("exp(1e9)", INF), ("log(0)", -INF), ("log(-1)", NAN), ("sqrt(-1)", NAN),
        ("sqrt(-0.0)", -0.0),
        ("acos(2)", NAN), ("pow(0, -1)", INF), ("pow(-8, 0.5)", NAN), ("fmod(1, 0)", NAN), ("sin(1e400)", NAN),
        ("floor(1e300)", 1e300), ("floor(1e400)", INF), ("ceil(-0.5)", -0.0), ("trunc(-0.5)", -0.0),
        ("floor(-0.0)", -0.0),
        ("1e400 % 3", NAN), ("5 % 1e400", 5.0), ("-5 % 1e400", INF), ("-5 // 1e400", -1.0), ("-0.0 % 3", 0.0),
        ("hypot(1e400, 0)", INF), ("max(0.0, 1e400 - 1e400)", 0.0), ("max(1e400 - 1e400, 0.0)", NAN),
        ("1e400 ** 0", 1.0), ("float(9223372036854775807)", 2.0**63),
    ],
)  # fmt: skip
def test_floating_point_at_its_edges(text, expected):
    assert struct.pack("d", value_of(text)) == struct.pack("d", expected)


def test_nan_in_comparisons():
    nan = "(1e400 - 1e400)"
    for operator in ("==", "<", "<=", ">", ">="):
        assert not passes(f"{nan} {operator} price")
        assert not passes(f"{nan} {operator} {nan}")
    assert passes(f"{nan} != {nan}")
    assert passes(f"bool({nan}) and {nan}")
    assert passes(f"isnan({nan}) and not isfinite({nan}) and not isinf({nan})")


def test_every_nan_that_is_kept_is_the_same_one():
    odd = struct.unpack("d", struct.pack("Q", 0xFFF8_0000_0000_1234))[0]
    program = check("x: static = 0.0\nx = price\noutput.mean = price", TRADE, OUTPUT)
    interpreted = Interpreted(program)
    output = output_of(interpreted, event(price=odd))
    assert struct.pack("d", output["mean"]) == struct.pack("d", math.nan)
    assert struct.pack("d", interpreted.statics[0]) == struct.pack("d", math.nan)


def test_a_field_without_sign_of_64_bits_compares_exactly():
    assert passes("volume > 9223372036854775807", volume=2**63)
    assert passes("volume == size and size == volume", volume=5, size=5)
    assert not passes("volume == size", volume=2**64 - 1, size=-1)
    assert passes("volume > size and size < volume", volume=2**64 - 1, size=-1)
    assert passes("int(volume) == -1 and float(volume) == 18446744073709551615.0 and volume", volume=2**64 - 1)


def test_nuls_at_the_end_of_a_text_do_not_count():
    assert passes("symbol == venue and symbol == 'a' and symbol == 'a\\0'", symbol="a\0\0", venue="a")
    assert passes("tag in (b'a', b'b')", tag=b"a\0")
    assert not passes("symbol == 'ab'", symbol="a\0b")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("size // (size - 10)", "divided by 0"),
        ("size % (size - 10)", "divided by 0"),
        ("size << size * 7", "a shift by 70 bits"),
        ("size >> small", "a shift by -3 bits"),
        ("int(price * 1e300)", "can't be a whole number"),
        ("int(1e400 - 1e400)", "nan can't be a whole number"),
        ("int(9223372036854775808.0)", "can't be a whole number"),
        ("rates[size]", "the index 10 is out of range: there are 4 items"),
        ("rates[small]", "the index -3 is out of range"),
        ("values[3]", "the index 3 is out of range: there are 3 items"),
        ("grid[1][size]", "the index 10 is out of range: there are 3 items"),
    ],
)
def test_traps(text, reason):
    with pytest.raises(Trap, match=reason) as caught:
        passes(text)
    assert caught.value.where == (1, 1) or caught.value.where.line == 1


def test_traps_of_statements():
    with pytest.raises(Trap, match=r"index 10 is out of range: there are 3 items \(line 2, column 1\)"):
        run("w: static = [0] * 3\nw[size] = 1")
    with pytest.raises(Trap, match="index -3 is out of range: there are 2 items"):
        run("output.grid[small][0] = 1", output=OUTPUT)


def test_what_is_not_reached_does_not_trap():
    assert not passes("size < 0 and size // 0.0 > rates[size]")
    assert passes("size > 0 or rates[size]")
    assert passes("1 if size > 0 else rates[size]")
    assert passes("if size < 0:\n    return rates[size]\nreturn True")


def test_a_trap_takes_all_static_variables_back():
    interpreted = Interpreted(
        check("n: static = 7\nw: static = [1.0] * 2\nn += 1\nw[0] = 3\nreturn rates[small]", TRADE)
    )
    interpreted.run_event(event(small=1))
    assert interpreted.statics == [8, [3.0, 1.0]]
    with pytest.raises(Trap):
        interpreted.run_event(event())
    assert interpreted.statics == [7, [1.0, 1.0]]


@pytest.mark.parametrize(
    ("value", "bits", "signed", "expected"),
    [(300, 8, True, 44), (200, 8, True, -56), (-1, 8, False, 255), (2**40 + 3, 32, False, 3), (-(2**33), 32, True, 0)],
)
def test_whole_numbers_are_narrowed(value, bits, signed, expected):
    output = RecordType((Field("x", Int(bits, signed)),))
    assert run("output.x = size", output=output, size=value).output == {"x": expected}


@pytest.mark.parametrize(
    ("value", "bits", "expected"),
    [
        (0.1, 32, float(numpy.float32(0.1))), (1e39, 32, INF), (1e-46, 32, 0.0), (0.1, 16, float(numpy.float16(0.1))),
        (65519.9, 16, 65504.0), (65520.0, 16, INF), (-1e9, 16, -INF), (6e-8, 16, 2.0**-24), (NAN, 16, NAN),
        (NAN, 32, NAN),
    ],
)  # fmt: skip
def test_floating_point_numbers_are_rounded(value, bits, expected):
    output = RecordType((Field("x", Float(bits)),))
    result = run("output.x = price", output=output, price=value).output["x"]
    assert struct.pack("d", result) == struct.pack("d", expected)


class Side(enum.Enum):
    BUY = "buy"
    SELL = "sell"


class Position(msgspec.Struct):
    x: float
    y: float


@dataclasses.dataclass
class Trade:
    price: float
    side: Side
    points: list
    position: Position


class Model(pydantic.BaseModel, arbitrary_types_allowed=True):
    price: float
    side: Side
    points: list[Position]
    position: Position


@pytest.mark.parametrize("cls", [Trade, Model, SimpleNamespace])
def test_events_of_many_kinds(cls):
    made = cls(price=3, side=Side.BUY, points=[Position(1, 2)] * 3, position=Position(5, 6))
    assert (
        Interpreted(check("price == 3 and side == 'buy' and points[2].y == 2 and position.x == 5", TRADE))
        .run_event(made)
        .passes
    )


def test_arrays_of_numpy():
    assert passes(
        "grid[1][2] == 6 and rates[0] == 0.5", grid=numpy.arange(1, 7).reshape(2, 3), rates=numpy.array([0.5] * 4)
    )
    assert passes("price == 2 and size == 3 and is_buy", price=numpy.float32(2), size=numpy.int8(3), is_buy=numpy.True_)


def test_fields_are_read_as_they_are_declared():
    assert value_of("short", short=0.1) == float(numpy.float32(0.1))
    assert value_of("price", price=3) == 3.0
    half = RecordType((Field("x", Float(16)),))
    assert Interpreted(check("x > 1e300", half)).run_event(SimpleNamespace(x=70000.0)).passes


@pytest.mark.parametrize(
    ("text", "others"),
    [
        ("price > 1", {"price": "3"}),
        ("price > 1", {"price": None}),
        ("size > 1", {"size": 3.5}),
        ("size > 1", {"size": 2**63}),
        ("small > 1", {"small": 128}),
        ("volume > 1", {"volume": -1}),
        ("symbol == 'a'", {"symbol": 3}),
        ("tag == b'a'", {"tag": "a"}),
        ("is_buy", {"is_buy": "no"}),
        ("rates[0] > 1", {"rates": [1.0]}),
        ("rates[0] > 1", {"rates": 1.0}),
        ("grid[0][0] > 1", {"grid": [1, 2]}),
        ("grid[0][0] > 1", {"grid": [[1, 2, 3], "abc"]}),
        ("values[0] > 1", {"values": "abc"}),
        ("points[0].x > 1", {"points": [SimpleNamespace(x=1.0)]}),
    ],
)
def test_fields_that_are_not_what_they_are_declared_to_be(text, others):
    with pytest.raises(Trap, match=next(iter(others))):
        passes(text, **others)


def test_fields_whose_names_are_no_names_of_python():
    record = RecordType(
        (Field("class", Float()), Field("two words", Float()), Field("größe", Float()), Field("ok", Float()))
    )
    made = SimpleNamespace(**{"class": 1.0, "two words": 2.0, "größe": 3.0, "ok": 4.0})
    assert Interpreted(check("größe == 3 and ok == 4", record)).run_event(made).passes


def test_enumerations_by_their_values():
    record = RecordType((Field("x", Enum((("A", 1.5), ("B", 2.5)))), Field("y", Enum((("T", True), ("F", False))))))
    made = SimpleNamespace(x=enum.Enum("Kind", {"A": 1.5}).A, y=True)
    assert Interpreted(check("x == 1.5 and y", record)).run_event(made).passes


def test_inexact_functions_are_those_of_the_library_of_c():
    for name in ("exp", "log", "log2", "log10", "sin", "cos", "tan", "asin", "acos", "atan"):
        for x in (0.3, 0.7, 0.99):
            assert value_of(f"{name}(price)", price=x) == pytest.approx(getattr(math, name)(x), rel=1e-15)
    for name in ("atan2", "pow", "hypot", "fmod"):
        assert value_of(f"{name}(price, 0.7)", price=2.3) == pytest.approx(getattr(math, name)(2.3, 0.7), rel=1e-15)


def test_a_power_is_squared_and_multiplied_from_the_highest_bit():
    x = 1.1
    square = x * x
    assert value_of("price ** 5", price=x) == square * square * x
    assert value_of("price ** 3", price=x) == square * x
    assert value_of("price ** 6", price=x) == (square * x) * (square * x)


def test_a_store_is_no_store_of_another_leaf():
    output = RecordType((Field("a", Array(Float(), (2,))), Field("b", Array(Float(), (2,))), Field("name", Text(4))))
    result = run("for i in range(2):\n    output.b[1 - i] = i", output=output)
    assert result.output == {"a": [0.0, 0.0], "b": [1.0, 0.0], "name": ""}


def test_a_store_made_by_hand_is_checked():
    output = RecordType((Field("a", Array(Float(), (2,))),))
    leaf = program_outputs(output)[0]
    body = (
        tree.StoreItem(leaf, (tree.Const(Type.INT, 2),), tree.Const(Type.FLOAT, 1.0), HERE),
        tree.Return(tree.Const(Type.BOOL, True)),
    )
    program = Program(body, (), (), (), (), RecordType(()), output, 1)
    with pytest.raises(Trap, match="index 2 is out of range"):
        Interpreted(program).run(())


# ---- random expressions ----------------------------------------------------------------------------------------------

wholes = st.sampled_from(["size", "small", "0", "1", "2", "3", "7", "63", "64", "100", "9223372036854775807"])
reals = st.sampled_from(["price", "short", "0.0", "0.5", "1.5", "3.0", "1e300"])


def _grown_whole(inner):
    operators = st.sampled_from(["+", "-", "*", "//", "%", "&", "|", "^", "<<", ">>", "<", ">=", "==", "and", "or"])
    return st.one_of(
        st.tuples(inner, operators, inner).map(
            lambda parts: f"({' '.join(parts)})" if parts[1].isalpha() else _joined(parts)
        ),
        st.tuples(st.sampled_from(["-", "~", "not "]), inner).map(lambda parts: f"({parts[0]}{parts[1]})"),
        st.tuples(inner, inner, inner).map(lambda parts: f"({parts[0]} if {parts[1]} else {parts[2]})"),
        inner.map(lambda text: f"int({text})"),
    )


def _grown_real(inner):
    operators = st.sampled_from(["+", "-", "*", "/", "//", "%", "<", ">=", "=="])
    return st.one_of(
        st.tuples(inner, operators, inner).map(_joined),
        inner.map(lambda text: f"(-{text})"),
        st.tuples(inner, inner, inner).map(lambda parts: f"float({parts[0]} if {parts[1]} else {parts[2]})"),
        inner.map(lambda text: f"float({text})"),
    )


def _joined(parts):
    """Comparisons in brackets, so that none becomes a chain; else Python's precedence is part of the test."""
    left, operator, right = parts
    return f"({left} {operator} {right})" if operator in ("<", ">=", "==") else f"{left} {operator} {right}"


whole_texts = st.recursive(wholes, _grown_whole, max_leaves=12)
real_texts = st.recursive(wholes | reals, _grown_real, max_leaves=12)
whole_values = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 1, -1, 63, 2**63 - 1, -(2**63)])
real_values = st.floats() | st.sampled_from([0.0, -0.0, 1.0, 0.1, INF, -INF, NAN])


@settings(max_examples=800)
@given(whole_texts, whole_values, st.integers(-128, 127))
def test_random_expressions_of_whole_numbers(text, size, small):
    _compare(text, "int", {"size": size, "small": small})


@settings(max_examples=800)
@given(real_texts, whole_values, real_values, st.floats(width=32))
def test_random_expressions_of_floating_point_numbers(text, size, price, short):
    _compare(text, "float", {"size": size, "price": price, "short": short, "small": 3})


def _compare(text, kind, values):
    output = RecordType((Field("result", Int() if kind == "int" else Float()),))
    try:
        program = check(f"output.result = {kind}({text})", TRADE, output)
    except ModulatorRefused:
        return  # a constant that is too large, a division by a constant 0, brackets too deep
    try:
        expected = evaluate(f"{kind}({text})", values)
    except Failed:
        with pytest.raises(Trap):
            Interpreted(program).run_event(event(**values))
        return
    result = output_of(Interpreted(program), event(**values))["result"]
    assert result == expected or (result != result and expected != expected)
    assert math.copysign(1, result) == math.copysign(1, expected) or result != result
