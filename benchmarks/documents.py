"""The parts of documents that are written from the kept results, each between two marks that name it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from echannel_ray.benchmarks import goals, headlines
from echannel_ray.benchmarks.conclusions import of_revisions
from echannel_ray.benchmarks.facts import FOLDER
from echannel_ray.benchmarks.result import Result
from echannel_ray.benchmarks.table import EXPERIMENTS

HOW = "written from benchmarks/results by `make figures`"
PART = re.compile(r"<!-- (\w[\w ]*):[^\n]*-->\n.*?<!-- end -->", re.DOTALL)
REASON = re.compile(r"((?:^## .+\n)+)\n([^#]+)", re.MULTILINE)  # one or several headings, and a paragraph


class UnknownPart(ValueError):
    """A document has marks of a part that nobody writes."""


def parts(results: Sequence[Result]) -> dict[str, list[str]]:
    """The lines of each part, by its name."""
    standings = goals.standings(EXPERIMENTS.values(), results)
    why = written_reasons()
    first = [headline for headline in headlines.HEADLINES if headline.is_first]
    return {
        "revision": [of_revisions(results)],
        "figures": headlines.table(headlines.HEADLINES, results),
        "first figures": headlines.table(first, results),
        "goals": goals.table(standings),
        "reasons": goals.reasons(standings, why),
    }


def written_reasons() -> dict[str, str]:
    """Why goals are missed, by their names."""
    found = REASON.findall((FOLDER / "reasons.md").read_text())
    return {
        heading.removeprefix("## "): " ".join(text.split())
        for headings, text in found
        for heading in headings.splitlines()
    }


def written(document: str, results: Sequence[Result]) -> str:
    """A document, with its parts as the results have them."""
    made = parts(results)

    def replaced(found: re.Match[str]) -> str:
        if found[1] not in made:
            raise UnknownPart(f"there is no part {found[1]!r}; there are {', '.join(made)}")
        return "\n".join([f"<!-- {found[1]}: {HOW} -->", "", *made[found[1]], "", "<!-- end -->"])

    return PART.sub(replaced, document)


def write(documents: Sequence[Path], results: Sequence[Result]) -> None:
    """Write these documents anew."""
    for document in documents:
        document.write_text(written(document.read_text(), results))
