"""What texts mean: names, operators, functions, statements."""

import math
from types import SimpleNamespace

import pytest

from echannel_ray.errors import ModulatorRefused
from echannel_ray.formats import plain
from echannel_ray.programs.frontend import check
from echannel_ray.programs.interpreter import Interpreted
from echannel_ray.programs.program import Type
from echannel_ray.programs.source import ProgramSource, source_of
from echannel_ray.schemas.schema import Array, Field, Float, Int, RecordType, Text
from tests.programs.records import OUTPUT, TRADE, event, output_of, passes, run, value_of, whole_of


def test_the_range_filter_of_the_paper():
    text = "price < param.low or price > param.high"
    params = {"low": (Type.FLOAT, 75.5), "high": (Type.FLOAT, 78.5)}
    assert not passes(text, params)
    assert passes(text, params, price=75.0)
    assert passes(text, params, price=79.0)
    assert [each.name for each in check(text, TRADE, None, {"low": Type.FLOAT, "high": Type.FLOAT}).params] == [
        "low",
        "high",
    ]


def test_the_average_of_the_paper():
    record = RecordType((Field("wind_velocity", Array(Float(), (253, 37))),))
    output = RecordType((Field("average", Float()),))
    text = """
        total = 0.0
        for i in range(37):
            for j in range(253):
                total += wind_velocity[j][i]        # as in C
        output.average = total / (37 * 253)
        return True
    """
    program = check(text, record, output)
    wind = [[float(j + i) for i in range(37)] for j in range(253)]
    expected = 0.0
    for i in range(37):
        for j in range(253):
            expected += wind[j][i]
    result = Interpreted(program).run_event(SimpleNamespace(wind_velocity=wind))
    assert result == (True, {"average": expected / (37 * 253)})
    other = check(text.replace("[j][i]", "[j, i]"), record, output)
    assert Interpreted(other).run_event(SimpleNamespace(wind_velocity=wind)) == result
    assert 50_000 < program.cost < 100_000


@pytest.mark.parametrize(
    "text",
    [
        "input.price == 77.5",
        "position.x == 1.5 and position.y == -2.5",
        "points[1].y == 10.0 and input.points[2].x == 2",
        "grid[1][2] == 6 and grid[1, 0] == 4",
        "values[2] == 3 and len(values) == 3",
        "len(grid) == 2 and len(grid[0]) == 3 and len(points) == 3",
        'symbol == "IBM" and symbol != "SUN" and symbol in ("SUN", "IBM") and symbol not in ["SUN"]',
        "symbol != venue",
        'tag == b"ab"',
        'side == "buy" and level == 2',
        "volume > 9223372036854775807 and volume > size and volume != 3",
        "float(volume) > 1e18 and int(volume) < 0",
        "is_buy and not size == 3",
        "is_buy == True and is_buy != False",
        "1 < small + 10 <= 8 < 9",
        "small in (-3, -2)",
        "(1 if price > 3 else 2) == 1",
        "True",
        "size",
        "price if is_buy else 0",
        "volume",
        "size > 3 & 1",
        "(size > 3) & (price > 3) & is_buy",
        "3",
    ],
)
def test_expressions_that_pass(text):
    assert passes(text)


@pytest.mark.parametrize("text", ["0", "0.0", "False", "small > 0", "small in ()", "return", "pass", "x = 1"])
def test_what_rejects(text):
    assert not passes(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7 // 2", 3), ("-7 // 2", -4), ("-7 % 3", 2), ("7 % -3", -2), ("size // small", -4), ("size % small", -2),
        ("2 ** 10", 1024), ("small ** 3", -27), ("small ** 0", 1), ("-small ** 2", -9), ("~size", -11),
        ("size & 6 | 1 ^ 3", 2), ("size << 3", 80), ("small >> 1", -2), ("-9223372036854775808", -(2**63)),
        ("size << 62", -(2**63)), ("9223372036854775807 + is_buy", -(2**63)), ("abs(small)", 3),
        ("min(size, small, 4)", -3), ("max(size, small, 4, 2, 3)", 10), ("int(price)", 77), ("int(-price)", -77),
        ("int(is_buy) + True", 2), ("0x10 + 0b11 + 0o7 + 1_000", 1026), ("bool(size) + 1", 2),
        ("len(rates) * 2", 8), ("+is_buy", 1), ("(is_buy ^ True) + 5", 5), ("3 if is_buy else 4", 3),
    ],
)  # fmt: skip
def test_whole_numbers(text, expected):
    assert whole_of(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("size / 4", 2.5), ("price // 2", 38.0), ("-price % 10", 2.5), ("price ** 2", 77.5 * 77.5),
        ("1.0 // 0.1", 1.0 // 0.1), ("sqrt(16)", 4.0), ("math.floor(-1.5)", -2.0), ("ceil(1.2)", 2.0),
        ("trunc(-1.7)", -1.0), ("abs(-price)", 77.5), ("min(price, 3)", 3.0), ("max(1, 2.5)", 2.5), ("pi", math.pi),
        ("math.e * 1", math.e), ("1 if not is_buy else 0.5", 0.5), ("float(size)", 10.0), ("hypot(3, 4)", 5.0),
        ("fmod(-7, 3)", -1.0), ("pow(2, 0.5)", 2**0.5), ("isnan(price) + isfinite(price) + isinf(price)", 1.0),
        ("log2(8)", 3.0), ("atan2(0.0, 1)", 0.0), ("size", 10.0), ("is_buy + 0.5", 1.5), ("short", 0.10000000149011612),
        ("1e-3 + .5 + 2.", 2.501),
    ],
)  # fmt: skip
def test_floating_point_numbers(text, expected):
    assert value_of(text) == expected


def test_names_of_constants_give_way_to_variables():
    assert value_of("e") == math.e
    assert passes("e = 3\nreturn e == 3")


def test_statements():
    text = """
        'what it is for'
        total: float = 0
        count = 0
        for x in values[:100]:
            if x < 1.5:
                continue
            elif x > 100:
                break
            else:
                total += x; count += 1
        pass
        for i in range(10, 0, -3):
            count += i * 0
        return total == 5 and count == 2 \\
            and i == 1
    """
    assert passes(text)


def test_a_loop_surely_runs_if_its_bounds_say_so():
    assert passes("for i in range(3):\n    x = i\nreturn x == 2 and i == 2")


def test_a_variable_that_each_branch_sets():
    assert passes("if is_buy:\n    x = 1\nelif size:\n    return False\nelse:\n    x = 2\nreturn x == 1")


def test_loops_over_arrays_and_parts_of_them():
    assert passes("t = 0.0\nfor r in rates:\n    t += r\nreturn t == 8")
    assert passes("t = 0.0\nfor r in rates[:2]:\n    t += r\nreturn t == 2")
    assert passes("t = 0.0\nfor r in rates[:100]:\n    t += r\nreturn t == 8")
    assert passes("t = 0\nfor j in range(2):\n    for g in grid[j]:\n        t += g\nreturn t == 21")
    assert passes("t = 0\nfor v in values[:2]:\n    t += 1\nreturn t == 2")


def test_loops_bounded_by_what_is_known():
    assert passes("n = 3\nt = 0\nfor i in range(n):\n    for j in range(i, n):\n        t += 1\nreturn t == 6")
    assert passes("t = 0\nfor i in range(min(size, 100)):\n    t += 1\nreturn t == 10")
    assert passes("t = 0\nfor i in range(size % 8):\n    t += 1\nreturn t == 2")
    assert passes("t = 0\nfor i in range(len(points)):\n    t += int(points[i].y)\nreturn t == 30")


def test_static_variables():
    text = """
        count: static = 0
        window: static = [0.0] * 4
        seen: static[float] = 0
        flags: static = [False, False]
        window[count % len(window)] = price
        flags[0] = True
        count += 1
        seen += price
        total = 0.0
        for w in window:
            total += w
        return count % 3 == 0 and total == seen and flags[0] and not flags[1]
    """
    interpreted = Interpreted(check(text, TRADE))
    assert [interpreted.run_event(event(price=float(i))).passes for i in range(5)] == [False, False, True, False, False]
    assert interpreted.statics == [5, [4.0, 1.0, 2.0, 3.0], 10.0, [True, False]]
    interpreted.reset()
    assert interpreted.statics == [0, [0.0] * 4, 0.0, [False, False]]


def test_static_variables_handed_over():
    program = check("n: static = 0\nn += 1\nreturn n > 2", TRADE)
    one, other = Interpreted(program), Interpreted(program)
    one.run_event(event())
    one.run_event(event())
    other.statics = one.statics
    assert other.run_event(event()).passes


def test_an_output_has_defaults_and_zeros():
    result = run("pass", output=OUTPUT)
    assert result.passes
    assert result.output == {
        "mean": 0.0,
        "half": 0.0,
        "count": 0,
        "volume": 0,
        "is_good": False,
        "factor": 2.0,
        "grid": [[0, 0, 0], [0, 0, 0]],
        "position": {"x": 0.0, "y": 0.0},
        "label": "none",
        "when": None,
    }


def test_an_output_that_is_set():
    text = """
        output.mean = size
        output.half = 0.1
        output.count = size + 250
        output.volume = volume
        output.is_good = price > 3
        for i in range(2):
            for j in range(3):
                output.grid[i][j] = grid[i, j] * i
        output.position.x = is_buy
        if is_buy:
            output.label = symbol
        else:
            output.label = venue
    """
    output = run(text, output=OUTPUT).output
    assert output["mean"] == 10.0
    assert output["half"] == 0.0999755859375
    assert output["count"] == 4
    assert output["volume"] == 2**63 + 5
    assert output["is_good"] is True
    assert output["grid"] == [[0, 0, 0], [4, 5, 6]]
    assert output["position"] == {"x": 1.0, "y": 0.0}
    assert output["label"] == "IBM"
    assert run(text, output=OUTPUT, is_buy=False).output["label"] == "NYSE"


def test_whole_fields_copied():
    output = run("output.grid = grid\noutput.position = position", output=OUTPUT).output
    assert output["grid"] == [[1, 2, 3], [4, 5, 6]]
    assert output["position"].y == -2.5


def test_an_output_that_does_not_pass():
    assert run("output.mean = 1\nreturn price < 0", output=OUTPUT) == (False, None)


def test_values_of_one_event_are_not_those_of_the_next():
    interpreted = Interpreted(check("if size:\n    output.grid[0][0] = size\n    output.mean = 1", TRADE, OUTPUT))
    assert output_of(interpreted, event())["grid"][0][0] == 10
    assert output_of(interpreted, event(size=0))["grid"][0][0] == 0
    assert output_of(interpreted, event(size=0))["mean"] == 0.0


def test_defaults_inside_of_records():
    inner = RecordType((Field("name", Text()), Field("factor", Float(), plain.encode(2))))
    output = RecordType(
        (
            Field("inner", inner),
            Field("many", Array(RecordType((Field("x", Int(), plain.encode(5)),)), (2,))),
            Field("given", RecordType((Field("x", Int()), Field("y", Int()))), plain.encode({"x": 7})),
        )
    )
    result = run("output.inner.name = symbol\noutput.many[1].x = 6\noutput.given.y = 8", output=output)
    assert result.output == {
        "inner": {"name": "IBM", "factor": 2.0},
        "many": [{"x": 5}, {"x": 6}],
        "given": {"x": 7, "y": 8},
    }


def test_a_text_that_must_be_set():
    output = RecordType((Field("symbol", Text()), Field("size", Int())))
    assert run("output.symbol = symbol", output=output).output == {"symbol": "IBM", "size": 0}
    assert run("if price < 0:\n    return False\noutput.symbol = symbol\nreturn 1", output=output).passes


def outside(trade, low):
    """Where the price lies."""
    price = trade.price
    if price < 75.5:
        return True
    return price > 78.5


def mean(trade, out, p):
    out.mean = trade.price * p.factor


def only_a_param(trade, param):
    return trade.price > param.low


def test_functions_as_sources():
    program = check(source_of(outside), TRADE)
    assert not Interpreted(program).run_event(event()).passes
    assert Interpreted(program).run_event(event(price=1.0)).passes
    program = check(source_of(mean), TRADE, OUTPUT, {"factor": Type.FLOAT})
    assert Interpreted(program).run_event(event(), [2.0]).output == run("output.mean = 155", output=OUTPUT).output
    program = check(source_of(only_a_param), TRADE, None, {"low": Type.FLOAT})
    assert Interpreted(program).run_event(event(), [2.0]).passes


def test_lambdas_as_sources():
    kept = [source_of(lambda trade: trade.price > 3), 1]
    assert isinstance(kept[0], ProgramSource)
    assert Interpreted(check(kept[0], TRADE)).run_event(event()).passes
    longer = source_of(
        lambda trade: trade.price > 3
        and trade.size > 20
    )  # fmt: skip
    assert not Interpreted(check(longer, TRADE)).run_event(event()).passes


def test_functions_on_one_line():
    def brief(trade): return trade.price > 3  # fmt: skip

    assert Interpreted(check(source_of(brief), TRADE)).run_event(event()).passes


def test_errors_in_functions_count_lines_from_the_first():
    def wrong(trade):
        """Something."""
        return trade.pirce > 3

    with pytest.raises(ModulatorRefused, match="did you mean price") as caught:
        check(source_of(wrong), TRADE)
    assert caught.value.line == 3


def test_nothing_from_outside_of_a_function():
    bound = 3

    def reaches(trade):
        return trade.price > bound

    with pytest.raises(ModulatorRefused, match="bound is not known here: what is outside of the function"):
        check(source_of(reaches), TRADE)


def test_what_is_no_source():
    with pytest.raises(TypeError, match="can't be a program"):
        source_of(3)  # type: ignore[arg-type]
    with pytest.raises(ModulatorRefused, match="several like it"):
        source_of([lambda a: a.x, lambda a: a.y][0])
    with pytest.raises(ModulatorRefused, match="0 parameters"):
        source_of(lambda: 3)
    with pytest.raises(ModulatorRefused, match="without defaults and stars"):
        source_of(lambda a, *b: 3)
    with pytest.raises(ModulatorRefused, match="source can't be found"):
        source_of(eval("lambda a: 3"))


def test_programs_are_equal_where_texts_are():
    assert check("price < 3", TRADE) == check("price < 3", TRADE)
    assert check("price < 3", TRADE) != check("price < 4", TRADE)


def test_what_is_of_fixed_layout():
    assert check("price < 3 and grid[1][1] > 2", TRADE).is_fixed
    assert not check("len(values) > 3", TRADE).is_fixed
