"""The image: what it is built from, by whom it is run, and that nothing comes in without a hash."""

from __future__ import annotations

import re
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests.k8s.rendered import FOLDER, ROOT, manifests, of_kind

tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no tomllib; any other version checks the same")

DOCKERFILE = FOLDER / "Dockerfile"
LOCK, IMAGE_LOCK = ROOT / "requirements.lock", FOLDER / "requirements.lock"
EXTRAS = ("pod", "native", "arrow", "serve", "tracing")


def instructions(text):
    """(name, rest) of each, without comments and with lines joined."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    return [tuple(each.split(maxsplit=1)) for each in lines.replace("\\\n", " ").splitlines() if each.strip()]


def faults(text, requires_python):
    """What is wrong with a Dockerfile."""
    stages: list[list[tuple[str, str]]] = []
    arguments, user = {}, "root"
    for name, rest in instructions(text):
        if name == "ARG":
            key, _, value = rest.partition("=")
            arguments[key] = value
        elif name == "FROM":
            image = re.sub(r"\$\{(\w+)\}", lambda match: arguments[match[1]], rest.split()[0])
            stages.append([])
            user = "root"
            version = re.search(r":(\d+\.\d+\.\d+)-slim", image)
            if version is None:
                yield f"{image} is not one version of a slim image"
            elif version[1] not in requires_python:
                yield f"Python {version[1]} is out of range"
        elif name == "USER":
            user = rest
        if stages:
            stages[-1].append((name, rest))
    for _, rest in [each for stage in stages for each in stage if each[0] == "RUN"]:
        for install in re.findall(r"pip install[^&]*", rest):
            if "--require-hashes" not in install and not {"--no-deps", "--no-build-isolation"} <= set(install.split()):
                yield f"without hashes: {install}"
            if "--require-hashes" in install and "--only-binary :all:" not in install:
                yield f"builds what it installs: {install}"
        if re.search(r"curl|wget|apt-get|https?://", rest):
            yield f"fetches something: {rest}"
    if len(stages) < 2 or any("pip install" in rest or "gcc" in rest for _, rest in stages[-1]):
        yield "the last stage installs"
    if not re.fullmatch(r"[1-9]\d*:[1-9]\d*", user):
        yield f"runs as {user}"


PYTHONS = SpecifierSet(metadata.metadata("echannel-ray")["Requires-Python"])


def test_the_image_is_built_by_hashes_and_runs_as_nobody_special():
    assert list(faults(DOCKERFILE.read_text(), PYTHONS)) == []


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("3.11.14-slim-bookworm", "3.11-slim", "one version"),
        ("3.11.14-slim-bookworm", "latest", "one version"),
        ("3.11.14", "3.9.14", "out of range"),
        ("--require-hashes", "", "without hashes"),
        (" --only-binary :all:", "", "builds what it installs"),
        ("--no-deps", "", "without hashes"),
        ("RUN groupadd", "RUN pip install --require-hashes --only-binary :all: -r a && groupadd", "last stage"),
        ("RUN groupadd", "RUN apt-get install --yes gcc && groupadd", "fetches"),
        ("USER 1000:1000", "USER echannel", "runs as echannel"),
        ("USER 1000:1000", "", "runs as root"),
    ],
)
def test_what_is_wrong_with_an_image_is_found(before, after, said):
    text = DOCKERFILE.read_text()
    assert before in text
    found = list(faults(text.replace(before, after), PYTHONS))
    assert any(said in each for each in found), found


def test_pods_run_as_the_images_user():
    (user,) = [rest for name, rest in instructions(DOCKERFILE.read_text()) if name == "USER"]
    for document in of_kind(manifests("production"), "RayCluster"):
        for group in [document["spec"]["headGroupSpec"], *document["spec"]["workerGroupSpecs"]]:
            context = group["template"]["spec"]["securityContext"]
            assert user == f"{context['runAsUser']}:{context['runAsGroup']}"


def test_what_is_copied_is_there_and_let_through():
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[0] == "*", "what is not named stays outside, keys and all"
    copied = [
        source
        for name, rest in instructions(DOCKERFILE.read_text())
        if name == "COPY" and "--from" not in rest
        for source in rest.split()[:-1]
    ]
    assert sorted(f"!{each}" for each in copied) == sorted(each for each in ignored if each.startswith("!"))
    assert all((ROOT / each).exists() for each in copied)


def pins(path):
    """Of each pin its hashes."""
    entries = re.split(r"^(?=[a-z0-9])", path.read_text(), flags=re.MULTILINE)
    found = {}
    for entry in entries[1:]:
        ((name, version),) = re.findall(r"^([a-z0-9.-]+)==([^\s;]+)", entry)
        found[name, version] = frozenset(re.findall(r"sha256:[0-9a-f]{64}", entry))
    return found


def test_the_lock_of_the_image_is_a_part_of_the_lock():
    """`make lock` makes both; one that was made alone shows here."""
    ours, all_of_them = pins(IMAGE_LOCK), pins(LOCK)
    assert ours.items() <= all_of_them.items()
    assert all(ours.values()), "a pin without hashes"
    assert not {"pyspark", "pytest", "mypy", "selenium"} & {name for name, _ in ours}


def requirements_of(name):
    """What a distribution asks for, of which it may be a part for some extras."""
    if name != "echannel-ray":
        return metadata.distribution(name).requires or []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    return project["dependencies"] + [f'{each}; extra == "{extra}"' for extra in EXTRAS for each in extras[extra]]


def test_all_that_is_needed_is_in_the_lock_of_the_image():
    """For the Python that runs this: pip with --require-hashes would refuse the rest."""
    pinned = {name for name, _ in pins(IMAGE_LOCK)}
    wanted, seen = [("echannel-ray", extra) for extra in ("", *EXTRAS)], set()
    while wanted:
        name, extra = wanted.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        assert name == "echannel-ray" or name in pinned, name
        for text in requirements_of(name):
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                below = re.sub(r"[-_.]+", "-", requirement.name).lower()
                wanted += [(below, each) for each in ("", *requirement.extras)]
    assert ("ray", "default") in seen
    (made,) = re.findall(r"^IMAGE_EXTRAS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert tuple(made.split()) == EXTRAS
