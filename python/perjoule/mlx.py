"""Watches a model of MLX (mlx.nn, mlx-lm) during a run: the counterpart of watch.py for arrays that are computed lazily.

A call of an mlx.nn module only describes work; the work is done when somebody needs its result. To time modules, the inputs
of each are evaluated before it begins and its output before it ends, so that work lies where it was described. That keeps
the device from computing ahead: shares of modules are valid, the time of a token is longer than without. At depth "off"
nothing is evaluated but the logits at the end of a prompt.

A module's `__call__` is looked up in its class, so a timed module gets a class of its own, derived from its old one, until
the run ends. mlx-lm's generate is told apart by its generator of tokens; a loop of the program's own works too, without ids.
Only the thread that calls the model first is traced. Does not import mlx until a run begins.
"""
from __future__ import annotations

import functools
import sys
import threading
from collections import deque
from dataclasses import replace
from typing import Any, Callable, Deque, Dict, Iterator, List, Optional, Tuple

from . import _native as n
from .errors import CoarseRecording
from .names import Module, Part, Plan, plan_of
from .recorder import NONE, Gate, HostClock, Recorder, Step, is_outer, never, word
from .session import Run, clock_ns, warn
from .statistics import DETAIL, FIELDS, NO_STATISTICS, Look
from .steps import Request
from .work import Amount, GapWork, Pass, sizes_of

AFTER_LAYERS = ("final_norm", "lm_head")
WHY_TRANSFORMED = "the model is called within mx.compile or another transformation, during which nothing can be evaluated"
HOW = "mlx, evaluated before and after each module"


class _Tree:
    """A module of MLX as names.py reads modules of torch."""

    def __init__(self, target: Any) -> None:
        self.target = target
        members = target.items() if isinstance(target, dict) else enumerate(target)
        self._modules: Dict[str, "_Tree"] = {}
        self._parameters: Dict[str, Any] = {}
        for name, value in members:
            if _is_module(value) or isinstance(value, (list, tuple)) and value and all(map(_is_module, value)):
                self._modules[str(name)] = _Tree(value)
            elif hasattr(value, "nbytes"):
                self._parameters[str(name)] = value
        weight: Any = self._parameters.get("weight")
        if getattr(weight, "ndim", 0) == 2 and not type(target).__name__.endswith("Embedding"):
            self.out_features, width = weight.shape
            self.in_features = width * 32 // target.bits if _is_quantised(target) else width


def _is_quantised(module: Any) -> bool:
    return isinstance(getattr(module, "bits", None), int) and "scales" in module


def is_mlx(model: Any) -> bool:
    return any(base.__module__.split(".")[0] == "mlx" and base.__name__ == "Module" for base in type(model).__mro__)


_is_module = is_mlx


def plan_of_mlx(model: Any) -> Plan:
    """The plan of what to time, with MLX's modules in it."""
    plan = plan_of(_Tree(model))
    return replace(plan, layers=[(index, block.target) for index, block in plan.layers],
                   parts=[replace(part, module=part.module.target) for part in plan.parts])


def _arrays(value: Any, array: type) -> Iterator[Any]:
    if isinstance(value, array):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _arrays(each, array)
    elif isinstance(value, dict):
        yield from _arrays(list(value.values()), array)


def weights_of(module: Any, is_head: bool = False) -> Tuple[float, float]:
    """Multiplications by weights that one row needs, and bytes of the weights, of a linear layer or a norm; 0: others. An
    expert layer (a third dimension of the weights) uses some of them, so it is left out, and so is an embedding, unless it
    is used as the head."""
    weight = dict.get(module, "weight") if isinstance(module, dict) else None
    if weight is None or getattr(weight, "ndim", 0) > 2 or type(module).__name__.endswith("Embedding") and not is_head:
        return 0.0, 0.0
    held = [value for value in module.values() if hasattr(value, "nbytes")]
    per_value = 32 / module.bits if _is_quantised(module) else 1
    return float(weight.size) * per_value * (weight.ndim == 2), float(sum(value.nbytes for value in held))


def gap_before(part: Part, arguments: Any) -> GapWork:
    """What lies between two modules: attention where the model's arguments tell how much each layer sees, and activations."""
    gap = GapWork(part, arguments)
    sizes = sizes_of(arguments, 1)
    windows = any(getattr(arguments, name, None) for name in ("layer_types", "sliding_window_pattern", "kv_lora_rank"))
    if gap.attention is not None and not windows and sizes.get("heads") and sizes.get("hidden_size"):
        gap.attention.head = getattr(arguments, "head_dim", None) or sizes["hidden_size"] // sizes["heads"]
    else:
        gap.attention = None
    return gap


class MlxRecorder(Recorder):
    """Times modules of MLX by giving each a class of its own. `arguments`: of the model, as mlx-lm's have them."""

    def __init__(self, mx: Any, run: Run, plan: Optional[Plan], arguments: Any = None) -> None:
        self.mx, self.arguments = mx, arguments
        self.passing: Optional[Pass] = None  # None: not of a text
        has_head = plan is None or not plan.layers or any(part.section == "lm_head" for part in plan.parts)
        # weights of the embedding that are the head's too, which no module is called for
        self.shared: Any = None if has_head or plan is None else next(
            (part.module for part in plan.parts if hasattr(part.module, "as_linear")), None)
        self.logits_of: Any = None  # output of the pass that ends
        super().__init__(run, plan, HostClock())
        self.skips_head = False  # nobody will need this pass's logits, so they are not computed
        self.transformed = False
        self.work: List[bytes] = []  # of the modules of this step

    def _words(self) -> None:
        super()._words()
        self.tied = word(n.COMPONENT, self.run.name("lm_head"))
        if self.shared is not None:
            self.sections.append((word(n.SECTION, self.run.name("lm_head")), [self.tied]))

    def evaluate(self, value: Any) -> None:
        if self.transformed:
            return
        try:
            self.mx.eval(*_arrays(value, self.mx.array))
        except ValueError:  # within a transformation
            self.transformed = True

    def _patch(self, plan: Plan) -> None:
        for index, block in plan.layers:
            self._swap(block, word(n.LAYER, index), self.outer, None)
        for part in plan.parts:
            gap = word(n.COMPONENT, self.run.name(part.gap)) if part.gap else None
            self._swap(part.module, self._word_of(part), self.outer if is_outer(part) else self.inner, gap, part)

    def _swap(self, module: Module, what: int, gate: Gate, gap: Optional[int], part: Optional[Part] = None) -> None:
        kind, recorder, records = type(module), self, self.records
        after_layers = part is not None and part.section in AFTER_LAYERS

        def compute(*args: Any, **kwargs: Any) -> Any:
            out = kind.__call__(module, *args, **kwargs)
            recorder.evaluate(out)
            return out

        timed = self._timed(compute, what, gate, gap, self.clock.stamp)
        multiplications, weight_bytes = weights_of(module) if part is not None else (0.0, 0.0)
        before = gap_before(part, self.arguments) if part is not None and gap is not None else None

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != gate.thread or recorder.transformed or after_layers and recorder.skips_head:
                return kind.__call__(self, *args, **kwargs)
            recorder.evaluate((args, kwargs))
            out = timed(*args, **kwargs)
            if records and not recorder.transformed:
                if before is not None and len(records) > FIELDS and records[-FIELDS - 2] == gap:
                    recorder.note_gap(before, args)
                if weight_bytes:
                    recorder.note_work(multiplications, weight_bytes, args, out)
            return out

        swap_class(module, call, self._restore)

    def note_work(self, multiplications: float, weight_bytes: float, inputs: Any, out: Any) -> None:
        """FLOPs and bytes of the module that was recorded last, from its shapes."""
        rows = out.size / out.shape[-1] if getattr(out, "shape", None) else 0
        moved = weight_bytes + sum(a.nbytes for a in _arrays((inputs, out), self.mx.array))
        self._note((2 * multiplications * rows, moved), -1)

    def note_gap(self, before: GapWork, inputs: Any) -> None:
        """The same of what lies before that module."""
        values = next(_arrays(inputs, self.mx.array), None)
        if values is not None and values.size and self.passing is not None:
            self._note(before.amount(self.passing, tuple(values.shape), values.nbytes // values.size), -FIELDS - 1)

    def _note(self, amount: Amount, at: int) -> None:
        self.work.append(DETAIL.pack(*amount, *NO_STATISTICS))
        self.records[at] = self.records[at] & NONE | len(self.work) << 32

    def _record_shared_head(self) -> None:
        out, records = self.logits_of, self.records
        if records and self.shared is not None and getattr(out, "shape", None) and out.shape[-1] == self.shared.weight.shape[0]:
            records.extend((records[-FIELDS + 1], self.clock.stamp(), self.tied, NONE))
            self.note_work(*weights_of(self.shared, is_head=True), (), out)

    def forward_ended(self, step: Step) -> Optional[Look]:
        if not self.skips_head and not self.transformed:
            self._record_shared_head()
        step.details = bytearray(b"".join(self.work))
        return super().forward_ended(step)


def swap_class(module: Any, call: Callable[..., Any], restore: List[Callable[[], Any]]) -> None:
    kind = type(module)
    module.__class__ = type(kind.__name__, (kind,), {"__call__": call, "__module__": kind.__module__,
                                                     "__qualname__": kind.__qualname__, "__doc__": kind.__doc__})
    restore.append(lambda: setattr(module, "__class__", kind))


class MlxWatch:
    """One model of MLX during one run."""

    def __init__(self, run: Run, model: Any, plan: Optional[Plan], tokenizer: Any, depth: str) -> None:
        import mlx.core as mx  # type: ignore[import-not-found,unused-ignore]

        self.mx, self.run, self.model, self.tokenizer = mx, run, model, tokenizer
        self.device = str(mx.default_device())
        self.recorder = MlxRecorder(mx, run, plan if depth != "off" else None, getattr(model, "args", None))
        self.recorder.unphased_ns = clock_ns()
        self.request: Optional[Request] = None
        self.total: Optional[int] = None  # positions of the prompt of mlx-lm's generate; None: a loop of the program's own
        self.step: Optional[Step] = None
        self.ended: Deque[Tuple[Step, int]] = deque()  # steps whose token is not known yet
        self.phase: Optional[str] = None
        self.thread = 0
        self.input_tokens = self.output_tokens = self.positions = self.passes = self.items = self.batch = 0
        self.requests, self.rows, self.yielded = 0, 1, 0
        self._last_query = 0
        self.reads_ids = False
        self.broken: Optional[str] = None
        self._undo: List[Callable[[], Any]] = []

    # ---- attaching ----

    def attach(self) -> None:
        watch, kind = self, type(self.model)
        self.recorder.attach()

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            forward = functools.partial(kind.__call__, self, *args, **kwargs)
            return forward() if watch.broken or watch.is_elsewhere() else watch.trace(forward, args, kwargs)

        swap_class(self.model, call, self._undo)
        module = sys.modules.get("mlx_lm.generate")
        if module is not None and hasattr(module, "generate_step"):
            original = module.generate_step
            setattr(module, "generate_step", self._watched_generator(original))
            self._undo.append(lambda: setattr(module, "generate_step", original))

    def detach(self) -> None:
        undo, self._undo = self._undo, []
        for each in reversed(undo):
            each()
        self.recorder.detach()

    def is_elsewhere(self) -> bool:
        here = threading.get_ident()
        self.thread = self.thread or here
        return self.thread != here

    def _guard(self, step: Callable[[], None]) -> None:
        """An error of the recording itself never reaches the program."""
        try:
            if not self.broken:
                step()
        except Exception as e:
            self.broken = f"{type(e).__name__}: {e}"
            self.recorder.give_up()

    # ---- mlx-lm's generate ----

    def _watched_generator(self, original: Callable[..., Any]) -> Callable[..., Any]:
        watch = self

        @functools.wraps(original)
        def generate_step(prompt: Any, model: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
            if model is not watch.model or watch.is_elsewhere():
                yield from original(prompt, model, *args, **kwargs)
                return
            watch._guard(lambda: watch.begin_request(len(prompt)))
            try:
                for token, logprobs in original(prompt, model, *args, **kwargs):
                    watch._guard(lambda: watch.take_token(int(token)))
                    yield token, logprobs
            finally:
                watch._guard(watch.end_request)
        return generate_step

    def begin_request(self, length: Optional[int]) -> None:
        self.end_request()
        self.request = Request(first_position=self.positions)
        self.total, self.yielded = length, 0

    def take_token(self, id: int) -> None:
        """mlx-lm yields a token when the next pass has been launched."""
        self.yielded += 1
        if self.ended:
            step, at = self.ended.popleft()
            step.texts.append((0, 0, id, self._text_of(id)))
            self.recorder.end_step(step, at)

    def _text_of(self, id: int) -> Optional[str]:
        return None if self.tokenizer is None else str(self.tokenizer.decode([id]))

    def end_request(self) -> None:
        self._end_step(clock_ns())
        while self.ended:
            self.recorder.end_step(*self.ended.popleft())
        if self.request is not None and self.request.passes:
            known = self.total is not None
            self.output_tokens += self.yielded if known else self.request.yielded * self.rows
            self.input_tokens += (self.total or 0) if known else (self.request.prompt or 0) * self.rows
            self.requests += 1
            self.positions = self.request.position + 1
        self.request, self.total = None, None

    # ---- passes ----

    def trace(self, forward: Callable[[], Any], args: Any, kwargs: Any) -> Any:
        self._guard(lambda: self._begin_pass(args, kwargs))
        try:
            out = forward()
        except BaseException:
            self.recorder.drop_step()
            self.step = None
            raise
        self._guard(lambda: self._end_pass(out))
        return out

    def _cached(self, args: Any, kwargs: Any) -> int:
        cache = kwargs.get("cache", args[1] if len(args) > 1 else None)
        first = cache[0] if isinstance(cache, (list, tuple)) and cache else None
        offset = getattr(first, "offset", 0)
        return offset if isinstance(offset, int) else 0

    def _begin_pass(self, args: Any, kwargs: Any) -> None:
        now, ids = clock_ns(), args[0] if args else next(iter(kwargs.values()), None)
        shape = tuple(getattr(ids, "shape", ()))
        self.reads_ids = len(shape) == 2 and "int" in str(getattr(ids, "dtype", ""))
        self.passes += 1
        self.items += shape[0] if shape else 1
        self.recorder.passing = Pass(shape[0], shape[1], self._cached(args, kwargs), True) if self.reads_ids else None
        if self.reads_ids:
            self._begin_of_text(shape[0], shape[1], self._cached(args, kwargs), now)
        else:
            self._begin_step("prefill", self.passes - 1, now)
        self.recorder.forward_begins()

    def _begin_step(self, phase: str, position: int, now: int) -> None:
        self._end_step(now)
        self.phase = phase
        self.step, self.recorder.work = Step(now, position), []
        self.step.phase = phase  # it may be passed on when the next one has begun

    def _is_another_text(self, cached: int, query: int) -> bool:
        """Of a loop of the program's own: one with a cache begins anew without it, one without reads less than before."""
        request = self.request
        return request is None or self.total is None and request.passes > 0 and (
            request.is_of_another_text(cached, query) or cached == 0 < request.read - self._last_query)

    def _begin_of_text(self, rows: int, query: int, cached: int, now: int) -> None:
        if self._is_another_text(cached, query):
            self.begin_request(None)
        request = self.request
        assert request is not None
        if request.passes == 0 and self.total is not None:
            request.prompt, request.by_hand = cached + self.total, False
        goes_on = self.step is not None and request.goes_on(cached, query)
        phase = request.begin_pass(cached, query)
        self.rows, self.batch, self._last_query = rows, max(self.batch, rows), query
        # mlx-lm reads a prompt without asking for its logits, except those of its last token
        self.recorder.skips_head = self.total is not None and cached + query < (request.prompt or 0)
        if not goes_on:
            self._begin_step(phase, request.position, now)

    def _end_pass(self, out: Any) -> None:
        recorder = self.recorder
        prompt_is_read = self.phase == "prefill" and not recorder.skips_head
        if (recorder.plan is not None or prompt_is_read) and not recorder.skips_head:
            recorder.evaluate(out)
        if recorder.transformed:
            self.broken = WHY_TRANSFORMED
            recorder.give_up()
        elif self.step is not None:
            recorder.logits_of = out
            recorder.forward_ended(self.step)
            recorder.logits_of = None

    def _end_step(self, at: int) -> None:
        step, self.step = self.step, None
        if step is None:
            return
        if self.total is not None and not self.recorder.skips_head:
            self.ended.append((step, at))
        else:
            self.recorder.end_step(step, at)

    # ---- the end ----

    def finish(self, failed: bool) -> Dict[str, Any]:
        self._guard(self.end_request)
        self._guard(lambda: self.recorder.flush(everything=True))
        said: Dict[str, Any] = {"mlx": getattr(self.mx, "__version__", ""), "level": "coarse", "requests": self.requests}
        if self.broken or not self.passes:
            reason = self.broken or "the model was not called"
            warn(f"recorded at the level of phases and tokens: {reason}", CoarseRecording)
            said["coarse_because"] = reason
        elif self.recorder.plan is not None:
            said.update(level="fine", module_times=HOW)
        if self.reads_ids or self.output_tokens:
            self.run.set_tokens(self.input_tokens, self.output_tokens)
        else:
            self.run.set_tokens(0, None)
            said.update(passes=self.passes, items=self.items)
        if self.batch:
            self.run.describe(batch_size=self.batch)
        return said


def facts_of_mlx(model: Any) -> Dict[str, Any]:
    """The model's facts that are stored with the run; quantised weights count as the values that they hold."""
    stored, values = 0, 0.0

    def count(module: Any) -> float:
        nonlocal stored, values
        tree, total = _Tree(module), 0.0
        packed = 32 / module.bits if isinstance(getattr(module, "bits", None), int) and "scales" in tree._parameters else 1
        for name, value in tree._parameters.items():
            stored += value.nbytes
            if packed == 1 or name == "scales":  # of what it computes with
                values = value.nbytes / value.size
            if packed == 1 or name not in ("scales", "biases"):
                total += value.size * (packed if name == "weight" else 1)
        return total + sum(count(child.target) for child in tree._modules.values())

    parameters = int(count(model))
    return {"architecture": type(model).__name__, "parameters": parameters, "weight_bytes": stored,
            **sizes_of(getattr(model, "args", None), values)}


def dtype_of_mlx(model: Any) -> Optional[str]:
    """The type of most of the weights: "q4" where they are quantised to 4 bits."""
    found: Dict[str, int] = {}

    def visit(tree: _Tree) -> None:
        bits = getattr(tree.target, "bits", None)
        quantised = isinstance(bits, int) and "scales" in tree._parameters
        for value in tree._parameters.values():
            name = f"q{bits}" if quantised else str(value.dtype).rsplit(".", 1)[-1]
            found[name] = found.get(name, 0) + value.nbytes
        for child in tree._modules.values():
            visit(child)

    visit(_Tree(model))
    if not found:
        return None
    most = max(found, key=lambda name: found[name])
    return {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}.get(most, most)
