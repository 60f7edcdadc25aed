"""Derived channels in a manager's book: how they begin, who shares them, how they are installed anew, how they end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from echannel_ray.core.counters import node_key
from echannel_ray.core.derivations import MAX_CHANGES_WITH_CODE, make_key
from echannel_ray.core.membership import ChannelBook, InstallDerived
from echannel_ray.core.messages import (
    Derive,
    Derived,
    GetModulator,
    Membership,
    ModulatorGone,
    OpenChannel,
    RefusedModulator,
    RegisterProducer,
    Registrations,
    Release,
    Shipment,
    Subscribe,
    UnregisterProducer,
    Unsubscribe,
)
from echannel_ray.errors import ChannelDeleted, ModulatorRefused
from tests.core.test_membership import identify, open_schema

NODE, PRODUCER, CONSUMER = 1, 10, 20
MODULATOR = Shipment("Modulator", "isolated", b"m")
OTHER = Shipment("Other", "isolated", b"n")
KEY = make_key("", identify(MODULATOR), "isolated")


@pytest.fixture
def book() -> Iterator[ChannelBook]:
    made = ChannelBook(100, open_schema, identify)
    ask(made, PRODUCER, OpenChannel("c", None, {}))
    ask(made, PRODUCER, RegisterProducer("c", 1))
    yield made
    made.validate()


def ask(book: ChannelBook, endpoint: int, request: Any, *refused: tuple[int, RefusedModulator]) -> Any:
    """The reply in the end. Installations end as given: with these refusals, or with none."""
    reply, instructions = book.requested(NODE, endpoint, request)
    if isinstance(request, Subscribe | Derive) and reply is None:
        (install,) = instructions
        assert isinstance(install, InstallDerived)
        book.install_ended(install, refused)
        if not refused:
            reply, _ = book.resumed(NODE, endpoint, request)
    return reply


def begin(book: ChannelBook, endpoint: int, request: Any) -> InstallDerived:
    """What has to be installed first."""
    reply, (install,) = book.requested(NODE, endpoint, request)
    assert reply is None
    assert isinstance(install, InstallDerived)
    return install


def subscription(number: int = 1, shipment: Shipment | None = MODULATOR, **more: Any) -> Subscribe:
    handler_fingerprint = "" if shipment is None else shipment.code.hex()
    return Subscribe("c", number, more.pop("group", None), handler_fingerprint, shipment=shipment, **more)


def membership(book: ChannelBook) -> Membership:
    found = book.membership("c")
    assert found is not None
    return found


def keys(book: ChannelBook) -> list[str]:
    return [derived.key for derived in membership(book).derived]


def test_the_first_who_asks_makes_it_and_equal_ones_share_it(book: ChannelBook) -> None:
    ask(book, CONSUMER, subscription())
    derived = ask(book, 21, Derive("c", 1, "", MODULATOR))
    assert derived == Derived(KEY, "", MODULATOR, CONSUMER)
    assert keys(book) == [KEY]
    ask(book, CONSUMER, Derive("c", 1, "", OTHER))
    ask(book, CONSUMER, Derive("c", 2, "", replace(MODULATOR, tier="inline")))
    assert len(set(keys(book))) == 3


def test_it_lives_while_anything_uses_it(book: ChannelBook) -> None:
    ask(book, CONSUMER, subscription())
    ask(book, 21, Derive("c", 1, KEY, OTHER))
    child = make_key(KEY, identify(OTHER), "isolated")
    assert keys(book) == [KEY, child]
    ask(book, CONSUMER, Unsubscribe("c", 1, {}))
    assert keys(book) == [KEY, child], "the child needs its parent"
    ask(book, 22, RegisterProducer("c", 5, derived=child))
    ask(book, 21, Release("c", 1))
    assert keys(book) == [KEY, child], "somebody publishes straight into it"
    before = membership(book).version
    _, pushes = book.requested(NODE, 22, UnregisterProducer("c", 5, {}))
    assert keys(book) == []
    assert membership(book).version > before
    assert pushes
    with pytest.raises(ChannelDeleted):
        ask(book, 21, subscription(parent=KEY, shipment=None))


def test_without_producers_nothing_has_to_be_installed(book: ChannelBook) -> None:
    ask(book, PRODUCER, UnregisterProducer("c", 1, {}))
    reply, _ = book.requested(NODE, CONSUMER, subscription())
    assert reply.consumers[0].derived == KEY
    assert ask(book, 11, RegisterProducer("c", 1)).derived[0].shipment == MODULATOR


def test_a_refusal_leaves_nothing_but_what_others_use(book: ChannelBook) -> None:
    refusal = (PRODUCER, RefusedModulator(KEY, 1, b""))
    assert ask(book, CONSUMER, subscription(), refusal) is None
    assert keys(book) == []
    ask(book, CONSUMER, subscription())
    ask(book, PRODUCER, ModulatorGone("c", KEY, 0, 1))
    assert ask(book, 21, subscription(), refusal) is None
    assert keys(book) == [KEY]
    assert [consumer.endpoint for consumer in membership(book).consumers] == [CONSUMER]


def test_where_it_is_lacking_it_is_installed_anew(book: ChannelBook) -> None:
    ask(book, CONSUMER, subscription())
    assert book.requested(NODE, 21, subscription())[0] is not None
    ask(book, PRODUCER, ModulatorGone("c", KEY, 0, 1))
    install = begin(book, 22, subscription())
    assert install.keys == (KEY,)
    assert membership(book).derived[0].generation == 1
    ask(book, PRODUCER, ModulatorGone("c", KEY, 0, 1))  # of before
    book.install_ended(install, [])
    assert book.resumed(NODE, 22, subscription())[0] is not None
    assert book.requested(NODE, 23, subscription())[0] is not None
    ask(book, PRODUCER, ModulatorGone("c", KEY, 1, 1))
    ask(book, PRODUCER, UnregisterProducer("c", 1, {}))
    ask(book, 11, RegisterProducer("c", 1))
    assert book.requested(NODE, 24, subscription())[0] is not None, "who lacked it is gone"


def test_a_reset_of_its_own_consumer_installs_it_anew(book: ChannelBook) -> None:
    ask(book, CONSUMER, subscription())
    ask(book, PRODUCER, ModulatorGone("c", KEY, 0, 1))
    reply = ask(book, CONSUMER, subscription(handler_version=1))
    assert (reply.consumers[0].handler_version, reply.derived[0].generation) == (1, 1)


def test_parents_that_lack_are_installed_with_their_children(book: ChannelBook) -> None:
    ask(book, CONSUMER, Derive("c", 1, "", MODULATOR))
    ask(book, CONSUMER, subscription(parent=KEY, shipment=OTHER))
    ask(book, PRODUCER, ModulatorGone("c", KEY, 0, 1))
    install = begin(book, CONSUMER, subscription(parent=KEY, shipment=OTHER, handler_version=1))
    assert install.keys == (KEY,)
    assert [derived.generation for derived in membership(book).derived] == [1, 0]
    book.install_ended(install, [])
    book.resumed(NODE, CONSUMER, subscription(parent=KEY, shipment=OTHER, handler_version=1))


def test_a_reset_replaces_and_a_late_one_changes_nothing(book: ChannelBook) -> None:
    ask(book, CONSUMER, subscription())
    ask(book, CONSUMER, subscription(shipment=OTHER, handler_version=2))
    other = make_key("", identify(OTHER), "isolated")
    assert keys(book) == [other]
    version = membership(book).version
    ask(book, CONSUMER, subscription(handler_version=1))
    ask(book, CONSUMER, subscription(handler_version=2))
    assert (keys(book), membership(book).version) == ([other], version)
    ask(book, CONSUMER, subscription(shipment=None, handler_version=3))
    assert (keys(book), membership(book).consumers[0].handler_version) == ([], 3)


def test_a_reset_that_fails_leaves_the_old_pair(book: ChannelBook) -> None:
    ask(book, CONSUMER, subscription())
    other = make_key("", identify(OTHER), "isolated")
    ask(book, CONSUMER, subscription(shipment=OTHER, handler_version=1), (PRODUCER, RefusedModulator(other, 1, b"")))
    assert keys(book) == [KEY]
    (consumer,) = membership(book).consumers
    assert (consumer.derived, consumer.handler_version) == (KEY, 0)


def test_a_group_has_one_pair_on_each_channel(book: ChannelBook) -> None:
    ask(book, CONSUMER, subscription(group="g"))
    ask(book, CONSUMER, subscription(group="g", shipment=OTHER, handler_version=1))
    ask(book, CONSUMER, subscription(group="g", handler_version=2))
    ask(book, 21, subscription(group="g"))
    for request in (
        subscription(group="g", handler_version=3),
        subscription(2, group="g", shipment=OTHER),
        subscription(2, group="g", parent=KEY, shipment=None),  # they would share the events
    ):
        with pytest.raises(ModulatorRefused) as caught:
            ask(book, CONSUMER, request)
        assert caught.value.facts["reason"] == "members of a group have equal pairs"
    ask(book, CONSUMER, subscription(2, group="g", parent=KEY, shipment=OTHER))


def test_code_travels_while_it_is_new(book: ChannelBook) -> None:
    ask(book, CONSUMER, Derive("c", 1, "", MODULATOR))
    for number in range(1, MAX_CHANGES_WITH_CODE + 1):
        assert membership(book).derived[0].shipment.code == b"m"
        ask(book, CONSUMER, subscription(number, None))
    assert membership(book).derived[0].shipment == replace(MODULATOR, code=b"")
    assert ask(book, PRODUCER, GetModulator("c", KEY)).shipment == MODULATOR
    assert ask(book, 11, RegisterProducer("c", 1)).derived[0].shipment == MODULATOR
    ask(book, PRODUCER, ModulatorGone("c", KEY, 0, 1))
    ask(book, CONSUMER, subscription(99))
    assert membership(book).derived[0].shipment.code, "it is new again"


def test_reports_bring_back_what_is_derived(book: ChannelBook) -> None:
    ask(book, CONSUMER, Derive("c", 4, "", MODULATOR))
    ask(book, CONSUMER, subscription(parent=KEY, shipment=OTHER, handler_version=2))
    before = membership(book)
    (definition,) = book.definitions()
    rebuilt = ChannelBook(200, open_schema, identify)
    rebuilt.registrations_reported(Registrations(NODE, PRODUCER, "c", definition, ((1, ""),), ()))
    (consumer,) = before.consumers
    handler_fingerprint = OTHER.code.hex()
    report = Registrations(
        NODE,
        CONSUMER,
        "c",
        definition,
        (),
        ((1, None, handler_fingerprint, consumer.derived, 2),),
        before.derived,
        ((4, KEY),),
    )
    rebuilt.registrations_reported(report)
    after = membership(rebuilt)
    assert after.consumers == before.consumers
    assert [derived.key for derived in after.derived] == keys(book)
    assert not any(derived.shipment.code for derived in after.derived), "producers have it, or ask"
    assert ask(rebuilt, PRODUCER, GetModulator("c", KEY)) == before.derived[0]
    assert rebuilt.requested(NODE, 21, subscription())[0] is not None, "it counts as installed"
    ask(rebuilt, CONSUMER, Unsubscribe("c", 1, {}))
    ask(rebuilt, CONSUMER, Release("c", 4))
    rebuilt.validate()


def test_a_report_can_not_give_code_another_identity(book: ChannelBook) -> None:
    (definition,) = book.definitions()
    forged = Derived(KEY, "", OTHER, CONSUMER)
    book.registrations_reported(
        Registrations(NODE, CONSUMER, "c", definition, (), ((1, None, "", KEY, 0),), (forged,), ((4, KEY),))
    )
    assert keys(book) == []
    assert membership(book).consumers == ()


def test_what_a_producer_says_it_lacks_counts_after_a_restart(book: ChannelBook) -> None:
    """The producer's generation may be higher than what consumers remember."""
    ask(book, CONSUMER, subscription())
    ask(book, PRODUCER, ModulatorGone("c", KEY, 7, 1))
    install = begin(book, 21, subscription())
    assert membership(book).derived[0].generation == 8
    book.install_ended(install, [])


def test_counters_of_what_has_ended_are_forgotten(book: ChannelBook) -> None:
    ask(book, CONSUMER, subscription())
    ask(book, 21, subscription())
    ask(book, 21, Unsubscribe("c", 1, {"events_delivered": 1, "derived": {KEY: {"events_delivered": 3}, "x": {}}}))
    counts = book.counts("c")
    assert counts["events_delivered"] == 1
    assert counts["derived"] == {
        KEY: {
            "channel": f"c~{KEY[:12]}",
            "parent": "c",
            "modulator": "Modulator",
            "producers": 0,
            "consumers": 1,
            "nodes": {node_key(NODE): {"consumers": 1}},
            "events_delivered": 3,
        }
    }
    ask(book, CONSUMER, Unsubscribe("c", 1, {}))
    assert "derived" not in book.counts("c")


def test_an_installation_of_before_says_nothing_of_a_later_one(book: ChannelBook) -> None:
    first = begin(book, CONSUMER, subscription())
    ask(book, CONSUMER, Unsubscribe("c", 1, {}))
    assert keys(book) == []
    second = begin(book, 21, subscription())
    assert (first.number, first.keys) != (second.number, second.keys)
    book.install_ended(first, [(PRODUCER, RefusedModulator(KEY, 1, b""))])
    assert keys(book) == [KEY]
    book.install_ended(second, [])
    assert book.resumed(NODE, 21, subscription())[0].consumers
