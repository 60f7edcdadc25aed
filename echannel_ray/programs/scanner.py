"""A first look at a text, before Python's own parser sees it: nesting can bring that one down, and it warns of what it
finds odd. One pass, whose time grows with the length of the text only.

How deep an expression may nest is counted from above: each operator may nest what is on its left, each bracket what is
in it. Commas, comparisons, `and` and `or` stand side by side.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from echannel_ray.programs.program import Where
from echannel_ray.programs.program_refusals import Refused, shown_name

MAX_TEXT_BYTES: Final = 64 * 1024
MAX_NESTING: Final = 100
_MAX_LINES: Final = 10_000
_MAX_INDENT: Final = 30
_MAX_ELIFS: Final = 400
_MAX_DIGITS: Final = 400

_START: Final = Where(1, 1)
_TOKEN: Final = re.compile(
    r"""(?P<blank>[ \t]+|\\\n)|(?P<comment>\#[^\n]*)|(?P<newline>\n)
    |(?P<string>[A-Za-z]{0,3}(?:'{3}(?:[^'\\]|\\.|'(?!''))*'{3}|"{3}(?:[^"\\]|\\.|"(?!""))*"{3}
        |'(?!'')(?:[^'\\\n]|\\.)*'|"(?!"")(?:[^"\\\n]|\\.)*"))
    |(?P<number>(?:[0-9]|\.[0-9])(?:[eE][+-](?=[0-9])|[\w.])*)
    |(?P<name>[^\W\d]\w*)
    |(?P<operator>&&|\|\||:=|->|\*\*|//|<<|>>|[<>=!]=|[-+*/%&|^~<>=:,.;()\[\]])
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_NUMBER: Final = re.compile(
    r"0[xX](?:_?[0-9a-fA-F])+|0[oO](?:_?[0-7])+|0[bB](?:_?[01])+|0(?:_?0)*|[1-9](?:_?[0-9])*"
    r"|(?:[0-9](?:_?[0-9])*\.?(?:[0-9](?:_?[0-9])*)?|\.[0-9](?:_?[0-9])*)(?:[eE][+-]?[0-9](?:_?[0-9])*)?"
)
_ESCAPE: Final = re.compile(r"\\(?:[0-7]{1,3}|.)", re.DOTALL)
_ESCAPES: Final = frozenset("\\'\"abfnrtvx01234567\n")
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
_BESIDE: Final = frozenset({"and", "or", "in", "<", ">", "<=", ">=", "==", "!="})
_ENDS: Final = frozenset({",", ":", ";", "="})
_OPEN, _CLOSE = frozenset("(["), frozenset(")]")

_NO_FUNCTIONS: Final = "programs have no functions of their own: write what it does where it is needed"
_REFUSED: Final[dict[str, str]] = {
    "while": "there is no `while`: write `for i in range(…)` with a limit, and `break`",
    "lambda": _NO_FUNCTIONS,
    "def": _NO_FUNCTIONS,
    "class": "there are no classes",
    "import": "nothing can be imported: sqrt, sin, min and their like are there already",
    "from": "nothing can be imported: sqrt, sin, min and their like are there already",
    "try": "there is no `try`: test for what could go wrong with `if`",
    "except": "there is no `except`: test for what could go wrong with `if`",
    "finally": "there is no `finally`",
    "raise": "there is no `raise`: `return False` rejects the event",
    "assert": "there is no `assert`: `return False` rejects the event",
    "global": "there is no `global`: what lasts from event to event is `name: static = 0`",
    "nonlocal": "there is no `nonlocal`: what lasts from event to event is `name: static = 0`",
    "del": "there is no `del`",
    "with": "there is no `with`",
    "yield": "there is no `yield`: a program has one output for each event",
    "async": "there is no `async`",
    "await": "there is no `await`",
    "is": "there is no `is`: compare with `==`",
    "None": "there is no None: every value is a number, a truth value or a text",
    "&&": "write `and`",
    "||": "write `or`",
    "!": "write `not`, or `!=`",
    ":=": "there is no `:=`: put the value into a variable in a line of its own",
    "->": _NO_FUNCTIONS,
    "@": "there are neither decorators nor `@`",
    "{": "there are no dicts and sets, and blocks are made by indentation",
    "}": "there are no dicts and sets, and blocks are made by indentation",
    "'": "this text has no end",
    '"': "this text has no end",
    "\\": "a backslash may only stand at the end of a line",
    "$": "`$` means nothing here",
    "?": "`?` means nothing here: write `a if condition else b`",
    "`": "a backquote means nothing here",
}


def scan(text: str) -> None:
    """Raise `Refused` where a text is nothing that the parser should see."""
    if len(text) > MAX_TEXT_BYTES or len(text.encode(errors="surrogatepass")) > MAX_TEXT_BYTES:
        raise Refused(f"a program has at most {MAX_TEXT_BYTES} bytes, and this one more", _START)
    unseen = _UNSEEN.search(text)
    if unseen is not None:
        raise _Scan(text).refused(f"the character U+{ord(unseen[0]):04X} can't be seen: leave it out", unseen.start())
    if text.count("\n") > _MAX_LINES:
        raise Refused(f"a program has at most {_MAX_LINES} lines", _START)
    _Scan(text).run()


class _Level:
    """What is between two brackets."""

    def __init__(self) -> None:
        self.chain = 0  # operators since the last of what stands side by side
        self.inside = 0  # the deepest of the brackets among them
        self.choices = 0
        self.best = 0

    def end(self) -> int:
        """Begin the level anew; how deep it was so far."""
        self.best = max(self.best, self.chain + self.inside)
        self.chain = self.inside = 0
        return self.best + self.choices


class _Scan:
    def __init__(self, text: str) -> None:
        self._text = text
        self._levels = [_Level()]
        self._elifs = 0

    def refused(self, reason: str, at: int) -> Refused:
        before = self._text.rfind("\n", 0, at) + 1
        return Refused(reason, Where(self._text.count("\n", 0, at) + 1, at - before + 1))

    def run(self) -> None:
        is_start, indents = True, [0]
        for match in _TOKEN.finditer(self._text):
            kind, token, at = match.lastgroup, match[0], match.start()
            if kind == "newline" and len(self._levels) == 1:
                self._levels[0], is_start = _Level(), True
            if kind in ("blank", "comment", "newline"):
                continue
            if is_start:
                is_start = False
                self._indent(at, indents)
            self._token(kind, token, at)

    def _indent(self, at: int, indents: list[int]) -> None:
        width = at - self._text.rfind("\n", 0, at) - 1
        while width < indents[-1]:
            indents.pop()
        if width > indents[-1]:
            indents.append(width)
        if len(indents) > _MAX_INDENT:
            raise self.refused(f"blocks nest at most {_MAX_INDENT} deep", at)

    def _token(self, kind: str | None, token: str, at: int) -> None:
        if token in _REFUSED:
            raise self.refused(_REFUSED[token], at)
        match kind:
            case "string":
                self._string(token, at)
            case "number":
                self._number(token, at)
            case "name":
                self._name(token, at)
            case "operator":
                self._operator(token, at)
            case "other":
                raise self.refused(f"{shown_name(token)} means nothing here", at)

    def _string(self, token: str, at: int) -> None:
        prefix = token[: min(token.find(quote) for quote in "'\"" if quote in token)].lower()
        if "f" in prefix or "t" in prefix:
            raise self.refused("there are no f-strings: texts are constants, and only compared", at)
        if prefix not in ("", "b", "r", "u", "br", "rb"):
            raise self.refused(f"{prefix} is no prefix of a text", at)
        if "r" in prefix:
            return
        known = _ESCAPES if "b" in prefix else _ESCAPES | set("uUN")
        for escape in _ESCAPE.finditer(token):
            # Python warns of what it does not know, and of octal numbers above 255.
            if escape[0][1] not in known or (len(escape[0]) == 4 and escape[0][1] > "3"):
                reason = "this backslash means nothing: write two, or an r in front of the text"
                raise self.refused(reason, at + escape.start())

    def _number(self, token: str, at: int) -> None:
        if len(token) > _MAX_DIGITS:
            raise self.refused("whole numbers have 64 bits: this one is too large", at)
        if _NUMBER.fullmatch(token) is None:
            raise self.refused(f"{shown_name(token)} is no number", at)

    def _name(self, token: str, at: int) -> None:
        normal = token if token.isascii() else unicodedata.normalize("NFKC", token)
        if normal != token:
            raise self.refused(f"{shown_name(token)} would be read as {shown_name(normal)}: write it so", at)
        if token in _BESIDE:
            self._levels[-1].end()
        elif token == "not":
            self._levels[-1].chain += 1
            self._measure(at)
        elif token == "else":
            self._levels[-1].choices += 1
            self._measure(at)
        elif token == "elif":
            self._elifs += 1
            if self._elifs > _MAX_ELIFS:
                raise self.refused(f"a program has at most {_MAX_ELIFS} `elif`", at)

    def _operator(self, token: str, at: int) -> None:
        level = self._levels[-1]
        if token in _BESIDE:
            level.end()
        elif token in _ENDS:
            level.end()
            level.choices = 0
        elif token in _CLOSE:
            if len(self._levels) == 1:
                raise self.refused(f"this {token} closes nothing", at)
            depth = self._levels.pop().end() + 1
            self._levels[-1].inside = max(self._levels[-1].inside, depth)
        else:
            level.chain += 1
            if token in _OPEN:
                self._levels.append(_Level())
        self._measure(at)

    def _measure(self, at: int) -> None:
        level = self._levels[-1]
        if len(self._levels) + level.chain + level.inside + level.choices > MAX_NESTING:
            raise self.refused(
                f"this nests deeper than {MAX_NESTING} operators and brackets: put parts of it into variables", at
            )
        if len(self._levels) > MAX_NESTING // 2:
            raise self.refused(f"brackets nest at most {MAX_NESTING // 2} deep", at)
