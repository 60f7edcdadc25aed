"""What is shipped to nodes says what keeps it from looking around there."""

from __future__ import annotations

import sys

import cloudpickle

from echannel_ray.doctor.judgement import judge
from echannel_ray.doctor.machine_facts import Facts
from echannel_ray.doctor.survey import _shipped_look


def test_a_node_without_the_package_says_so(monkeypatch):
    look = cloudpickle.loads(cloudpickle.dumps(_shipped_look()))  # by value: nothing of ours is imported for it
    monkeypatch.setitem(sys.modules, "echannel_ray.doctor", None)
    facts = Facts.model_validate(look("a" * 16))
    assert facts.import_error is not None
    (found,) = judge([facts])
    assert (found.check, found.state) == ("package", "problem")
    assert "pip install echannel-ray" in (found.advice or "")
