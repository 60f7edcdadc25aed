"""Shared objects between processes: the masters that live here, and what copies of other masters are here.

Rules:

* A master knows the endpoints that have copies of it. A prompt publish has reached each of them when it returns; at
  most one update is under way to each, always with the newest state, so that what was published meanwhile joins.
* What travels is the whole state, never a difference: it may be repeated, lost or overtaken without harm. Whoever gets
  one that is not newer than what it has, ignores it.
* An endpoint attaches by asking for the state. It does so again when its link is a new one, and with each pull, since
  its master may have been told that it was gone.
* An endpoint without copies is not announced: its answer to the next update says so.
* Locks: that of a shared object may be held while its class's validators run, so no thread that reads the link takes
  it. Those in this file are held for a few instructions.
"""

from __future__ import annotations

import itertools
import logging
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import msgspec
from typing_extensions import override

from echannel_ray import errors
from echannel_ray.core.messages import SharedRef
from echannel_ray.endpoint.calls import Answer, Call, Caller, Nobody
from echannel_ray.endpoint.crew import Job, Waiter
from echannel_ray.endpoint.deadlines import deadline_of
from echannel_ray.formats import plain

if TYPE_CHECKING:
    from echannel_ray.endpoint.process_endpoint import ProcessEndpoint

logger = logging.getLogger(__name__)

_KEPT_OUTCOMES: Final = 16384


_Key: TypeAlias = tuple[int, int, int]  # of a `SharedRef`, which takes a microsecond to make and look up


class Attach(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Answered by the master's `MasterState`; from then on its updates come here."""

    number: int


class PublishChanges(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """What was set at a copy; answered by `MasterState` when all other copies have it, by `Stale` or by
    `InvalidChanges`.
    """

    number: int
    fields: bytes
    expected: int | None


class UpdateCopies(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The caller's master has a newer version; answered by `Applied` when all copies here have it."""

    number: int
    version: int
    fields: bytes


class MasterState(msgspec.Struct, frozen=True, array_like=True, tag=16):
    """The answer to `Attach` and `PublishChanges`: all fields of a master."""

    version: int
    fields: bytes


class Applied(msgspec.Struct, frozen=True, array_like=True, tag=17):
    """The answer to `UpdateCopies`: all copies have it."""


class Stale(msgspec.Struct, frozen=True, array_like=True, tag=18):
    """The answer to `PublishChanges` where it expected another version than the master has."""

    expected: int
    current: int


class InvalidChanges(msgspec.Struct, frozen=True, array_like=True, tag=19):
    """The answer to `PublishChanges` where what was published makes no valid object."""

    reason: str


class Unknown(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """The answer where there is no such master here, or no copy of it."""


class Holder(Protocol):
    """Whoever has copies of a shared object, and is told of newer versions."""

    def shared_changed(self, version: int, fields: dict[str, Any], applied: Callable[[], None]) -> None:
        """A newer version; `applied` is to be called when the copy has it, from any thread. It must not block."""


class Shared(Protocol):
    """A master copy, as the endpoint sees it: see `SharedObject`."""

    @property
    def policy(self) -> str | None:
        """When copies are told of what is published."""

    def _echannel_state(self) -> tuple[int, dict[str, Any]]:
        """The version and fields that were published last."""

    def _echannel_merge(self, fields: dict[str, Any], expected_version: int | None) -> tuple[int, dict[str, Any]]:
        """Take in what a copy has published; what has been published then."""


@dataclass(slots=True, eq=False)
class _Secondary:
    """An endpoint with copies."""

    node: int
    endpoint: int
    acked: int = -1
    is_asked: bool = False


@dataclass(slots=True, eq=False)
class _Announcement:
    """A version that somebody waits for these endpoints to have."""

    version: int
    waiting: set[int]
    done: Callable[[], None]


class Master:
    """A shared object of this process that others may have copies of; the endpoint keeps it alive."""

    def __init__(self, endpoint: ProcessEndpoint, number: int, shared: Shared) -> None:
        self.endpoint = endpoint
        self.ref = SharedRef(endpoint.node, endpoint.id, number)
        self.namespace = endpoint.namespace
        self.shared = shared
        self._secondaries: dict[int, _Secondary] = {}
        self._announcements: list[_Announcement] = []
        self._encoded: MasterState | None = None
        self._lock = threading.Lock()

    def state(self) -> MasterState:
        """The version and fields that were published last."""
        return self._encode(*self.shared._echannel_state())

    def _encode(self, version: int, fields: dict[str, Any]) -> MasterState:
        encoded = self._encoded
        if encoded is None or encoded.version != version:
            encoded = self._encoded = MasterState(version, plain.encode(fields))
        return encoded

    def attached(self, caller: Caller) -> MasterState:
        """Enter an endpoint that has copies; the state that it asks for."""
        with self._lock:
            secondary = self._secondaries.get(caller.endpoint)
            if secondary is None:
                # Before the state is read: what is published in between is sent to it as well.
                secondary = self._secondaries[caller.endpoint] = _Secondary(caller.node, caller.endpoint)
        state = self.state()
        with self._lock:
            if secondary.acked < 0:
                secondary.acked = state.version
        return state

    def merge(self, fields: dict[str, Any], expected_version: int | None) -> MasterState:
        """Take in what a copy has published; what has been published then."""
        return self._encode(*self.shared._echannel_merge(fields, expected_version))

    def tell_all(self, version: int, timeout: float | None) -> None:
        """Return when all copies have a version."""
        if not self._secondaries:
            return
        deadline = deadline_of(timeout)
        waiter = Waiter()
        self.announce(version, waiter.set)
        if not waiter.done and not self.endpoint.crew.wait(waiter, deadline):
            raise TimeoutError(
                f"version {version} is published, but not all copies have it after {timeout} s: they get it when they "
                "can"
            )
        self.endpoint.check_usable()

    def announce(self, version: int, done: Callable[[], None], publisher: int = 0) -> None:
        """Tell all copies, but those at the endpoint that published it; `done` must not block."""
        with self._lock:
            lagging = []
            for each in self._secondaries.values():
                if each.endpoint == publisher:
                    each.acked = max(each.acked, version)  # the answer brings it
                elif each.acked < version:
                    lagging.append(each)
            if lagging:
                self._announcements.append(_Announcement(version, {each.endpoint for each in lagging}, done))
            to_ask = [each for each in lagging if not each.is_asked]
            for each in to_ask:
                each.is_asked = True
        if not lagging:
            done()
        for each in to_ask:
            self._update(each)

    def _update(self, secondary: _Secondary) -> None:
        state = self.state()
        message = UpdateCopies(self.ref.number, state.version, state.fields)
        try:
            self.endpoint.calls.begin(
                secondary.node, secondary.endpoint, message, partial(self._updated, secondary, state.version)
            )
        except errors.EChannelError:  # this process has left: who waits is told why
            self._forget(secondary)

    def _updated(self, secondary: _Secondary, version: int, call: Call) -> None:
        if call.answer is None or isinstance(call.answer, Unknown):
            self._forget(secondary)
            return
        with self._lock:
            secondary.acked = max(secondary.acked, version)
            finished = self._take_finished(secondary.endpoint, secondary.acked)
            secondary.is_asked = any(secondary.endpoint in each.waiting for each in self._announcements)
        for each in finished:
            each.done()
        if secondary.is_asked:
            # Not here: it takes the object's lock, and this thread reads the link.
            self.endpoint.crew.submit(Job(self._update, secondary))

    def _forget(self, secondary: _Secondary) -> None:
        with self._lock:
            self._secondaries.pop(secondary.endpoint, None)
            finished = self._take_finished(secondary.endpoint, None)
        for each in finished:
            each.done()

    def _take_finished(self, endpoint: int, version: int | None) -> list[_Announcement]:
        finished = []
        for each in self._announcements:
            if version is None or each.version <= version:
                each.waiting.discard(endpoint)
                if not each.waiting:
                    finished.append(each)
        for each in finished:
            self._announcements.remove(each)
        return finished


class Attachment:
    """The copies of one shared object in this process."""

    def __init__(self, ref: SharedRef) -> None:
        self.ref = ref
        self.arriving = 0  # copies that wait for their first state
        self.holders: list[Holder] = []
        self._newest: MasterState | UpdateCopies | None = None
        self._lock = threading.Lock()

    def add(self, holder: Holder, state: MasterState | None) -> MasterState | UpdateCopies | None:
        """Enter a copy: what it begins with. It is told of all that comes later."""
        with self._lock:
            self.holders = [*self.holders, holder]  # never in place: see `tell`
            return self._newer(state)

    def remove(self, holder: Holder) -> None:
        """Take out a copy."""
        with self._lock:
            self.holders = [each for each in self.holders if each is not holder]

    def tell(self, state: MasterState | UpdateCopies, done: Callable[[], None], but: Holder | None = None) -> None:
        """Give a state to all copies; `done` when they have it."""
        with self._lock:
            self._newer(state)
            holders = self.holders if but is None else [each for each in self.holders if each is not but]
        if not holders:
            done()
            return
        numbers = itertools.count(1)

        def applied() -> None:
            if next(numbers) == len(holders):
                done()

        for holder in holders:
            # Each gets values of its own: what is mutable must not be shared between them.
            holder.shared_changed(state.version, plain.decode(state.fields), applied)

    def _newer(self, state: MasterState | UpdateCopies | None) -> MasterState | UpdateCopies | None:
        if self._newest is None or (state is not None and state.version > self._newest.version):
            self._newest = state
        return self._newest


class MasterLink(Holder):
    """What joins a `SharedObject` of this process that is a copy to its master: the copy publishes and pulls by it, and
    is told of updates while somebody else holds it.
    """

    def __init__(self, endpoint: ProcessEndpoint, ref: SharedRef) -> None:
        self._sharing = endpoint.sharing
        self.ref = ref
        self.namespace = endpoint.namespace
        self._copy: Callable[[], Any] = lambda: None

    def lead_to(self, copy: Any) -> None:
        """Tell this copy of updates, for as long as somebody holds it."""
        garbage = self._sharing.garbage
        me = weakref.ref(self)

        def dropped(_: object) -> None:
            # Called by the garbage collector, in whatever any thread does: no lock may be taken here.
            link = me()
            if link is not None:
                garbage.append((link.ref, link))

        self._copy = weakref.ref(copy, dropped)

    @override
    def shared_changed(self, version: int, fields: dict[str, Any], applied: Callable[[], None]) -> None:
        copy = self._copy()
        try:
            if copy is not None:
                copy._echannel_update(version, fields)
        except Exception:  # of its class's own code; the publisher must not wait for it for good
            logger.exception("a copy of a shared object can't take version %d", version)
        finally:
            applied()

    def publish(
        self, fields: dict[str, Any], expected_version: int | None, timeout: float | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Have the master take these values; the version and fields that it has then."""
        return self._sharing.publish(self.ref, fields, expected_version, timeout, self)

    def pull(self, timeout: float | None = None) -> tuple[int, dict[str, Any]]:
        """The newest version and fields of the master."""
        return self._sharing.pull(self.ref, timeout)


class Sharing:
    """The masters and the copies of shared objects at one endpoint."""

    def __init__(self, endpoint: ProcessEndpoint) -> None:
        self._endpoint = endpoint
        self._masters: dict[int, Master] = {}
        self._attachments: dict[_Key, Attachment] = {}
        self._numbers = itertools.count(1)
        # Of calls that were served: publishing is not done again when the answer was lost. None: it was merged.
        self._outcomes: OrderedDict[tuple[int, int], Stale | InvalidChanges | None] = OrderedDict()
        self._lock = threading.Lock()
        self.garbage: deque[tuple[SharedRef, Holder]] = deque()
        endpoint.calls.serve(
            {Attach: self._on_attach, PublishChanges: self._on_publish, UpdateCopies: self._on_update},
            (MasterState, Applied, Stale, InvalidChanges, Unknown),
        )

    # ---- masters ----

    def export(self, shared: Shared) -> Master:
        """Let others have copies of a master. It is kept until this process leaves: they may come at any time."""
        self._endpoint.check_usable()
        with self._lock:
            number = next(self._numbers)
            master = self._masters[number] = Master(self._endpoint, number, shared)
        return master

    def withdraw(self, master: Master) -> None:
        """Let nobody have more copies of a master; those that there are keep what they have."""
        with self._lock:
            self._masters.pop(master.ref.number, None)

    def _on_attach(self, message: Attach, caller: Caller, answer: Answer) -> None:
        master = self._masters.get(message.number)
        answer(Unknown() if master is None else master.attached(caller))

    def _on_publish(self, message: PublishChanges, caller: Caller, answer: Answer) -> None:
        master = self._masters.get(message.number)
        if master is None:
            answer(Unknown())
            return
        key = (caller.endpoint, caller.number)
        if key in self._outcomes:
            answer(self._outcomes[key] or master.state())
            return
        try:
            state = master.merge(plain.decode(message.fields), message.expected)
        except errors.StaleVersion as error:
            answer(self._keep(key, Stale(error.facts["expected"], error.facts["current"])))
        except ValueError as error:  # of validation
            answer(self._keep(key, InvalidChanges(str(error))))
        else:
            self._keep(key, None)
            if master.shared.policy == "prompt":
                master.announce(state.version, lambda: answer(state), caller.endpoint)
            else:
                answer(state)

    def _keep(self, key: tuple[int, int], outcome: Any) -> Any:
        with self._lock:
            self._outcomes[key] = outcome
            if len(self._outcomes) > _KEPT_OUTCOMES:
                self._outcomes.popitem(last=False)
        return outcome

    # ---- copies ----

    def attach(self, ref: SharedRef, holder: Holder, timeout: float | None = None) -> tuple[int, dict[str, Any]]:
        """The newest version; `holder` is told of those that follow. `MasterLost` where the master is gone."""
        with self._lock:
            attachment = self._attachments.setdefault(_key(ref), Attachment(ref))
            attachment.arriving += 1
        try:
            state = attachment.add(holder, self._ask(ref, Attach(ref.number), timeout))
        finally:
            with self._lock:
                attachment.arriving -= 1
                self._drop_unused(attachment)
        assert state is not None
        return state.version, plain.decode(state.fields)

    def attach_soon(self, ref: SharedRef, holder: Holder) -> None:
        """Attach a copy without waiting: the newest version comes to the holder."""
        with self._lock:
            attachment = self._attachments.setdefault(_key(ref), Attachment(ref))
            attachment.add(holder, None)
        self._ask_soon(attachment)

    def detach(self, ref: SharedRef, holder: Holder) -> None:
        """Tell a copy nothing more."""
        with self._lock:
            attachment = self._attachments.get(_key(ref))
            if attachment is not None:
                attachment.remove(holder)
                self._drop_unused(attachment)

    def publish(
        self,
        ref: SharedRef,
        fields: dict[str, Any],
        expected_version: int | None,
        timeout: float | None = None,
        holder: Holder | None = None,
    ) -> tuple[int, dict[str, Any]]:
        """Have the master take these fields; the version and fields that it has then.

        Where its policy is prompt, all copies have them when this returns, but for `holder`: that is whose they are,
        and it has them by the answer.
        """
        deadline = deadline_of(timeout)
        attachment = self._attachments.get(_key(ref))
        try:
            state = self._ask(ref, PublishChanges(ref.number, plain.encode(fields), expected_version), timeout)
        except TimeoutError:
            if attachment is not None:
                self._ask_soon(attachment)  # the master takes it that we have this version by the answer
            raise
        if attachment is not None:
            told = Waiter()
            attachment.tell(state, told.set, holder)
            if not self._endpoint.crew.wait(told, deadline):
                raise TimeoutError(f"published, but not all copies in this process have it after {timeout} s")
        return state.version, plain.decode(state.fields)

    def pull(self, ref: SharedRef, timeout: float | None = None) -> tuple[int, dict[str, Any]]:
        """The version and fields that the master has published last."""
        state = self._ask(ref, Attach(ref.number), timeout)
        return state.version, plain.decode(state.fields)

    def relinked(self) -> None:
        """The link is a new one: masters may have been told meanwhile that this endpoint is gone."""
        with self._lock:
            attachments = [each for each in self._attachments.values() if each.ref.endpoint != self._endpoint.id]
        for each in attachments:
            self._ask_soon(each)

    def tick(self) -> None:
        """Forget the copies that are garbage."""
        while self.garbage:
            self.detach(*self.garbage.popleft())

    def _drop_unused(self, attachment: Attachment) -> None:
        if not attachment.holders and not attachment.arriving:
            self._attachments.pop(_key(attachment.ref), None)

    def _ask_soon(self, attachment: Attachment) -> None:
        ref = attachment.ref

        def answered(call: Call) -> None:
            if isinstance(call.answer, MasterState):
                # Not here: this thread may be the one that reads the link.
                self._endpoint.crew.submit(Job(attachment.tell, call.answer, lambda: None))

        self._endpoint.calls.begin(ref.node, ref.endpoint, Attach(ref.number), answered)

    def _ask(self, ref: SharedRef, message: Attach | PublishChanges, timeout: float | None) -> MasterState:
        calls = self._endpoint.calls
        try:
            answer = calls.call(ref.node, ref.endpoint, message, timeout)
        except Nobody:
            answer = None
        except TimeoutError:
            raise TimeoutError(f"the master of a shared object has not answered within {timeout} s") from None
        if isinstance(answer, MasterState):
            return answer
        if isinstance(answer, Stale):
            raise errors.StaleVersion(
                f"version {answer.expected} was expected, and somebody has published version {answer.current} since: "
                "pull, look at what has changed, and publish again",
                expected=answer.expected,
                current=answer.current,
            )
        if isinstance(answer, InvalidChanges):
            raise ValueError(f"the master copy does not take this: {answer.reason}")
        raise errors.MasterLost(
            "the process that has the master copy is gone, or has left its namespace: this copy keeps its last value",
            node=f"{ref.node:016x}",
            endpoint=f"{ref.endpoint:016x}",
        )

    # ---- what masters tell ----

    def _on_update(self, message: UpdateCopies, caller: Caller, answer: Answer) -> None:
        attachment = self._attachments.get((caller[0], caller[1], message.number))
        if attachment is None:
            answer(Unknown())
        else:
            attachment.tell(message, partial(answer, _APPLIED))


_APPLIED: Final = Applied()


def _key(ref: SharedRef) -> _Key:
    return ref.node, ref.endpoint, ref.number
