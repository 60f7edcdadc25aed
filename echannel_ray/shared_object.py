"""Shared objects: a master copy where it was made, and secondary copies wherever it is pickled to.

Rules:

* A version is what the master has published: the fields with that number. Versions begin at 0, which is what the
  object was made with, and each publish that changes something makes the next one.
* Each copy holds, besides the values that its user sees, what they were in its version (`_State.base`). What differs
  from that, or was assigned since, is the user's own and not published yet: updates leave it alone, `publish` sends
  it, and `pull` gives it up. Containers are compared by their bytes, so what was changed inside is not overlooked.
* All values of an update appear at once, by a new `__dict__`.
* What travels is plain data. It becomes values again by the fields' annotations; at the master also by the class's
  validators, since copies may be in processes that nobody trusts.

This module imports neither Ray nor a session: copies live in sandboxes as well.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from pydantic import BaseModel, ConfigDict
from typing_extensions import Format, get_annotations, override

from echannel_ray.errors import EChannelError, MasterLost, NotSerialisable, StaleVersion
from echannel_ray.formats import plain
from echannel_ray.formats.fields import (
    ATOMS,
    MISSING,
    bare,
    frozen_field,
    frozen_or_missing,
    is_same,
    rebuilt,
    validated,
    value_of,
    values_of,
)
from echannel_ray.formats.model_classes import definition_of, rebuild_class

__all__ = ["SharedObject", "definition_of", "rebuild_class"]

if TYPE_CHECKING:
    from echannel_ray.core.messages import SharedRef
    from echannel_ray.shared.shared_copies import Master

S = TypeVar("S", bound="SharedObject")

MAX_STATE_BYTES: Final = 7 << 20  # it travels in one piece
_ARRIVAL_SECONDS: Final = 5.0
_RESERVED: Final = frozenset({"apublish", "apull", "policy", "publish", "pull", "snapshot", "version"})
_set: Final = object.__setattr__


class _State:
    """What a copy is besides its values."""

    __slots__ = (
        "assigned", "base", "is_snapshot", "link", "lock", "master", "policy", "publishing", "sending", "version",
    )  # fmt: skip

    def __init__(self) -> None:
        # Reentrant, since it is held while validators run.
        self.lock = threading.RLock()
        self.publishing = threading.Lock()  # one publish or pull of a copy at a time
        self.version = 0
        self.base: dict[str, Any] = {}
        self.assigned: set[str] = set()
        self.sending: set[str] = set()  # on their way to the master: still the user's own
        self.policy = "prompt"
        self.master: Master | None = None  # of a master copy that others may have copies of
        self.link: Any = None  # of a secondary copy
        self.is_snapshot = False


class SharedObject(BaseModel):
    """State that is shared between processes: derive from it, with fields as in a pydantic model.

    What is made is the master copy; pickling it anywhere makes a secondary copy there. Of fields that are assigned or
    changed nobody else sees anything until `publish()`. Fields have to be plain data, or what is made of it: nested
    models, dataclasses, enums; each comes back as its annotation says. A master that was pickled lives until its
    process leaves the namespace. `copy.copy` and `model_copy` make an object of its own, and no secondary copy.
    """

    __slots__ = ("__weakref__", "_echannel")

    model_config = ConfigDict(validate_assignment=True, populate_by_name=True)

    if TYPE_CHECKING:
        _echannel: ClassVar[_State]

    def __new__(cls: type[S], *args: Any, **kwargs: Any) -> S:
        """An object with its lock, also where pydantic makes one without `__init__`."""
        self = super().__new__(cls)
        _set(self, "_echannel", _State())
        return self

    @override
    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        taken = sorted(_RESERVED & get_annotations(cls, format=Format.FORWARDREF).keys())
        if taken:
            raise TypeError(
                f"{cls.__qualname__} declares a field named {taken[0]!r}, which every shared object has already: "
                "give the field another name"
            )

    @override
    def model_post_init(self, context: Any, /) -> None:
        """Keep the fields of version 0."""
        self._echannel.base = self._echannel_capture()

    # ---- public ----

    @property
    def version(self) -> int:
        """The newest version that this copy has: 0 is what the master was made with."""
        return self._echannel.version

    @property
    def policy(self) -> str | None:
        """When other copies get what is published here: "prompt" or "lazy". None on a secondary copy."""
        return self._echannel.policy if self._echannel.link is None else None

    @policy.setter
    def policy(self, policy: str) -> None:
        """Change the policy, from the next publish on."""
        if policy not in ("prompt", "lazy"):
            raise ValueError(f"policy is 'prompt' or 'lazy', not {policy!r}")
        self._echannel_check_is_no_snapshot()
        if self._echannel.link is not None:
            raise EChannelError("the policy belongs to the master copy, and this is a secondary one: set it there")
        self._echannel.policy = policy

    def publish(self, expected_version: int | None = None, timeout: float | None = None) -> int:
        """Make a version of what was set since the last one: its number. Unchanged, it is the version that was there.

        Of a secondary copy, the fields set since go to the master, which merges them into the newest version. Where
        the master's policy is "prompt", every copy has the version when this returns; what is gone is not waited for.
        With `expected_version`, `StaleVersion` is raised where that is not the newest, and nothing is published. It
        blocks: a coroutine awaits `apublish`.
        """
        if expected_version is not None and type(expected_version) is not int:
            raise TypeError(f"expected_version is a version, an int; not {expected_version!r}")
        self._echannel_check_is_no_snapshot()
        state = self._echannel
        if state.link is not None:
            return self._echannel_publish_copy(expected_version, timeout)
        with state.lock:
            if state.master is not None:
                state.master.endpoint.check_usable()
            if expected_version is not None and expected_version != state.version:
                raise _stale(expected_version, state.version)
            changed = self._echannel_changed()
            if changed:
                self._echannel_check_size(changed)
                state.base = {**state.base, **changed}
                state.version += 1
            state.assigned.clear()
            version = state.version
        if state.master is not None and state.policy == "prompt":
            state.master.tell_all(version, timeout)
        return version

    def pull(self, timeout: float | None = None) -> int:
        """Take the newest version, which is returned, and give up what was set here and not published."""
        self._echannel_check_is_no_snapshot()
        state = self._echannel
        if state.link is None:
            with state.lock:
                state.assigned.clear()
                self._echannel_restore(state.base)
                return state.version
        with _Turn(state.publishing, timeout) as left:
            version, fields = state.link.pull() if left is None else state.link.pull(left)
            with state.lock:
                self._echannel_take(version, fields)
                state.assigned.clear()
                self._echannel_restore(state.base)
                return state.version

    async def apublish(self, expected_version: int | None = None, timeout: float | None = None) -> int:
        """`publish` for coroutines."""
        from echannel_ray.endpoint.offload import in_thread

        return await in_thread(lambda: self.publish(expected_version, timeout))

    async def apull(self, timeout: float | None = None) -> int:
        """`pull` for coroutines."""
        from echannel_ray.endpoint.offload import in_thread

        return await in_thread(lambda: self.pull(timeout))

    def snapshot(self: S) -> S:
        """This object as it is now, of one version: a copy of the same class that nobody changes, nor can set."""
        with self._echannel.lock:
            values = dict(self.__dict__)
            version = self._echannel.version
            values = {name: each if type(each) in ATOMS else copy.deepcopy(each) for name, each in values.items()}
        made = bare(type(self), values)
        made._echannel.version = version
        made._echannel.is_snapshot = True
        return made

    # ---- as a Python object ----

    @override
    def __setattr__(self, name: str, value: Any) -> None:
        if name not in type(self).__pydantic_fields__:
            super().__setattr__(name, value)
            return
        self._echannel_check_is_no_snapshot()
        state = self._echannel
        # An update in between would be lost: validation puts a new `__dict__` in the place of the one that it found.
        with state.lock:
            super().__setattr__(name, value)
            state.assigned.add(name)

    @override
    def __reduce_ex__(self, protocol: Any) -> Any:
        state = self._echannel
        if state.is_snapshot:
            return _snapshot_from, (type(self), state.version, plain.encode(values_of(self._echannel_capture())))
        ref = self._echannel_ref()
        owner = state.master or state.link
        version, fields = self._echannel_state()
        whose = (owner.namespace, ref.node, ref.endpoint, ref.number)
        return _copy_from, (type(self), whose, version, plain.encode(fields))

    @override
    def __copy__(self: S) -> S:
        return self._echannel_own(super().__copy__())

    @override
    def __deepcopy__(self: S, memo: dict[int, Any] | None = None) -> S:
        return self._echannel_own(super().__deepcopy__(memo))

    def _echannel_own(self, made: S) -> S:
        made._echannel.base = made._echannel_capture()
        return made

    # ---- what the runtime uses ----

    def _echannel_ref(self) -> SharedRef:
        """The reference to the object that this is a copy of; others may have copies of it from now on."""
        self._echannel_check_is_no_snapshot()
        state = self._echannel
        if state.link is not None:
            ref: SharedRef | None = getattr(state.link, "ref", None)
            if ref is None:
                raise TypeError("a shared object of a modulator stays in its sandbox: it can't be pickled there")
            return ref
        from echannel_ray.session import endpoint_for

        endpoint = endpoint_for(state.master.namespace if state.master is not None else None)
        with state.lock:
            # Of a session that this process has left, nobody can reach it.
            if state.master is None or state.master.ref.endpoint != endpoint.id:
                missing = [name for name, each in state.base.items() if each is MISSING]
                if missing:
                    frozen_field(type(self), missing[0], self.__dict__[missing[0]])  # says why
                self._echannel_check_size({})
                state.master = endpoint.sharing.export(self)
            return state.master.ref

    def _echannel_state(self) -> tuple[int, dict[str, Any]]:
        """The version, and its fields as plain data."""
        with self._echannel.lock:
            version, base = self._echannel.version, self._echannel.base
        return version, values_of(base)

    def _echannel_merge(self, fields: dict[str, Any], expected_version: int | None) -> tuple[int, dict[str, Any]]:
        """A copy of this master has published: what is published then. `ValueError` where it is no valid object."""
        cls, state = type(self), self._echannel
        unknown = sorted(fields.keys() - cls.__pydantic_fields__.keys())
        if unknown:
            raise ValueError(f"{cls.__qualname__} has no field {unknown[0]!r}")
        with state.lock:
            if expected_version is not None and expected_version != state.version:
                raise _stale(expected_version, state.version)
            own = {*self._echannel_changed(), *state.assigned}
            values = dict(self.__dict__)
            values.update({n: rebuilt(cls, n, value_of(state.base[n])) for n in own if n in state.base})
            values = validated(cls, values, fields)
            changed = {}
            for name in fields:
                frozen = frozen_field(cls, name, values[name])
                if not is_same(frozen, state.base.get(name, MISSING)):
                    changed[name] = frozen
            if changed:
                self._echannel_check_size(changed)
                state.base = {**state.base, **changed}
                _set(self, "__dict__", {**self.__dict__, **{n: values[n] for n in changed if n not in own}})
                state.version += 1
            return state.version, values_of(state.base)

    @classmethod
    def _echannel_copy(cls: type[S], version: int, fields: dict[str, Any], link: Any) -> S:
        """A secondary copy, which publishes and pulls through the link."""
        made = bare(cls, {n: rebuilt(cls, n, each) for n, each in fields.items() if n in cls.__pydantic_fields__})
        state = made._echannel
        state.base = {name: frozen_field(cls, name, each) for name, each in fields.items()}
        state.version = version
        state.link = link
        return made

    def _echannel_update(self, version: int, fields: dict[str, Any]) -> None:
        """Take in what the master has published."""
        with self._echannel.lock:
            self._echannel_take(version, fields)

    @classmethod
    def _echannel_reduction(cls) -> tuple[Any, tuple[Any, ...]]:
        """How a pickler takes this class along by value: see `definition_of`."""
        return rebuild_class, definition_of(cls)

    # ---- versions; under the lock ----

    def _echannel_capture(self) -> dict[str, Any]:
        """The fields as they are, in a form that nobody can change."""
        captured = {}
        values = self.__dict__
        for name in type(self).__pydantic_fields__:
            if name in values:
                try:
                    captured[name] = frozen_field(type(self), name, values[name])
                except NotSerialisable:
                    captured[name] = MISSING  # said when it is published or pickled: it may never be
        return captured

    def _echannel_changed(self) -> dict[str, Any]:
        """The fields that are not as in the version that this copy has."""
        changed = {}
        values, base = self.__dict__, self._echannel.base
        for name in type(self).__pydantic_fields__:
            if name in values:
                value, before = values[name], base.get(name, MISSING)
                if value is before:
                    continue
                frozen = frozen_field(type(self), name, value)
                if not is_same(frozen, before):
                    changed[name] = frozen
        return changed

    def _echannel_take(self, version: int, fields: dict[str, Any]) -> None:
        """Go on to a newer version; what the user has set stays."""
        state = self._echannel
        if version <= state.version:
            return
        cls = type(self)
        base, values = state.base, self.__dict__
        news, changed = {}, {}
        for name, value in fields.items():
            before = base.get(name, MISSING)
            if type(value) is type(before) and type(value) in ATOMS and value == before:
                continue
            if name not in cls.__pydantic_fields__:
                continue  # of a master whose class has more fields
            frozen = frozen_field(cls, name, value)
            if is_same(frozen, before):
                continue
            news[name] = frozen
            if name in state.assigned or name in state.sending:
                continue
            present = values.get(name, before)
            if present is not before and not is_same(frozen_or_missing(cls, name, present), before):
                state.assigned.add(name)  # changed inside
                continue
            changed[name] = rebuilt(cls, name, value)
        state.base = {**base, **news}
        _set(self, "__dict__", {**values, **changed})
        state.version = version

    def _echannel_restore(self, names: Iterable[str]) -> None:
        """Give up what differs from the version that this copy has."""
        cls, base, values = type(self), self._echannel.base, self.__dict__
        restored = {}
        for name in names:
            before = base[name]
            if before is not MISSING and not is_same(frozen_or_missing(cls, name, values.get(name)), before):
                restored[name] = rebuilt(cls, name, value_of(before))
        if restored:
            _set(self, "__dict__", {**values, **restored})

    def _echannel_publish_copy(self, expected_version: int | None, timeout: float | None) -> int:
        cls, state = type(self), self._echannel
        with _Turn(state.publishing, timeout) as left:
            with state.lock:
                names = {*self._echannel_changed(), *state.assigned}
                sent = {name: frozen_field(cls, name, self.__dict__[name]) for name in names}
                self._echannel_check_size(sent)
                state.sending, state.assigned = names, state.assigned - names
            fields = values_of(sent)
            try:
                if left is None:
                    version, newest = state.link.publish(fields, expected_version)
                else:
                    version, newest = state.link.publish(fields, expected_version, left)
            except BaseException:
                with state.lock:
                    state.assigned |= state.sending
                    state.sending = set()
                raise
            with state.lock:
                self._echannel_take(version, newest)
                state.sending = set()
                # Somebody may have published these again since. What was set again here meanwhile stays.
                values, left_alone = self.__dict__, names - state.assigned
                self._echannel_restore(n for n in left_alone if is_same(frozen_or_missing(cls, n, values[n]), sent[n]))
            return int(version)

    def _echannel_check_size(self, changed: dict[str, Any]) -> None:
        for each in changed.values():
            if type(each) is not float and type(each) is not int:
                break
        else:
            if changed:
                return  # the usual ones, and short
        sized = {**self._echannel.base, **changed}
        size = sum(len(each) for each in sized.values() if isinstance(each, bytes | str))
        if size > MAX_STATE_BYTES:
            raise NotSerialisable(
                f"the fields of {type(self).__qualname__} have {size:,} bytes: shared objects are for at most "
                f"{MAX_STATE_BYTES:,}. Publish the data as events, and share what says how to treat them",
                path=type(self).__qualname__,
            )

    def _echannel_check_is_no_snapshot(self) -> None:
        if self._echannel.is_snapshot:
            raise TypeError(
                f"a snapshot of {type(self).__qualname__} can't be changed or published: use the object that it is of"
            )


class _Turn:
    """Waits for a lock, and says what is left of the time."""

    def __init__(self, lock: threading.Lock, timeout: float | None) -> None:
        self._lock = lock
        self._timeout = timeout

    def __enter__(self) -> float | None:
        if self._timeout is None:
            self._lock.acquire()
            return None
        deadline = time.monotonic() + self._timeout
        if not self._lock.acquire(timeout=max(0.0, self._timeout)):
            raise TimeoutError(f"another thread has published or pulled this copy for {self._timeout} s")
        return max(0.0, deadline - time.monotonic())

    def __exit__(self, *error: object) -> None:
        self._lock.release()


def _stale(expected: int, current: int) -> StaleVersion:
    return StaleVersion(
        f"version {expected} was expected, and version {current} is the newest: pull, look at what has changed, and "
        "publish again",
        expected=expected,
        current=current,
    )


# ---- pickles -------------------------------------------------------------------------------------------------------


def _copy_from(cls: type[S], whose: tuple[str, int, int, int], version: int, fields: bytes) -> S:
    """A secondary copy in this process; pickles call it."""
    from echannel_ray.core.messages import SharedRef
    from echannel_ray.session import endpoint_for
    from echannel_ray.shared.shared_copies import MasterLink

    namespace, node, endpoint_id, number = whose
    endpoint = endpoint_for(namespace)
    link = MasterLink(endpoint, SharedRef(node, endpoint_id, number))
    made = cls._echannel_copy(version, plain.decode(fields), link)
    link.lead_to(made)
    if endpoint.incoming.is_taking:
        # Inside an event: the thread that would read the answer is this one. The newest version comes a little later.
        endpoint.sharing.attach_soon(link.ref, link)
        return made
    try:
        made._echannel_update(*endpoint.sharing.attach(link.ref, link, _ARRIVAL_SECONDS))
    except MasterLost:
        pass  # it has the values that it came with; `pull` and `publish` say why
    except TimeoutError:
        endpoint.sharing.attach_soon(link.ref, link)  # its master's process is stopped: it may go on
    return made


def _snapshot_from(cls: type[S], version: int, fields: bytes) -> S:
    """A snapshot again; pickles call it."""
    made = bare(cls, {name: rebuilt(cls, name, each) for name, each in plain.decode(fields).items()})
    made._echannel.version = version
    made._echannel.is_snapshot = True
    return made
