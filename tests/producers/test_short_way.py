"""What is published the short way arrives as what it was then, in order, and is counted as it travels."""

from __future__ import annotations

import enum
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echannel_ray import errors
from echannel_ray.core.kinds import PICKLED, PLAIN
from echannel_ray.formats.events import SIMPLE_WRITERS, encode, pickle_of_simple, size_of
from echannel_ray.producers import consumer_sink
from tests.endpoint.walking import FULL_PACK, Line


class Whole(int):
    """No int to msgspec."""


class Text(str):
    """No text to msgspec."""


class Pair(tuple[int, int]):
    """No tuple to anybody who looks at its class."""


class Side(enum.IntEnum):
    BUY = 1


PLAIN_ONES: list[Any] = [
    None, True, False, 0, -1, 2**63 - 1, -(2**63), 2**64 - 1, 0.0, -0.0, 1.5, float("inf"), "", "text", "a" * 300, b"",
    b"bytes", b"b" * 300,
]  # fmt: skip
OTHERS: list[Any] = [
    2**64, -(2**63) - 1, 2**200, "Ä", "текст", "\ud800", "a" * 3000, b"b" * 3000, (), (1, (2, [3])), [], [1, "x", None],
    {}, {"a": (1, 2), "b": {"c": [b"d"]}}, {1, 2}, frozenset({3}), Whole(5), Text("x"), Pair((1, 2)), Side.BUY,
    [Side.BUY], bytearray(b"x"), {"x": bytearray(b"y")}, 1 + 2j, range(3), "\x93", [0x93] * 5, "\xcc\x08__main__",
    "Ä" * 30_000, {"\u2013": "\u201c"},
]  # fmt: skip


@pytest.fixture
def line() -> Line:
    return Line()


def same(a: Any, b: Any) -> bool:
    """Equal, and of the same types all the way down."""
    if type(a) is not type(b) or repr(a) != repr(b):
        return False
    if isinstance(a, dict):
        return [*a] == [*b] and all(same(a[key], b[key]) for key in a)
    return not isinstance(a, list | tuple) or all(map(same, a, b))


def published(line: Line, events: list[Any], parts: int = 2) -> list[Any]:
    """What arrives of these, of which each part is published between two ticks."""
    line.seen.clear()
    each = -(-len(events) // parts)
    for at in range(0, len(events), each):
        line.producing.crew.ticks += 1
        for event in events[at : at + each]:
            assert line.publisher.publish(event)
        line.tick()
    return [*line.seen]


def len_at_least(event: Any) -> int:
    return len(event) if isinstance(event, bytes | str) else 1


def publish_for_good(line: Line, event: Any) -> None:
    while True:
        line.publisher.publish(event, timeout=0)


def watched(monkeypatch: pytest.MonkeyPatch, line: Line, event_class: type) -> list[Any]:
    """The events of a class that are taken for simple ones, as they are."""
    calls: list[Any] = []
    kind, write, size = SIMPLE_WRITERS[event_class]

    def call(event: Any) -> Any:
        calls.append(event)
        return write(event)

    monkeypatch.setattr(line.publisher.sink, "_writers", {**SIMPLE_WRITERS, event_class: (kind, call, size)})
    return calls


def the_long_way(line: Line, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What takes it from now on."""
    taken: list[Any] = []
    gather: Callable[..., bool] = consumer_sink.ConsumerSink._gather

    def call(sink: Any, event: Any, *more: Any) -> bool:
        taken.append(event)
        return gather(sink, event, *more)

    monkeypatch.setattr(consumer_sink.ConsumerSink, "_gather", call)
    return taken


@pytest.mark.parametrize("event", [*PLAIN_ONES, *OTHERS], ids=lambda event: f"{type(event).__name__} {event!r:.20}")
def test_each_kind(line, event):
    came = published(line, [event] * 40)
    assert len(came) == 40
    assert all(same(each, event) for each in came)


@pytest.mark.parametrize("seed", range(20))
def test_all_kinds_mixed(line, seed):
    chance = random.Random(seed)
    few = chance.sample([*PLAIN_ONES, *OTHERS], chance.choice([2, 5, 20]))
    events = [event for _ in range(60) for event in [chance.choice(few)] * chance.choice([1, 1, 2, 10])]
    came = published(line, events)
    assert len(came) == len(events)
    assert all(map(same, came, events))


@pytest.mark.parametrize(
    "event", [None, True, 7, 2**70, 1.5, "text", "Ä", "\ud800", (1, 2), [1], {"a": ([1], {})}, {1}, frozenset({1})]
)
def test_simple_ones_take_it(line, event, monkeypatch):
    published(line, [event] * 4)
    monkeypatch.setattr(type(line.publisher.sink), "_gather", None)
    line.publisher.publish(event)  # which would call it
    line.tick()
    assert same(line.seen[-1], event)


@pytest.mark.parametrize(
    "few",
    [[None, {"a": 1}, b"b" * 100], [b"x", (1,)], ["Ä", b"b" * 1000], [2**70, 7, "\ud800"], [True, 2.5, "Ä", [()]]],
)
def test_ones_of_different_kinds_in_turn_take_it(line, few, monkeypatch):
    events = few * 60
    taken = the_long_way(line, monkeypatch)
    came = published(line, events)
    assert len(came) == len(events)
    assert all(map(same, came, events))
    assert len(taken) <= 4 * len(events) / FULL_PACK + 8  # some at each pack and tick, and not each of them


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(max_size=2000),
    lambda inner: (
        st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=9), inner, max_size=4)
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=6), st.lists(st.integers(0, 5), min_size=1, max_size=300))
def test_any_values_in_any_turns(few, turns):
    line = Line()
    events = [few[turn % len(few)] for turn in turns]
    before = line.publisher.stream.published_bytes
    came = published(line, events, parts=3)
    assert len(came) == len(events)
    assert all(map(same, came, events))
    assert line.publisher.stream.published_bytes - before >= sum(map(len_at_least, events))


@pytest.mark.parametrize("wide", ["Ä", "\u20ac", "\U0001f300", "a\ud800"])
@pytest.mark.parametrize("length", [1, 255, 256, 257, 341, 511, 512, 1023, 1024, 1025])
def test_texts_that_are_not_ascii_around_the_limits(line, wide, length):
    text = (wide * length)[:length]
    events = ["text", text, 5, text, b"bytes", "t" * length] * 10
    before = line.publisher.stream.published_bytes
    came = published(line, events)
    assert all(map(same, came, events))
    assert len(came) == len(events)
    if "\ud800" not in text:  # of which the size is that of a pickle
        assert line.publisher.stream.published_bytes - before == sum(encode(event)[2] for event in events)


def test_one_text_that_utf_8_has_no_place_for_costs_the_others_nothing(line):
    line.seen.clear()
    events = ["Ä", 1, "\ud800", None, "ä\udfff", b"b", "ö"]
    for event in events:
        line.publisher.publish(event)
    assert len(line.publisher.sink._plain) == len(events)  # they are all taken in together
    line.tick()
    assert all(map(same, line.seen, events))
    assert len(line.seen) == len(events)


def test_what_is_changed_afterwards_arrives_as_it_was(line):
    event: dict[str, Any] = {"n": 0, "inner": [0]}
    line.seen.clear()
    for n in range(50):
        event["n"] = event["inner"][0] = n
        line.publisher.publish(event)
    line.tick()
    assert line.seen == [{"n": n, "inner": [n]} for n in range(50)]


def test_one_list_twice_in_an_event_stays_one(line):
    inner = [1]
    for event in published(line, [[inner, inner]] * 20):
        assert event[0] is event[1]


@pytest.mark.parametrize("few", [PLAIN_ONES, [None, 1, 2.5], [b"", b"bytes"], ["", "text"], ["text", 1], [b"x", None]])
def test_plain_ones_are_counted_as_encoded(line, few):
    events = [few[n % len(few)] for n in range(60)]
    before = line.publisher.stream.published_bytes
    published(line, events)
    assert line.publisher.stream.published_bytes - before == sum(encode(event)[2] for event in events)


def test_the_window_holds_for_the_short_way(line):
    stream = line.publisher.stream
    event = {"text": "x" * 900}
    for _ in range(3):
        line.producing.crew.ticks += 1
        line.publisher.publish(event)
        line.tick()
    line.producing.crew.ticks += 1
    line.publisher.publish(event)
    before = stream.published_bytes
    with pytest.raises(TimeoutError):
        publish_for_good(line, event)
    line.publisher.sink.absorb()
    size = encode(event)[2]
    assert stream.limit_bytes - 2 * size < stream.published_bytes <= stream.limit_bytes
    assert (stream.published_bytes - before) % size == 0


def test_what_no_other_process_can_have_is_refused_and_the_rest_goes_on(line):
    line.seen.clear()
    for n in range(200):
        line.publisher.publish([n])
        if n % 50 == 49:
            with pytest.raises(errors.NotSerialisable):
                line.publisher.publish({"lock": threading.Lock()})
    line.tick()
    assert line.seen == [[n] for n in range(200)]


def test_a_large_array_in_a_dict_travels_beside_its_pickle(line):
    large = np.arange(5000.0)
    events = [{"n": n, "array": large if n % 3 == 0 else None} for n in range(90)]
    came = published(line, events, parts=20)
    assert [event["n"] for event in came] == [*range(90)]
    for event in came[::3]:
        assert (event["array"] == large).all()
        assert not event["array"].flags.writeable


def test_large_ones_are_seldom_encoded_twice(line, monkeypatch):
    calls = watched(monkeypatch, line, dict)
    large = {"array": np.zeros(5000)}
    published(line, [event for _ in range(300) for event in ([1], large)], parts=100)
    assert sum(event is large for event in calls) <= 600 / consumer_sink._UNSIMPLE + 1


@pytest.mark.parametrize("long", [b"b" * 16_384, "t" * 16_384])
def test_long_ones_are_not_pickled_for_nothing(line, long):
    _, write, _ = SIMPLE_WRITERS[type(long)]
    assert write(long) is None
    assert write(long[1:]) is not None
    came = published(line, [event for _ in range(100) for event in ([1], long)], parts=20)
    assert came == [event for _ in range(100) for event in ([1], long)]


def test_threads_of_different_kinds_keep_their_orders(line):
    makers: list[Callable[[int], Any]] = [
        lambda n: n, lambda n: f"{n}", lambda n: b"%d" % n, lambda n: (n,), lambda n: {"n": n}, lambda n: 2**70 + n,
    ]  # fmt: skip
    line.seen.clear()
    count = 400
    begin = threading.Barrier(len(makers) + 1)

    def publish(make: Callable[[int], Any]) -> None:
        begin.wait()
        for n in range(count):
            line.publisher.publish(make(n))

    threads = [threading.Thread(target=publish, args=(make,)) for make in makers]
    for thread in threads:
        thread.start()
    begin.wait()
    while any(thread.is_alive() for thread in threads):
        line.producing.crew.ticks += 1
        line.tick()
    line.tick()
    for make in makers:
        wanted = [make(n) for n in range(count)]
        assert [event for event in line.seen if type(event) is type(wanted[0]) and event in wanted] == wanted
    assert len(line.seen) == count * len(makers)


# ---- what it rests on ----


def test_the_pickle_of_simple_ones_is_that_of_encode():
    for event in OTHERS:
        if type(event) in SIMPLE_WRITERS and encode(event)[0] == PICKLED:
            kind, write, size = SIMPLE_WRITERS[type(event)]
            assert (kind, size) == (PICKLED, 0)
            assert write(event) in (encode(event)[1], None)


def test_none_where_it_is_not_simple():
    class OfMain:
        pass

    OfMain.__module__, OfMain.__qualname__ = "__main__", "OfMain"
    for event in ([np.zeros(5000)], b"x" * 20_000, [threading.Lock()], {"a": OfMain}):
        assert pickle_of_simple(event) is None


def test_sizes():
    for event in PLAIN_ONES:
        assert encode(event) == (PLAIN, event, size_of([event], has_wide=False))
    assert size_of(PLAIN_ONES, has_wide=False) == sum(encode(event)[2] for event in PLAIN_ONES)
    wide = [*PLAIN_ONES, "Ä", "текст", "\U0001f300" * 100]
    assert size_of(wide) == sum(encode(event)[2] for event in wide)
    with pytest.raises(UnicodeEncodeError):
        size_of(["\ud83d", "\ude00"])  # which together would be one character
