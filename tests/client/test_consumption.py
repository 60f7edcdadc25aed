"""Subscriptions in and out of their channel's books, and handler versions that replace others."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from echannel_ray import errors
from echannel_ray.client.consumption import NO_EAGER_HANDLER, Consumption, EagerHandler, consume, end_all
from echannel_ray.consumers.function_driver import FunctionDriver
from echannel_ray.consumers.inbox import Inbox, Supply
from echannel_ray.consumers.pull_driver import PullDriver
from echannel_ray.core.messages import Subscribe, Unsubscribe
from echannel_ray.modulation.modulator import FIFOModulator

SHORT = 0.05


class Demodulator:
    def receive(self, event):
        return [event]


class Logs(Supply):
    """What reads the logs of a subscription."""

    def __init__(self, script, inbox: Inbox, error: Exception | None = None) -> None:
        super().__init__(inbox)
        self.reads_logs = True
        self._asked, self._error = script.asked, error

    def stop(self) -> None:
        self._asked.append("stop")

    def leave(self, timeout: float | None = None) -> None:
        self._asked.append("leave")
        if self._error is not None:
            raise self._error


def pulled(endpoint, group: str | None = None) -> Inbox:
    return Inbox(endpoint, endpoint.new_subscription(), "c", group, "", PullDriver)


@pytest.fixture
def inbox(endpoint) -> Inbox:
    return pulled(endpoint)


@pytest.fixture
def consumption(endpoint, script, inbox) -> Consumption:
    return consume(endpoint, script.definition, inbox, None)


def test_it_is_entered_once_and_leaves_once(endpoint, script, inbox, consumption):
    assert endpoint.inboxes.on("c") == [inbox]
    assert inbox.incarnation == script.definition.incarnation
    (asked,) = script.of(Subscribe)
    assert (asked.channel, asked.subscription, asked.incarnation, asked.handler_version) == ("c", inbox.number, 3, 0)
    consumption.close()
    assert consumption.closed
    assert inbox.closed
    assert script.of(Unsubscribe) == [Unsubscribe("c", inbox.number, inbox.totals())]
    consumption.close()
    assert script.kinds == [Subscribe, Unsubscribe]


@pytest.mark.parametrize("what", ["refused", "late", "its log"])
def test_of_one_that_fails_nothing_stays(endpoint, script, inbox, monkeypatch, what):
    how: dict[str, Any] = {}
    definition = script.definition
    if what == "refused":
        script.refusals[Subscribe] = errors.ServiceNotGranted("no", service="s", producer="p")
    elif what == "late":
        script.held.add(Subscribe)
        how["timeout"] = SHORT
    else:
        definition.options["retain"] = {}
        monkeypatch.setattr("echannel_ray.retained.log_reader.LogReader.begin", lambda *_: 1 / 0)
    with pytest.raises((errors.ServiceNotGranted, TimeoutError, ZeroDivisionError)):
        consume(endpoint, definition, inbox, None, **how)
    assert script.of(Unsubscribe) == [Unsubscribe("c", inbox.number, {})]
    assert not endpoint.inboxes
    assert inbox.closed


def test_logs_are_read_where_there_are_some_and_no_modulator_is_concerned(endpoint, script):
    script.definition.options["retain"] = {}
    direct, derived, modulated = (pulled(endpoint) for _ in range(3))
    consume(endpoint, script.definition, direct, None)
    consume(endpoint, script.definition, derived, None, parent="key")
    consume(
        endpoint, script.definition, modulated, None, eager_handler=EagerHandler.of(FIFOModulator(), None, None, None)
    )
    assert [each.supply.reads_logs for each in (direct, derived, modulated)] == [True, False, False]


def test_who_reads_logs_leaves_them_before_the_books(script, inbox, consumption):
    inbox.supply = Logs(script, inbox)
    consumption.close()
    script.of(Unsubscribe)
    assert script.asked[1:3] == ["stop", "leave"]
    assert script.kinds[3:] == [Unsubscribe]


def test_who_can_not_leave_its_logs_leaves_the_books(script, inbox, consumption):
    inbox.supply = Logs(script, inbox, TimeoutError("no answer"))
    consumption.close()
    assert len(script.of(Unsubscribe)) == 1


def test_one_of_a_channel_that_nobody_keeps_closes_all_the_same(script, inbox, consumption):
    script.refusals[Unsubscribe] = errors.ChannelDeleted("it was deleted", channel="c")
    consumption.close()
    assert inbox.closed


def test_one_whose_process_has_left_closes_without_a_word(endpoint, script, inbox, consumption):
    endpoint.close()
    consumption.close()
    assert inbox.closed
    assert script.kinds == [Subscribe]


# ---- another handler version ----


def test_another_pair_is_a_higher_turn(script, inbox, consumption):
    demodulator = Demodulator()
    consumption.reset(FIFOModulator(), demodulator, None, None)
    asked = script.of(Subscribe, 2)[1]
    assert asked.handler_version == inbox.version == 1
    assert asked.shipment is not None
    assert inbox.demodulators[1] is demodulator


def test_a_pair_that_is_refused_leaves_the_old_one(script, inbox, consumption):
    script.refusals[Subscribe] = errors.ModulatorRefused("no", reason="no", channel="c")
    with pytest.raises(errors.ModulatorRefused):
        consumption.reset(FIFOModulator(), Demodulator(), None, None)
    assert inbox.version == 0
    assert 1 not in inbox.demodulators
    assert len(script.of(Subscribe)) == 2


def test_a_pair_that_takes_too_long_is_taken_back_by_the_old_one(script, inbox, consumption):
    script.held.add(Subscribe)
    with pytest.raises(TimeoutError):
        consumption.reset(FIFOModulator(), None, None, SHORT)
    back = script.of(Subscribe, 3)[2]
    assert (back.handler_version, back.shipment, back.handler_fingerprint) == (2, None, NO_EAGER_HANDLER.fingerprint)
    assert inbox.version == 2


def test_who_reads_logs_has_no_pair(script, inbox, consumption):
    inbox.supply = Logs(script, inbox)
    with pytest.raises(errors.ModulatorRefused, match="reads the log"):
        consumption.reset(FIFOModulator(), None, None, None)


def test_members_of_a_group_are_compared_by_both_halves():
    fingerprints = [
        EagerHandler.of(modulator, demodulator, None, "g").fingerprint
        for modulator in (None, FIFOModulator())
        for demodulator in (None, Demodulator())
    ]
    assert fingerprints[0] == ""
    assert len({*fingerprints}) == 4
    assert EagerHandler.of(FIFOModulator(), Demodulator(), None, None).fingerprint == ""
    with pytest.raises(ValueError, match="tier"):
        EagerHandler.of(None, None, "nowhere", None)
    with pytest.raises(TypeError, match="not its class"):
        EagerHandler.of(None, Demodulator, None, None)
    with pytest.raises(TypeError, match="receive"):
        EagerHandler.of(None, object(), None, None)


# ---- many at once ----


def test_all_leave_together(endpoint, script):
    inboxes: list[Any] = [pulled(endpoint) for _ in range(3)]
    for each in inboxes:
        consume(endpoint, script.definition, each, None)
    inboxes[1].supply = Logs(script, inboxes[1])
    assert end_all(endpoint, inboxes, None, are_handled=False)
    assert script.asked[3:5] == ["stop", "leave"]
    assert {each.subscription for each in script.of(Unsubscribe, 3)} == {each.number for each in inboxes}
    assert all(each.closed for each in inboxes)
    assert not endpoint.inboxes


def test_what_has_come_is_handled_first_where_that_is_wanted(endpoint, script):
    seen: list[Any] = []
    inbox = Inbox(endpoint, endpoint.new_subscription(), "c", None, "", partial(FunctionDriver, seen.append))
    consume(endpoint, script.definition, inbox, None)
    assert end_all(endpoint, [inbox], None, are_handled=True)
    assert inbox.closed
