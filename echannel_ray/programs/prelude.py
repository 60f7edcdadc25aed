"""What the code that programs are compiled to calls, as LLVM IR: only those that a program uses become part of it.

Their names begin with `ecode.`, as those of no function of the C library do: LLVM takes a function that is called
`remainder` for the one that it knows, and works out what that would give.
"""

from __future__ import annotations

from typing import Final

# IEEE 754's half precision by hand: without it LLVM calls functions of a runtime library that no process has loaded.
_HALF_TO_DOUBLE: Final = """
define internal double @ecode.half_to_double(i16 %h) alwaysinline {
  %bits = zext i16 %h to i64
  %sign = and i64 %bits, 32768
  %sign63 = shl i64 %sign, 48
  %rest = and i64 %bits, 32767
  %is_large = icmp uge i64 %rest, 31744
  %is_normal = icmp uge i64 %rest, 1024
  %moved = shl i64 %rest, 42
  %bias = select i1 %is_large, i64 9079256848778919936, i64 4539628424389459968
  %normal = add i64 %moved, %bias
  %normal_value = bitcast i64 %normal to double
  %small = uitofp i64 %rest to double
  %subnormal_value = fmul double %small, 0x3E70000000000000
  %value = select i1 %is_normal, double %normal_value, double %subnormal_value
  %value_bits = bitcast double %value to i64
  %signed = or i64 %value_bits, %sign63
  %result = bitcast i64 %signed to double
  ret double %result
}
"""

# Rounds to the nearest, ties to even. Below 2**-14 the numbers are equally spaced: adding 2**28 rounds
# to a multiple of 2**-24. Elsewhere 42 bits of the fraction go.
_DOUBLE_TO_HALF: Final = """
define internal i16 @ecode.double_to_half(double %x) alwaysinline {
  %bits = bitcast double %x to i64
  %sign = lshr i64 %bits, 48
  %sign15 = and i64 %sign, 32768
  %size_bits = and i64 %bits, 9223372036854775807
  %size = bitcast i64 %size_bits to double
  %is_nan = fcmp uno double %x, %x
  %is_large = fcmp oge double %size, 0x40EFFE0000000000
  %is_normal = fcmp oge double %size, 0x3F10000000000000
  %odd = lshr i64 %size_bits, 42
  %odd1 = and i64 %odd, 1
  %half_less = add i64 %odd1, 2199023255551
  %up = add i64 %size_bits, %half_less
  %cut = lshr i64 %up, 42
  %normal = sub i64 %cut, 1032192
  %scaled = fadd double %size, 0x41B0000000000000
  %scaled_bits = bitcast double %scaled to i64
  %subnormal = and i64 %scaled_bits, 4095
  %finite = select i1 %is_normal, i64 %normal, i64 %subnormal
  %or_large = select i1 %is_large, i64 31744, i64 %finite
  %with_sign = or i64 %or_large, %sign15
  %result = select i1 %is_nan, i64 32256, i64 %with_sign
  %short = trunc i64 %result to i16
  ret i16 %short
}
"""

# Two texts of units of 8 or 32 bits, equal but for NULs at the end.
_EQUAL: Final = """
define internal i1 @ecode.equal_{bits}(ptr %a, i64 %units_a, i1 %swap_a, ptr %b, i64 %units_b, i1 %swap_b) {{
entry:
  %a_is_longer = icmp ugt i64 %units_a, %units_b
  %most = select i1 %a_is_longer, i64 %units_a, i64 %units_b
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %compare ]
  %more = icmp ult i64 %i, %most
  br i1 %more, label %take_a, label %equal
take_a:
  %has_a = icmp ult i64 %i, %units_a
  br i1 %has_a, label %load_a, label %take_b
load_a:
  %pa = getelementptr i{bits}, ptr %a, i64 %i
  %la = load i{bits}, ptr %pa, align 1
  %sa = {swap_a}
  %va = select i1 %swap_a, i{bits} %sa, i{bits} %la
  br label %take_b
take_b:
  %ua = phi i{bits} [ 0, %take_a ], [ %va, %load_a ]
  %has_b = icmp ult i64 %i, %units_b
  br i1 %has_b, label %load_b, label %compare
load_b:
  %pb = getelementptr i{bits}, ptr %b, i64 %i
  %lb = load i{bits}, ptr %pb, align 1
  %sb = {swap_b}
  %vb = select i1 %swap_b, i{bits} %sb, i{bits} %lb
  br label %compare
compare:
  %ub = phi i{bits} [ 0, %take_b ], [ %vb, %load_b ]
  %next = add i64 %i, 1
  %same = icmp eq i{bits} %ua, %ub
  br i1 %same, label %head, label %different
equal:
  ret i1 true
different:
  ret i1 false
}}
"""

_EQUAL_8: Final = _EQUAL.format(bits=8, swap_a="or i8 %la, 0", swap_b="or i8 %lb, 0")
_EQUAL_32: Final = _EQUAL.format(
    bits=32, swap_a="call i32 @llvm.bswap.i32(i32 %la)", swap_b="call i32 @llvm.bswap.i32(i32 %lb)"
)

# Towards minus infinity, as Python has it; the divisor is not 0. The smallest number by -1 wraps around.
_DIVISION: Final = """
define internal i64 @ecode.floor_divide_whole(i64 %a, i64 %b) alwaysinline {
  %is_minus_one = icmp eq i64 %b, -1
  %divisor = select i1 %is_minus_one, i64 1, i64 %b
  %quotient = sdiv i64 %a, %divisor
  %rest = srem i64 %a, %divisor
  %has_rest = icmp ne i64 %rest, 0
  %signs = xor i64 %rest, %divisor
  %differ = icmp slt i64 %signs, 0
  %is_below = and i1 %has_rest, %differ
  %less = sext i1 %is_below to i64
  %rounded = add i64 %quotient, %less
  %negated = sub i64 0, %a
  %result = select i1 %is_minus_one, i64 %negated, i64 %rounded
  ret i64 %result
}
"""
_REMAINDER: Final = """
define internal i64 @ecode.remainder_whole(i64 %a, i64 %b) alwaysinline {
  %is_minus_one = icmp eq i64 %b, -1
  %divisor = select i1 %is_minus_one, i64 1, i64 %b
  %rest = srem i64 %a, %divisor
  %has_rest = icmp ne i64 %rest, 0
  %signs = xor i64 %rest, %divisor
  %differ = icmp slt i64 %signs, 0
  %is_below = and i1 %has_rest, %differ
  %more = select i1 %is_below, i64 %divisor, i64 0
  %result = add i64 %rest, %more
  ret i64 %result
}
"""

# The algorithm of CPython's floats, step by step; a divisor of 0.0 gives what `/` gives, and NaN.
_REAL_REMAINDER: Final = """
define internal double @ecode.remainder(double %a, double %b) {
  %rest = frem double %a, %b
  %has_rest = fcmp une double %rest, 0.0
  %b_below = fcmp olt double %b, 0.0
  %rest_below = fcmp olt double %rest, 0.0
  %differ = xor i1 %b_below, %rest_below
  %moved = fadd double %rest, %b
  %adjusted = select i1 %differ, double %moved, double %rest
  %zero = call double @llvm.copysign.f64(double 0.0, double %b)
  %result = select i1 %has_rest, double %adjusted, double %zero
  ret double %result
}
"""
_REAL_DIVISION: Final = """
define internal double @ecode.floor_divide(double %a, double %b) {
  %plain = fdiv double %a, %b
  %rest = frem double %a, %b
  %less = fsub double %a, %rest
  %quotient = fdiv double %less, %b
  %has_rest = fcmp une double %rest, 0.0
  %b_below = fcmp olt double %b, 0.0
  %rest_below = fcmp olt double %rest, 0.0
  %differ = xor i1 %b_below, %rest_below
  %is_below = and i1 %has_rest, %differ
  %lower = fsub double %quotient, 1.0
  %rounded = select i1 %is_below, double %lower, double %quotient
  %floor = call double @llvm.floor.f64(double %rounded)
  %gap = fsub double %rounded, %floor
  %is_far = fcmp ogt double %gap, 0.5
  %upper = fadd double %floor, 1.0
  %nearest = select i1 %is_far, double %upper, double %floor
  %is_some = fcmp une double %rounded, 0.0
  %zero = call double @llvm.copysign.f64(double 0.0, double %plain)
  %result = select i1 %is_some, double %nearest, double %zero
  %by_zero = fcmp oeq double %b, 0.0
  %final = select i1 %by_zero, double %plain, double %result
  ret double %final
}
"""

FUNCTIONS: Final = {
    "floor_divide_whole": _DIVISION,
    "remainder_whole": _REMAINDER,
    "floor_divide": _REAL_DIVISION,
    "remainder": _REAL_REMAINDER,
    "half_to_double": _HALF_TO_DOUBLE,
    "double_to_half": _DOUBLE_TO_HALF,
    "equal_8": _EQUAL_8,
    "equal_32": _EQUAL_32,
}
DECLARATIONS: Final = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i16 @llvm.bswap.i16(i16)
declare i32 @llvm.bswap.i32(i32)
declare i64 @llvm.bswap.i64(i64)
declare double @llvm.fabs.f64(double)
declare double @llvm.sqrt.f64(double)
declare double @llvm.floor.f64(double)
declare double @llvm.ceil.f64(double)
declare double @llvm.trunc.f64(double)
declare double @llvm.copysign.f64(double, double)
"""
