"""The relay: who gets what, who learns of whose death, and what nobody may do to others."""

from __future__ import annotations

import contextlib
import random

import pytest

from echannel_ray.core import frames
from echannel_ray.core.frames import KEY, LEAST_BODY, MAX_FRAME_BYTES, NUMBER, MalformedFrame
from echannel_ray.core.framing import Framer
from echannel_ray.core.relay import MAX_DEPARTED, Relay
from tests.core.reading import routed

HERE, THERE, ELSEWHERE = 0xA, 0xB, 0xC


@pytest.fixture
def relay():
    """Endpoints 1 and 2 on the links "e1" and "e2", peers THERE and ELSEWHERE on "b" and "c"."""
    relay = Relay(HERE)
    relay.endpoint_attached(1, "e1")
    relay.endpoint_attached(2, "e2")
    relay.peer_attached(THERE, "b")
    relay.peer_attached(ELSEWHERE, "c")
    relay.outbox.clear()
    yield relay
    relay.validate()


def receive(relay: Relay, link: str, whole: bytes) -> list[tuple[object, int, bytes]]:
    """Feed one frame: (link, kind, body) of what goes out."""
    return [(to, each[4], each[frames.HEADER_BYTES :]) for to, each in routed(relay, link, whole)]


def out(relay: Relay) -> list[tuple[object, int, bytes]]:
    return [(link, whole[4], bytes(whole[frames.HEADER_BYTES :])) for link, whole in relay.take_outbox()]


def declared(relay: Relay) -> None:
    """Flow 7 of endpoint 1, to 2, and to 3 and 4 at THERE."""
    receive(relay, "e1", frames.flow_declaration(1, 7, HERE, [(HERE, 2), (THERE, 3), (THERE, 4)]))


def pack(endpoint: int = 1, flow: int = 7, scope: int = 0) -> bytes:
    return frames.pack_head(endpoint, flow, 1, scope, 0, 3) + b"abc"


def gone(endpoint: int) -> bytes:
    return frames.frame(frames.GONE, NUMBER.pack(endpoint))


def test_a_declaration_goes_to_whom_it_concerns(relay: Relay) -> None:
    sent = receive(relay, "e1", frames.flow_declaration(1, 7, HERE, [(HERE, 2), (THERE, 3), (THERE, 4)]))
    assert [(link, frames.parse_flow(body).destinations) for link, _, body in sent] == [
        ("e2", ((HERE, 2),)),
        ("b", ((THERE, 3), (THERE, 4))),
    ]


def test_what_goes_the_same_way_goes_in_one_piece(relay: Relay) -> None:
    declared(relay)
    ending = frames.frame(frames.FLOW_ENDED, KEY.pack(9, 9))  # of no flow: it goes nowhere
    one, two, three = pack() + frames.probe(1, 7, 1, 0), pack(), pack(scope=THERE) + pack(scope=THERE)
    data = one + ending + two + three
    assert [*relay.route("e1", Framer().frames(data, len(data)), memoryview(data))] == []
    assert relay.take_outbox() == [
        *[("e2", one), ("b", one), ("e2", two), ("b", two)],
        *[("b", three)],
    ]


def test_what_is_not_for_relays_is_given_back_in_its_place(relay: Relay) -> None:
    data = frames.flow_declaration(1, 7, HERE, [(HERE, 2)]) + frames.frame(frames.REQUEST, bytes(9)) + pack()
    given_back = []
    for kind, _, start, stop in relay.route("e1", Framer().frames(data, len(data)), memoryview(data)):
        given_back.append((kind, data[start:stop]))
        assert len(relay.flows) == 1
        assert not relay.packs_routed
    assert given_back == [(frames.REQUEST, bytes(9))]
    assert relay.packs_routed == 1


@pytest.mark.parametrize(("scope", "links"), [(0, ["e2", "b"]), (HERE, ["e2"]), (THERE, ["b"]), (ELSEWHERE, [])])
def test_packs_and_probes_go_where_their_scope_says(relay: Relay, scope: int, links: list[str]) -> None:
    declared(relay)
    for whole in (pack(scope=scope), frames.probe(1, 7, 1, scope)):
        assert [link for link, *_ in receive(relay, "e1", whole)] == links


def test_a_pack_of_an_unknown_flow_is_answered(relay: Relay) -> None:
    assert receive(relay, "e1", pack()) == [("e1", frames.UNKNOWN_FLOW, KEY.pack(1, 7))]


def test_acknowledgements_are_merged(relay: Relay) -> None:
    receive(relay, "b", frames.flow_declaration(3, 9, THERE, [(HERE, 1), (HERE, 2)]))
    assert receive(relay, "e1", frames.ack(3, 9, 5, HERE)) == []
    merged = [("b", frames.ACK, frames.ACK_FIXED.pack(3, 9, 4, HERE))]
    assert receive(relay, "e2", frames.ack(3, 9, 4, HERE)) == merged
    assert receive(relay, "e2", frames.ack(3, 9, 4, HERE)) == [
        ("b", frames.ACK, frames.ACK_FIXED.pack(3, 9, 4, HERE))
    ]  # asked
    receive(relay, "b", frames.flow_declaration(3, 9, THERE, [(HERE, 1), (HERE, 2)]))
    assert relay.flows[KEY.pack(3, 9)].merged == 4


def test_an_acknowledgement_from_elsewhere_goes_upstream_as_it_is(relay: Relay) -> None:
    declared(relay)
    assert [link for link, *_ in receive(relay, "b", frames.ack(1, 7, 4, THERE))] == ["e1"]


def test_the_death_of_a_destination_is_told_before_what_it_sets_free(relay: Relay) -> None:
    receive(relay, "b", frames.flow_declaration(3, 9, THERE, [(HERE, 1), (HERE, 2)]))
    receive(relay, "e1", frames.ack(3, 9, 5, HERE))
    relay.endpoint_gone(2)
    assert [(link, kind) for link, kind, _ in out(relay)][:2] == [("b", frames.GONE), ("b", frames.ACK)]


def test_the_last_destination_takes_the_route_along(relay: Relay) -> None:
    receive(relay, "b", frames.flow_declaration(3, 9, THERE, [(HERE, 2)]))
    relay.endpoint_gone(2)
    assert not relay.flows
    out(relay)
    assert receive(relay, "b", frames.flow_declaration(3, 9, THERE, [(HERE, 2)])) == [
        ("b", frames.GONE, NUMBER.pack(2))
    ]
    assert not relay.flows


def test_the_death_of_a_producer_is_told_to_its_consumers(relay: Relay) -> None:
    declared(relay)
    relay.endpoint_gone(1)
    assert {("e2", frames.GONE), ("b", frames.GONE)} <= {(link, kind) for link, kind, _ in out(relay)}
    assert not relay.flows


def test_a_death_that_a_peer_missed_is_told_when_it_is_back(relay: Relay) -> None:
    declared(relay)
    relay.peer_detached(THERE)
    relay.endpoint_gone(1)
    out(relay)
    relay.peer_attached(THERE, "b2")
    assert ("b2", frames.GONE, NUMBER.pack(1)) in out(relay)


def test_a_process_that_died_before_it_declared_anything_again_is_missed_by_nobody() -> None:
    relay = Relay(HERE)
    relay.expected.add(1)
    relay.peer_attached(THERE, "b")
    relay.endpoint_attached(1, "e1")
    out(relay)
    relay.endpoint_gone(1)
    assert out(relay) == [("b", frames.GONE, NUMBER.pack(1))]


def test_what_is_remembered_of_the_dead_is_bounded(relay: Relay) -> None:
    relay.presume_gone(range(100, 100 + 2 * MAX_DEPARTED))
    assert len(relay.departed) == MAX_DEPARTED


def test_a_flow_to_a_dead_node_is_answered(relay: Relay) -> None:
    relay.node_gone(THERE)
    sent = receive(relay, "e1", frames.flow_declaration(1, 7, HERE, [(THERE, 3), (ELSEWHERE, 5)]))
    assert ("e1", frames.GONE, NUMBER.pack(3)) in sent
    assert ("e1", frames.GONE, NUMBER.pack(5)) not in sent
    relay.peer_attached(THERE, "b2")  # it had only been silent
    out(relay)
    sent = receive(relay, "e1", frames.flow_declaration(1, 8, HERE, [(THERE, 3)]))
    assert [link for link, *_ in sent] == ["b2"]


def test_an_ended_flow_is_forgotten_downstream(relay: Relay) -> None:
    declared(relay)
    sent = receive(relay, "e1", frames.frame(frames.FLOW_ENDED, KEY.pack(1, 7)))
    assert [(link, kind) for link, kind, _ in sent] == [("e2", frames.FLOW_ENDED), ("b", frames.FLOW_ENDED)]
    assert not relay.flows


def test_a_route_that_a_peer_came_back_without_is_asked_for(relay: Relay) -> None:
    receive(relay, "b", frames.flow_declaration(3, 9, THERE, [(HERE, 2)]))
    relay.peer_detached(THERE)
    relay.peer_attached(THERE, "b2")
    out(relay)
    key = KEY.pack(3, 9)
    asked = receive(relay, "b2", frames.frame(frames.PATH_RESTORED, NUMBER.pack(THERE)))
    assert asked == [("b2", frames.UNKNOWN_FLOW, key)]
    assert receive(relay, "b2", frames.frame(frames.FLOW_ENDED, key)) == [("e2", frames.FLOW_ENDED, key)]
    assert not relay.flows


def test_a_question_for_a_flow_that_has_ended_reaches_its_producer(relay: Relay) -> None:
    key = KEY.pack(1, 7)
    assert receive(relay, "b", frames.frame(frames.UNKNOWN_FLOW, key)) == [("e1", frames.UNKNOWN_FLOW, key)]
    sent = receive(relay, "e1", frames.frame(frames.FLOW_ENDED, key))
    assert [(link, kind) for link, kind, _ in sent] == [("b", frames.FLOW_ENDED), ("c", frames.FLOW_ENDED)]
    assert receive(relay, "b", frames.frame(frames.UNKNOWN_FLOW, KEY.pack(77, 1))) == [
        ("b", frames.GONE, NUMBER.pack(77))
    ]


def test_a_destination_that_outlived_a_relay_hears_of_the_producers_death(relay: Relay) -> None:
    receive(relay, "e2", frames.flow_declaration(3, 9, THERE, [(HERE, 2)]))
    assert receive(relay, "b", gone(3)) == [("e2", frames.GONE, NUMBER.pack(3))]
    assert receive(relay, "e2", frames.flow_declaration(99, 9, HERE, [(HERE, 2)])) == [
        ("e2", frames.GONE, NUMBER.pack(99))
    ]


# ---- what nobody may do to others ----


def state(relay: Relay) -> object:
    return {
        key: (r.upstream, dict(r.local), {n: set(m) for n, m in r.remote.items()}, r.merged)
        for key, r in relay.flows.items()
    }


@pytest.mark.parametrize("link", ["e2", "b", "stranger"])
@pytest.mark.parametrize(
    "whole",
    [
        frames.flow_declaration(1, 7, HERE, [(HERE, 2)]),
        frames.flow_declaration(1, 7, THERE, [(ELSEWHERE, 2)]),
        frames.frame(frames.FLOW_ENDED, KEY.pack(1, 7)),
        pack(),
        frames.probe(1, 7, 1, 0),
        frames.ack(1, 7, 3, ELSEWHERE),
    ],
    ids=["declare", "declare as another node's", "end", "pack", "probe", "acknowledge for another node"],
)
def test_only_its_endpoint_speaks_for_a_flow(relay: Relay, link: str, whole: bytes) -> None:
    declared(relay)
    before = state(relay)
    sent = receive(relay, link, whole)
    assert state(relay) == before
    assert all(kind in (frames.UNKNOWN_FLOW, frames.GONE) and to == link for to, kind, _ in sent), sent


@pytest.mark.parametrize("link", ["e1", "e2", "stranger"])
def test_only_a_concentrator_tells_of_deaths(relay: Relay, link: str) -> None:
    declared(relay)
    assert receive(relay, link, gone(2)) == []
    assert receive(relay, link, gone(3)) == []
    assert len(relay.flows) == 1


def test_nobody_claims_a_flow_for_another(relay: Relay) -> None:
    receive(relay, "e1", frames.flow_declaration(3, 9, THERE, [(HERE, 2)]))
    assert not relay.flows


def test_random_frames_from_the_wrong_links_raise_nothing_and_harm_nobody() -> None:
    rng = random.Random(5)
    kinds = [kind for kind, least in enumerate(LEAST_BODY) if least <= MAX_FRAME_BYTES]
    small = [0, 1, 2, 3, 7, 9, HERE, THERE, ELSEWHERE]
    for _ in range(300):
        relay = Relay(HERE)
        for number, link in ((1, "e1"), (2, "e2"), (5, "e5")):
            relay.endpoint_attached(number, link)
        relay.peer_attached(THERE, "b")
        declared(relay)
        route = relay.flows[KEY.pack(1, 7)]
        for _ in range(60):
            kind = rng.choice(kinds)
            if kind in frames._EXACT:
                size = LEAST_BODY[kind]
            else:
                size = LEAST_BODY[kind] + rng.choice((0, 0, 1, 16, 32))
            words = b"".join(rng.choice(small).to_bytes(rng.choice((4, 8)), "little") for _ in range(size))
            body = bytes(words[:size]) if rng.random() < 0.8 else rng.randbytes(size)
            with contextlib.suppress(MalformedFrame):
                routed(relay, rng.choice(("e5", "stranger")), frames.frame(kind, body, rng.randrange(256)))
            relay.take_outbox()
            relay.validate()
        assert relay.flows[KEY.pack(1, 7)] is route
        assert (route.upstream, route.local, route.remote) == ("e1", {2: 0}, {THERE: {3, 4}})
        assert [link for link, *_ in receive(relay, "e1", pack())] == ["e2", "b"]
