"""The tests of the protocol run without Ray."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _without_ray(no_ray: None) -> None:
    """Every test of this folder."""
