"""Whether a type may open a typed channel, publish to it, subscribe to it.

A channel has the fields that it was *defined* with, and *extensions*: fields that some producer added. A producer's
type has what was defined, or more; a consumer's has as much of both as it likes. Fields are matched by name; their
order, and how and under which name the type was declared, make no difference.

Not every record has an extension, nor a field that was defined with a default: whoever wants to have one gives it a
default too, unless the channel has one that can be written down.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from echannel_ray.errors import TypeMismatch
from echannel_ray.schemas.extension import lossless, other_kind
from echannel_ray.schemas.schema import Field, RecordType
from echannel_ray.schemas.type_texts import type_text

MAX_EXTENSIONS: Final = 1000  # fields that were added to a channel stay for good
_OR_ELSE: Final = "use the type that the channel was created with, or another channel"


class _Problem(NamedTuple):
    """What is wrong with one field: the channel's type of it, the one given here (None: there is no such field)."""

    field: str
    expected: str | None
    got: str | None
    detail: str = ""
    is_rare: bool = False  # some records of the channel have it

    @property
    def difference(self) -> str:
        """The difference in words."""
        if self.expected is None:
            which = "not all its records have a" if self.is_rare else "its type has no"
            return f"{which} field {self.field!r} (here: {self.got})"
        if self.got is None:
            return f"its type has a field {self.field!r} ({self.expected}) that is missing here"
        return f"its field {self.field!r} is {self.expected}, not {self.got}{self.detail}"


def check_opening(channel: str, defined: RecordType, asked: RecordType, extensions: RecordType) -> None:
    """Raise `TypeMismatch` where a type can neither publish to the channel nor subscribe to it."""
    producing = _producing(defined, asked, extensions)
    consuming = _consuming(defined, asked, extensions)
    if producing and consuming:
        hindrances = {problem.field for problem in consuming}
        worst = next((problem for problem in producing if problem.field in hindrances), producing[0])
        raise _mismatch(channel, "opened", worst, _OR_ELSE)


def check_producer(channel: str, defined: RecordType, asked: RecordType, extensions: RecordType) -> None:
    """Raise `TypeMismatch` where records of a type can't be published as what the channel has."""
    for problem in _producing(defined, asked, extensions):
        cure = "add it" if problem.got is None else f"declare it as {problem.expected}"
        raise _mismatch(channel, "published to", problem, f"{cure}, {_OR_ELSE}")


def check_consumer(channel: str, defined: RecordType, asked: RecordType, extensions: RecordType) -> None:
    """Raise `TypeMismatch` where what the channel has can't arrive as records of a type."""
    for problem in _consuming(defined, asked, extensions):
        cure = "give it a default" if problem.expected is None else f"declare it as {problem.expected}"
        raise _mismatch(channel, "subscribed to", problem, f"{cure}, leave it out, {_OR_ELSE}")


def extended(defined: RecordType, asked: RecordType, extensions: RecordType) -> RecordType:
    """The extensions with what a type adds to them; nobody else needs to have it, so it is optional. Also what only
    consumers have: whoever publishes such a field later has to mean the same.
    """
    added = [
        Field(field.name, field.type, field.default, True)
        for field in asked.fields
        if defined.field(field.name) is None and extensions.field(field.name) is None
    ]
    made = RecordType((*extensions.fields, *added)) if added else extensions
    if len(made.fields) > MAX_EXTENSIONS:
        raise ValueError(f"more than {MAX_EXTENSIONS} fields")
    return made


def _producing(defined: RecordType, asked: RecordType, extensions: RecordType) -> list[_Problem]:
    problems = []
    for field in (*defined.fields, *extensions.fields):
        given = asked.field(field.name)
        if given is None:
            if not field.is_optional:
                problems.append(_Problem(field.name, type_text(field.type), None))
            continue
        reason = lossless(given.type, field.type)
        if reason is not None:
            problems.append(_unfit(field, given, reason, other_kind(given.type, field.type)))
    return problems


def _consuming(defined: RecordType, asked: RecordType, extensions: RecordType) -> list[_Problem]:
    problems = []
    for wanted in asked.fields:
        own = defined.field(wanted.name)
        field = own or extensions.field(wanted.name)
        reason = lossless(field.type, wanted.type) if field is not None else None
        # Where not every record has it, somebody has to say what to put in its place.
        may_lack = own is None or own.is_optional
        has_default = wanted.is_optional or (field is not None and field.default is not None)
        if field is not None and reason is not None:
            problems.append(_unfit(field, wanted, reason, other_kind(field.type, wanted.type)))
        elif may_lack and not has_default:
            problems.append(_Problem(wanted.name, None, type_text(wanted.type), is_rare=field is not None))
    return problems


def _unfit(field: Field, here: Field, reason: str, obvious: str) -> _Problem:
    # "Is float, not str" says it all; that some ints are no floats, or which part of a record differs, must be said.
    detail = "" if reason == obvious else f" ({reason})"
    return _Problem(field.name, type_text(field.type), type_text(here.type), detail)


def _mismatch(channel: str, act: str, problem: _Problem, advice: str) -> TypeMismatch:
    message = f"channel {channel!r} can't be {act} so: {problem.difference}. {advice[0].upper()}{advice[1:]}"
    return TypeMismatch(message, channel=channel, field=problem.field, expected=problem.expected, got=problem.got)
