"""What is refused, where in the text, and what the error says to do."""

import pickle
import re

import pytest

from echannel_ray.formats import plain
from echannel_ray.programs.frontend import check
from echannel_ray.programs.program import Type
from echannel_ray.schemas import schema
from echannel_ray.schemas.schema import Array, Field, Float, Int, RecordType, Text
from tests.programs.records import OUTPUT, POSITION, TRADE, refused

# text, line, column, a part of the reason
FILTERS = [
    # names
    ("pric < 3", 1, 1, "pric is not known here; did you mean price?"),
    ("3 < qqq", 1, 5, "the event's fields are price, size"),
    ("input.pric < 3", 1, 1, "has no field pric; did you mean price?"),
    ("position.z < 3", 1, 1, "position has no field z"),
    ("points.x < 3", 1, 1, r"points is an array: points\[i\].x"),
    ("points[0] < 3", 1, 1, "only copied as a whole"),
    ("price.real < 3", 1, 1, "price has no fields"),
    ("grid[0] < 3", 1, 1, "grid is an array: write which item"),
    ("grid[0][0][0] < 3", 1, 12, "no array with so many dimensions"),
    ("price[0] < 3", 1, 7, "no array"),
    ("grid[2][0] < 3", 1, 6, "out of range: grid has 2 items"),
    ("grid[0][3] < 3", 1, 9, "out of range: grid has 3 items"),
    ("rates[-1] < 3", 1, 7, r"never negative; the last one is len\(rates\) - 1"),
    ("rates[price] < 3", 1, 7, "an index is a whole number"),
    ("rates[:2] < 3", 1, 7, "can only be looped over"),
    ("limit < 3", 1, 1, r"limit \(optional\) can't be read here, only copied"),
    ("when == 3", 1, 1, r"when \(timestamp\) can't be read"),
    ("input", 1, 1, "input is a whole record"),
    ("param.low < 3", 1, 1, "there is no parameter low: this program was given no parameters"),
    ("output.mean < 3", 1, 1, "this program is a filter"),
    ("sqrt < 3", 1, 1, r"sqrt is a function: write sqrt\(…\)"),
    ("math.tau < 3", 1, 1, "math.pi and math.e"),
    ("x > 3\nx = 3", 1, 1, "this value goes nowhere"),
    ("return x > 3\nx = 3", 1, 8, "x has no value yet"),
    # types
    ('price == "IBM"', 1, 10, "never equal"),
    ("symbol < venue", 1, 10, "no order here"),
    ("symbol", 1, 1, "neither true nor false"),
    ("symbol + venue == venue", 1, 1, "only compared"),
    ("not tag", 1, 5, "neither true nor false"),
    ("symbol == tag", 1, 11, "text and bytes are never equal"),
    ("volume + 1 > 3", 1, 1, r"write int\(…\) or float\(…\)"),
    ("price & 1", 1, 1, "is for whole numbers"),
    ("~price", 1, 1, "is for whole numbers"),
    ("price if is_buy else symbol", 1, 1, "only compared"),
    ("price in (size, 3)", 1, 11, "behind `in` stand constants"),
    ("price in rates", 1, 10, "a tuple of constants"),
    ("1 < price in (1, 2)", 1, 14, "stands alone"),
    # numbers
    ("size < 9223372036854775808", 1, 8, "64 bits: this one is too large"),
    ("size < 3037000500 * 3037000500", 1, 8, "too large"),
    ("size ** 65 > 1", 1, 1, "0 to 64"),
    ("size ** size > 1", 1, 1, r"pow\(x, y\)"),
    ("size ** -1 > 1", 1, 1, "0 to 64"),
    ("size << 64 > 1", 1, 1, "0 to 63"),
    ("size // 0 > 1", 1, 1, "divides a whole number by 0"),
    ("size % (2 - 2) > 1", 1, 1, "divides a whole number by 0"),
    # functions
    ("sqr(price) > 1", 1, 1, "there is no function sqr; did you mean sqrt?"),
    ("math.sqr(price) > 1", 1, 1, "no math.sqr here; did you mean sqrt?"),
    ("sqrt(price, 1) > 1", 1, 1, "takes 1 argument, not 2"),
    ("min(rates) > 1", 1, 5, "is an array"),
    ("min(price) > 1", 1, 1, "2 arguments or more"),
    ("pow(price) > 1", 1, 1, "takes 2 arguments, not 1"),
    ("abs(x=1) > 1", 1, 5, "by name"),
    ("int(symbol) > 1", 1, 1, "can't be made a number"),
    ("len(price) > 1", 1, 1, "an array of the event"),
    ("range(3)", 1, 1, r"can only stand in `for"),
    ("symbol.upper() == venue", 1, 1, "nothing here has methods"),
    ("abs(*rates)", 1, 5, "a star"),
    # statements
    ("price = 3", 1, 1, "price is a field of the event"),
    ("input = 3", 1, 1, "can't be a variable"),
    ("min = 3", 1, 1, "min is a function"),
    ("x = symbol", 1, 1, "can't be kept in a variable"),
    ("x = volume", 1, 1, r"write int\(…\) or float\(…\)"),
    ("x = y = 3", 1, 5, "one variable at a time"),
    ("x, y = 3, 4", 1, 1, "one variable at a time"),
    ("x = 0\nx = 0.5", 2, 1, r"x is a whole number.*write int\(…\) around it, or begin with 0.0"),
    ("x = 0\nx += price", 2, 1, "x is a whole number"),
    ("x = True\nx = 3", 2, 1, r"write bool\(…\)"),
    ("x: str = 3", 1, 4, "a type is int, float or bool"),
    ("x: float", 1, 1, "a static variable is"),
    ("x += 1", 1, 1, "x has no value yet"),
    ("input.price = 3", 1, 1, "the event can't be changed"),
    ("rates[0] = 3", 1, 1, "the event can't be changed"),
    ("input.price += 3", 1, 1, "the event can't be changed"),
    ("output.mean = 3", 1, 1, "this program is a filter"),
    ("if is_buy:\n    x = 1\nreturn x > 0", 3, 8, "x may have no value here"),
    ("for i in range(size % 3):\n    x = 1\nreturn x > 0", 3, 8, "x may have no value here"),
    ("for i in range(3):\n    if is_buy:\n        break\n    x = 1\nreturn x > 0", 5, 8, "x may have no value here"),
    ("break", 1, 1, "stands in loops only"),
    ("if is_buy:\n    continue", 2, 5, "stands in loops only"),
    ("for i in range(size):\n    pass", 1, 10, "no known limit"),
    ("for i in range(param.n):\n    pass", 1, 16, "no parameter"),
    ("for i in range(0, 3, 0):\n    pass", 1, 22, "not 0"),
    ("for i in range(0, 3, size):\n    pass", 1, 22, "a constant"),
    ("for i in range(1.5):\n    pass", 1, 16, "takes whole numbers"),
    ("for i in range():\n    pass", 1, 10, "1 to 3 arguments"),
    ("for i, j in rates:\n    pass", 1, 5, "a loop has one variable"),
    ("for x in values:\n    pass", 1, 10, r"values\[:100\]"),
    ("for x in values[1:5]:\n    pass", 1, 10, "the first so many items"),
    ("for x in grid:\n    pass", 1, 10, r"range\(len\(grid\)\)"),
    ("for x in price:\n    pass", 1, 10, "an array of the event"),
    ("for i in range(3):\n    i = 5", 2, 5, "counts the turns"),
    ("for i in range(3):\n    for i in range(3):\n        pass", 2, 9, "counts the turns"),
    ("x = 0.5\nfor x in range(3):\n    pass", 2, 5, "can't count turns"),
    ("for i in range(3):\n    pass\nelse:\n    pass", 4, 5, "no `else`"),
    ("for i in range(10 ** 5):\n    for j in range(10 ** 5):\n        pass", 1, 1, "steps"),
    # static variables
    ("if is_buy:\n    n: static = 0", 2, 5, "outside of `if` and loops"),
    ("n: static = size", 1, 1, "begins with a constant"),
    ("n: static = [0] * size", 1, 19, "constant number of items"),
    ("n: static = [0, 1]", 1, 1, "begin all equal"),
    ("n: static = 'a'", 1, 1, "begins with a constant"),
    ("n: static[int] = 0.5", 1, 1, r"write int\(…\)"),
    ("n: static = 0\nn: static = 0", 2, 1, "there already"),
    ("n: static = [0] * 3\nreturn n", 2, 8, "n is an array"),
    ("n: static = [0] * 65536\nm: static = [0] * 3", 2, 1, "at most 65536 items together"),
    ("n: static = [0] * 3\nn = 3", 2, 1, "set its items"),
    ("n: static = [0] * 3\nn[3] = 3", 2, 3, "out of range"),
    ("n: static = 0\nn[0] = 3", 2, 1, "has no items"),
    # what Python has, and this has not
    ("while True: pass", 1, 1, "there is no `while`"),
    ("x = 1\n  while True: pass", 2, 3, "there is no `while`"),
    ("price > 3 && size", 1, 11, "write `and`"),
    ("price > 3 || size", 1, 11, "write `or`"),
    ("!is_buy", 1, 1, "write `not`"),
    ("if (price > 3) { return 1; }", 1, 16, "blocks are made by indentation"),
    ("lambda: 3", 1, 1, "no functions of their own"),
    ("[x for x in rates]", 1, 1, "no comprehensions"),
    ("import os", 1, 1, "nothing can be imported"),
    ("f'{price}' == symbol", 1, 1, "no f-strings"),
    ("price is 3", 1, 7, "compare with `==`"),
    ("limit == None", 1, 10, "no None"),
    ("with x: pass", 1, 1, "there is no `with`"),
    ("match price:\n    case 3: pass", 1, 1, "there is no `match`"),
    ("price < ", 1, 9, "not as Python has it"),
    ("if is_buy:\nreturn 1", 2, 1, "not as Python has it"),
    ("price <\x0c 3", 1, 8, "U[+]000C can't be seen"),
    ("symbol == 'é' and größe > 3", 1, 19, "größe"),
    ("3 == 3; 4", 1, 1, "goes nowhere"),
    ("", 1, 1, "there is nothing here"),
]


@pytest.mark.parametrize(("text", "line", "column", "reason"), FILTERS)
def test_refused(text, line, column, reason):
    error = refused(text)
    assert error.reason is not None
    assert re.search(reason, error.reason), error.reason
    assert (error.line, error.column) == (line, column)


@pytest.mark.parametrize(
    ("text", "line", "column", "reason"),
    [
        ("output.meen = 1", 1, 1, "the output has no field meen; did you mean mean?"),
        ("output.count = price", 1, 1, r"write int\(…\) around it"),
        ("output.is_good = size", 1, 1, r"write bool\(…\) around it"),
        ("output.mean = volume", 1, 1, r"write int\(…\) or float\(…\)"),
        ("output.mean += 1", 1, 1, "the output can't be read"),
        ("x = output.mean", 1, 5, "the output can only be set"),
        ("output.grid = 3", 1, 1, "set its items, or copy"),
        ("output.grid = rates", 1, 1, "of different types"),
        ("output.grid[2][0] = 1", 1, 13, "out of range"),
        ("output.label = 'x'", 1, 1, "only be copied from a field of the same type"),
        ("output.label = tag", 1, 1, "of different types"),
        ("output.position = points[0]", 1, 1, "in no array"),
        ("output = input", 1, 1, "fields of the output one by one"),
        ("output.grid = grid\noutput.grid[0][0] = 1", 2, 1, "copy a field as a whole, or set its parts"),
        ("output.position.x = 1\noutput.position = position", 2, 1, "copy a field as a whole, or set its parts"),
        ("for i in range(3):\n    output.grid = grid", 2, 5, "outside of loops only"),
    ],
)
def test_outputs_refused(text, line, column, reason):
    error = refused(text, OUTPUT)
    assert re.search(reason, error.reason), error.reason
    assert (error.line, error.column) == (line, column)


def test_an_output_without_what_it_needs():
    output = RecordType((Field("inner", RecordType((Field("name", Text()), Field("size", Int())))),))
    error = refused("if is_buy:\n    return 1\nreturn False", output)
    assert "output.inner.name has no value here, and no default" in error.reason
    assert error.line == 2
    assert "no value here" in refused("pass", output).reason


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        (Field("x", Array(Float(), (10**6, 10**6))), "at most 1000000 items"),
        (Field("x", Text(10**9)), "at most 1000000 items"),
        (Field("x", Array(Float(), (-1,))), "at most 1000000 items"),
        (Field("x", Float(), plain.encode("a")), "the default of output.x"),
        (Field("x", Int(8), plain.encode(300)), "the default of output.x"),
        (Field("x", Array(Int(), (2,)), plain.encode([1, 2, 3])), "the default of output.x"),
        (Field("x", Int(), b"\xc1"), "the default of output.x"),
    ],
)
def test_an_output_that_none_can_have(field, reason):
    assert reason in refused("pass", RecordType((field,))).reason


def test_a_text_set_on_one_path_only():
    output = RecordType((Field("symbol", Text()),))
    assert "no value here" in refused("if is_buy:\n    output.symbol = symbol\nreturn 1", output).reason
    check("if is_buy:\n    output.symbol = symbol\nelse:\n    return False", TRADE, output)


def test_the_message_shows_the_line_and_the_place():
    error = refused("x = 1\nreturn pric < x")
    lines = str(error).split("\n")
    assert lines == [
        "line 2, column 8: pric is not known here; did you mean price?",
        "    return pric < x",
        "           ^",
    ]
    assert error.source == "x = 1\nreturn pric < x"


def test_a_long_line_is_cut_around_the_place():
    error = refused("price < 1 or " * 300 + "pric < 1")
    _, line, mark = str(error).split("\n")
    assert len(line) <= 104
    assert line[mark.index("^") :].startswith("pric")


def test_texts_may_be_indented_as_a_whole():
    error = refused("""
        x = 1
        return pric < x
    """)
    assert (error.line, error.column) == (3, 8)


def test_the_error_survives_pickling():
    error = pickle.loads(pickle.dumps(refused("pric < 3")))
    assert (error.line, error.column, error.source) == (1, 1, "pric < 3")
    assert "did you mean price?" in str(error)


def test_a_parameter_that_is_not_there():
    assert "did you mean low?" in refused("price < param.lo", None, {"low": Type.FLOAT}).reason


def test_columns_count_characters():
    error = refused("symbol == 'ééé' and pric < 3")
    assert error.column == 21


def test_fields_of_many_kinds_can_only_be_copied():
    kinds: list[schema.Type] = [
        schema.Date(),
        schema.Decimal(),
        schema.Uuid(),
        schema.Complex(),
        schema.Map(Text(), Int()),
        schema.Union((Int(), Text())),
        schema.Enum((("A", 1), ("B", "b"))),
        schema.Tuple((Int(), Int())),
    ]
    for kind in kinds:
        record = RecordType((Field("x", kind),))
        with pytest.raises(Exception, match="only copied as a whole"):
            check("x == 1", record)
        check("output.x = x", record, record)


def test_lengths_that_can_not_be_had():
    record = RecordType((Field("deep", schema.List(schema.List(Float()))), Field("many", schema.List(POSITION))))
    for text in ("len(deep[0]) > 1", "len(many) > 1"):
        with pytest.raises(Exception, match="can't be had"):
            check(text, record)


def test_a_chain_in_doubt_may_not_trap_unseen():
    assert "put it into a variable first" in refused("is_buy and 1 < size // small < 3").reason
    check("1 < size // small < 3", TRADE)
    check("is_buy and 1 < size + small < 3", TRADE)


def test_fields_named_like_everything_else():
    record = RecordType(tuple(Field(name, Float()) for name in ("input", "output", "min", "math", "e", "static")))
    program = check("input.input + input.output + e + input.min + input.math + static > 0", record)
    assert len(program.leaves) == 6


def test_an_array_of_arrays_is_one_of_more_dimensions():
    record = RecordType((Field("x", Array(Array(Float(), (2,)), (3,))),))
    assert check("x[2][1] > 0", record).leaves[0].shape == (3, 2)
