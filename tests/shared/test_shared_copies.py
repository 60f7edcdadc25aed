"""A shared object by itself: versions, what counts as a change, copies that a fake link connects to their master."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, ClassVar
from uuid import UUID

import annotated_types
import cloudpickle
import pytest
from pydantic import BaseModel, Field, PrivateAttr, ValidationError, field_validator, model_validator

from echannel_ray import errors
from echannel_ray.shared_object import SharedObject, definition_of, rebuild_class


class Colour(Enum):
    RED = "r"
    BLUE = "b"


class Point(BaseModel):
    x: int = 0
    y: int = Field(0, alias="why")


@dataclass
class Span:
    low: float
    high: float


class View(SharedObject):
    low: float = 1.0
    high: float = 2.0
    name: str = "view"
    tags: list[str] = []  # noqa: RUF012 (pydantic copies defaults)
    corner: Point = Point(why=0)
    parts: dict[str, set[int]] = Field(default_factory=dict)
    anything: Any = None


class Ordered(SharedObject):
    low: int = 0
    high: int = 10

    @model_validator(mode="after")
    def _check(self) -> Ordered:
        if self.low > self.high:
            raise ValueError("low is above high")
        return self


class Wire:
    """What copies of one master publish and pull through, as their endpoint would."""

    def __init__(self, master: SharedObject) -> None:
        self.master = master
        self.copies: list[SharedObject] = []

    def publish(self, fields: dict[str, Any], expected_version: int | None) -> tuple[int, dict[str, Any]]:
        state = self.master._echannel_merge(fields, expected_version)
        for each in self.copies:
            each._echannel_update(*copy.deepcopy(state))
        return copy.deepcopy(state)

    def pull(self) -> tuple[int, dict[str, Any]]:
        return copy.deepcopy(self.master._echannel_state())

    def make(self) -> Any:
        version, fields = self.pull()
        self.copies.append(type(self.master)._echannel_copy(version, fields, self))
        return self.copies[-1]


def pair(master: Any) -> tuple[Any, Any]:
    return master, Wire(master).make()


# ---- versions ----


def test_a_version_is_what_was_published():
    view = View()
    assert view.version == 0
    assert view.publish() == 0
    view.low = 5.0
    assert view.version == 0
    assert view.publish() == view.version == 1
    view.low = 5.0
    assert view.publish() == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda view: view.tags.append("a"),
        lambda view: setattr(view.corner, "x", 7),
        lambda view: view.parts.update(a={1}),
        lambda view: setattr(view, "anything", {"a": (1, 2)}),
    ],
)
def test_a_change_inside_a_field_is_a_change(change: Any):
    master, other = pair(View())
    change(master)
    assert master.publish() == 1
    assert other.pull() == 1
    assert other == master
    change_of_copy, master = other, other._echannel.link.master
    change_of_copy.tags.append("b")
    assert change_of_copy.publish() == 2
    assert master.tags[-1] == "b"


def test_what_is_not_published_nobody_sees():
    master, other = pair(View())
    master.low = 5.0
    other.pull()
    assert other.low == 1.0
    other.high = 9.0
    master.publish()
    assert (master.low, master.high) == (5.0, 2.0)


def test_a_version_is_never_taken_back():
    master, other = pair(View())
    old = master._echannel_state()
    master.low = 5.0
    master.publish()
    other.pull()
    other._echannel_update(*old)
    assert (other.version, other.low) == (1, 5.0)


def test_an_update_leaves_alone_what_was_set_here_and_pull_gives_it_up():
    master, other = pair(View())
    other.low, other.name = 7.0, "mine"
    other.tags.append("mine")
    master.low, master.high, master.tags = 5.0, 6.0, ["theirs"]
    master.publish()
    other._echannel_update(*master._echannel_state())
    assert (other.version, other.low, other.high, other.name, other.tags) == (1, 7.0, 6.0, "mine", ["mine"])
    other.pull()
    assert (other.low, other.high, other.name, other.tags) == (5.0, 6.0, "view", ["theirs"])


def test_the_master_too_keeps_what_it_has_set_and_pull_gives_it_up():
    master, other = pair(View())
    master.low = 7.0
    other.low, other.high = 5.0, 6.0
    assert other.publish() == 1
    assert (master.version, master.low, master.high) == (1, 7.0, 6.0)
    assert master._echannel_state()[1]["low"] == 5.0
    assert master.pull() == 1
    assert master.low == 5.0


def test_publishing_merges_field_by_field():
    wire = Wire(View())
    one, two = wire.make(), wire.make()
    one.low = 5.0
    two.high = 6.0
    assert one.publish() == 1
    assert two.publish() == 2
    for each in (one, two, wire.master):
        each.pull()
        assert (each.low, each.high) == (5.0, 6.0)


def test_what_another_one_published_over_ours_is_ours_then():
    """No field may come back to life with the next publish."""
    wire = Wire(View())
    one = wire.make()

    def overtaken(fields: dict[str, Any], expected: int | None) -> tuple[int, dict[str, Any]]:
        merged = Wire.publish(wire, fields, expected)
        wire.master.low = 9.0
        wire.master.publish()
        one._echannel_update(*wire.pull())
        return merged

    wire.publish = overtaken  # type: ignore[method-assign, assignment]
    one.low = 5.0
    assert one.publish() == 1
    assert (one.version, one.low) == (2, 9.0)
    del wire.publish
    assert one.publish() == 2


@pytest.mark.parametrize("of_master", [True, False])
def test_a_stale_version_is_refused_and_nothing_is_lost(of_master: bool):
    master, other = pair(View())
    other.high = 3.0
    other.publish()
    mine = master if of_master else other
    mine.low = 5.0
    with pytest.raises(errors.StaleVersion) as refused:
        mine.publish(expected_version=0)
    assert (refused.value.expected, refused.value.current) == (0, 1)
    assert mine.low == 5.0
    assert mine.publish(expected_version=1) == 2
    assert master._echannel_state()[1]["low"] == 5.0


def test_what_the_master_refuses_can_be_mended():
    master, other = pair(Ordered())
    other.low, other.high = 4, 8
    master.high = 3
    master.publish()
    with pytest.raises(ValueError, match="low is above high"):
        other._echannel.link.publish({"low": 4}, None)
    assert (master.version, master.low) == (1, 0)
    assert other.publish() == 2
    assert (master.low, master.high) == (4, 8)


def test_fields_that_depend_on_each_other_arrive_together():
    master, other = pair(Ordered())
    other.high = 40
    other.low = 30
    other.publish()
    assert (master.low, master.high) == (30, 40)
    master.high = 400
    master.low = 300
    master.publish()
    other.pull()
    assert (other.low, other.high) == (300, 400)


def test_the_master_believes_nobody():
    master = View()
    for fields in ({"low": "no number"}, {"no_field": 1}, {"corner": {"x": "no"}}, {"_echannel": 1}, {"version": 3}):
        with pytest.raises(ValueError, match=r"no_field|low|corner|_echannel|version|validation"):
            master._echannel_merge(fields, None)
    assert master._echannel_state()[0] == 0


def test_updates_are_never_torn():
    """Readers by `snapshot` see the values of one version, whatever other threads do."""
    master, other = pair(Ordered(low=0, high=1_000_000))
    stop = threading.Event()
    torn = []

    def look() -> None:
        while not stop.is_set():
            seen = other.snapshot()
            if seen.low != seen.version or seen.high != seen.version + 1_000_000:
                torn.append(seen)

    threads = [threading.Thread(target=look) for _ in range(2)]
    for each in threads:
        each.start()
    for number in range(1, 2001):
        master.high = number + 1_000_000
        master.low = number
        master.publish()
        other._echannel_update(*master._echannel_state())
    stop.set()
    for each in threads:
        each.join()
    assert torn == []


# ---- values ----


class Various(SharedObject):
    colour: Colour = Colour.RED
    uuid: UUID = UUID(int=1)
    path: Path = Path("a")
    span: Span = Field(default_factory=lambda: Span(0, 1))
    points: list[Point] = []  # noqa: RUF012
    by_colour: dict[Colour, tuple[int, ...]] = {}  # noqa: RUF012
    either: int | str = 1
    number: float = 0.0
    big: int = 0
    flags: frozenset[str] = frozenset()


def test_values_come_back_as_their_annotations_say():
    master, other = pair(Various())
    master.colour, master.uuid, master.path = Colour.BLUE, UUID(int=7), Path("/b/c")
    master.span = Span(2, 3)
    master.points = [Point(x=1, why=2)]
    master.by_colour = {Colour.BLUE: (1, 2)}
    master.either, master.number, master.big, master.flags = "1", float("nan"), 10**40, frozenset({"x", "y"})
    assert master.publish() == 1
    other.pull()
    for name in type(master).model_fields:
        if name != "number":
            assert getattr(other, name) == getattr(master, name), name
            assert type(getattr(other, name)) is type(getattr(master, name)), name
    assert other.number != other.number
    assert other.publish() == master.publish() == 1


@pytest.mark.parametrize("value", [object(), lambda: 1, {"a": object()}, "\ud800", 1 << 40_000, View()], ids=type)
def test_what_is_no_plain_data_is_refused_by_name(value: Any):
    view = View()
    view.low = 5.0
    view.anything = value
    with pytest.raises(errors.NotSerialisable, match="anything") as refused:
        view.publish()
    assert refused.value.field == "anything"
    assert view.version == 0
    view.anything = None
    assert view.publish() == 1


def test_what_is_in_itself_is_refused():
    view = View()
    view.anything = []
    view.anything.append(view.anything)
    with pytest.raises(errors.NotSerialisable, match="nested"):
        view.publish()


def test_what_is_too_large_is_refused():
    view = View()
    view.anything = b"." * (8 << 20)
    with pytest.raises(errors.NotSerialisable, match="bytes"):
        view.publish()


def test_copies_share_nothing_mutable():
    master, other = pair(View(anything=[1]))
    other.anything.append(2)
    other.tags.append("x")
    assert master.anything == [1]
    assert master.tags == []


def test_assignment_is_validated():
    view: Any = View()
    with pytest.raises(ValidationError):
        view.low = "no number"
    assert view.publish() == 0
    view.low = "3"
    assert view.low == 3.0


# ---- snapshots and copies ----


def test_a_snapshot_is_of_one_version_and_nobody_changes_it():
    view = View(tags=["a"])
    view.low = 3.0
    view.publish()
    seen = view.snapshot()
    view.low = 4.0
    view.tags.append("b")
    view.publish()
    assert (seen.version, seen.low, seen.tags) == (1, 3.0, ["a"])
    assert isinstance(seen, View)
    for act in (seen.publish, seen.pull, lambda: setattr(seen, "low", 1.0), lambda: setattr(seen, "policy", "lazy")):
        with pytest.raises(TypeError, match="snapshot"):
            act()
    again = cloudpickle.loads(cloudpickle.dumps(seen))
    assert (again.version, again) == (1, seen)


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda v: v.model_copy(), lambda v: v.model_copy(deep=True)]
)
def test_a_duplicate_is_an_object_of_its_own(duplicate: Any):
    master, other = pair(View())
    master.low = 3.0
    master.publish()
    other.pull()
    for each in (master, other):
        own = duplicate(each)
        assert own == each
        assert own.version == 0
        own.low = 9.0
        assert own.publish() == 1
        assert master.low == 3.0


def test_objects_with_equal_fields_are_equal():
    assert View() == View()
    assert View() != View(low=0)


# ---- bad input ----


@pytest.mark.parametrize("policy", ["eager", "", None, 1])
def test_there_are_two_policies(policy: Any):
    view = View()
    with pytest.raises(ValueError, match="prompt"):
        view.policy = policy
    assert view.policy == "prompt"


def test_a_copy_has_no_policy():
    _, other = pair(View())
    assert other.policy is None
    with pytest.raises(errors.EChannelError, match="master"):
        other.policy = "lazy"


@pytest.mark.parametrize("version", ["1", 1.0, True, b"", object()])
def test_an_expected_version_is_an_int(version: Any):
    with pytest.raises(TypeError, match="expected_version"):
        View().publish(expected_version=version)


@pytest.mark.parametrize("name", ["version", "policy", "publish", "pull", "snapshot", "apublish", "apull"])
def test_a_field_may_not_hide_what_every_shared_object_has(name: str):
    with pytest.raises(TypeError, match=name):
        type("Bad", (SharedObject,), {"__annotations__": {name: int}, "__module__": __name__})


# ---- classes by value ----

_DEFINITION = '''
from __future__ import annotations
import sys, io, hashlib, pickle
import cloudpickle
from typing import Annotated, ClassVar
from pydantic import BaseModel, Field, PrivateAttr, ConfigDict, field_validator, model_validator, computed_field
from echannel_ray.shared_object import SharedObject, definition_of, rebuild_class
assert "ray" not in sys.modules

class Base(SharedObject):
    """The base."""
    low: Annotated[float, Field(ge=0)] = 1.0

class Mine(Base):
    """Mine."""
    model_config = ConfigDict(extra="forbid")
    limit: ClassVar[int] = 7
    high: float = Field(2.0, le=100, description="the top")
    names: list[str] = Field(default_factory=list)
    needed: int
    _note: str = PrivateAttr("n")

    @field_validator("high")
    @classmethod
    def _whole(cls, value: float) -> float:
        return float(round(value))

    @model_validator(mode="after")
    def _ordered(self) -> Mine:
        if self.low > self.high:
            raise ValueError("low is above high")
        return self

    @computed_field
    @property
    def width(self) -> float:
        return self.high - self.low

    def wider(self) -> Mine:
        made = Mine(low=self.low, high=self.high + 1, needed=self.needed)
        assert type(made) is __class__
        return made

class Pickler(cloudpickle.CloudPickler):
    def reducer_override(self, obj):
        if isinstance(obj, type) and issubclass(obj, SharedObject) and obj.__module__ == "__main__":
            return rebuild_class, definition_of(obj)
        return super().reducer_override(obj)

def dumps(obj):
    file = io.BytesIO()
    Pickler(file, protocol=5).dump(obj)
    return file.getvalue()
'''

_CHECK = """
cls = cloudpickle.loads(data)
assert cls is not Mine and cls.__qualname__ == "Mine" and cls.__doc__ == "Mine." and cls.__module__ == "__main__"
made = cls(needed=3, high=5.4)
found = made.low, made.high, made.names, made.needed, made.width, made._note, cls.limit
assert found == (1.0, 5.0, [], 3, 4.0, "n", 7)
assert type(made.wider()) is cls and made.wider().high == 6.0
assert cls.model_fields["high"].description == "the top"
assert cls.__mro__[1].__name__ == "Base" and cls.__mro__[2] is SharedObject
for bad in ({"needed": "x"}, {"high": 101}, {"low": -1}, {"low": 9}, {"no": 1}):
    try:
        cls(**{"needed": 1, **bad})
    except ValueError:
        continue
    raise AssertionError(bad)
made.low = 2
assert made.publish() == 1
again = cls._echannel_copy(*made._echannel_state(), link=None)
assert again == made
data2 = dumps(cls)
assert cloudpickle.loads(data2)(needed=1).wider().high == 3.0
"""


def _run(script: str, **environment: str) -> str:
    command, environ = [sys.executable, "-c", script], {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_class_goes_by_value_as_its_author_wrote_it():
    _run(f"{_DEFINITION}\ndata = dumps(Mine)\n{_CHECK}")


def test_its_bytes_are_the_same_in_every_process():
    script = f"{_DEFINITION}\nprint(hashlib.sha256(dumps(Mine)).hexdigest(), len(dumps(Mine)))"
    printed = {_run(script, PYTHONHASHSEED=str(seed)) for seed in range(3)}
    assert len(printed) == 1
    assert int(printed.pop().split()[1]) < 6000


def test_plain_cloudpickle_takes_it_too():
    """As Ray's does for classes of `__main__`."""
    made = "cloudpickle.loads(cloudpickle.dumps(Mine))(needed=1)"
    _run(f"{_DEFINITION}\nassert {made}.wider().high == 3.0")


def test_a_class_of_a_module_is_rebuilt_as_well():
    class Local(SharedObject):
        low: Annotated[int, annotated_types.Ge(0)] = 0
        _kept: list[int] = PrivateAttr(default_factory=list)
        limit: ClassVar[int] = 3

        @field_validator("low")
        @classmethod
        def _even(cls, value: int) -> int:
            return value - value % 2

        def model_post_init(self, context: Any, /) -> None:
            SharedObject.model_post_init(self, context)
            self._kept.append(self.low)

    made: Any = rebuild_class(*definition_of(Local))
    assert made is not Local
    assert made(low=5).low == 4
    assert made(low=5)._kept == [4]
    assert made.limit == 3
    with pytest.raises(ValidationError):
        made(low=-1)
