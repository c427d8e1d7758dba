"""Observes the forward passes of a torch model: when each begins, its phase, and the tokens that it yielded.

A pass is a call of the model, or of what a wrapper has inside (calls.py); its query length and its cache tell
the phase (steps.py). Calls of `model.generate` give the start and end of a request, the prompt lengths without padding
and the generated tokens. A hand-written loop that calls the model works too, except that the last token's id is
unknown, because no later pass reads it.

Threads: a call belongs to the runs that its own thread (or task) opened on the model, or to every open run if it opened
none. Within a run one thread at a time is traced; what another thread does meanwhile is only counted (aside.py). An
error in here never reaches the program that is profiled: recording stops and says why.
"""
from __future__ import annotations

import array
import contextvars
import functools
import os
import threading
import weakref
from typing import Any, Callable, Dict, Iterable, List, Optional, Set, Tuple

from . import _native as n
from .aside import Aside
from .calls import entry_points, has_generate, watch_calls
from .devices import clock_for, synchronise_devices
from .errors import CoarseRecording, PartlyRecognised
from .generating import Call, as_list, is_encoder_decoder, rows_of
from .loops import Text, Texts, cache_given, cache_returned, cached_in, reference
from .names import Module, Plan
from .patching import Replacement, attaching
from .recorder import PARTS, Recorder, Step, never
from .session import Run, clock_ns, warn
from .sparing import PartSteps
from .statistics import Look, Schedule
from .steps import Request, count_until_end
from .work import Pass, works_of

Tensor = Any

ENCODER_CALL = 1 << 16  # number of an encoder's calls, after those of all entry points
MOSTLY = 0.1  # share of the modules' time from which on their times are said to contain waiting

WHY_NO_OPERATIONS = "the model has compiled regions, whose operations can't be seen: recorded to depth 'module'"
WHY_COMPILED = "the model is compiled: its graph calls no module"
WHY_REPLICATED = "DataParallel runs copies of the model on several devices at once"
WHY_SILENT = "no module was called in a pass: a compiled or captured graph ran instead"
WHY_UNSEEN = ("generate yielded more tokens than passes of the model were seen, as with a captured graph: its phases are "
              "not told apart")
WHY_SHARED = ("two threads used the model at the same time: their tokens are counted, but their passes and modules cannot be "
              "told apart")
WHY_ALTERNATING = ("the passes of several texts alternate in a loop: their tokens are counted, but their phases and modules are "
                   "not told apart")
WHY_BROKEN = "recording stopped at an error of its own, after which only tokens are counted: "
WHY_CAPTURED = ("a CUDA graph was captured: its replays call no module, and what the capture recorded was not computed, so "
                "neither is counted")
WHY_PACKED = ("passes were packed, each over several texts at once (continuous batching): their phases and modules are not told "
              "apart")
WHY_UNCALLED = "the model was not called: what the block calls may be a compiled copy of it, or another object"


def is_compiled(module: Module) -> bool:
    return type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None) is not None


def compiled_layers(plan: Optional[Plan]) -> Set[int]:
    return {index for index, block in plan.layers if is_compiled(block)} if plan is not None else set()


def why_coarse(model: Module, plan: Optional[Plan]) -> Optional[str]:
    """The reason why this model's modules can't be timed separately, or None. Compiled blocks can be, as layers."""
    blocks = {id(block) for _, block in plan.layers} if plan is not None else set()
    if any(is_compiled(module) and id(module) not in blocks for module in model.modules()):
        return WHY_COMPILED
    if any(type(module).__name__ == "DataParallel" for module in model.modules()):
        return WHY_REPLICATED
    return None


def _compiling_check(torch: Any) -> Callable[[], bool]:
    """The cheapest function that torch.compile replaces by True; it is called before each module."""
    compiler = getattr(torch, "compiler", None)
    for name in ("is_dynamo_compiling", "is_compiling"):
        if hasattr(compiler, name):
            check: Callable[[], bool] = getattr(compiler, name)
            return check
    return never


class Watch:
    """One model during one run."""

    def __init__(self, torch: Any, run: Run, model: Module, plan: Optional[Plan], tokenizer: Any = None,
                 statistics_every: Optional[int] = None, depth: str = "module") -> None:
        self.torch, self.run, self.model, self.tokenizer = torch, run, model, tokenizer
        clock, self.device = clock_for(torch, model)
        self.coarse = why_coarse(model, plan) or clock.untimed
        self.compiled = compiled_layers(plan) if self.coarse is None else set()
        if plan is not None and self.compiled:
            plan = plan.without_parts_of(self.compiled)
            warn("compiled blocks are timed as layers: energy of their parts is not told apart", PartlyRecognised)
        replicated = torch.cuda.is_available() and torch.cuda.device_count() > 1
        self.recorder = Recorder(
            run, plan if depth != "off" and self.coarse is None else None, clock,
            compiling=_compiling_check(torch),
            mode="hooks" if replicated else "forward")
        if self.recorder.plan is not None:
            self.recorder.works = works_of(self.recorder.plan, getattr(model, "config", None))
        self.depth, self.deep = depth, depth == "deep" and self.recorder.plan is not None
        if self.deep and self.compiled:
            self.deep = False
            warn(WHY_NO_OPERATIONS, CoarseRecording)
        self.schedule = Schedule(statistics_every)
        self.part_steps = PartSteps()
        self.step: Optional[Step] = None
        self.request: Optional[Request] = None
        self.phase: Optional[str] = None
        self.begun_ns = clock_ns()
        self.last_ns = 0
        self.generating: List[Module] = []  # models whose generate is running, outermost first
        self.drafting = False
        self.passing: Optional[int] = None  # the entry point whose pass is in progress
        self.seen = False  # whether there was any pass
        self.last_generator = -1  # index of the innermost module that can generate
        self.call: Optional[Call] = None  # the generate that is running
        self.ends: Set[int] = set()
        self.finished: List[bool] = []  # per sequence of the request: whether its end token was generated
        self.output_tokens = self.positions = 0
        self.prompts: List[int] = []
        self.requests = 0
        self.ids: Optional[Tensor] = None  # input of the current pass
        self.rows = 1
        self.batch = 0  # most sequences of a request
        self.passes, self.items = 0, 0  # of models that yield no tokens
        self.reads_ids = self.yields_tokens = False  # whether any pass did
        self.encoded = False  # whether the step has begun with a pass of the encoder
        self.sized = False  # whether the current pass reads ids or embeddings, whose shape tells its length
        self.beams = self.speculates = False
        self.entries: Set[int] = set()  # id() of the modules whose calls are watched
        self.automatic = False  # made by `python -m perjoule run`: for its own thread's calls alone
        self.thread = 0  # the thread that is traced
        self.shared = self.broken = False  # calls are only counted from here on
        self.texts = Texts()  # of hand-written loops
        self.text: Optional[Text] = None  # the one whose request is traced
        self.main_cache: Optional[Callable[[], Any]] = None  # of the generate that is running
        self.aside = Aside(self.texts)
        self._lane = run.lane()  # of the phases, whichever thread opens and closes them
        self._lock = threading.RLock()
        self._undo: List[Callable[[], Any]] = []

    # ---- attaching ----

    def attach(self) -> None:
        self._undo = [self.recorder.detach]
        try:
            self._spare_stamps()
            self.recorder.attach()
            modules = entry_points(self.model)
            self.entries = {id(m) for m in modules}
            self.last_generator = max((i for i, m in enumerate(modules) if has_generate(m)), default=-1)
            with attaching:
                plan = self.recorder.plan
                encoders = [plan.encoder] if plan is not None and plan.encoder is not None else []
                if self.deep:
                    self._trace_operations(modules + encoders)
                for encoder in encoders:
                    self._undo += watch_calls(encoder, ENCODER_CALL, self._before_encoder, self._guarded_after)
                for number, module in enumerate(modules):
                    self._undo += watch_calls(module, number, self._before, self._guarded_after)
                    if has_generate(module):
                        self._wrap_generate(module)
                    if callable(getattr(module, "generate_batch", None)):
                        self._wrap_generate_batch(module)
        except BaseException:
            self.detach()
            raise
        _attached.add(self)
        _opened.set((*_opened.get(), self))

    def _spare_stamps(self) -> None:
        """Decides how often parts of layers are timed."""
        plan, clock = self.recorder.plan, self.recorder.clock
        if plan is None or clock.is_capturing():
            return
        self.part_steps = PartSteps.for_clock(self.torch, plan, clock, passed_by=float(self.recorder.mode == "hooks"))
        every, layers = self.part_steps.every, self.part_steps.layers_every
        if every > 1:
            often = "every one" if layers == 1 else f"every {ordinal(layers)}"
            warn(f"parts of layers are timed in every {ordinal(every)} decode step, because a CUDA event takes the host as "
                 f"long as a launch; layers in {often}", CoarseRecording)

    def _trace_operations(self, modules: List[Module]) -> None:
        """Runs passes within a mode that sees their operations, if their parts are timed."""
        mode_of, recorder = self.recorder.trace_operations().mode, self.recorder

        def traced(inner: Callable[..., Any]) -> Callable[..., Any]:
            inside = threading.local()

            @functools.wraps(inner)
            def forward(*args: Any, **kwargs: Any) -> Any:
                if recorder.compiling() or threading.get_ident() != recorder.inner.thread or getattr(inside, "pass_", False):
                    return inner(*args, **kwargs)
                inside.pass_ = True
                try:
                    with mode_of():
                        return inner(*args, **kwargs)
                finally:
                    inside.pass_ = False
            return forward

        for module in modules:
            self._undo.append(Replacement(module.__dict__, "forward", traced(module.forward)).undo)

    def _wrap_generate(self, module: Module) -> None:
        inner, watch = module.generate, self

        @functools.wraps(inner)
        def generate(*args: Any, **kwargs: Any) -> Any:
            end = watch.guarded(watch._enter_generate, module, args, kwargs)
            try:
                out = inner(*args, **kwargs)
            except BaseException:
                if end is not None:
                    watch.guarded(end, None)
                raise
            if end is not None:
                watch.guarded(end, out)
            return out

        self._undo.append(Replacement(module.__dict__, "generate", generate).undo)

    def _wrap_generate_batch(self, module: Module) -> None:
        """Of transformers' continuous batching, whose passes run in a thread of its own."""
        inner, watch = module.generate_batch, self

        @functools.wraps(inner)
        def generate_batch(*args: Any, **kwargs: Any) -> Any:
            out = inner(*args, **kwargs)
            watch.guarded(watch._end_batch, out)
            return out

        self._undo.append(Replacement(module.__dict__, "generate_batch", generate_batch).undo)

    def _end_batch(self, out: Any) -> None:
        if self.is_ours():
            self.yields_tokens = True
            self.aside.end_batch(out.values())

    def detach(self) -> None:
        _attached.discard(self)
        _opened.set(tuple(w for w in _opened.get() if w is not self and w._undo))
        undo, self._undo = self._undo, []
        with attaching:
            for each in reversed(undo):
                each()

    # ---- threads ----

    def guarded(self, body: Callable[..., Any], *args: Any) -> Any:
        """Calls `body`, one thread at a time and while the run is open; an error in it ends the recording, and is
        not passed on to the program."""
        if not self._undo:  # the run has ended, but another profiler's wrapper still calls this one
            return None
        with self._lock:
            if not self._undo:
                return None
            try:
                return body(*args)
            except Exception as e:
                self._give_up(e)
                return None

    def _give_up(self, error: Exception) -> None:
        self.broken, self.step = True, None
        self.recorder.give_up()
        self._becomes_coarse(f"{WHY_BROKEN}{type(error).__name__}: {error}")

    def is_ours(self) -> bool:
        """Whether a call that this thread makes belongs to this run."""
        opened = [w for w in _opened.get() if w._undo and w.entries & self.entries]
        return self in opened or not (opened or self.automatic)

    def _is_aside(self) -> bool:
        """Whether this thread's call is only counted."""
        if self.generating or self.passing is not None:
            if threading.get_ident() == self.thread:
                return self.broken and not self.generating
            self.shared = True
            self._becomes_coarse(WHY_SHARED)
        return self.shared or self.broken

    # ---- passes ----

    def _before(self, number: int, args: Any, kwargs: Dict[str, Any]) -> None:
        if not self.recorder.compiling():
            self.guarded(self._begin_call, number, args, kwargs)

    def _guarded_after(self, number: int, out: Any) -> None:
        if not self.recorder.compiling():
            self.guarded(self._after, number, out)

    def _is_captured(self) -> bool:
        """Whether the call is being captured into a graph: then it computes nothing, and may not be looked at."""
        if not self.recorder.clock.is_capturing():
            return False
        self.seen = True
        self._becomes_coarse(WHY_CAPTURED)
        return True

    def _begin_call(self, number: int, args: Any, kwargs: Dict[str, Any]) -> None:
        if self.passing is not None and number > self.passing and (
                threading.get_ident() == self.thread or self.coarse == WHY_REPLICATED):
            return  # nested in the wrapper's call, perhaps a replica in another thread
        if not self.is_ours() or self._is_captured():
            return
        if is_packed(kwargs):
            self.seen = True
            self._becomes_coarse(WHY_PACKED)
            self.aside.begin_packed(number)
            return
        aside = self._is_aside()
        if not aside and (self.drafting or self.broken):
            return
        ids = kwargs.get("input_ids", args[0] if args else None)
        if ids is None:
            ids = kwargs.get("inputs_embeds", kwargs.get("decoder_input_ids"))
        size = _size_of(ids)
        if size is None and number < self.last_generator:
            return  # not token ids yet: an inner model reads those
        rows, query = size or (_items_in(args, kwargs), 1)
        cache = cache_given(args, kwargs)
        cached = cached_in(cache)
        if cached is None:
            request = self.request if self.generating and not aside else None
            cached = request.read if request is not None else self.texts.read_into(cache)
        self._note_tokens(size is not None, rows, cached > 0)
        if not _holds_ids(ids):
            ids = None
        if aside or not self.generating and self._alternates(cache, cached, query, ids):
            self._begin_pass_aside(number, rows, query, cached, cache, ids)
            return
        if self._is_auxiliary(cache, cached, query):
            self.recorder.forward_begins(self.recorder.level, self._pass_of(rows, query, cached))
        else:
            self.sized = size is not None
            self.begin_pass(rows, query, cached, cache, ids, kwargs.get("attention_mask"))
        self.passing = number

    def _before_encoder(self, number: int, args: Any, kwargs: Dict[str, Any]) -> None:
        if not self.recorder.compiling():
            self.guarded(self._begin_encoder, number, args, kwargs)

    def _begin_encoder(self, number: int, args: Any, kwargs: Dict[str, Any]) -> None:
        """An encoder that `generate` calls before the decoder's first pass belongs to that pass's step: the prompt's."""
        request = self.request
        if self.passing is not None or not self.generating or request is None or request.passes or self.step is not None:
            return
        if threading.get_ident() != self.thread or not self.is_ours() or self._is_captured() or self._is_aside() or self.drafting:
            return
        ids = kwargs.get("input_ids", args[0] if args else None)
        size = _size_of(ids) or _size_of(kwargs.get("inputs_embeds"))
        self.sized, (rows, query) = size is not None, size or (_items_in(args, kwargs), 1)
        self.seen = True
        self._enter("prefill")
        self.step = Step(self.recorder.clock.begin_step(None), request.position)
        self.step.phase = "prefill" if self.recorder.clock.is_late else None
        self.recorder.forward_begins(PARTS, self._pass_of(rows, query, 0)._replace(causal=False))
        self.pass_begin_ns = clock_ns()
        self.passing, self.encoded = number, True

    def _note_tokens(self, reads_ids: bool, rows: int, continues: bool) -> None:
        """Whether a pass yields tokens: images, audio and latents do not, nor do models that transformers says can't
        generate (encoders, classifiers), unless a pass continues a text."""
        self.reads_ids = self.reads_ids or reads_ids
        can_generate = getattr(self.model, "can_generate", None)
        if reads_ids and (continues or can_generate is None or can_generate() or self.generating):
            self.yields_tokens = True
        else:
            self.passes += 1
            self.items += rows

    def _alternates(self, cache: Any, cached: int, query: int, ids: Optional[Tensor]) -> bool:
        """Whether a pass of a hand-written loop returns to a text after passes of another one."""
        text = self.texts.find(cache, cached, query, ids)
        if text is None or text is self.text:
            return False
        self.shared = True
        self.end_request(None)
        self._becomes_coarse(WHY_ALTERNATING)
        return True

    def _is_auxiliary(self, cache: Any, cached: int, query: int) -> bool:
        """Whether a pass within generate reads another text than the one that grows, as classifier-free guidance does: it
        belongs to the current step and yields no token."""
        request = self.request
        if not self.generating or request is None or not request.passes or self.step is None:
            return False
        main = self.main_cache and self.main_cache()
        return cache is not main if main is not None else request.is_of_another_text(cached, query)

    def _begin_pass_aside(self, number: int, rows: int, query: int, cached: int, cache: Any, ids: Optional[Tensor]) -> None:
        if self.request is not None and not self.generating and threading.get_ident() == self.thread:
            self.end_request(None)
        self.seen = True
        self.aside.begin_pass(number, rows, query, cached, cache, ids)

    def begin_pass(self, rows: int, query: int, cached: int, cache: Any, ids: Optional[Tensor],
                   mask: Optional[Tensor] = None) -> None:
        if not self.generating:
            self._follow_text(rows, query, cached, cache, ids, mask)
        self.thread = threading.get_ident()
        request = self.request or self._begin_request(None, _lengths(mask) or [cached + query] * rows)
        if not request.passes:
            self.main_cache = reference(cache)
        step, clock = self.step, self.recorder.clock
        continues = step is not None and (self.encoded or request.goes_on(cached, query))
        self.encoded = False
        if step is not None and not continues:
            self._close_step(step, ids, request.adds(cached, query))
        phase = request.begin_pass(cached, query)
        self._enter(phase)
        self.ids, self.rows = ids, rows
        if not continues:
            self.step = Step(clock.begin_step(step.end if step is not None else None), request.position,
                             "speculation" if self.speculates else "sampling")
            self.step.phase = phase if clock.is_late else None
        self.seen = True
        look = Look(self.torch, self.schedule.limit) if self.schedule.wants(phase) and self.recorder.plan is not None else None
        level = self.part_steps.wants(phase, look is not None)
        self.recorder.forward_begins(level, self._pass_of(rows, query, cached), look)
        self.pass_begin_ns = clock_ns()

    def _pass_of(self, rows: int, query: int, cached: int) -> Pass:
        can_generate = getattr(self.model, "can_generate", None)
        return Pass(rows, query if self.sized else 0, cached, can_generate is None or bool(can_generate()))

    def _follow_text(self, rows: int, query: int, cached: int, cache: Any, ids: Optional[Tensor],
                     mask: Optional[Tensor]) -> None:
        """Begins another request if this pass of a loop begins another text."""
        if self.texts.find(cache, cached, query, ids) is None:
            self.end_request(None)
            self.text = self.texts.begin(self._begin_request(None, _lengths(mask) or [cached + query] * rows))
        if self.text is not None:
            self.texts.read(self.text, cache, cached, query, ids)

    def _after(self, number: int, out: Any) -> None:
        cache = cache_returned(out)
        if threading.get_ident() != self.thread or self.passing != number:
            self.aside.end_pass(number, cache)
            return
        self.texts.returned(self.text, cache)
        self.main_cache = self.main_cache or reference(cache)
        if self.step is None:
            return
        self.passing = None
        look = self.recorder.forward_ended(self.step)
        now = clock_ns()
        plan = self.recorder.plan
        if look is not None and look.limit != 0 and plan is not None:
            fetch = functools.partial(self._fetch_statistics, self.step, look)
            if self.recorder.clock.is_late:
                self.step.complete.append(fetch)
            else:
                fetch()
            self.schedule.took(look.spent_ns, clock_ns() - self.pass_begin_ns, len(plan.parts))
        if plan is not None and not self.step.records and self.recorder.expects_records:
            self._becomes_coarse(WHY_SILENT)
        self.last_ns = now

    def _fetch_statistics(self, step: Step, look: Look) -> None:
        if look.figures:
            with self.recorder.clock.aside(look.figures[0][1]):
                look.write_statistics(step.details)
        self.run.add_statistics_time(look.spent_ns)

    def _becomes_coarse(self, why: str) -> None:
        if self.coarse is None:
            self.coarse = why
            warn(f"recorded at the level of phases and tokens: {why}", CoarseRecording)

    def _enter(self, phase: str) -> None:
        """Switches the run's phase, a span that stays open on the computing thread."""
        if phase == self.phase:
            return
        native, lane = self.run._native, self._lane
        if self.recorder.clock.is_late:  # phases are those of the steps, whose times are not known yet
            if self.phase is None and self.requests == 1:
                self.recorder.unphased_ns = self.begun_ns
            self.phase = phase
            return
        if self.phase is not None:
            native.pj_span_end(lane, None)
        elif self.requests == 1:
            self._add_phase("pre_inference", self.begun_ns, clock_ns())
        self.phase = phase
        native.pj_span_begin(lane, n.PHASE, n.PHASES.index(phase))

    def _leave(self) -> None:
        phase, self.phase = self.phase, None
        if phase is not None and not self.recorder.clock.is_late:
            self.run._native.pj_span_end(self._lane, None)

    def _add_phase(self, name: str, begin: int, end: int) -> None:
        self.run.add_spans(array.array("q", [begin, end, n.PHASES.index(name) | n.PHASE << 32, 0xFFFFFFFF]))

    # ---- requests ----

    def _enter_generate(self, module: Module, args: Any, kwargs: Dict[str, Any]) -> Optional[Callable[[Any], None]]:
        """Begins a call of generate; returns the function to call with what it returned, or with None if it raised."""
        if not self.is_ours():
            return None
        if self._is_aside():
            self.seen = True
            return self.aside.begin_generate(Call(module, args, kwargs))
        if module in self.generating:
            return self._begin_draft()
        self.begin_generate(module, Call(module, args, kwargs))
        return self.end_generate

    def begin_generate(self, module: Module, call: Call) -> None:
        if self.generating and self.request is not None and not self.request.passes:
            self._forget_request()  # called by a wrapper: the inner call knows the prompts better
        self.end_request(None)
        self.generating.append(module)
        self.thread = threading.get_ident()
        self.generate_begin_ns = clock_ns()
        self.call, self.ends, self.beams, self.speculates = call, call.ends, call.beams, call.speculates
        if call.size is not None:
            self._begin_request(None if self.model_is_encoder_decoder else call.size[1], call.lengths())

    def end_generate(self, out: Any) -> None:
        try:
            self.end_request(out)
        finally:
            self.generating.pop()
            if not self.generating:
                self.call = None

    def _begin_draft(self) -> Callable[[Any], None]:
        """Self-speculation: the time it takes belongs to the current step."""
        before, self.drafting = self.drafting, True

        def end(out: Any) -> None:
            self.drafting = before
        return end

    def _begin_request(self, prompt: Optional[int], lengths: List[int]) -> Request:
        self.requests += 1
        self._prompts_before = len(self.prompts)
        self.request = request = Request(prompt, self.positions)
        self.prompts.extend(lengths)
        self.batch = max(self.batch, len(lengths))
        self.finished = []
        return request

    def _forget_request(self) -> None:
        self.requests -= 1
        del self.prompts[self._prompts_before:]
        self.request = None

    def _close_step(self, step: Step, ids: Optional[Tensor], turn: bool = False) -> None:
        """Ends the previous step when a pass reads `ids`: the newest of them are that step's tokens."""
        self.step = None
        if not self.beams and ids is not None and not self.model_is_encoder_decoder:
            newest = Newest(ids, turn)
            if self.recorder.clock.is_late:
                step.complete.append(lambda: self._read_tokens(step, newest))
            else:
                self._read_tokens(step, newest)
        self.recorder.end_step(step, self.recorder.clock.stamp())

    def _read_tokens(self, step: Step, newest: "Newest") -> None:
        with self.recorder.clock.aside(newest.ids):
            rows = newest.rows()
        if rows is not None:
            self._tokens_of(step, rows, None)

    @property
    def model_is_encoder_decoder(self) -> bool:
        return is_encoder_decoder(self.model)

    def _tokens_of(self, step: Step, rows: List[List[int]], new: Optional[int]) -> None:
        """The newest token of each unfinished sequence (after an accepted draft, all tokens that the pass read)."""
        if not self.finished:
            self.finished = [False] * len(rows)
        for sequence, row in enumerate(rows[: len(self.finished)]):
            if self.finished[sequence] or not row:
                continue
            tokens = row[-new:] if new else row[-1:]
            tokens = tokens[: count_until_end(tokens, self.ends)]
            self.finished[sequence] = bool(self.ends) and tokens[-1] in self.ends
            step.texts.append((0, sequence, tokens[-1], self._text(tokens)))

    def _text(self, tokens: List[int]) -> str:
        if self.tokenizer is None:
            return ""
        try:
            return str(self.tokenizer.decode(tokens))
        except Exception:  # a tokenizer of another model must not end the run
            return ""

    def end_request(self, out: Any) -> None:
        """Ends the request; `out` is what generate returned."""
        request = self.request
        if request is None:
            return
        rows = rows_of(out)
        if not self.broken:
            self._end_last_step(request, rows)
            self.recorder.flush(everything=True)
        new = self._new_tokens(request, rows)
        most = max(new, default=0)
        if most > request.yielded and not (self.broken or self.speculates or request.guesses):
            self._passes_unseen(request)
        self.passing = None
        self.output_tokens += sum(new)
        self.positions += most
        if request.added:  # a loop read more of the prompt, or another turn
            self.prompts[self._prompts_before:] = [each + request.added for each in self.prompts[self._prompts_before:]]
        self.request = self.text = None
        self.ids, self.encoded = None, False
        self._leave()
        self.last_ns = clock_ns()
        self.aside.traced_until(self.last_ns)

    def _end_last_step(self, request: Request, rows: Optional[List[List[int]]]) -> None:
        step, self.step = self.step, None
        if step is None:
            return
        if self.passing is not None:  # it raised before yielding the token
            self.recorder.drop_step()
            return
        if rows is not None and not self.beams:
            first = request.length - (request.prompt or 0) + self._repeated(request)
            self._tokens_of(step, [r[first:] for r in rows], 1 << 30)
        self.recorder.end_step(step, self.recorder.clock.stamp())

    def _new_tokens(self, request: Request, rows: Optional[List[List[int]]]) -> List[int]:
        """The generated tokens of each sequence."""
        if rows is None:
            return self._tokens_of_a_loop(request)
        if self.call is None:
            return [count_until_end(r[self._repeated(request):], self.ends) for r in rows]
        return self.call.new_tokens(rows, request.prompt)

    def _repeated(self, request: Request) -> int:
        """Positions of the prompt at the beginning of each returned sequence."""
        if self.call is not None:
            return self.call.repeated(request.prompt)
        return 1 if self.model_is_encoder_decoder else request.prompt or 0

    def _passes_unseen(self, request: Request) -> None:
        self._becomes_coarse(WHY_UNSEEN)
        if not request.passes:
            self.seen = True
            now = clock_ns()
            self._add_phase("decode", self.generate_begin_ns, now)

    def _tokens_of_a_loop(self, request: Request) -> List[int]:
        """One token per completed pass and sequence; includes the last pass's tokens, which no later pass read."""
        rows = len(self.finished) or self.rows
        if not request.passes:
            return []
        return [request.yielded - (self.passing is not None)] * rows

    # ---- the end ----

    def finish(self, failed: bool = False) -> Dict[str, Any]:
        """Closes open spans, waits for the devices, and returns what the run's settings say of the recording."""
        self.guarded(self.end_request, None)
        self.guarded(self.recorder.flush, True)
        synchronise_devices(self.torch)
        if not self.seen and not failed and not self.broken:
            self.coarse = None
            self._becomes_coarse(WHY_UNCALLED)
        with self._lock:
            self.aside.finish()
            self.detach()
        for begin, end in self.aside.times:
            self._add_phase("decode", begin, end)
        if self.aside.times:
            self.last_ns = max(self.last_ns, self.aside.times[-1][1])
        self._count_tokens()
        if self.last_ns:
            self._add_phase("post_inference", self.last_ns, clock_ns())
        level: Dict[str, Any] = {"level": "coarse" if self.coarse else "fine"}
        if self.coarse:
            level["level_reason"] = self.coarse
        elif self.recorder.plan is not None:
            level.update(self._how_timed())
        if self.passes and not self.yields_tokens:
            level.update(passes=self.passes, items=self.items)
        return level

    def _count_tokens(self) -> None:
        prompts = self.prompts + self.aside.prompts
        batch = max(self.batch, self.aside.batch)
        if batch:
            self.run.describe(batch_size=batch)
        if self.passes and not self.yields_tokens:
            self.run.set_tokens(sum(prompts) if self.reads_ids else 0, None)
            return
        if self.requests + self.aside.requests == 1:
            self.run.set_prompts(prompts)
        self.run.set_tokens(sum(prompts), self.output_tokens + self.aside.output_tokens)

    def _how_timed(self) -> Dict[str, Any]:
        """What the times of modules are, where they are not simply those of the work."""
        clock = self.recorder.clock
        how: Dict[str, Any] = {}
        if clock.how != "host":
            how["module_times"] = clock.how
        waiting = clock.share_of_waiting()
        if waiting is not None:
            how["module_times_waiting_share"] = round(waiting, 3)
            if waiting > MOSTLY:
                how["module_times"] = f"{clock.how}, which contain waiting for launches"
        if self.depth == "deep" and not self.deep:
            how["operations"] = f"none: {WHY_NO_OPERATIONS}"
        if self.compiled:
            how["compiled_layers"] = len(self.compiled)
        if self.part_steps.omitted:
            how["parts_timed_every"] = self.part_steps.every
            how["steps_without_parts"] = self.part_steps.omitted
        if self.part_steps.bare:
            how["layers_timed_every"] = self.part_steps.layers_every
            how["steps_without_layers"] = self.part_steps.bare
        return how


class Newest:
    """The ids that a pass reads, of which the newest are the tokens of the step before. They are read when the device has
    computed them; a program that reuses the tensor may have written the next ones into it by then."""

    def __init__(self, ids: Tensor, turn: bool) -> None:
        self.ids = ids[:, :1] if turn else ids[:, -1:]
        try:
            self._version = self.ids._version
        except (AttributeError, RuntimeError):  # made in inference mode: torch counts no changes
            self.ids, self._version = self.ids.clone(), None

    def rows(self) -> Optional[List[List[int]]]:
        """None if other ids have been written in their place."""
        if self._version is not None and self.ids._version != self._version:
            return None
        return as_list(self.ids)


def ordinal(number: int) -> str:
    return {2: "second", 3: "third"}.get(number, f"{number}th")


def _holds_ids(value: Any) -> bool:
    return len(getattr(value, "shape", ())) == 2 and not value.is_floating_point()


def _size_of(value: Any) -> Optional[Tuple[int, int]]:
    """Sequences and positions of ids or of embeddings; None for other input, such as images or dictionaries."""
    if not _holds_ids(value) and len(getattr(value, "shape", ())) != 3:
        return None
    return int(value.shape[0]), int(value.shape[1])


def _items_in(args: Any, kwargs: Dict[str, Any]) -> int:
    """Images, windows of audio, ...: the first dimension of the first tensor of several."""
    shapes: Iterable[Any] = (getattr(value, "shape", ()) for value in (*args, *kwargs.values()))
    return next((int(shape[0]) for shape in shapes if len(shape) > 1), 1)


def is_packed(kwargs: Dict[str, Any]) -> bool:
    """Whether a pass reads parts of several texts in one row, as transformers' continuous batching does."""
    return kwargs.get("cu_seq_lens_q") is not None and kwargs.get("cache") is not None


def _lengths(mask: Any) -> List[int]:
    """Tokens of each sequence, as a mask of the whole text tells."""
    return [int(x) for x in as_list(mask.sum(-1))] if getattr(mask, "dim", lambda: 0)() == 2 else []


def is_watched(model: Module) -> bool:
    """Whether a call of `model` in this thread belongs to a run that the program itself opened."""
    return any(id(model) in w.entries and not w.automatic and w.is_ours() for w in list(_attached))


# the runs that this thread or task opened
_opened: "contextvars.ContextVar[Tuple[Watch, ...]]" = contextvars.ContextVar("perjoule_opened", default=())

# ---- forked children --------------------------------------------------------------------------

_attached: "weakref.WeakSet[Watch]" = weakref.WeakSet()


def _forget() -> None:
    """In a forked child: stops recording there; only the parent continues the run."""
    for watch in list(_attached):
        watch.detach()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
