"""What the documents name is there: files, functions, tests, pages and their sections, layers, versions."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "echannel_ray"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "k8s/README.md", "integrations/javascript/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
# `core/flows.py`, `tests/faults`, `docs/`, `.ci/run`; with what is defined there: `core/flows.py:FlowSender.send`
NAMED = re.compile(r"(\.?\w[\w.-]*(?:/[\w.-]+)*/?)(?::([A-Za-z_][\w.]*))?")
WRITTEN_BY_READERS = {"k8s/overlays/next/kustomization.yaml"}
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@every_page
def test_files_and_functions_that_it_names_are_there(page):
    missing = []
    for quoted in re.findall(r"`([^`\n]+)`", page.read_text()):
        named = NAMED.fullmatch(quoted)
        if named is None or quoted in WRITTEN_BY_READERS or not is_path(named[1], page):
            continue
        places = [base / named[1] for base in bases(page) if (base / named[1]).exists()]
        if not places or (named[2] is not None and named[2] not in defined_in(places[0])):
            missing.append(quoted)
    assert missing == []


def bases(page):
    return ROOT, PACKAGE, page.parent


def is_path(name, page):
    """Whether it is meant as one. What ends like one is, also when its folder has gone."""
    first, slash, _ = name.partition("/")
    return name.endswith((".py", "/")) or (bool(slash) and any((base / first).is_dir() for base in bases(page)))


@cache
def defined_in(file):
    """The names of a module, and those of its classes behind the names of these."""
    return {*names_of(ast.parse(file.read_text()))}


def names_of(node, prefix=""):
    for each in node.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + each.name
        elif isinstance(each, ast.ClassDef):
            yield prefix + each.name
            yield from names_of(each, f"{prefix}{each.name}.")
        elif isinstance(each, ast.Assign | ast.AnnAssign):
            targets = each.targets if isinstance(each, ast.Assign) else [each.target]
            yield from (prefix + target.id for target in targets if isinstance(target, ast.Name))


@every_page
def test_links_lead_somewhere(page):
    dead = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        target, _, section = link.partition("#")
        if "://" in link:
            continue
        file = page.parent / target if target else page
        if not file.exists() or (section and section not in sections_of(file)):
            dead.append(link)
    assert dead == []


def sections_of(page):
    """The headings, as links have them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@every_page
def test_tests_that_it_names_exist(page):
    defined = {name for path in (ROOT / "tests").rglob("test_*.py") for name in defined_in(path)}
    assert sorted({*re.findall(r"`(test_\w+)`", page.read_text())} - defined) == []


def test_the_examples_of_every_page_are_run():
    pages = [page for page in PAGES if "```python" in page.read_text()]
    assert len(pages) >= 7
    run = "".join(path.read_text() for path in (ROOT / "tests").glob("*/test_*.py"))
    assert [page.name for page in pages if f'"{page.name}"' not in run and f"docs/{page.name}" not in run] == []


def test_every_row_of_what_an_attacker_can_do_names_a_test():
    rows = rows_of("docs/security.md", "What an attacker can and can't do")
    assert len(rows) >= 10
    assert [row for row in rows if "`test_" not in row] == []


def test_every_guarantee_says_where_it_is_decided_what_it_costs_and_what_breaks_it():
    text = (ROOT / "docs/guarantees.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| what holds")]
    assert len(rows) >= 30
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split(" | ")]
        assert [*map(bool, cells)] == [True] * 5, row
        assert re.fullmatch(r"`\w+/\w+\.py`", cells[1]), row
        assert re.fullmatch(r"`tests/[\w/]+\.py:test_\w+`", cells[4]), row


def test_words_are_those_of_the_code():
    words = [row.split("|")[1].strip() for row in rows_of("docs/words.md")]
    assert words == sorted(words, key=str.casefold)
    code = "\n".join(path.read_text().lower() for path in PACKAGE.rglob("*.py"))
    assert [word for both in words for word in both.split(", ") if word.lower() not in code] == []


def test_layers_are_those_of_the_contract():
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no tomllib; any other version checks the same")
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [each["layers"] for each in contracts if each["id"] == "layers"]
    section = (ROOT / "CONTRIBUTING.md").read_text().partition("## The layers\n")[2].partition("\n## ")[0]
    told = [line.strip() for line in section.splitlines() if line.startswith("    ")]
    assert told == [re.sub("[()]", "", line) for line in layers]


def test_every_folder_of_the_package_has_its_row_in_the_design():
    told = {name for row in rows_of("docs/design.md", "The layers") for name in re.findall(r"`(\w+)/`", row)}
    assert told == {init.parent.name for init in PACKAGE.glob("*/__init__.py")}


def test_docstrings_are_understood_where_they_stand():
    folders = "echannel_ray", "benchmarks", "integrations", "modulators"
    files = [path for name in folders for path in (ROOT / name).rglob("*.py")]
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    assert [
        f"{path.relative_to(ROOT)}: {docstring.splitlines()[0]}"
        for path in files
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, documented) and (docstring := ast.get_docstring(node) or "").startswith("See ")
    ] == []


def test_versions_are_those_that_are_checked():
    (pythons,) = re.findall(r"^PYTHONS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    classifiers = re.findall(r"Python :: (3\.\d+)\"", (ROOT / "pyproject.toml").read_text())
    assert pythons.split() == classifiers
    python, ray = rows_of("CONTRIBUTING.md", "Versions of Python and Ray")
    assert python.split("|")[2:4] == [f" {classifiers[0]} ", f" {classifiers[-1]} "]
    (pinned,) = re.findall(r"^ray==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    (bound,) = {*re.findall(r"\"ray(?:\[default\])?>=(\S+)\"", (ROOT / "pyproject.toml").read_text())}
    assert ray.split("|")[2:4] == [f" {bound}.0 ", f" {pinned}, which is pinned "]


def rows_of(page, heading=None):
    """The rows of the table of a page, or of one of its sections."""
    text = (ROOT / page).read_text()
    if heading is not None:
        text = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [line for line in text.splitlines() if line.startswith("| ")][1:]
