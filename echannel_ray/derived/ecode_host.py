"""E-code at a producer: it was verified, so it runs in the thread that publishes, over whole packs where it can."""

from __future__ import annotations

from itertools import compress
from typing import Any

from typing_extensions import override

from echannel_ray.core.kinds import BLOCK, RECORD, token_of, typed, wire_kind
from echannel_ray.derived.branch import Branch, Chunk
from echannel_ray.derived.host import HostInProcess
from echannel_ray.endpoint.record_codec import RecordEncoder, objects_of, open_more
from echannel_ray.formats.events import OVERHEAD_BYTES
from echannel_ray.producers.local_source import NOTHING
from echannel_ray.programs.code import Code
from echannel_ray.programs.compiler import quick_switches
from echannel_ray.programs.engine import Engine, Trapped
from echannel_ray.programs.interpreter import Interpreted
from echannel_ray.programs.program import Program, Trap, Type
from echannel_ray.records import known
from echannel_ray.records.generic import as_record
from echannel_ray.records.writer import Writer
from echannel_ray.schemas import types
from echannel_ray.schemas.extension import lossless
from echannel_ray.shared.copies import CopyInProgram

# Where no more than one in so many is rejected, those are taken out; else those that pass are picked.
_FEW = 16
# Interpreted, so many steps take about a millisecond.
_MAX_COLD_STEPS = 20_000


class EcodeHost(HostInProcess):
    """A program at one producer. It has an engine for each layout in which records come."""

    def __init__(self, branch: Branch) -> None:
        super().__init__(branch)
        self._code = Code.of(self._shipment.code)
        self.input_record = self._code.record  # what the program's events are
        self.output_record = self._code.output  # what the program makes; None where it only filters
        self._params = [CopyInProgram(self, self._endpoint.sharing, ref) for ref in self._shipment.shared]
        self._engines: dict[int, Engine] = {}  # by the tokens of formats
        self._active: Engine | Interpreted | None = None  # whose static variables count
        self._program: Program
        self._objects: Interpreted  # for records without a layout
        self._write: Writer | None = None  # outputs of records without a layout

    @override
    def install(self) -> None:
        """Verify the program, or raise. A producer that publishes meanwhile is not to notice."""
        with quick_switches():
            self._verify()
            for each in self._params:
                each.attach()
            unfit = self._unfit_param()
            if unfit is not None:
                self.close()
                raise self._branch.refused(unfit)
            for kind in self._encoder.sizes:
                self._engine(token_of(kind))

    @property
    def _encoder(self) -> RecordEncoder:
        records = self._branch.publisher.records
        assert records is not None
        return records

    def _verify(self) -> None:
        records = self._branch.publisher.records
        if records is None:
            raise self._branch.refused("the channel is untyped, and E-code needs a type: create the channel with one")
        self._check_record()
        self._program = self._code.check()
        limit = self._branch.sink.admission.max_cost
        if self._program.cost > limit:
            raise self._branch.refused(
                f"it may take {self._program.cost:,} steps for an event, and the limit (max_cost) is {limit:,}: "
                "let its loops run less often, or raise max_cost of the producer's Admission"
            )
        self._objects = Interpreted(self._program)
        self._active = self._objects
        if self._program.output is not None:
            self._write = Writer(None, self._program.output)
            output = self._write.format
            if known.known(output.token) is None or output.token not in records.definition.formats:
                records.definition = open_more(self._endpoint, records.definition, None, output)

    def _check_record(self) -> None:
        """Whether the type that it was written for is the one that events have here."""
        parent = self._branch.sink.branches.host_of(self._branch.derived.parent)
        known_record = types.certain_of(self._encoder.definition.type_schema)
        if isinstance(parent, EcodeHost):
            known_record = parent.output_record or parent.input_record
        for field in self._code.record.fields:
            there = known_record.field(field.name)
            reason = lossless(there.type, field.type) if there is not None else None
            if reason is not None:
                raise self._branch.refused(f"its field {field.name!r} is of another type here: {reason}")

    # ---- working ----

    @override
    def _work(self) -> None:
        branch = self._branch
        pending = branch.pending
        while self._has_work() and not self._closed:
            self._apply_updates()
            if not pending:
                continue
            if pending[0].dropped:
                with self._endpoint.lock:
                    branch.tell_dropped()
                continue
            chunk = pending.popleft()
            try:
                self._run(chunk)
            except Exception as error:  # such as of a layout that does not fit; whoever publishes is not to blame
                self._failed(f"{type(error).__name__}: {error}", NOTHING)
            finally:
                with self._endpoint.lock:
                    branch.done(chunk)

    def _run(self, chunk: Chunk) -> None:
        engine = self._engine(token_of(chunk.kind)) if chunk.payloads is not None else None
        if engine is None:
            self._run_objects(chunk)
            return
        if engine is not self._active:
            assert self._active is not None
            engine.statics = self._active.statics
            self._active = engine
        if wire_kind(chunk.kind) == BLOCK:
            self._run_block(engine, chunk)
        else:
            self._run_records(engine, chunk)

    def _engine(self, token: int) -> Engine | None:
        """The engine for records of this format; None where they have no layout."""
        engine = self._engines.get(token)
        if engine is None and token and self._program.is_fixed:
            format = known.known(token)  # noqa: A001
            output = self._write.format if self._write is not None else None
            if format is not None and format.layout is not None and (output is None or output.layout is not None):
                engine = Engine(self._program, format.layout, output.layout if output is not None else None)
                engine.set_params(self._param_values())
                self._engines[token] = engine
        return engine

    # ---- records with a layout ----

    def _at_once(self, engine: Engine) -> int:
        """How many records are run by one call: without machine code, no more than a publisher would notice."""
        return 1 << 40 if engine.form == "native" else max(1, _MAX_COLD_STEPS // self._program.cost)

    def _run_records(self, engine: Engine, chunk: Chunk) -> None:
        """Run the program over records that came one by one: a pack of them, or a single one."""
        payloads = chunk.payloads
        assert payloads is not None
        at = 0
        while at < len(payloads) and not self._closed:
            most = self._at_once(engine)
            part = payloads if not at and len(payloads) <= most else payloads[at : at + most]
            block = part[0] if len(part) == 1 else b"".join(part)
            try:
                if self._write is not None:
                    self._emit_outputs(engine.transform(block, len(part))[0], chunk)
                elif len(part) > 1:
                    self._emit_passing(engine.select(block, len(part)), part, chunk)
                elif engine.passes(block):
                    self._emit(chunk.kind, part, chunk)
                at += len(part)
            except Trapped as trapped:
                if self._write is not None:
                    self._emit_outputs(trapped.done[0], chunk)
                elif trapped.index:
                    self._emit_passing(trapped.done, part, chunk)
                self._trapped(trapped.trap, chunk, at + trapped.index)
                at += trapped.index + 1

    def _emit_passing(self, mask: bytes, payloads: list[bytes], chunk: Chunk) -> None:
        passed = payloads
        rejected = mask.count(0)
        if rejected > len(mask) // _FEW or len(mask) < len(payloads):
            passed = [*compress(payloads, mask)]
        elif rejected:
            passed = payloads.copy()
            at = len(mask)
            while (at := mask.rfind(0, 0, at)) >= 0:
                del passed[at]
        self._emit(chunk.kind, passed, chunk)

    def _emit_outputs(self, outputs: bytes, chunk: Chunk) -> None:
        assert self._write is not None
        layout = self._write.format.layout
        assert layout is not None
        size = layout.itemsize
        kind = typed(RECORD, self._write.format.token)
        self._emit(kind, [outputs[at : at + size] for at in range(0, len(outputs), size)], chunk)

    def _emit(self, kind: int, payloads: list[bytes], chunk: Chunk) -> None:
        if not payloads:
            return
        size = (len(payloads[0]) + OVERHEAD_BYTES) * len(payloads)
        if chunk.emission is not None:
            self._branch.emit_payloads([(kind, payload) for payload in payloads], chunk.emission)
        else:
            self._branch.emit_run(kind, payloads, size)

    def _run_block(self, engine: Engine, chunk: Chunk) -> None:
        assert chunk.payloads is not None
        block = memoryview(chunk.payloads[0])
        size = len(block) // chunk.count
        at = 0
        while at < chunk.count and not self._closed:
            count = min(self._at_once(engine), chunk.count - at)
            part = block[at * size : (at + count) * size]
            try:
                if self._write is not None:
                    self._emit_block_of_outputs(engine.transform(part, count)[0])
                else:
                    self._emit_block(chunk, *engine.survivors(part, count))
                at += count
            except Trapped as trapped:
                if self._write is not None:
                    self._emit_block_of_outputs(trapped.done[0])
                else:
                    self._emit_block(chunk, *trapped.done)
                self._trapped(trapped.trap, chunk, at + trapped.index)
                at += trapped.index + 1

    def _emit_block(self, chunk: Chunk, block: Any, count: int) -> None:
        """What passes: a copy of the program's making, or, where all of it does, a part of the block itself."""
        is_ours = isinstance(block, bytes) or isinstance(block.obj, bytes)
        if count:
            self._branch.emit_block(chunk.kind, bytes(block) if chunk.is_borrowed and not is_ours else block, count)

    def _emit_block_of_outputs(self, outputs: bytes) -> None:
        assert self._write is not None
        layout = self._write.format.layout
        assert layout is not None
        if outputs:
            count = len(outputs) // layout.itemsize
            self._branch.emit_block(typed(BLOCK, self._write.format.token), outputs, count)

    # ---- all others ----

    def _run_objects(self, chunk: Chunk) -> None:
        """Records of variable length, and what a modulator made: event by event, by the names of their fields."""
        if self._active is not self._objects:
            assert self._active is not None
            self._objects.statics = self._active.statics
            self._active = self._objects
        params = self._param_values()
        originals = _originals(chunk)
        objects = _records(chunk)
        for i, event in enumerate(objects):
            if self._closed:
                return
            try:
                result = self._objects.run_event(event, params)
            except Trap as trap:
                self._trapped(trap, chunk, i)
                continue
            except Exception as error:  # what came is no such record
                self._failed(f"{type(error).__name__}: {error}", event)
                continue
            if not result.passes:
                continue
            if self._write is None:
                outputs = [originals[i]] if originals is not None else None
            else:
                assert result.output is not None
                outputs = [(typed(RECORD, self._write.format.token), self._write(result.output))]
            if outputs is not None:
                self._branch.emit_payloads(outputs, chunk.emission)
            else:
                self._branch.emit_objects([event], chunk.emission)

    # ---- failing ----

    def _trapped(self, trap: Trap, chunk: Chunk, index: int) -> None:
        try:
            event = chunk.as_objects()[index]
        except Exception as error:  # of the event's own class
            event = error
        self._failed(str(trap), event)

    def _failed(self, reason: str, event: Any) -> None:
        self._objects.reset()
        for engine in self._engines.values():
            engine.reset()
        if not self._branch.failed(reason, event):
            self._closed = True

    @override
    def close(self) -> None:
        self._closed = True
        for each in self._params:
            each.detach()

    # ---- the parameter block ----

    def _param_values(self) -> list[Any]:
        if not self._params:
            return []
        _, fields = self._params[0].state
        return [fields[param.name] for param in self._program.params]

    def _unfit_param(self) -> str | None:
        """Why machine code could not have a parameter, in whichever form the program runs at the moment."""
        for param, value in zip(self._program.params, self._param_values(), strict=True):
            if param.type is Type.INT and not -(2**63) <= value < 2**63:
                return f"the field {param.name!r} of its shared object is no whole number of 64 bits: {value}"
        return None

    def params_changed(self) -> None:
        """Give the engines new values of the parameters; under the mutex."""
        unfit = self._unfit_param()
        try:
            values = self._param_values()
            for engine in self._engines.values() if unfit is None else ():
                engine.set_params(values)
        except (OverflowError, TypeError, ValueError) as error:
            unfit = f"a field of its shared object is no value that fits: {error}"
        if unfit is not None:
            self._branch.quarantine(unfit)
            self._closed = True


def _records(chunk: Chunk) -> list[Any]:
    """The events of a chunk, by the names of their fields also where a dict was published."""
    if chunk.payloads is not None and token_of(chunk.kind):
        return objects_of(chunk.kind, chunk.payloads, chunk.count)
    return [as_record(event) for event in chunk.as_objects()]


def _originals(chunk: Chunk) -> list[tuple[int, Any]] | None:
    """What goes out for the events that pass, where they came as bytes."""
    if chunk.payloads is None:
        return None
    return [*zip(*chunk.originals(), strict=True)]
