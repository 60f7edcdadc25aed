"""Who has room for an event, and what becomes of one for which somebody has none: decided here and nowhere else.

Rules:

* A window is what may be published and not yet handled: in bytes for a consumer in another process, for the member of a
  group, for a modulator and for a log; in events for a consumer in the producer's own process. What is larger than a
  window passes alone.
* A group has room where one of its members has, and nothing waits for the group that was given back.
* `ON_FULL` says, for each overflow policy and whoever has no room, what follows. Publishers are held up (they wait, or
  are refused) before anybody gets the event; what is dropped is dropped for that one consumer, and told as a gap.
* Behind a large event that is leaving in chunks everything waits, whatever the policy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from typing_extensions import override

if TYPE_CHECKING:
    from echannel_ray.core.streams import Recipient, SenderStream

BLOCK, RAISE, DROP_NEWEST, DROP_OLDEST = "block", "raise", "drop_newest", "drop_oldest"
OVERFLOW_POLICIES: Final = (BLOCK, RAISE, DROP_NEWEST, DROP_OLDEST)

# Who has no room: a consumer in another process, all members of a group, a consumer in the producer's process, a
# modulator that does not keep up, the log of a retained channel.
CONSUMER, GROUP, LOCAL, MODULATOR, LOG = "consumer", "group", "local", "modulator", "log"

# What follows: the publisher waits, or its call raises; the new event is dropped for that one, or what waits longest.
WAIT, REFUSE, DROP_THIS, DROP_LONGEST_WAITING = "wait", "refuse", "drop this", "drop longest waiting"

ON_FULL: Final = {
    BLOCK: {CONSUMER: WAIT, GROUP: WAIT, LOCAL: WAIT, MODULATOR: WAIT, LOG: WAIT},
    RAISE: {CONSUMER: REFUSE, GROUP: REFUSE, LOCAL: REFUSE, MODULATOR: REFUSE, LOG: REFUSE},
    DROP_NEWEST: {CONSUMER: DROP_THIS, GROUP: DROP_THIS, LOCAL: DROP_THIS, MODULATOR: DROP_THIS, LOG: DROP_THIS},
    DROP_OLDEST: {
        CONSUMER: DROP_LONGEST_WAITING,
        GROUP: DROP_THIS,  # what waits was given to one member or another, and may be handled already
        LOCAL: DROP_LONGEST_WAITING,
        MODULATOR: DROP_LONGEST_WAITING,
        LOG: DROP_LONGEST_WAITING,
    },
}


def holds_up(policy: str) -> bool:
    """Whether publishers are held up where somebody has no room; else something is dropped."""
    return ON_FULL[policy][CONSUMER] in (WAIT, REFUSE)


def refuses(policy: str) -> bool:
    """Whether, under this policy, a call that is held up raises at once."""
    return ON_FULL[policy][CONSUMER] == REFUSE


def on_full(stream: SenderStream, who: str) -> str:
    """What this stream does where somebody of this sort has no room."""
    return ON_FULL[stream.overflow][who]


class Blocker(NamedTuple):
    """Somebody who holds up the publishers of a stream, as errors name it."""

    name: str

    @override
    def __str__(self) -> str:
        return self.name


LARGE_EVENT: Final = Blocker("a large event that is leaving")
LOCAL_CONSUMER: Final = Blocker("a consumer in this process")
SLOW_MODULATOR: Final = Blocker("a modulator that does not keep up")


def has_room(recipient: Recipient, size_bytes: int, window_bytes: int) -> bool:
    """Whether a recipient with a route of its own may be sent so much: within its window, or alone."""
    outstanding = recipient.outstanding_bytes
    return outstanding == 0 or outstanding + size_bytes <= window_bytes


def plain_have_room(stream: SenderStream, size_bytes: int) -> bool:
    """Whether the plain recipients all have room."""
    slowest = stream.slowest_mark()
    return slowest == stream.published_bytes or stream.published_bytes + size_bytes - slowest <= stream.window_bytes


def full_recipients(stream: SenderStream, size_bytes: int) -> list[Recipient]:
    """The plain recipients that have no room."""
    room = stream.published_bytes + size_bytes - stream.window_bytes
    return [r for r in stream.plain_recipients if r.handled_mark < room and r.handled_mark != stream.published_bytes]


def group_has_room(stream: SenderStream, name: str, size_bytes: int) -> bool:
    """Whether a member of the group has room."""
    members = [member for member in stream.groups[name] if not member.is_leaving]
    if not members:
        return True  # only members that leave: nobody is to get it
    if stream.undelivered.get(name):
        return False
    return any(has_room(member, size_bytes, stream.window_bytes) for member in members)


def full_groups(stream: SenderStream, size_bytes: int) -> list[str]:
    """The groups in which no member has room."""
    return [name for name in stream.groups if not group_has_room(stream, name, size_bytes)]


def blockers(
    stream: SenderStream,
    size_bytes: int,
    local_is_full: bool = False,
    backlog_bytes: int = 0,
    is_excused: Callable[[Recipient], bool] = lambda recipient: False,
) -> list[Blocker]:
    """Who holds up the publishers of a stream; empty where an event of this size may be published now.

    `backlog_bytes` wait for modulators. `is_excused`: a handler may publish into its own channel, and can't wait for
    itself.
    """
    found = [LARGE_EVENT] if stream.chunks else []
    if not holds_up(stream.overflow):
        return found
    if backlog_bytes > stream.window_bytes:
        found.append(SLOW_MODULATOR)
    if stream.route is not None and not plain_have_room(stream, size_bytes):
        full = full_recipients(stream, size_bytes)
        found += [Blocker(f"consumer {recipient.endpoint:016x}.{recipient.subscription}") for recipient in full]
    groups = full_groups(stream, size_bytes) if stream.groups else []
    found += [Blocker(f"group {name!r}") for name in groups if not any(map(is_excused, stream.groups[name]))]
    if local_is_full:
        found.append(LOCAL_CONSUMER)
    return found
