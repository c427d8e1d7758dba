"""Profiles an unmodified script: every call of `generate` becomes a run.

`python -m perjoule run script.py` installs this before the script starts. When the script imports
transformers, GenerationMixin.generate is replaced by a function that records the outermost call and passes nested calls
(by an assistant model or the profiler itself) through.
"""
from __future__ import annotations

import functools
import importlib.abc
import importlib.util
import sys
import threading
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Callable, Iterable, List, Optional, Sequence

from .errors import ModelNotRecognised, PartlyRecognised
from .profiler import InferencePipelineProfiler, ProfiledRun
from .names import Module
from .session import Result, warn
from .watch import is_watched

MODULE = "transformers.generation.utils"


class Patch(importlib.abc.MetaPathFinder):
    """An import hook that calls `change` with one module as soon as it has been imported."""

    def __init__(self, name: str, change: Callable[[Any], None]) -> None:
        self.name, self.change = name, change

    def find_spec(self, name: str, path: Optional[Sequence[str]] = None,
                  target: Optional[ModuleType] = None) -> Optional[ModuleSpec]:
        if name != self.name:
            return None
        sys.meta_path.remove(self)  # leaves the search to the next finder
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        run, change = spec.loader.exec_module, self.change

        def exec_module(module: ModuleType) -> None:
            run(module)
            change(module)
        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


class Recorder:
    """Runs of all models whose generate the script calls."""

    def __init__(self, depth: str = "module", tags: Iterable[str] = (), experiment: Optional[str] = None) -> None:
        self.depth, self.tags, self.experiment = depth, list(tags), experiment
        self.results: List[Result] = []
        self._inside = threading.local()

    def install(self) -> None:
        if MODULE in sys.modules:
            self.change(sys.modules[MODULE])
        else:
            sys.meta_path.insert(0, Patch(MODULE, self.change))

    def change(self, module: Any) -> None:
        mixin, inner, recorder = module.GenerationMixin, module.GenerationMixin.generate, self

        @functools.wraps(inner)
        def generate(model: Module, *args: Any, **kwargs: Any) -> Any:
            if getattr(recorder._inside, "yes", False) or is_watched(model):
                return inner(model, *args, **kwargs)
            runs: List[ProfiledRun] = []
            recorder._inside.yes = True
            try:
                with recorder.profiler_of(model).run(tags=recorder.tags, experiment_name=recorder.experiment) as run:
                    runs.append(run)
                    return model.generate(*args, **kwargs)
            finally:
                recorder._inside.yes = False
                recorder.results.extend(run.result for run in runs if run.has_ended)
        mixin.generate = generate

    def profiler_of(self, model: Module) -> InferencePipelineProfiler:
        """A profiler of its own for each call: one that is kept would keep the script's model in memory."""
        try:
            profiler = InferencePipelineProfiler(model, self.depth)
        except ModelNotRecognised as e:
            warn(str(e), PartlyRecognised)
            profiler = InferencePipelineProfiler(model, "off")
        profiler.automatic = True
        return profiler
