"""What a concentrator finds in the directories of its predecessor, and who may have put it there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from echannel_ray.actors.gateway_memory import remember_gateway, remembered_gateway, remembered_identity
from echannel_ray.actors.storage import Storage
from echannel_ray.core.messages import OpenGateway
from echannel_ray.errors import NotAuthorised
from echannel_ray.retained.log_directory import directory_of
from tests.transport.links import NOBODY, as_root

pytestmark = pytest.mark.usefixtures("no_ray")

REQUEST = OpenGateway("127.0.0.1", 0, ("*",), ("*",), (), ())


@pytest.fixture
def temporary(monkeypatch, tmp_path):
    monkeypatch.delenv("ECHANNEL_LOGS", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_secrets_are_for_this_user_alone(temporary):
    assert remembered_gateway("default", 1) is None
    remember_gateway("default", 1, REQUEST, b"an identity")
    assert (remembered_gateway("default", 1), remembered_identity("default", 1)) == (REQUEST, b"an identity")
    directory = directory_of("default", 1)
    for path in (directory.parent, directory):
        assert path.stat().st_mode & 0o777 == 0o700
    for path in directory.iterdir():
        assert path.stat().st_mode & 0o777 == 0o600


@as_root
@pytest.mark.parametrize("level", ["base", "own"])
@pytest.mark.parametrize("what", ["gateway", "log"])
def test_what_another_user_has_planted_is_not_used(temporary, level, what):
    remember_gateway("default", 1, REQUEST, b"an identity of theirs")
    own = directory_of("default", 1)
    if what == "log":
        for path in own.iterdir():
            path.unlink()
        (own / "log.json").write_text("{}")
    planted: Path = own if level == "own" else own.parent
    os.chown(planted, NOBODY, NOBODY)
    with pytest.raises(NotAuthorised, match=f"belongs to user {NOBODY}"):
        Storage("default", 1).recover()
