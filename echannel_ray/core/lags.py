"""How far consumers lag behind: events that were published for them, and that they have not handled.

Two processes know of it: the consumer's says what waits there and how far each stream has come to it (`arrived`), the
producer's how far that goes (`ends`). Whoever has both answers takes one from the other. They were not given in the
same moment, so while events flow this is exact to what was published in between. It is exact when nothing is published,
and nothing on its way: a gap that a consumer is told of, or the news that there is another log.

* What a policy has dropped for a consumer is no part of its lag: where that is a laggard, its own end says so.
* Of a group the producer knows what its members have not reported as handled, which they are asked for four times a
  second, and it counts once.
* Of a retained channel the log has the end. Each group counts with what it has not acknowledged there.
* Of a derived channel it counts what its modulators have emitted, and not what waits for them.
* A process that does not answer has no lag that anybody knows of; its producers are blocked before long, which shows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from echannel_ray.core.counters import add_up
from echannel_ray.core.kinds import GAP
from echannel_ray.core.streams import SenderStream

LAG = "consumer_lag_events"


def stream_name(endpoint: int, number: int) -> str:
    """A stream, as these answers name it."""
    return f"{endpoint:016x}.{number}"


def ends_of(endpoint: int, stream: SenderStream) -> dict[str, int]:
    """The sequence number of what a stream of this endpoint publishes next; for laggards of what they get next."""
    name = stream_name(endpoint, stream.number)
    ends = {name: stream.next_sequence}
    for recipient in stream.laggards:
        first, last, _ = recipient.gap or (1, 0, 0)
        ends[place_of(name, recipient.endpoint, recipient.subscription)] = stream.next_sequence - (last - first + 1)
    return ends


def lag_of_groups(stream: SenderStream) -> int:
    """What members of groups were given and have not handled, and what waits for one that has room."""
    members = (member.sent for group in stream.groups.values() for member in group)
    return sum(each.kind != GAP for waiting in (*members, *stream.undelivered.values()) for each in waiting)


def place_of(name: str, endpoint: int, subscription: int) -> str:
    """One subscription on a stream, as these answers name it."""
    return f"{name}/{endpoint:016x}.{subscription}"


def take_off(answers: Iterable[dict[str, Any]]) -> None:
    """Put the lag into the counters of all endpoints, in the place of what has arrived and what there was."""
    ends: dict[str, int] = {}
    for counters in answers:
        ends.update(counters.pop("ends", {}))
    for counters in answers:
        for each in (counters, *counters.get("derived", {}).values()):
            arrived = each.pop("arrived", {})
            ahead = (_end(ends, place) - expected for place, expected in arrived.items())
            add_up(each, {LAG: sum(max(0, missing) for missing in ahead)})


def _end(ends: dict[str, int], place: str) -> int:
    end = ends.get(place)
    return end if end is not None else ends.get(place.partition("/")[0], 0)
