"""What runs is what was asked for: the files as they are, or (`make test-compiled`) those of a compiled wheel."""

from __future__ import annotations

import ast
import importlib
import os
import pkgutil
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import FunctionType
from typing import TypeGuard

import pytest

import echannel_ray as ec
from echannel_ray.benchmarks.extras import versions
from echannel_ray.cli.tables import print_status
from echannel_ray.compilation import is_compiled
from echannel_ray.doctor.judgement import judge
from echannel_ray.doctor.machine_facts import look
from echannel_ray.models import Manager, Part, Status

IS_COMPILED = os.environ.get("ECHANNEL_COMPILED") == "1"
ROOT = Path(__file__).parent.parent
OF_PROTOCOLS = {"_abc_impl", "_is_protocol", "_is_runtime_protocol"}  # what `typing` and `abc` give each of them


def hot_modules() -> list[str]:
    """Those that `setup.py` has compiled."""
    for node in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "HOT":
            return [f"echannel_ray.{name.replace('/', '.')}" for name in ast.literal_eval(node.value)]
    raise AssertionError("setup.py names no hot modules")


@pytest.mark.parametrize("name", hot_modules())
def test_a_hot_module_is_what_was_asked_for(name):
    file = importlib.import_module(name).__file__
    assert file is not None
    assert file.endswith(tuple(EXTENSION_SUFFIXES)) == IS_COMPILED


@pytest.mark.skipif(IS_COMPILED, reason="what is declared is seen in the files as they are")
def test_no_attribute_of_a_hot_class_is_declared_again_by_its_class():
    # A compiled class reads its own, whatever a subclass that is not compiled says. And of one that two compiled
    # classes declare the garbage collector counts two references: what refers to it is never freed.
    hot = hot_modules()
    for _, name, _ in pkgutil.walk_packages(ec.__path__, "echannel_ray."):
        if not name.endswith("__main__"):
            importlib.import_module(name)
    todo = [each for name in hot for each in vars(importlib.import_module(name)).values() if isinstance(each, type)]
    pairs = [(base, each) for base in todo if base.__module__ in hot for each in all_subclasses(base)]
    assert {"ConsumerSink", "LogReader", "PullDriver", "LogSink"} <= {each.__name__ for _, each in pairs}
    assert [
        f"{each.__qualname__}.{name}"
        for base, each in pairs
        for name, value in vars(base).items()
        if name in vars(each) and not name.startswith("__") and name not in OF_PROTOCOLS
        if not isinstance(value, (property, FunctionType))
    ] == []


def test_no_attribute_of_a_hot_class_is_declared_again_by_a_method():
    # The same, of `self.name: Type = …` where a class above has assigned to `self.name` already.
    declared: dict[str, set[str]] = {}
    assigned: dict[str, set[str]] = {}
    bases: dict[str, set[str]] = {}
    for folder in ("echannel_ray", "modulators", "integrations", "benchmarks"):
        for file in (ROOT / folder).rglob("*.py"):
            for found in ast.walk(ast.parse(file.read_text())):
                if isinstance(found, ast.ClassDef):
                    bases.setdefault(found.name, set()).update(each.id for each in map(bare, found.bases) if each)
                    for node in ast.walk(found):
                        if isinstance(node, ast.AnnAssign) and is_own(node.target):
                            declared.setdefault(found.name, set()).add(node.target.attr)
                        elif isinstance(node, ast.Assign):
                            assigned.setdefault(found.name, set()).update(t.attr for t in node.targets if is_own(t))
    assert bases["ConsumerSink"] == {"Sink"}
    assert "stream" in declared["Sink"]
    again = []
    for name, attributes in declared.items():
        above, todo = set[str](), [*bases[name]]
        while todo:
            base = todo.pop()
            above |= declared.get(base, set()) | assigned.get(base, set())
            todo += bases.get(base, ())
        again += [f"{name}.{attribute}" for attribute in attributes & above]
    assert again == []


def bare(node: ast.expr) -> ast.Name | None:
    """The name of a base, without its parameters."""
    if isinstance(node, ast.Subscript):
        node = node.value
    return node if isinstance(node, ast.Name) else None


def is_own(node: ast.expr) -> TypeGuard[ast.Attribute]:
    """Whether it is an attribute of `self`."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def all_subclasses(base: type) -> set[type]:
    """Those that there are, also of subclasses."""
    found: set[type] = set()
    todo = [base]
    while todo:
        children: list[type] = todo.pop().__subclasses__()
        found.update(children)
        todo += children
    return found


def test_who_asks_is_told():
    assert is_compiled() == IS_COMPILED
    told = "compiled" if IS_COMPILED else "pure Python"
    assert versions()["echannel_ray"] == told
    (package,) = [each for each in judge([look()]) if each.check == "package"]
    assert f", {told}," in package.says


@pytest.mark.parametrize(
    ("compiled", "told"),
    [
        ((True, True), "all parts run compiled"),
        ((False, False), "all parts run as pure Python"),
        ((True, False), "1 of 2 parts run compiled, the others as pure Python"),
    ],
)
def test_the_status_says_which_parts_are(compiled, told, capsys):
    server, manager = compiled
    status = Status(
        namespace="n",
        name_server=Part(name="name-server", compiled=server),
        managers=[Manager(name="manager", compiled=manager), Manager(name="gone", error="it does not answer")],
        concentrators=[],
        channels=[],
        nodes=[],
    )
    print_status(status)
    assert told in capsys.readouterr().out


def test_nothing_is_said_of_parts_that_do_not_answer(capsys):
    silent = Part(name="name-server", error="it does not answer")
    print_status(Status(namespace="n", name_server=silent, managers=[], concentrators=[], channels=[], nodes=[]))
    assert "pure Python" not in capsys.readouterr().out


def test_parts_say_it_themselves(two_nodes):
    ec.connect()
    try:
        status = ec.status()
        assert {part.compiled for part in (status.name_server, *status.managers, *status.concentrators)} == {
            IS_COMPILED
        }
    finally:
        ec.shutdown()
