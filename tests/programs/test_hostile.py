"""Texts that were written to do harm: they are refused at once, or are harmless."""

import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echannel_ray.errors import ModulatorRefused
from echannel_ray.programs.frontend import check
from echannel_ray.programs.interpreter import Interpreted
from echannel_ray.programs.program import Trap
from echannel_ray.programs.source import ProgramSource, SourceNames
from tests.programs.records import OUTPUT, TRADE, event, passes, refused

ESCAPES = [
    "price.__class__",
    "price.__class__.__mro__[1].__subclasses__()",
    "(1).__class__",
    "''.__class__",
    "input.__dict__",
    "input.__init__",
    "abs.__self__",
    "math.__loader__",
    "param.__class__",
    "__import__('os').system('true')",
    "__builtins__",
    "eval('1')",
    "exec('1')",
    "open('x')",
    "globals()",
    "getattr(price, 'real')",
    "print(price)",
    "type(price)",
    "'{0.__class__}'.format(price)",
    "'%s' % price",
    "f'{price.__class__}'",
    "[].__class__",
    "().__class__",
    "{}.__class__",
    "[c for c in ().__class__.__base__.__subclasses__()]",
    "(lambda: 1)()",
    "(x := 1)",
    "statics[0]",
    "leaves",
    "params",
    "wrap(1)",
    "k1",
    "v0",
    "l0",
]
HUGE = [
    "9**9**9",
    "9**9**9**9 > price",
    "2**64**64",
    "size**1000000000",
    "1 << 100000000000",
    "1 << 63 << 63",
    "9" * 5000,
    "0x" + "f" * 5000,
    "1e" + "9" * 5000 + "x",
    "*".join(["9223372036854775807"] * 50),
    "'a' * 1000000000",
    "[0] * 1000000000",
    "x: static = [0] * 1000000000",
    "x: static = [[0] * 1000] * 1000",
]
NESTED = [
    "(" * 20000 + "price" + ")" * 20000,
    "(" * 60000,
    "[" * 60000,
    ")" * 60000,
    "((" * 100 + "price" + "))" * 100,
    "-" * 60000 + "size",
    "~" * 60000 + "size",
    "not " * 15000 + "is_buy",
    "+".join(["size"] * 5000),
    "**".join(["1"] * 5000),
    "size if is_buy else " * 3000 + "3",
    "price" + ".x" * 20000,
    "rates" + "[0]" * 20000,
    "rates[" * 10000 + "0" + "]" * 10000,
    "abs(" * 10000 + "size" + ")" * 10000,
    "1 < (" * 10000 + "size" + ") < 2" * 10000,
    "if is_buy:\n    return 1\n" + "elif is_buy:\n    return 0\n" * 2000,
    "if is_buy:\n    return 1\n" + "elif is_buy:\n    return 0\n" * 390,
    "".join(" " * depth + "if is_buy:\n" for depth in range(200)) + " " * 200 + "return 1",
    "".join(" " * depth + f"for i{depth} in range(2):\n" for depth in range(25)) + " " * 25 + "pass",
    "a=" * 20000 + "1",
    "x: " * 20000 + "1",
    "lambda: " * 8000 + "1",
    "await " * 8000 + "1",
    "f'{" * 5000 + "}'" * 5000,
    "@x\n" * 5000 + "def f(): pass",
    "'" * 60000,
    '"""' * 20000,
    "\\\n" * 5000,
    "\n" * 60000 + "(",
    ";" * 60000,
    "*" * 60000,
    "x = [" + "[" * 49 + "1" + "]" * 50,
]
ENDLESS = [
    "while True:\n    pass",
    "for i in range(10**18):\n    pass",
    "for i in range(size):\n    pass",
    "for i in range(size - 9223372036854775807 - 1, size):\n    pass",
    "for i in range(9223372036854775807):\n    pass",
    "for i in range(-1, -9223372036854775808, -1):\n    pass",
    "".join("    " * depth + f"for i{depth} in range(1000):\n" for depth in range(10)) + "    " * 10 + "pass",
    "".join("    " * depth + f"for i{depth} in range(9007199254740992):\n" for depth in range(16))
    + "    " * 16
    + "pass",
    "n = 10\nn = n * n * n * n * n * n * n * n * n * n\nfor i in range(n):\n    pass",
    "for i in range(3):\n    for i in range(3):\n        pass",
    "for i in range(10):\n    i = 0",
]
UNSEEN = [
    "price\0 < 1",
    "price < 1 # \u202e",
    "price < '\u2066'",
    "\ufeffprice < 1",
    "price\u200b < 1",
    "price\r< 1",
    "\fprice < 1",
    "price < '\ud800'",
    "\uff50rice < 1",  # a wide p
    "\u0440rice < 1",  # a Cyrillic letter that looks like p
    "\ufb01eld < 1",  # a ligature
    "price\u00a0< 1",
    "price < ¼",
    "price < ٣",
    "\U0001d4c2in(price, 1)",
]


@pytest.mark.parametrize(
    "text", ESCAPES + HUGE + NESTED + ENDLESS + UNSEEN, ids=range(len(ESCAPES + HUGE + NESTED + ENDLESS + UNSEEN))
)
def test_refused(text):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        error = refused(text)
    assert error.line >= 1
    assert error.column >= 1
    assert len(str(error)) < 1500


@pytest.mark.parametrize("text", ["price < 1 or " * 80_000 + "price < 2", "\n" * 1_000_000, "(" * 1_000_000])
def test_a_text_of_a_megabyte(text):
    assert "at most 65536 bytes" in refused(text).reason


# As deep as is allowed: each of these must also become a function that Python can compile.
DEEP = [
    "(" * 49 + "price" + ")" * 49 + " < 100",
    "-" * 90 + "size > 0",
    "(-" * 32 + "size" + ")" * 32 + " > 0",
    "not " * 90 + "is_buy",
    "+".join(["size"] * 95),
    "-".join(["size"] * 95),
    "*".join(["price"] * 90) + " > 0",
    "/".join(["price"] * 95) + " > -1",
    "//".join(["size"] * 95) + " > -1",
    "%".join(["price"] * 95) + " > -1",
    "&".join(["is_buy"] * 95),
    "is_buy & (" * 32 + "is_buy" + ")" * 32,
    "size + (" * 32 + "size" + ")" * 32,
    "size * (" * 32 + "size" + ")" * 32 + " != 3",
    "size / (" * 32 + "size" + ")" * 32,
    "(is_buy == " * 32 + "is_buy" + ")" * 32,
    "(" * 32 + "size" + "**3)" * 32 + " != 3",
    "(0 <= " * 32 + "size" + " < 100)" * 32,
    "size if price < 0 else " * 90 + "3",
    "int(float(" * 24 + "size" + "))" * 24,
    "int(sqrt(" * 24 + "size" + "))" * 24,
    "min(99, 100, " * 24 + "size" + ", 101)" * 24,
    "max(" + ",".join(["size"] * 5000) + ")",
    "int(rates[int(rates[" * 12 + "0" + "])])" * 12 + " == 0",
    " or ".join(["size < 1"] * 5000) + " or size",
    "size in (" + ",".join(["1"] * 20000) + ", 10)",
    "if price < 0:\n    return 0\n" + "elif size ** 3 < 1:\n    return 0\n" * 55 + "else:\n    return 1",
    "".join(" " * depth + "if is_buy:\n" for depth in range(28)) + " " * 28 + "return 1",
    "x = 0\n" + "".join(" " * n + f"for i{n} in range(1):\n" for n in range(16)) + " " * 16 + "x = 1\nreturn x",
    "symbol == " + "'' " * 18000 + " 'IBM'",
    "x = 1\n" * 9_000 + "return x",
]


@pytest.mark.parametrize("text", DEEP, ids=range(len(DEEP)))
def test_as_deep_as_is_allowed(text):
    assert passes(text)


def test_lines_that_go_on_and_several_in_one():
    assert passes("price \\\n > 1")
    assert passes("x = 1; return price > x;")
    assert passes("x = 1\r\nreturn price > x\r\n")
    assert passes("(price # why\n > 1)")
    assert passes("\tprice > 1")


def test_python_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for text in ["symbol == '\\d'", "1if is_buy else 2", "0xfor x in y", "symbol == b'\\u1'", "symbol == '\\777'"]:
            refused(text)
        assert not passes("symbol == '\\\\d\\x41\\n\\u00e9'")
        assert passes("1 < 1e400")
        assert not passes("'a' == 'b'")


def test_names_of_a_source_are_only_names():
    for names in [
        SourceNames("price", "price", "price"),
        SourceNames("", "", ""),
        SourceNames("a.b", "\0", "if"),
        SourceNames("min", "abs", "e"),
    ]:
        check(ProgramSource("size > 3", names), TRADE)


def test_what_traps_leaves_the_next_event_alone():
    interpreted = Interpreted(check("n: static = 0\nn += 1\nreturn size // small + n", TRADE))
    assert interpreted.run_event(event()).passes
    with pytest.raises(Trap, match=r"divided by 0 \(line 3, column 8\)"):
        interpreted.run_event(event(small=0))
    assert interpreted.statics == [0]


_SYMBOLS = """
    price size symbol rates grid values is_buy volume points position x y i input output param math static
    ( ) [ ] { } , : . ; = == += + - * / // % ** << >> & | ^ ~ < > != -> := @ \\ ` $ # é \uff50 \u202e \0
    if elif else for in range and or not return pass break continue is while lambda def class import match case type
    None True min sqrt len abs 0 1 -1 3.5 1e9 9223372036854775807 0x 1_ 1j 'a' " ' b'' f'{x}' '''
"""
WORDS = [*_SYMBOLS.split(), "\n", "\n    ", "\n        ", " ", "\t", "\f", "\r", "x = 0\n", "return "]


@settings(max_examples=1500)
@given(st.lists(st.sampled_from(WORDS), max_size=40), st.sampled_from(["", " "]), st.booleans())
def test_words_at_random(words, between, has_output):
    _only_refused(between.join(words), has_output)


@settings(max_examples=500)
@given(st.text(st.characters(), max_size=60), st.booleans())
def test_texts_at_random(text, has_output):
    _only_refused(text, has_output)


def _only_refused(text, has_output):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            program = check(text, TRADE, OUTPUT if has_output else None)
        except ModulatorRefused:
            return
        interpreted = Interpreted(program)
        try:
            interpreted.run_event(event())
        except Trap:
            pass
