"""Times a model's modules during a run and passes the records of each token to the library in one call.

While it is attached, the `forward` of every timed module is replaced by a function that reads the clock
before and after calling the original. That is several times cheaper than torch's hooks, which `mode="hooks"`
uses where copies of a module must run their own code. A record is four integers in one list; after each
token the list becomes packed spans. No tensor is touched, and everything is put back when the run ends.
Does not import torch: the clock and the check for a running compiler are passed in.
"""
from __future__ import annotations

import array
import contextlib
import functools
import itertools
import threading
from typing import Any, Callable, ContextManager, Dict, List, Optional, Set, Tuple

from . import _native as n
from .names import ENCODER, MODULES, SECTIONS, Module, Namespace, Part, Plan
from .patching import Replacement, as_hook, attaching, copy_unpatched, resume, suspend
from .session import Run, clock_ns
from .operations import Operations
from .shapes import Shapes
from .statistics import DETAIL, FIELDS, NO_STATISTICS, Look
from .work import Pass, Work

TOGETHER = 8  # steps that a device has computed are passed on together, which costs less than one by one
TOGETHER_NS = 100_000_000  # or as many as there are when the oldest is as old as this
MAX_BEHIND = 16  # steps that the device may be behind; then the host waits for the oldest of them
BARE, LAYERS, PARTS = range(3)  # what of a pass is timed: itself, also layers and modules outside them, also their parts
NONE = 0xFFFFFFFF  # in no layer of its own, without detail
DEVICE = 48  # where a device is in the third of them
KIND_AND_NAME = (1 << DEVICE) - 1


def word(kind: int, id: int) -> int:
    return id | kind << 32


def never() -> bool:
    return False


COMPILED = "_compiled_call_impl"  # what a module calls after `module.compile()`
LOST = 0  # a stamp that could not be taken


class HostClock:
    """The clock of work that is complete when a module returns (CPU): a stamp is nanoseconds."""

    is_late = False  # whether times are known only when a device has passed the stamps
    how = "host"  # how modules are timed, as the run says it
    untimed: Optional[str] = None  # why modules can't be timed
    error: Optional[Exception] = None  # of a stamp that a module took
    clock_error_ns = 0  # of the times of the step that was resolved last

    def stamp(self) -> int:
        return clock_ns()

    def stamp_of(self, module: Module) -> Callable[[], int]:
        return clock_ns

    def device_of(self, module: Optional[Module]) -> Any:
        """The device whose time stamp_of() tells, or stamp() without a module; None: the host's."""
        return None

    def begin_step(self, after: Optional[int] = None) -> int:
        """The stamp at which a step begins; `after`: the one at which the step before ended."""
        return clock_ns()

    def is_capturing(self) -> bool:
        """Whether the device's work is being captured into a graph, during which nothing may be asked of it."""
        return False

    def cost_ns(self) -> int:
        """What a stamp costs more than a reading of the host's clock."""
        return 0

    def share_of_waiting(self) -> Optional[float]:
        """How much of the modules' time contains waiting for the host; None: the question does not arise."""
        return None

    def aside(self, tensor: Any) -> ContextManager[Any]:
        """Where a complete tensor can be read without waiting for later work."""
        return contextlib.nullcontext()

    def seal(self) -> List[int]:
        """The stamps that have to be passed before those since the last call can be resolved."""
        return []

    def resolve(self, records: List[int]) -> List[int]:
        """Converts the stamps in a step's records to nanoseconds: the first two hold its begin, the end of its last pass,
        and its end. Nothing if one of these was lost."""
        return records

    def describe(self, device: Any) -> Dict[str, Any]:
        """What is known about a device, as arguments of Run.declare_device."""
        return {"name": str(device)}

    def is_done(self, stamps: List[int]) -> bool:
        return True

    def wait(self, stamps: List[int]) -> None:
        pass

    def finish(self) -> bool:
        """Waits until every stamp can be resolved; False if they can't be."""
        return True


class Discard(Look):
    """Replaces the statistics callback once the recorder is detached: a forward that other code wrapped in the meantime
    still calls the recorder's, whose records are no longer collected."""

    def __init__(self) -> None:
        super().__init__(None)

    def at(self, records: List[int], out: Any, inputs: Any = (), work: Optional[Work] = None, gap: Optional[int] = None) -> bool:
        records.clear()
        return False


class Step:
    """One forward pass and the time until the next one; times are stamps of the recorder's clock."""

    __slots__ = ("begin", "forward_end", "end", "position", "records", "ends", "texts", "details", "after", "phase", "stamps",
                 "complete")

    def __init__(self, begin: int, position: int, after: str = "sampling") -> None:
        self.begin, self.position, self.after = begin, position, after
        self.end = self.forward_end = begin
        self.records: List[int] = []
        self.ends: List[int] = []  # where the records of each pass end; a step has one pass, or several parts of a prompt
        self.texts: List[Tuple[int, int, int, Optional[str]]] = []
        self.details = bytearray()  # of the records, which number them
        self.phase: Optional[str] = None  # where the clock is late: the phase that the step belongs to
        self.stamps: List[int] = []  # to be passed before the step can be read
        self.complete: List[Callable[[], None]] = []  # reads the step's tensors, once the device has computed them


def _as(function: Callable[..., Any], wrapper: Callable[..., Any]) -> Callable[..., Any]:
    """The wrapper with the name and signature of what it wraps, as far as that has them."""
    try:
        functools.update_wrapper(wrapper, function)
    except (AttributeError, TypeError):
        pass
    return wrapper


def _without_lost(records: List[int]) -> List[int]:
    """Those whose begin and end were both stamped."""
    kept: List[int] = []
    for i in range(0, len(records), FIELDS):
        if records[i] != LOST and records[i + 1] != LOST:
            kept += records[i:i + FIELDS]
    return kept


def is_outer(part: Part) -> bool:
    """Whether a part lies outside the layers: there are few, and the run's sections are made of them."""
    return part.section not in (None, MODULES, ENCODER)


class Gate:
    """Which thread's calls of a group of modules are timed; 0: none's. `ended_by`: what stamped the end of the last layer."""

    __slots__ = ("thread", "ended_by", "patches")

    def __init__(self) -> None:
        self.thread = 0
        self.patches: List[Replacement] = []  # that can be taken off while nothing is timed
        self.ended_by: Optional[Callable[[], int]] = None


class Recorder:
    """The records of one run, from the modules of one plan."""

    def __init__(self, run: Run, plan: Optional[Plan], clock: Optional[HostClock] = None,
                 compiling: Callable[[], bool] = never, mode: str = "forward") -> None:
        self.run, self.plan, self.clock, self.compiling, self.mode = run, plan, clock or HostClock(), compiling, mode
        self.records: List[int] = []  # of the current pass
        self.pending: List[Step] = []  # steps whose device times are outstanding
        self.computed: List[Step] = []  # steps whose device times can be read
        self._computed_ns = 0  # when the oldest of them was noticed
        self._packed = array.array("q")  # spans of steps, and what else goes with them
        self._texts: List[Tuple[int, int, int, Optional[str]]] = []
        self.looking: Optional[Look] = None  # of the current pass
        self.resumed = LOST  # stamp at which the statistics of the module recorded last were done
        self.works: Dict[int, Work] = {}  # of the parts, by id() of their modules
        self.shapes = Shapes()
        self.operations: Optional[Operations] = None  # at depth deep
        self.gated = False
        self._devices: List[Any] = []  # that compute modules, as the records number them
        self._declared: List[int] = []  # their numbers in the run
        self._clock_error_ns = 0  # of the packed spans
        self.outer, self.inner = Gate(), Gate()  # layers and modules outside them; parts of layers
        self.level = PARTS  # of the current pass, or the last
        self.unphased_ns: Optional[int] = None  # begin of the phase before the first, where the clock is late
        self._phase: Optional[Tuple[str, int]] = None  # of the steps handed over last, and its end so far
        self._restore: List[Callable[[], Any]] = []
        self._words()

    # ---- encoding of records ----

    def _words(self) -> None:
        plan, name = self.plan, self.run.name
        self.modules: Optional[int] = None  # the section of a model without blocks
        self.sections: List[Tuple[int, List[int]]] = []  # a section's code, and those of its members in order
        self.of_encoder: Set[int] = set()  # codes of the encoder's parts
        if plan is None:
            return
        members: Dict[str, List[int]] = {section: [] for section in (ENCODER, *SECTIONS, MODULES)}
        for part in plan.parts:
            if part.section:
                members[part.section].append(self._word_of(part))
        self.head = set(members["lm_head"])
        self.logits = word(n.COMPONENT, name("logits")) | self._on(None) if plan.logits else None
        if self.logits is not None:
            members["lm_head"].append(self.logits)
        self.modules = word(n.SECTION, name(MODULES)) if members.pop(MODULES) else None
        self.of_encoder.update(members.pop(ENCODER))
        self.encoder = word(n.SECTION, name(ENCODER)) if self.of_encoder else 0
        for section, words in members.items():
            if words:
                self.sections.append((word(n.SECTION, name(section)), words))
        layers = [word(n.LAYER, index) | self._on(block) for index, block in plan.layers]
        if layers:
            self.sections.append((word(n.SECTION, name("layers")), layers))

    def _word_of(self, part: Part) -> int:
        # a module without a component is timed only for its section
        return (word(n.COMPONENT if part.component else n.SECTION, self.run.name(part.component or part.section or ""))
                | self._on(part.module))

    def _on(self, module: Optional[Module]) -> int:
        """The device of a module, or of functions, as a part of a record's word."""
        device = self.clock.device_of(module)
        if device is None:
            return 0
        if device not in self._devices:
            self._devices.append(device)
        return self._devices.index(device) + 1 << DEVICE

    # ---- attaching ----

    def attach(self) -> None:
        """Replaces the forward of every part; detach() restores them."""
        if self.plan is None:
            return
        self._restore, self.looking = [], None
        try:
            with attaching:
                self._patch(self.plan)
        except BaseException:
            self.detach()
            raise

    def _patch(self, plan: Plan) -> None:
        for index, block in plan.layers:
            self._time(block, word(n.LAYER, index) | self._on(block), self.outer)
        for part in plan.parts:
            gap = word(n.COMPONENT, self.run.name(part.gap)) | self._on(part.module) if part.gap else None
            self._time(part.module, self._word_of(part), self.outer if is_outer(part) else self.inner, gap)
        for namespace, name, component in plan.functions:
            self._replace(namespace, name, self._timed_function(
                namespace[name], word(n.COMPONENT, self.run.name(component)) | self._on(None)))
        for namespace in plan.gated_attention:
            self._time_attention(namespace)

    def detach(self) -> None:
        """Restores the model; may be called twice."""
        restore, self._restore = self._restore, []
        self.outer.patches, self.inner.patches = [], []
        with attaching:
            for undo in reversed(restore):
                undo()
        self.records.clear()
        self.looking = Discard()

    def _replace(self, namespace: Namespace, name: str, value: Any, gate: Optional[Gate] = None) -> None:
        """`gate`: takes the patch off in passes that it times nothing of."""
        patch = Replacement(namespace, name, value)
        self._restore.append(patch.undo)
        if gate is not None:
            gate.patches.append(patch)

    def _time(self, module: Module, what: int, gate: Gate, gap: Optional[int] = None) -> None:
        self._restore.append(copy_unpatched(module).undo)
        # a hook or another forward would become part of a compiled block's graph
        called = "forward" if getattr(module, COMPILED, None) is None else COMPILED
        if self.mode == "hooks" and called == "forward":
            return self._hook(module, what, gate, gap)
        stamp, inner = self.clock.stamp_of(module), getattr(module, called)
        chained = self.clock.is_late and (what & KIND_AND_NAME) >> 32 == n.LAYER
        self._replace(module.__dict__, called, self._timed_layer(inner, what, stamp) if chained else
                      self._timed(inner, what, gate, gap, stamp, self.works.get(id(module))), gate if called == "forward" else None)

    def _timed(self, forward: Callable[..., Any], what: int, gate: Gate, gap: Optional[int],
               stamp: Callable[[], int], work: Optional[Work] = None) -> Callable[..., Any]:
        """Wraps `forward` to record its time, and with `gap` also the time before it."""
        records, compiling, recorder = self.records, self.compiling, self
        put, thread = records.extend, threading.get_ident

        if gap is None:
            def timed(*args: Any, **kwargs: Any) -> Any:
                if compiling() or thread() != gate.thread:
                    return forward(*args, **kwargs)
                begin = stamp()
                out = forward(*args, **kwargs)
                put((begin, stamp(), what, NONE))
                if recorder.looking is not None:
                    recorder.look(records, out, args, work)
                return out
        else:
            def timed(*args: Any, **kwargs: Any) -> Any:
                if compiling() or thread() != gate.thread:
                    return forward(*args, **kwargs)
                begin = stamp()
                if records:
                    put((max(recorder.resumed, records[-3]), begin, gap, NONE))
                out = forward(*args, **kwargs)
                put((begin, stamp(), what, NONE))
                if recorder.looking is not None:
                    recorder.look(records, out, args, work, gap)
                return out
        return _as(forward, timed)

    def _timed_layer(self, forward: Callable[..., Any], what: int, stamp: Callable[[], int]) -> Callable[..., Any]:
        """Wraps a layer's `forward` where stamps are expensive: a layer begins at the stamp at which the one before it on
        the same device ended, unless something else was timed between them."""
        records, compiling, recorder, gate = self.records, self.compiling, self, self.outer
        put, thread, kind = records.extend, threading.get_ident, what >> 32

        def timed(*args: Any, **kwargs: Any) -> Any:
            if compiling() or thread() != gate.thread:
                return forward(*args, **kwargs)
            follows = records and records[-2] >> 32 == kind and gate.ended_by is stamp
            begin = (records[-3] if follows else LOST) or stamp()
            out = forward(*args, **kwargs)
            put((begin, stamp(), what, NONE))
            gate.ended_by = stamp
            if recorder.looking is not None:
                recorder.look(records, out)
            return out
        return _as(forward, timed)

    def _timed_function(self, function: Callable[..., Any], what: int) -> Callable[..., Any]:
        """Wraps a function of a modelling file, which other models of the family may call too, perhaps in other
        threads."""
        return self._timed(function, what, self.inner, None, self.clock.stamp)

    def look(self, records: List[int], out: Any, inputs: Any = (), work: Optional[Work] = None, gap: Optional[int] = None) -> None:
        """Notes the work of the module recorded last, and of the gap before it, and computes the statistics of its output.
        An error ends that for this pass, not the program's call."""
        try:
            if self.looking is not None:
                took = self.looking.at(records, out, inputs, work, gap)
                self.resumed = self.clock.stamp() if took else LOST
        except Exception:
            self.looking, self.resumed = None, LOST
            records[FIELDS - 1::FIELDS] = [layer & NONE for layer in records[FIELDS - 1::FIELDS]]  # refer to no detail

    def _hook(self, module: Module, what: int, gate: Gate, gap: Optional[int]) -> None:
        """Uses torch's own hooks, which DataParallel's replicas of a module keep."""
        stamp, records, recorder = self.clock.stamp_of(module), self.records, self
        begins: List[int] = []
        work = self.works.get(id(module))

        def before(module: Module, args: Any) -> None:
            if threading.get_ident() != gate.thread:
                return
            begin = stamp()
            if gap is not None and records:
                records.extend((max(recorder.resumed, records[-3]), begin, gap, NONE))
            begins.append(begin)

        def after(module: Module, args: Any, out: Any) -> None:
            if threading.get_ident() != gate.thread or not begins:
                return
            records.extend((begins.pop(), stamp(), what, NONE))
            if recorder.looking is not None:
                recorder.look(records, out, args, work, gap)

        self._restore.append(module.register_forward_pre_hook(as_hook(before)).remove)
        self._restore.append(module.register_forward_hook(as_hook(after)).remove)

    def _time_attention(self, namespace: Namespace) -> None:
        """Attention with an output gate: the core ends with the attention function, the gate follows it."""
        core, gate = (word(n.COMPONENT, self.run.name(name)) for name in ("attention", "output_gate"))
        functions, recorder = namespace["ALL_ATTENTION_FUNCTIONS"], self

        class Timed:
            def __getattr__(self, name: str) -> Any:
                return getattr(functions, name)

            def __getitem__(self, key: str) -> Callable[..., Any]:
                return timed(functions[key])

            def get_interface(self, *args: Any, **kwargs: Any) -> Callable[..., Any]:
                return timed(functions.get_interface(*args, **kwargs))

        def timed(function: Callable[..., Any]) -> Callable[..., Any]:
            def attend(module: Module, *args: Any, **kwargs: Any) -> Any:
                out = function(module, *args, **kwargs)
                records = recorder.records
                if records and not recorder.compiling() and threading.get_ident() == recorder.inner.thread:
                    records.extend((records[-3], recorder.clock.stamp_of(module)(), core | recorder._on(module), NONE))
                    recorder.gated = True
                return out
            return attend

        self.gate_words = (core, gate)
        self._replace(namespace, "ALL_ATTENTION_FUNCTIONS", Timed())

    # ---- steps ----

    def forward_begins(self, level: int = PARTS, of: Optional[Pass] = None, statistics: Optional[Look] = None) -> None:
        """Begins a forward pass in this thread, of which so much is timed. `of`: what FLOPs and bytes are reckoned from."""
        self.records.clear()
        self.resumed, self.looking = LOST, statistics
        if self.works:
            self.looking = self.shapes.begin_pass(level, of, statistics)
        if level != self.level:
            for gate, needed in ((self.outer, LAYERS), (self.inner, PARTS)):
                if self.level < needed <= level:
                    resume(gate.patches)
                elif level < needed <= self.level:
                    suspend(gate.patches)
            self.level = level
        thread = threading.get_ident()
        self.outer.thread = thread if level >= LAYERS else 0
        self.inner.thread = thread if level >= PARTS else 0

    @property
    def expects_records(self) -> bool:
        """Whether a pass that calls the model's modules leaves records: without layers, only one with all parts may."""
        plan = self.plan
        return plan is not None and (self.level == PARTS or self.level == LAYERS and (
            bool(plan.layers) or any(map(is_outer, plan.parts))))

    def _close_gates(self) -> None:
        self.outer.thread = self.inner.thread = 0

    def forward_ended(self, step: Step) -> Optional[Look]:
        """Ends the pass: its records belong to the step. Returns what looked at its modules."""
        self._close_gates()
        look, self.looking = self.looking, None
        if self.clock.error is not None:
            error, self.clock.error = self.clock.error, None
            raise error
        step.forward_end = self.clock.stamp()
        taken = self.records[:]  # a copy, because the wrapped modules keep the list
        self.records.clear()
        if self.works:
            self._add_details(step, taken, look)
        if taken and self.logits is not None and taken[-2] in self.head:
            taken.extend((taken[-3], step.forward_end, self.logits, NONE))
        if self.operations is not None:
            self._add_operations(step, taken, self.operations)
        step.records.extend(_without_lost(taken) if LOST in taken else taken)
        step.ends.append(len(step.records))
        return look

    def trace_operations(self) -> Operations:
        on = self._on(None)
        self.operations = Operations(self.clock.stamp, lambda name: word(n.OPERATION, self.run.name(name)) | on,
                                     lambda: self.inner.thread)
        return self.operations

    def _add_operations(self, step: Step, taken: List[int], operations: Operations) -> None:
        number = len(step.details) // n.DETAIL_BYTES
        for begin, end, what, amount in operations.take(taken):
            number += 1
            step.details += DETAIL.pack(*amount, *NO_STATISTICS)
            taken.extend((begin, end, what, NONE | number << 32))

    def _add_details(self, step: Step, taken: List[int], look: Optional[Look]) -> None:
        """FLOPs and bytes of a pass's records; statistics are written into the same details when they are known."""
        details = self.shapes.end_pass(taken, look)
        before = len(step.details) // n.DETAIL_BYTES
        if before and details:
            taken[FIELDS - 1::FIELDS] = [d + (before << 32) if d >> 32 else d for d in taken[FIELDS - 1::FIELDS]]
        if look is not None:
            look.first = before
        step.details += details

    def end_step(self, step: Step, at: int) -> None:
        """Completes the step; it is passed on as soon as its device times are available."""
        step.end, step.stamps = at, self.clock.seal()
        self.records.clear()  # incomplete: its pass raised
        self.pending.append(step)
        self.flush()

    def drop_step(self) -> None:
        """After an exception in the pass: its records belong to no token, so their time stays with the phase."""
        self.records.clear()
        self._close_gates()
        self.looking = None

    def give_up(self) -> None:
        """After an error of the recording itself: nothing more is recorded."""
        self._close_gates()
        self.pending.clear()
        self.computed.clear()

    def flush(self, everything: bool = False) -> None:
        """Passes on the steps that the device has computed, or with `everything` waits for all."""
        if everything and not self.clock.finish():
            self.pending.clear()
        while self.pending and (everything or self._is_ready(self.pending[0])):
            self._read(self.pending.pop(0))
        if self.computed and (everything or self._is_time()):
            self._hand_over()
        if everything:
            self._end_phase()

    def _is_ready(self, step: Step) -> bool:
        if self.clock.is_done(step.stamps):
            return True
        if len(self.pending) <= MAX_BEHIND or self.clock.is_capturing():
            return False
        self.clock.wait(step.stamps)
        return True

    def _is_time(self) -> bool:
        return (not self.clock.is_late or len(self.computed) >= TOGETHER
                or clock_ns() - self._computed_ns >= TOGETHER_NS)

    def _read(self, step: Step) -> None:
        """Reads the tensors of a computed step, before the program writes others in their place."""
        for complete in step.complete:
            complete()
        if not self.computed:
            self._computed_ns = clock_ns()
        self.computed.append(step)

    def _hand_over(self) -> None:
        steps, self.computed = self.computed, []
        for step in steps:
            records = self.clock.resolve(
                [step.begin, step.forward_end, 0, 0, step.forward_end, step.end, 0, 0] + step.records)
            if records:
                self._pack(step, records)
        self._send()

    def _pack(self, step: Step, records: List[int]) -> None:
        begin, forward_end, end = records[0], records[1], records[FIELDS + 1]
        del records[: 2 * FIELDS]
        if step.phase is not None:
            self._extend_phase(step.phase, begin, end)
        self._name_gates(records)
        outer = self._outer(step, begin, forward_end, end, records)
        if records and self._devices:
            self._declare()
        first = len(self._packed) // FIELDS
        self._texts += [(first + index, *rest) for index, *rest in step.texts]  # type: ignore[misc]
        self._packed.extend(array.array("q", outer + records))
        if step.details:  # the records number them from the first of the call
            self._send(bytes(step.details))

    def _send(self, details: bytes = b"") -> None:
        """Passes the packed spans to the library."""
        if self._packed:
            packed, self._packed = self._packed, array.array("q")
            texts, self._texts = self._texts, []
            error_ns, self._clock_error_ns = self._clock_error_ns, 0
            self.run.add_spans(packed, details, texts, [(number, error_ns) for number in self._declared])

    def _declare(self) -> None:
        """Declares the devices of the records that are handed over, whose spans lie in the host's of the token."""
        self._clock_error_ns = max(self._clock_error_ns, self.clock.clock_error_ns)
        for device in self._devices[len(self._declared):]:
            self._declared.append(self.run.declare_device(**self.clock.describe(device)))

    # ---- phases of a late clock: as the device computed their steps ----

    def _extend_phase(self, phase: str, begin: int, end: int) -> None:
        """The phase stays open for its next steps, whose times are not known yet."""
        if self.unphased_ns is not None:
            self._add_phase("pre_inference", self.unphased_ns, begin)
            self.unphased_ns = None
        if self._phase is None or self._phase[0] != phase:
            self._end_phase()
            self.run.begin_at(n.PHASE, n.PHASES.index(phase), begin)
        self._phase = phase, end

    def _end_phase(self) -> None:
        if self._phase is not None:
            self._send()
            self.run.end_at(self._phase[1])
        self._phase = None

    def _add_phase(self, name: str, begin: int, end: int) -> None:
        self._send()
        self.run.add_spans(array.array("q", [begin, end, word(n.PHASE, n.PHASES.index(name)), NONE]))

    def _name_gates(self, records: List[int]) -> None:
        """Of two consecutive attention records the second is the output gate."""
        if not self.gated:
            return
        core, gate = self.gate_words
        for i in range(FIELDS, len(records), FIELDS):
            if records[i + 2] & KIND_AND_NAME == core == records[i - 2] & KIND_AND_NAME:
                records[i + 2] += gate - core

    def _outer(self, step: Step, begin: int, forward_end: int, end: int, records: List[int]) -> List[int]:
        """Spans of the token and its sections."""
        out = [begin, end, word(n.TOKEN, step.position), NONE]
        first = 0
        for last in step.ends:
            self._sections_of(records[first:last], out)
            first = last
        if end > forward_end > begin:
            out.extend((forward_end, end, word(n.SECTION, self.run.name(step.after)), NONE))
        return out

    def _sections_of(self, records: List[int], out: List[int]) -> None:
        """Spans of the sections of one pass."""
        if self.modules is not None and records:  # in any order of calls
            out.extend((min(records[::FIELDS]), max(records[1::FIELDS]), self.modules, NONE))
        words = records[2::FIELDS]
        if self.of_encoder:  # in any order, too
            found = [FIELDS * i for i, each in enumerate(words) if each in self.of_encoder]
            if found:
                out.extend((min(records[i] for i in found), max(records[i + 1] for i in found), self.encoder, NONE))
        for what, members in self.sections:
            found = [m for m in (members[0], members[-1]) if m in words]
            if found and what != found[0] & KIND_AND_NAME:
                first = words.index(found[0]) * FIELDS
                last = (len(words) - 1 - words[::-1].index(found[-1])) * FIELDS
                out.extend((records[first], max(records[first + 1], records[last + 1]), what, NONE))
