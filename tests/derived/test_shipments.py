"""Which modules of a program travel with its modulators."""

from __future__ import annotations

import importlib
import sys

import cloudpickle
import pytest

from echannel_ray.derived.shipments import _by_value


@pytest.mark.parametrize("order", ["its own name first", "the other name first"])
def test_a_module_that_has_another_name_too(tmp_path, monkeypatch, order):
    (tmp_path / "program_of_two_names.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("program_of_two_names")
    monkeypatch.setitem(sys.modules, "its_former_name", module)
    if order == "the other name first":
        monkeypatch.delitem(sys.modules, "program_of_two_names")
        monkeypatch.setitem(sys.modules, "program_of_two_names", module)
    with _by_value():
        assert "program_of_two_names" in cloudpickle.list_registry_pickle_by_value()
    assert "program_of_two_names" not in cloudpickle.list_registry_pickle_by_value()
