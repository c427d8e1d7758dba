"""Observes the forward passes of a torch model: when each begins, its phase, and the tokens that it yielded.

A pass is a call of the model; its query length and its cache tell the phase (steps.py). Calls of
`model.generate` tell where a request begins and ends, how long the prompts are without padding and which
tokens came out. A hand-written loop that calls the model is followed just as well; only the last token's id
is unknown then, because no later pass reads it.
"""
from __future__ import annotations

import array
import functools
import os
import weakref
from typing import Any, Callable, Dict, List, Mapping, Optional, Set

from . import _native as n
from .devices import clock_for
from .errors import CoarseRecording
from .names import Module, Plan
from .patching import Replacement
from .recorder import Recorder, Step, never
from .session import Run, clock_ns, warn
from .statistics import Look, Schedule
from .steps import Request, count_until_end

Tensor = Any

WHY_COMPILED = "the model is compiled: its graph calls no module"
WHY_REPLICATED = "DataParallel runs copies of the model on several devices at once"
WHY_SILENT = "no module was called in a pass: a compiled or captured graph ran instead"


def why_coarse(model: Module) -> Optional[str]:
    """Why modules of this model can't be told apart, or None."""
    names = [type(m).__name__ for m in model.modules()]
    if "OptimizedModule" in names or any(getattr(m, "_compiled_call_impl", None) is not None for m in model.modules()):
        return WHY_COMPILED
    if "DataParallel" in names:
        return WHY_REPLICATED
    return None


def _compiling_check(torch: Any) -> Callable[[], bool]:
    """The cheapest function that the compiler replaces by True: it is called before each module."""
    compiler = getattr(torch, "compiler", None)
    for name in ("is_dynamo_compiling", "is_compiling"):
        if hasattr(compiler, name):
            check: Callable[[], bool] = getattr(compiler, name)
            return check
    return never


def _as_list(tensor: Any) -> List[Any]:
    return tensor.tolist() if hasattr(tensor, "tolist") else list(tensor)


class Watch:
    """One model during one run."""

    def __init__(self, torch: Any, run: Run, model: Module, plan: Optional[Plan], tokenizer: Any = None,
                 statistics_every: Optional[int] = None, depth: str = "module") -> None:
        self.torch, self.run, self.model, self.tokenizer = torch, run, model, tokenizer
        self.coarse = why_coarse(model)
        clock, self.device = clock_for(torch, model)
        replicated = torch.cuda.is_available() and torch.cuda.device_count() > 1
        self.recorder = Recorder(
            run, plan if depth != "off" and self.coarse is None else None, clock,
            compiling=_compiling_check(torch),
            mode="hooks" if replicated else "forward")
        self.schedule = Schedule(statistics_every)
        self.step: Optional[Step] = None
        self.request: Optional[Request] = None
        self.phase: Optional[str] = None
        self.begun_ns = clock_ns()
        self.last_ns = 0
        self.in_generate = False
        self.passing = False  # a pass has begun and not returned
        self.ends: Set[int] = set()
        self.pad: Any = None
        self.finished: List[bool] = []  # for each sequence of the request, whether its end token came
        self.output_tokens = self.positions = 0
        self.prompts: List[int] = []
        self.requests = 0
        self.ids: Optional[Tensor] = None  # what the present pass reads
        self.beams = self.speculates = self.may_pad = False
        self._undo: List[Callable[[], Any]] = []

    # ---- attaching ----

    def attach(self) -> None:
        self._undo = [self.recorder.detach]
        try:
            self.recorder.attach()
            self._watch_calls()
            if callable(getattr(self.model, "generate", None)):
                self._wrap_generate()
        except BaseException:
            self.detach()
            raise
        _attached.add(self)

    def _watch_calls(self) -> None:
        """The model's own calls, by hooks; where the model compiled itself (Module.compile), around its graph."""
        compiled = getattr(self.model, "_compiled_call_impl", None)
        if compiled is None:
            self._undo.append(self.model.register_forward_pre_hook(self._before, with_kwargs=True).remove)
            self._undo.append(self.model.register_forward_hook(self._after).remove)
            return

        @functools.wraps(compiled)
        def call(*args: Any, **kwargs: Any) -> Any:
            self._before(self.model, args, kwargs)
            out = compiled(*args, **kwargs)
            self._after(self.model, args, out)
            return out

        self._undo.append(Replacement(self.model.__dict__, "_compiled_call_impl", call).undo)

    def _wrap_generate(self) -> None:
        inner, watch = self.model.generate, self

        @functools.wraps(inner)
        def generate(*args: Any, **kwargs: Any) -> Any:
            watch.begin_generate(args, kwargs)
            try:
                out = inner(*args, **kwargs)
            except BaseException:
                watch.end_request(None)
                raise
            watch.end_request(out)
            return out

        self._undo.append(Replacement(self.model.__dict__, "generate", generate).undo)

    def detach(self) -> None:
        _attached.discard(self)
        undo, self._undo = self._undo, []
        for each in reversed(undo):
            each()

    # ---- passes ----

    def _before(self, module: Module, args: Any, kwargs: Dict[str, Any]) -> None:
        if self.recorder.compiling():
            return
        ids = kwargs.get("input_ids", args[0] if args else None)
        embeds = kwargs.get("inputs_embeds")
        shape = ids.shape if ids is not None else embeds.shape if embeds is not None else None
        if shape is None and "decoder_input_ids" in kwargs:
            ids = kwargs["decoder_input_ids"]
            shape = ids.shape
        if shape is None:
            return
        self.begin_pass(int(shape[0]), int(shape[1]), _cached(kwargs), ids, kwargs.get("attention_mask"))

    def begin_pass(self, rows: int, query: int, cached: int, ids: Optional[Tensor], mask: Optional[Tensor] = None) -> None:
        if self.request is not None and not self.in_generate and self.request.starts_anew(cached, query):
            self.end_request(None)
        request = self.request or self._begin_request(None, [cached + query] * rows if mask is None else [], mask)
        step = self.step
        continues = step is not None and request.passes > 0 and 0 < cached < (request.prompt or 0)
        if step is not None and continues:
            step.records.extend(self.recorder.records[:])
        elif step is not None:
            self._close_step(step, ids)
        phase = request.begin_pass(cached, query)
        self._enter(phase)
        self.ids = ids
        if not continues:
            self.step = Step(self.recorder.clock.begin_step(), request.position,
                             "speculation" if self.speculates else "sampling")
        self.recorder.forward_begins()
        self.passing = True
        if self.schedule.wants(phase) and self.recorder.plan is not None:
            self.recorder.looking = Look(self.torch, self.schedule.limit)
        self.pass_begin_ns = clock_ns()

    def _after(self, module: Module, args: Any, out: Any) -> None:
        if self.step is None or self.recorder.compiling():
            return
        self.passing = False
        look, self.recorder.looking = self.recorder.looking, None
        self.recorder.forward_ended(self.step)
        now = clock_ns()
        plan = self.recorder.plan
        if look is not None and plan is not None:
            self.step.details = look.details()
            self.run.add_statistics_time(look.spent_ns)
            self.schedule.took(look.spent_ns, clock_ns() - self.pass_begin_ns, len(plan.parts))
        if plan is not None and not self.step.records:
            self._becomes_coarse(WHY_SILENT)
        self.last_ns = now

    def _becomes_coarse(self, why: str) -> None:
        if self.coarse is None:
            self.coarse = why
            warn(f"recorded at the level of phases and tokens: {why}", CoarseRecording)

    def _enter(self, phase: str) -> None:
        """The run's phase, as a span that stays open on the thread that computes."""
        if phase == self.phase:
            return
        native, lane = self.run._native, self.run.lane()
        if self.phase is not None:
            native.pj_span_end(lane, None)
        elif self.requests == 1:
            self._add_phase("pre_inference", self.begun_ns, clock_ns())
        self.phase = phase
        native.pj_span_begin(lane, n.PHASE, n.PHASES.index(phase))

    def _leave(self) -> None:
        if self.phase is not None:
            self.phase = None
            self.run._native.pj_span_end(self.run.lane(), None)

    def _add_phase(self, name: str, begin: int, end: int) -> None:
        self.run.add_spans(array.array("q", [begin, end, n.PHASES.index(name) | n.PHASE << 32, 0xFFFFFFFF]))

    # ---- requests ----

    def begin_generate(self, args: Any, kwargs: Dict[str, Any]) -> None:
        self.end_request(None)
        self.in_generate = True
        inputs = kwargs.get("inputs", kwargs.get("input_ids", args[0] if args else None))
        if inputs is None:
            inputs = kwargs.get("inputs_embeds")
        config = kwargs.get("generation_config") or (args[1] if len(args) > 1 else None) or getattr(
            self.model, "generation_config", None)

        def given(name: str, default: Any = None) -> Any:
            return kwargs.get(name, getattr(config, name, default))

        ends = given("eos_token_id")
        self.ends = set(_as_list(ends) if hasattr(ends, "__len__") or hasattr(ends, "tolist") and ends.dim() else
                        [] if ends is None else [int(ends)])
        self.pad = given("pad_token_id")
        # what ends one sequence without an end token leaves padding behind
        self.may_pad = bool(given("stop_strings") or kwargs.get("stopping_criteria"))
        self.beams = (given("num_beams", 1) or 1) > 1
        self.speculates = kwargs.get("assistant_model") is not None or bool(given("prompt_lookup_num_tokens"))
        decoder_only = not getattr(getattr(self.model, "config", None), "is_encoder_decoder", False)
        if inputs is None or not hasattr(inputs, "shape") or len(inputs.shape) < 2:
            return
        rows, width = int(inputs.shape[0]), int(inputs.shape[1])
        self._begin_request(width if decoder_only else None, [width] * rows, kwargs.get("attention_mask"))

    def _begin_request(self, prompt: Optional[int], lengths: List[int], mask: Optional[Tensor]) -> Request:
        self.requests += 1
        self.request = request = Request(prompt, self.positions)
        if mask is not None and getattr(mask, "dim", lambda: 0)() == 2:
            lengths = [int(x) for x in _as_list(mask.sum(-1))]
        self.prompts.extend(lengths)
        self.finished = []
        return request

    def _close_step(self, step: Step, ids: Optional[Tensor]) -> None:
        """Ends the step before a pass that reads `ids`: its tokens are the newest of them."""
        self.step = None
        if not self.beams and ids is not None and not self.model_is_encoder_decoder:
            self._tokens_of(step, _as_list(ids), None)
        self.recorder.end_step(step, self.recorder.clock.stamp())

    @property
    def model_is_encoder_decoder(self) -> bool:
        return bool(getattr(getattr(self.model, "config", None), "is_encoder_decoder", False))

    def _tokens_of(self, step: Step, rows: List[List[int]], new: Optional[int]) -> None:
        """The newest token of each sequence that goes on (all that the pass read, after a guess was accepted)."""
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
        """The request is over; `out` is what generate returned."""
        request, step = self.request, self.step
        self.in_generate = False
        if request is None:
            return
        sequences = getattr(out, "sequences", out)
        rows = _as_list(sequences) if hasattr(sequences, "tolist") else None
        width = request.prompt or 0
        if step is not None:
            self.step = None
            if rows is not None and not self.beams and request.passes:
                self._tokens_of(step, [r[request.length:] if len(r) > request.length else [] for r in rows], 1 << 30)
            self.recorder.end_step(step, self.recorder.clock.stamp())
        self.recorder.flush(everything=True)
        if rows is not None and not self.model_is_encoder_decoder:
            new = [count_until_end(r[width:], self.ends, self._pad()) for r in rows]
        elif rows is not None:
            new = [count_until_end(r[1:], self.ends, self._pad()) for r in rows]
        else:
            new = self._tokens_of_a_loop(request)
        self.passing = False
        self.output_tokens += sum(new)
        self.positions += max(new, default=0)
        self.request = None
        self.ids = None
        self._leave()
        self.last_ns = clock_ns()

    def _pad(self) -> Optional[int]:
        return self.pad if isinstance(self.pad, int) and self.may_pad and len(self.finished) > 1 else None

    def _tokens_of_a_loop(self, request: Request) -> List[int]:
        """One for each pass and sequence that returned: the last pass's tokens were never read by another."""
        rows = len(self.finished) or (int(self.ids.shape[0]) if self.ids is not None else 1)
        if not request.passes:
            return []
        return [request.generated + (0 if self.passing else 1)] * rows

    # ---- the end ----

    def finish(self) -> Dict[str, str]:
        """Ends what is open, adds what the run says of itself, and returns it."""
        self.end_request(None)
        self.detach()
        self.recorder.flush(everything=True)
        if self.requests == 1:
            self.run.set_prompts(self.prompts)
        self.run.set_tokens(sum(self.prompts), self.output_tokens)
        if self.last_ns:
            self._add_phase("post_inference", self.last_ns, clock_ns())
        level = {"level": "coarse" if self.coarse else "fine"}
        if self.coarse:
            level["level_reason"] = self.coarse
        return level


def _cached(kwargs: Mapping[str, Any]) -> int:
    """Positions in the cache that a pass is given."""
    cache = kwargs.get("past_key_values")
    if cache is None:
        return 0
    if hasattr(cache, "get_seq_length"):
        return int(cache.get_seq_length())
    try:
        return int(cache[0][0].shape[-2])
    except (TypeError, IndexError, AttributeError):
        return 0


# ---- forked children --------------------------------------------------------------------------

_attached: "weakref.WeakSet[Watch]" = weakref.WeakSet()


def _forget() -> None:
    """In a forked child: the run goes on in the parent alone."""
    for watch in list(_attached):
        watch.detach()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
