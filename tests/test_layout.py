"""Where the parts of the package are, in this tree and in what is installed from it."""

from __future__ import annotations

import importlib
from importlib import metadata, resources
from pathlib import Path

import pytest

tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no tomllib; any other version checks the same")

ROOT = Path(__file__).parent.parent
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


@pytest.mark.parametrize("name", ["benchmarks", "modulators", "integrations"])
def test_top_level_folders_are_imported_as_parts_of_the_package(name):
    module = importlib.import_module(f"echannel_ray.{name}")
    assert module.__file__ == str(ROOT / name / "__init__.py")


def test_types_are_shipped():
    assert resources.files("echannel_ray").joinpath("py.typed").is_file()
    assert "py.typed" in SETUPTOOLS["package-data"]["echannel_ray"]


def test_every_package_is_listed_for_wheels():
    folders = {"echannel_ray": ROOT / "echannel_ray"}
    folders |= {f"echannel_ray.{name}": ROOT / name for name in ("benchmarks", "modulators", "integrations")}
    present = {
        ".".join([package, *init.parent.relative_to(folder).parts])
        for package, folder in folders.items()
        for init in folder.rglob("__init__.py")
    }
    assert present == set(SETUPTOOLS["packages"])


def test_the_command_is_installed():
    (command,) = metadata.entry_points(group="console_scripts", name="echannel")
    assert command.value == "echannel_ray.cli:main"
