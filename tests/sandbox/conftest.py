"""Sandboxes that are gone when a module of tests is done, however it went."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sandbox.arena import Arena


@pytest.fixture(scope="module")
def shared_arena() -> Iterator[Arena]:
    arena = Arena()
    yield arena
    arena.close()


@pytest.fixture
def arena(shared_arena: Arena) -> Iterator[Arena]:
    yield shared_arena
    shared_arena.clear()
