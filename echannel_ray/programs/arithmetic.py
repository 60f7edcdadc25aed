"""What generated code calls: arithmetic as programs have it, where Python raises or has larger numbers.

Python's own operators on floats are IEEE 754's but for a divisor of 0.0. `//` and `%` on floats are what CPython and
NumPy have in common, built on C's `fmod`, which is exact and so the same everywhere: see `program`.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from echannel_ray.programs.program import FUNCTIONS, Trap, Where

_SIGN: Final = 1 << 63
_ALL: Final = (1 << 64) - 1
_TOO_LARGE: Final = 2.0**63
_half: Final = struct.Struct("<e")


def wrap(value: int) -> int:
    """A whole number of 64 bits with a sign."""
    return ((value + _SIGN) & _ALL) - _SIGN


def divide(left: float, right: float) -> float:
    """`/`"""
    if right:
        return left / right
    if not left or left != left:
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def floor_divide(left: float, right: float) -> float:
    """`//` of floating point numbers."""
    return left // right if right else divide(left, right)


def remainder(left: float, right: float) -> float:
    """`%` of floating point numbers."""
    return left % right if right else math.nan


def divide_whole(left: int, right: int, where: Where) -> int:
    """`//` of whole numbers."""
    if not right:
        raise Trap("a whole number is divided by 0", where)
    return wrap(left // right)


def remainder_whole(left: int, right: int, where: Where) -> int:
    """`%` of whole numbers."""
    if not right:
        raise Trap("a whole number is divided by 0", where)
    return left % right


def shift_left(value: int, by: int, where: Where) -> int:
    """`<<`"""
    if not 0 <= by <= 63:
        raise Trap(f"a shift by {by} bits is out of range: 0 to 63", where)
    return wrap(value << by)


def shift_right(value: int, by: int, where: Where) -> int:
    """`>>`"""
    if not 0 <= by <= 63:
        raise Trap(f"a shift by {by} bits is out of range: 0 to 63", where)
    return value >> by


def to_whole(value: float, where: Where) -> int:
    """`int()` of a floating point number."""
    if -_TOO_LARGE <= value < _TOO_LARGE:
        return int(value)
    raise Trap(f"{value} can't be a whole number of 64 bits", where)


def item(items: Sequence[Any], index: int, where: Where) -> Any:
    """An item at an index that may be out of range."""
    if 0 <= index < len(items):
        return items[index]
    raise Trap(f"the index {index} is out of range: there are {len(items)} items", where)


def check_index(items: Sequence[Any], index: int, where: Where) -> int:
    """The index, if it is in range."""
    if 0 <= index < len(items):
        return index
    raise Trap(f"the index {index} is out of range: there are {len(items)} items", where)


def canonical(value: float) -> float:
    """The number, or that one NaN that is stored."""
    return value if value == value else math.nan


def to_single(value: float) -> float:
    """Rounded to 32 bits."""
    return canonical(ctypes.c_float(value).value)


def to_half(value: float) -> float:
    """Rounded to 16 bits."""
    if value != value:
        return math.nan
    try:
        return float(_half.unpack(_half.pack(value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _whole_float(rounded: Callable[[float], int]) -> Callable[[float], float]:
    # From 2**52 on all numbers are whole. The sign stays, where there is nothing else: ceil(-0.5) is -0.0.
    def call(value: float) -> float:
        return math.copysign(float(rounded(value)), value) if abs(value) < 2.0**52 else canonical(value)

    return call


def _library_function(name: str) -> Callable[..., float]:
    # What native code calls too. A `CDLL` releases the lock of the interpreter at each call, which takes longer.
    function = getattr(LIBRARY, name)
    function.argtypes = [ctypes.c_double] * len(FUNCTIONS[name].arguments)
    function.restype = ctypes.c_double
    return lambda *arguments: canonical(function(*arguments))


def _open_library() -> ctypes.CDLL:
    # The extension module `math` is linked with the C library's mathematics: so they are in the process already.
    everything = ctypes.PyDLL(None)
    return everything if hasattr(everything, "atan2") else ctypes.PyDLL("libm.so.6")


LIBRARY: Final = _open_library()
_EXACT: Final[dict[str, Callable[..., Any]]] = {
    "abs_int": lambda value: wrap(abs(value)),
    "abs_float": abs,
    "min_int": min,
    "max_int": max,
    "min_float": min,
    "max_float": max,
    "sqrt": lambda value: math.sqrt(value) if value >= 0.0 else math.nan,
    "floor": _whole_float(math.floor),
    "ceil": _whole_float(math.ceil),
    "trunc": _whole_float(math.trunc),
    "isnan": math.isnan,
    "isinf": math.isinf,
    "isfinite": math.isfinite,
}
CALLED: Final[dict[str, Callable[..., Any]]] = _EXACT | {
    name: _library_function(name) for name, function in FUNCTIONS.items() if not function.is_exact
}
# What makes a floating point number one of so many bits.
NARROWED: Final[dict[int, Callable[[float], float]]] = {64: canonical, 32: to_single, 16: to_half}
