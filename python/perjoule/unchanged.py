"""Profiles an unmodified script: every call of `generate` becomes a run.

`python -m perjoule run script.py` installs this before the script starts. When the script imports
transformers, GenerationMixin.generate is replaced by a function that records the outermost call and passes
nested ones (of an assistant model, or by the profiler itself) through.
"""
from __future__ import annotations

import functools
import importlib.abc
import importlib.util
import sys
import threading
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence

from .errors import ModelNotRecognised, PartlyRecognised
from .profiler import InferencePipelineProfiler
from .names import Module
from .session import Result, warn

MODULE = "transformers.generation.utils"


class Patch(importlib.abc.MetaPathFinder):
    """Calls `change` with one module as soon as it has been imported."""

    def __init__(self, name: str, change: Callable[[Any], None]) -> None:
        self.name, self.change = name, change

    def find_spec(self, name: str, path: Optional[Sequence[str]] = None,
                  target: Optional[ModuleType] = None) -> Optional[ModuleSpec]:
        if name != self.name:
            return None
        sys.meta_path.remove(self)  # the next finder finds it
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
        self.profilers: Dict[int, InferencePipelineProfiler] = {}  # by id: a script's models live as long as it does
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
            if getattr(recorder._inside, "yes", False):
                return inner(model, *args, **kwargs)
            recorder._inside.yes = True
            try:
                profiler = recorder.profiler_of(model)
                with profiler.run(tags=recorder.tags, experiment_name=recorder.experiment):
                    return model.generate(*args, **kwargs)
            finally:
                recorder._inside.yes = False
                recorder.keep_result_of(model)
        mixin.generate = generate

    def keep_result_of(self, model: Module) -> None:
        profiler = self.profilers.get(id(model))
        if profiler is not None and profiler.last is not None:
            self.results.append(profiler.last)

    def profiler_of(self, model: Module) -> InferencePipelineProfiler:
        found = self.profilers.get(id(model))
        if found is None:
            try:
                found = InferencePipelineProfiler(model, self.depth)
            except ModelNotRecognised as e:
                warn(str(e), PartlyRecognised)
                found = InferencePipelineProfiler(model, "off")
            self.profilers[id(model)] = found
        return found
