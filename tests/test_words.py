"""A name means one thing in the package: no two classes, and no two files, have the same one; and modules are nouns."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "echannel_ray"
FILES = sorted(PACKAGE.rglob("*.py"))

CLASSES_THAT_REPEAT: dict[str, str] = {}
STEMS_THAT_REPEAT = {
    "__init__": "each folder of modules has one",
    "__main__": "what `python -m` runs",
    "messages": "what two processes say to each other: all parts of a namespace, and a sandbox and its producer",
}
PARTICIPLE = re.compile(r"\w*(?:ing|[^e]ed)")
# Those that are nouns too, or terms of the field.
NOUNS = {
    "framing": "how frames lie in a stream of bytes",
    "greeting": "what an endpoint says first",
    "lowering": "a compiler's step to a lower form",
    "packing": "`Packing`, an option of channels",
    "ranking": "a list in an order",
    "staging": "what is staged for a write",
    "tracing": "OpenTelemetry's word",
}


def classes() -> Iterator[tuple[str, str]]:
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                yield node.name, f"{file.relative_to(PACKAGE)}:{node.lineno}"


def stems() -> Iterator[tuple[str, str]]:
    for file in FILES:
        yield file.stem, str(file.relative_to(PACKAGE))


@pytest.mark.parametrize(("named", "allowed"), [(classes, CLASSES_THAT_REPEAT), (stems, STEMS_THAT_REPEAT)])
def test_a_name_means_one_thing(named, allowed):
    places = defaultdict(list)
    for name, place in named():
        places[name].append(place)
    repeated = {name: found for name, found in places.items() if len(found) > 1}
    assert {name: found for name, found in repeated.items() if name not in allowed} == {}
    assert sorted(allowed.keys() - repeated.keys()) == [], "these need not be allowed any more"


def test_modules_are_nouns():
    participles = {stem for stem, _ in stems() if PARTICIPLE.fullmatch(stem)}
    assert sorted(participles - NOUNS.keys()) == []
    assert sorted(NOUNS.keys() - participles) == [], "these need not be allowed any more"
