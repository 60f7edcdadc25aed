"""Random programs, and random records for them: one seed makes one of each."""

import random
import struct
from collections.abc import Callable
from typing import Any

import numpy

from echannel_ray.formats import plain
from echannel_ray.programs import tree
from echannel_ray.programs.blocks import view
from echannel_ray.programs.outputs import program_outputs
from echannel_ray.programs.places import place_of, terminals
from echannel_ray.programs.program import (
    FUNCTIONS,
    Leaf,
    Parameter,
    Program,
    StaticVariable,
    Type,
    Where,
)
from echannel_ray.programs.tree import Expression
from echannel_ray.schemas import schema

INTS = (0, 1, -1, 2, 3, 7, 63, 64, 255, -128, 2**31, -(2**31), 2**53 + 1, 2**63 - 1, -(2**63), 10**12)
FLOATS = (
    *(0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-320, 2.0**63, -(2.0**63), 65520.0, 65519.9, 6e-8, 1e300, -1e39),
    *(2.0**-25, float("inf"), float("-inf"), float("nan"), 1e15 + 0.5),
)
TEXTS = ("", "a", "ab", "abc", "å☃", "\U0001f600x", "ab\0", "a\0b", "abcdefgh", "abcdefghijklmnopqrstuvwxyz")
NUMBERS = (Type.BOOL, Type.INT, Type.FLOAT)
_EXACT = [name for name, function in FUNCTIONS.items() if function.is_exact]


class Maker:
    """Makes a program, a layout of its events, one of its outputs, and blocks of records."""

    def __init__(self, seed, is_columnar=False):
        self.random = random.Random(seed)
        self.is_columnar = is_columnar
        self._line = self._indices = 0
        self.input = self._record(self.random.randint(1, 6), "f")
        self.layout = self._layout(self.input, can_lack=True)
        self.leaves = list(_leaves(self.input))
        self.output = self.output_layout = None
        self.outputs, self.copied = [], []
        if self.random.random() < 0.5:
            copied = [each for each in self.input.fields if self.random.random() < 0.5]
            others = self._record(self.random.randint(1, 3), "o").fields
            self.output = schema.RecordType((*others, *(schema.Field(each.name, each.type) for each in copied)))
            self.output_layout = self._layout(self.output, can_lack=False)
            self.copied = [each.name for each in copied]
        self.program = self._program()

    # ---- schemas and layouts

    def _record(self, count, letter, depth=0):
        return schema.RecordType(tuple(self._field(f"{letter}{number}", depth) for number in range(count)))

    def _field(self, name, depth):
        choose = self.random.choice
        kinds = [schema.Bool(), schema.Int(), schema.Int(choose((8, 16, 32, 64)), choose((True, False)))]
        kinds += [schema.Float(), schema.Float(choose((16, 32, 64))), schema.Text(choose((1, 3, 8, 20)))]
        kinds += [schema.Bytes(choose((1, 2, 8, 70)), True)]
        type_: Any = choose(kinds)
        if depth < 2 and self.random.random() < 0.2:
            type_ = self._record(self.random.randint(1, 3), "n", depth + 1)
        default = None
        if self.random.random() < 0.25:
            shape = tuple(self.random.randint(1, 4) for _ in range(self.random.randint(1, 2)))
            type_ = schema.Array(type_, shape)
        elif not isinstance(type_, schema.RecordType) and self.random.random() < 0.3:
            default = plain.encode(self._value(type_))
        return schema.Field(name, type_, default, default is not None)

    def _value(self, type_):
        choose = self.random.choice
        match type_:
            case schema.Bool():
                return choose((True, False))
            case schema.Int(bits, signed):
                low = -(2 ** (bits - 1)) if signed else 0
                return low + (choose(INTS) - low) % 2**bits
            case schema.Float(bits):
                with numpy.errstate(all="ignore"):
                    return float(numpy.array(choose(FLOATS)).astype(f"f{bits // 8}"))
            case schema.Text(chars):
                return choose(TEXTS)[:chars].rstrip("\0")
            case schema.Bytes(size):
                return choose(TEXTS).encode()[:size].rstrip(b"\0")

    def _layout(self, record, can_lack):
        fields, offset = [], 0
        names = list(record.fields)
        self.random.shuffle(names)
        is_packed = self.random.random() < 0.5
        for field in names:
            if can_lack and self.random.random() < 0.15:
                continue
            shape: tuple[int, ...] = ()
            type_: Any = field.type
            while isinstance(type_, schema.Array):
                shape, type_ = shape + type_.shape, type_.item
            if isinstance(type_, schema.RecordType):
                nested = self._layout(type_, can_lack)
                size, laid_out = nested.itemsize, schema.LaidOut(field.name, 0, "", shape, nested)
            else:
                code = self._code(type_, can_lack)
                size, laid_out = numpy.dtype(code).itemsize, schema.LaidOut(field.name, 0, code, shape)
            if not is_packed:
                offset += -offset % 8 + self.random.choice((0, 8))
            fields.append(schema.LaidOut(laid_out.name, offset, laid_out.code, shape, laid_out.layout))
            offset += size * int(numpy.prod(shape))
        return schema.Layout(max(offset + self.random.choice((0, 0, 3)), 1), tuple(fields))

    def _code(self, type_: Any, can_narrow):
        choose, order = self.random.choice, self.random.choice("<>")
        match type_:
            case schema.Bool():
                return "|b1"
            case schema.Int(bits, signed):
                size = choose([each for each in (1, 2, 4, 8) if each * 8 <= bits]) if can_narrow else bits // 8
                return f"{order if size > 1 else '|'}{'i' if signed else 'u'}{size}"
            case schema.Float(bits):
                size = choose([each for each in (2, 4, 8) if each * 8 <= bits]) if can_narrow else bits // 8
                return f"{order}f{size}"
            case schema.Text(chars):
                return f"{order}U{self.random.randint(1, chars or 1) if can_narrow else chars}"
            case schema.Bytes(size):
                return f"|S{self.random.randint(1, size or 1) if can_narrow else size}"

    def block(self, count):
        """So many records, with values from the edges."""
        data = bytearray(self.random.randbytes(count * self.layout.itemsize))
        array = numpy.frombuffer(data, numpy.uint8)
        for path in terminals(self.layout, ()):
            place = place_of(self.layout, path)
            assert place is not None
            column = view(array, place, self.layout.itemsize, count)
            for index in numpy.ndindex(column.shape):
                self._fill(column, index, place.dtype)
        return bytes(data)

    def _fill(self, column, index, dtype):
        if dtype.kind == "f" and self.random.random() < 0.9:
            with numpy.errstate(all="ignore"):
                column[index] = numpy.float64(self.random.choice((*FLOATS, self.random.uniform(-9, 9))))
        elif dtype.kind in "iu" and self.random.random() < 0.8:
            column[index] = numpy.array(self.random.choice((*INTS, *range(5)))).astype(dtype)
        elif dtype.kind == "U":
            column[index] = self.random.choice(TEXTS)
        elif dtype.kind == "S" and self.random.random() < 0.9:
            column[index] = self.random.choice(TEXTS).encode()

    # ---- programs

    def _program(self):
        self.locals = [self.random.choice(NUMBERS) for _ in range(4)] + [Type.INT] * 3
        self.statics = []
        if not self.is_columnar:
            for number in range(self.random.randint(0, 4)):
                type_ = self.random.choice(NUMBERS)
                initial = self._const(type_).value
                self.statics.append(StaticVariable(f"s{number}", type_, initial, self.random.choice((0, 0, 3))))
        types = [self.random.choice((*NUMBERS, Type.TEXT)) for _ in range(self.random.randint(0, 3))]
        self.params = [Parameter(f"p{number}", type_) for number, type_ in enumerate(types)]
        if self.output is not None:
            self.outputs = [each for each in program_outputs(self.output) if each.path[0] not in self.copied]
        start = tuple(tree.SetLocal(slot, self._const(each)) for slot, each in enumerate(self.locals))
        # Two that are set once: what is known of their values stays known.
        for _ in range(2):
            value = self._expression(Type.INT, 2)
            start += (tree.SetLocal(len(self.locals), value),)
            self.locals.append(Type.INT)
        body = (*start, *self._block(3, False), tree.Return(self._expression(Type.BOOL, 3)))
        parts = (tuple(self.locals), tuple(self.statics), tuple(self.params), tuple(self.leaves))
        return Program(body, *parts, self.input, self.output, 100)

    def param_values(self):
        """Values for its parameters."""
        return [self._const(each.type).value for each in self.params]

    def _where(self):
        self._line += 1
        return Where(self._line, self.random.randint(1, 80))

    def _block(self, depth, in_loop):
        statements = tuple(self._statement(depth, in_loop) for _ in range(self.random.randint(1, 4)))
        for number, each in enumerate(statements):
            if isinstance(each, tree.Break | tree.Continue | tree.Return):
                return statements[: number + 1]
        return statements

    def _statement(self, depth, in_loop):
        roll = self.random.random()
        if depth and roll < 0.2:
            otherwise = self._block(depth - 1, in_loop) if self.random.random() < 0.6 else ()
            return tree.If(self._expression(Type.BOOL, 2), self._block(depth - 1, in_loop), otherwise)
        if depth and roll < 0.35 and not self.is_columnar:
            return self._loop(depth)
        if roll < 0.42 and in_loop:
            return self.random.choice((tree.Break(), tree.Continue()))
        if roll < 0.45:
            return tree.Return(self._expression(Type.BOOL, 2))
        if roll < 0.6 and self.statics:
            slot = self.random.randrange(len(self.statics))
            static = self.statics[slot]
            index = self._index(static.length) if static.length else None
            return tree.SetStatic(slot, index, self._expression(static.type, 3), self._where())
        if roll < 0.75 and self.outputs:
            leaf = self.random.choice(self.outputs)
            type_ = Type.INT if leaf.type is Type.UNSIGNED else leaf.type
            return tree.StoreItem(leaf, tuple(map(self._index, leaf.shape)), self._expression(type_, 3), self._where())
        if roll < 0.82 and self.copied and not in_loop:
            name = self.random.choice(self.copied)
            return tree.Copy((name,), (name,))
        slot = self.random.randrange(4)
        return tree.SetLocal(slot, self._expression(self.locals[slot], 3))

    def _loop(self, depth):
        step = self.random.choice((1, 1, 2, -1, -3, 2**62))
        bounds: list[Expression] = [
            tree.Const(Type.INT, self.random.randint(-3, 4)),
            tree.Const(Type.INT, self.random.randint(-3, 6)),
        ]
        if self.random.random() < 0.4:
            low, high = tree.Const(Type.INT, -2), tree.Const(Type.INT, 5)
            inner = tree.FunctionCall(Type.INT, "max_int", (self._expression(Type.INT, 1), low), self._where())
            bounds[self.random.randrange(2)] = tree.FunctionCall(Type.INT, "min_int", (inner, high), self._where())
        elif self.random.random() < 0.1:
            bounds, step = [tree.Const(Type.INT, -(2**63)), tree.Const(Type.INT, 2**63 - 1)], 2**62
        return tree.For(4 + depth - 1, bounds[0], bounds[1], step, self._block(depth - 1, True), 8)

    def _const(self, type_):
        choose = self.random.choice
        match type_:
            case Type.BOOL:
                return tree.Const(type_, choose((True, False)))
            case Type.INT:
                return tree.Const(type_, choose(INTS))
            case Type.FLOAT:
                return tree.Const(type_, choose(FLOATS))
            case Type.TEXT:
                return tree.Const(type_, choose(TEXTS))
            case Type.BYTES:
                return tree.Const(type_, choose(TEXTS).encode())

    def _index(self, length):
        if self.random.random() < 0.6 or self._indices > 1:
            return tree.Const(Type.INT, self.random.randrange(length))
        self._indices += 1
        try:
            return self._computed_index(length)
        finally:
            self._indices -= 1

    def _computed_index(self, length):
        if self.random.random() < 0.5:
            return tree.Binary(
                Type.INT, "%", self._expression(Type.INT, 1), tree.Const(Type.INT, length), self._where()
            )
        return self._expression(Type.INT, 1)

    def _expression(self, type_, depth):
        if depth == 0 or self.random.random() < 0.15:
            return self._operand(type_)
        make = {Type.BOOL: self._truth, Type.INT: self._whole, Type.FLOAT: self._real}[type_]
        return make(depth - 1)

    def _operand(self, type_):
        found: list[Callable[[], Expression]] = [lambda: self._const(type_)]
        slots = [slot for slot, each in enumerate(self.locals) if each is type_]
        if slots:
            found.append(lambda: tree.Local(type_, self.random.choice(slots)))
        leaves = [leaf for leaf in self.leaves if leaf.type is type_]
        if leaves:
            found += [lambda: self._load(self.random.choice(leaves))] * 3
        params = [slot for slot, each in enumerate(self.params) if each.type is type_]
        if params:
            found.append(lambda: tree.Param(type_, self.random.choice(params)))
        statics = [slot for slot, each in enumerate(self.statics) if each.type is type_]
        if statics:
            found.append(lambda: self._static(self.random.choice(statics)))
        return self.random.choice(found)()

    def _static(self, slot):
        static = self.statics[slot]
        return tree.Static(static.type, slot, self._index(static.length) if static.length else None, self._where())

    def _load(self, leaf):
        return tree.Load(leaf.type, leaf, tuple(map(self._index, leaf.shape)), self._where())

    def _choice(self, type_, depth):
        condition = self._expression(Type.BOOL, depth)
        return tree.Choice(type_, condition, self._expression(type_, depth), self._expression(type_, depth))

    def _truth(self, depth):
        roll = self.random.random()
        if roll < 0.25:
            values = tuple(self._expression(Type.BOOL, depth) for _ in range(self.random.randint(2, 3)))
            return tree.Logic(Type.BOOL, self.random.choice(("and", "or")), values)
        if roll < 0.35:
            return tree.Unary(Type.BOOL, "not", self._expression(Type.BOOL, depth))
        if roll < 0.4:
            return self._choice(Type.BOOL, depth)
        if roll < 0.5:
            value = self._expression(self.random.choice((Type.INT, Type.FLOAT)), depth)
            return tree.Convert(Type.BOOL, value, self._where())
        if roll < 0.6:
            name = self.random.choice(("isnan", "isinf", "isfinite"))
            return tree.FunctionCall(Type.BOOL, name, (self._expression(Type.FLOAT, depth),), self._where())
        return self._comparison(depth)

    def _comparison(self, depth):
        operator = self.random.choice(("==", "!=", "<", "<=", ">", ">="))
        roll = self.random.random()
        unsigned = [leaf for leaf in self.leaves if leaf.type is Type.UNSIGNED]
        if roll < 0.25 and unsigned:
            one = self._load(self.random.choice(unsigned))
            if self.random.random() < 0.3:
                return tree.Compare(Type.BOOL, operator, one, self._load(self.random.choice(unsigned)))
            pair = [one, self._expression(Type.INT, depth)]
            self.random.shuffle(pair)
            return tree.Compare(Type.BOOL, operator, *pair)
        if roll < 0.5:
            type_ = self.random.choice((Type.TEXT, Type.BYTES))
            pair = [self._operand(type_), self._operand(type_)]
            return tree.Compare(Type.BOOL, self.random.choice(("==", "!=")), *pair)
        type_ = self.random.choice(NUMBERS)
        return tree.Compare(Type.BOOL, operator, self._expression(type_, depth), self._expression(type_, depth))

    def _whole(self, depth):
        roll = self.random.random()
        if roll < 0.5:
            operator = self.random.choice(("+", "-", "*", "//", "%", "&", "|", "^", "<<", ">>"))
            pair = (self._expression(Type.INT, depth), self._expression(Type.INT, depth))
            if operator in ("<<", ">>") and self.random.random() < 0.7:
                pair = (pair[0], tree.Const(Type.INT, self.random.randint(0, 63)))
            return tree.Binary(Type.INT, operator, *pair, self._where())
        if roll < 0.6:
            return tree.Unary(Type.INT, self.random.choice("-~"), self._expression(Type.INT, depth))
        if roll < 0.7:
            name = self.random.choice(("abs_int", "min_int", "max_int"))
            count = len(FUNCTIONS[name].arguments)
            return tree.FunctionCall(
                Type.INT, name, tuple(self._expression(Type.INT, depth) for _ in range(count)), self._where()
            )
        if roll < 0.8:
            return self._choice(Type.INT, depth)
        unsigned = [leaf for leaf in self.leaves if leaf.type is Type.UNSIGNED]
        if roll < 0.85 and unsigned:
            return tree.Convert(Type.INT, self._load(self.random.choice(unsigned)), self._where())
        value = self._expression(self.random.choice((Type.BOOL, Type.FLOAT)), depth)
        return tree.Convert(Type.INT, value, self._where())

    def _real(self, depth):
        roll = self.random.random()
        if roll < 0.45:
            operator = self.random.choice(("+", "-", "*", "/", "//", "%"))
            pair = (self._expression(Type.FLOAT, depth), self._expression(Type.FLOAT, depth))
            return tree.Binary(Type.FLOAT, operator, *pair, self._where())
        if roll < 0.5:
            return tree.Unary(Type.FLOAT, "-", self._expression(Type.FLOAT, depth))
        if roll < 0.75:
            names = _EXACT if self.is_columnar else FUNCTIONS
            name = self.random.choice([each for each in names if FUNCTIONS[each].result is Type.FLOAT])
            count = len(FUNCTIONS[name].arguments)
            values = tuple(self._expression(Type.FLOAT, depth) for _ in range(count))
            return tree.FunctionCall(Type.FLOAT, name, values, self._where())
        if roll < 0.85:
            return self._choice(Type.FLOAT, depth)
        unsigned = [leaf for leaf in self.leaves if leaf.type is Type.UNSIGNED]
        if roll < 0.9 and unsigned:
            return tree.Convert(Type.FLOAT, self._load(self.random.choice(unsigned)), self._where())
        return tree.Convert(Type.FLOAT, self._expression(Type.INT, depth), self._where())


def _leaves(record, path=(), shape=()):
    for field in record.fields:
        type_, lengths = field.type, shape
        while isinstance(type_, schema.Array):
            lengths, type_ = lengths + type_.shape, type_.item
        here = (*path, field.name)
        match type_:
            case schema.RecordType():
                yield from _leaves(type_, here, lengths)
            case schema.Bool():
                yield Leaf(here, lengths, Type.BOOL, 1)
            case schema.Int(64, False):
                yield Leaf(here, lengths, Type.UNSIGNED, 64, False)
            case schema.Int(bits, signed):
                yield Leaf(here, lengths, Type.INT, bits, signed)
            case schema.Float(bits):
                yield Leaf(here, lengths, Type.FLOAT, bits)
            case schema.Text():
                yield Leaf(here, lengths, Type.TEXT, 0)
            case schema.Bytes():
                yield Leaf(here, lengths, Type.BYTES, 0)


def bits(values):
    """Static variables as something that is equal only where all bits are."""
    if isinstance(values, list):
        return [bits(each) for each in values]
    return struct.pack("<d", values) if type(values) is float else (type(values).__name__, values)
