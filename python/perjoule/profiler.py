"""InferencePipelineProfiler: joules of a PyTorch or MLX model's phases, tokens, layers and components.

    profiler = InferencePipelineProfiler(model=model, profiling_depth="module", tokenizer=tokenizer)
    with profiler.run(prompt=prompt, tags=["mine"]) as session:
        model.generate(**tokenizer(prompt, return_tensors="pt"), max_new_tokens=50)
    print(profiler.get_summary()["joules_per_token"])

The profiler does not change what the model computes, and restores the model after the block.
"""
from __future__ import annotations

import json
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Union

from .devices import synchronise_devices
from .errors import CoarseRecording, PartlyRecognised
from .mlx import MlxWatch, dtype_of_mlx, facts_of_mlx, is_mlx, plan_of_mlx
from .names import Module, plan_of
from .session import Result, Run, Session, default_session, warn
from .watch import Watch
from .work import sizes_of, stored_bytes


def _facts_of(model: Module) -> Dict[str, Any]:
    """The model's facts that are stored with the run."""
    config = getattr(model, "config", None)
    parameters = list(model.parameters())
    values = next((p.element_size() for p in parameters if p.is_floating_point()), 0)
    return {"architecture": type(model).__name__, "parameters": sum(p.numel() for p in parameters),
            "weight_bytes": int(stored_bytes(model)), **sizes_of(getattr(config, "text_config", None) or config, values)}


def _texts_of(prompt: Any) -> Optional[List[str]]:
    """The prompts to store: a text, a batch of them, or the messages of a chat as JSON."""
    if prompt is None:
        return None
    if isinstance(prompt, str):
        return [prompt]
    if isinstance(prompt, bytes):
        return [prompt.decode("utf-8", "replace")]
    if not isinstance(prompt, (list, tuple)):
        raise TypeError(f"prompt is a text, a list of texts or a chat's messages, not {type(prompt).__name__}")
    if prompt and all(isinstance(each, Mapping) for each in prompt):
        return [json.dumps(prompt, ensure_ascii=False, default=str)]
    return [text for each in prompt for text in _texts_of(each) or [""]]


def _what_else(model: Any) -> str:
    """Names an object that is no torch module, and says what to do with it."""
    kind = type(model)
    return kind.__name__ + (": a pipeline's is its .model" if hasattr(model, "model") else "")


_DTYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "float64": "f64"}


def _dtype_of(model: Module) -> Optional[str]:
    parameter = next(model.parameters(), None)
    if parameter is None:
        return None
    name = str(parameter.dtype).rsplit(".", 1)[-1]
    return _DTYPES.get(name, name)


class InferencePipelineProfiler:
    """Profiles runs of one model.

    model: a module of torch or of mlx.nn; those of Hugging Face and mlx-lm are recognised by their module names, others if
    they are structured alike.
    profiling_depth: "module" (to components), "deep" (to the operations within them, which costs time) or "off" (phases
    and tokens).
    tokenizer: decodes the tokens' text; without it only ids are stored.
    statistics_every: compute statistics of the components' outputs at every k-th decode step; 0: never; None: chosen by
    cost.
    session: a perjoule.Session, by default one shared by the whole process (PERJOULE_POWER, PERJOULE_DB).
    """

    def __init__(
        self,
        model: Any,
        profiling_depth: str = "module",
        tokenizer: Any = None,
        statistics_every: Optional[int] = None,
        session: Optional[Session] = None,
        model_name: Optional[str] = None,
    ) -> None:
        if profiling_depth not in ("off", "module", "deep"):
            raise ValueError(f"profiling_depth is off, module or deep, not {profiling_depth!r}")
        self.is_mlx = is_mlx(model)
        if not self.is_mlx and not hasattr(model, "register_forward_hook"):
            raise TypeError(f"the profiler takes a module of torch or of mlx.nn, not {_what_else(model)}")
        if statistics_every is not None and (not isinstance(statistics_every, int) or statistics_every < 0):
            raise ValueError(f"statistics_every is a number of steps, 0 or more, not {statistics_every!r}")
        if session is not None and not isinstance(session, Session):
            raise TypeError(f"session is a perjoule.Session, not {type(session).__name__}")
        if profiling_depth == "deep" and self.is_mlx:
            warn("operations inside a module have no hooks: recorded to depth 'module'", CoarseRecording)
            profiling_depth = "module"
        self.model, self.depth, self.tokenizer = model, profiling_depth, tokenizer
        self.statistics_every, self._session = statistics_every, session
        config = getattr(model, "config", None)
        self.model_path = getattr(config, "_name_or_path", None) or None
        self.model_name = model_name or (self.model_path or type(model).__name__).rstrip("/").rsplit("/", 1)[-1]
        self.automatic = False  # whether `python -m perjoule run` made it, rather than the program
        self.last: Optional[Result] = None
        plain = getattr(model, "_orig_mod", None)
        self.plan = None if profiling_depth == "off" else plan_of_mlx(model) if self.is_mlx else (
            plan_of(plain if plain is not None else getattr(model, "module", model)))
        if self.plan is not None and not self.plan.layers:
            warn(f"{type(model).__name__} has no list of blocks (such as model.layers): its modules are recorded by their "
                 "own names, in no layer", PartlyRecognised)
        if self.plan is not None and self.plan.unmatched:
            warn("energy of these modules is not told apart: " + ", ".join(self.plan.unmatched), PartlyRecognised)

    def run(
        self,
        prompt: Union[str, Sequence[str], Sequence[Mapping[str, Any]], None] = None,
        tags: Optional[Iterable[str]] = (),
        experiment_name: Optional[str] = None,
        settings: Optional[Mapping[str, Any]] = None,
    ) -> "ProfiledRun":
        """A context manager that records the model's calls as one run."""
        return ProfiledRun(self, prompt, tags, experiment_name, dict(settings or {}))

    @property
    def result(self) -> Result:
        if self.last is None:
            raise RuntimeError("no run has ended yet")
        return self.last

    def get_summary(self) -> Mapping[str, Any]:
        """The last run's summary as in perjoule's API; unavailable figures are None. Of a model that yields no tokens also
        `joules_per_pass` and `joules_per_item`, such as an image of a batch."""
        summary, joules = dict(self.result.summary), self.result.joules
        settings = summary.get("settings") or {}
        for unit, count in (("pass", settings.get("passes")), ("item", settings.get("items"))):
            if count and summary.get("output_tokens") == 0:
                summary[f"joules_per_{unit}"] = None if joules is None else joules / count
        return summary


class ProfiledRun:
    """One run of a profiler; `result` is set when it ends."""

    def __init__(self, profiler: InferencePipelineProfiler, prompt: Union[str, Sequence[str], Sequence[Mapping[str, Any]], None], tags: Optional[Iterable[str]],
                 experiment_name: Optional[str], settings: Dict[str, Any]) -> None:
        self.profiler, self.settings = profiler, settings
        self._tags, self._experiment_name = tags, experiment_name
        self._prompts = _texts_of(prompt)
        self._run: Optional[Run] = None
        self._watch: Union[Watch, MlxWatch, None] = None

    @property
    def run_id(self) -> str:
        if self._run is None:
            raise RuntimeError("the run has not begun")
        return self._run.id

    @property
    def has_ended(self) -> bool:
        return self._run is not None and self._run.result is not None

    @property
    def result(self) -> Result:
        if self._run is None or self._run.result is None:
            raise RuntimeError("the run has not ended")
        return self._run.result

    def __enter__(self) -> "ProfiledRun":
        if self._run is not None:
            raise RuntimeError("this run has already begun: call run() of the profiler again for another one")
        p = self.profiler
        session = p._session or default_session()
        synchronise_devices()  # what was launched before the block is not its work
        prompt = None if self._prompts is None else "\n".join(self._prompts)
        self._run = run = session.run(
            prompt=prompt, model_name=p.model_name, model_path=p.model_path, engine="mlx" if p.is_mlx else "pytorch", depth=p.depth,
            batch_size=1 if self._prompts is None else len(self._prompts), settings=self.settings or None,
            tags=self._tags, experiment_name=self._experiment_name)
        try:
            self._watch = watch = self._watch_mlx(run) if p.is_mlx else self._watch_torch(run)
            watch.attach()
        except BaseException as e:
            run.fail(f"{type(e).__name__}: {e}")
            raise
        return self

    def _watch_mlx(self, run: Run) -> MlxWatch:
        p = self.profiler
        watch = MlxWatch(run, p.model, p.plan, p.tokenizer, p.depth)
        facts = facts_of_mlx(p.model)
        run.describe(dtype=dtype_of_mlx(p.model), device=watch.device, model=facts,
                     layers=len(p.plan.layers) if p.plan else facts.get("layers", 0))
        return watch

    def _watch_torch(self, run: Run) -> Watch:
        import torch  # type: ignore[import-not-found,unused-ignore]

        p = self.profiler
        watch = Watch(torch, run, p.model, p.plan, p.tokenizer, p.statistics_every, p.depth)
        watch.automatic = p.automatic
        self._describe(torch, run, watch)
        if watch.coarse and p.depth != "off":
            warn(f"recorded at the level of phases and tokens: {watch.coarse}", CoarseRecording)
        return watch

    def _describe(self, torch: Any, run: Run, watch: Watch) -> None:
        p = self.profiler
        facts = _facts_of(p.model)
        layers = len(p.plan.layers) if p.plan else facts.get("layers", 0)
        run.describe(dtype=_dtype_of(p.model), device=watch.device, model=facts, threads=torch.get_num_threads(),
                     layers=layers)

    def __exit__(self, kind: Any, exc: Any, trace: Any) -> None:
        run, watch = self._run, self._watch
        if run is None or watch is None:
            raise RuntimeError("the run has not begun")
        if run._handle is None:  # its session was closed, or this is a forked child
            watch.detach()
            return
        try:
            said = watch.finish(failed=kind is not None)
            if isinstance(watch, Watch):
                said = {"torch": str(watch.torch.__version__), **said}
            run.describe(settings={**self.settings, **said}, level=said["level"])
        finally:
            watch.detach()
            run.__exit__(kind, exc, trace)
            self.profiler.last = run.result
