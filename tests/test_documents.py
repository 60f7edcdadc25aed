"""What the documents say of tests: each that a page names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DEFINED = {
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^\s*(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
}


@pytest.mark.parametrize("page", ["security.md"])
def test_every_test_that_a_page_names_exists(page):
    named = re.findall(r"`(test_\w+)`", (ROOT / "docs" / page).read_text())
    assert named
    assert sorted({*named} - DEFINED) == []


def test_every_row_of_what_an_attacker_can_do_names_a_test():
    text = (ROOT / "docs" / "security.md").read_text()
    section = text.partition("## What an attacker can and can't do")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 10
    assert [row for row in rows if "`test_" not in row] == []
