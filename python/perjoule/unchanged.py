"""Profiles an unmodified script: every call of `generate` becomes a run.

`python -m perjoule run script.py` installs this before the script starts. When the script imports
transformers, GenerationMixin.generate is replaced by a function that records the outermost call and hands
inner ones (of an assistant, of the profiler itself) on.
"""
from __future__ import annotations

import functools
import importlib.abc
import importlib.util
import sys
import threading
from typing import Any, Callable, Optional

from .errors import ModelNotRecognised, PartlyRecognised
from .profiler import InferencePipelineProfiler
from .session import warn

MODULE = "transformers.generation.utils"


class Patch(importlib.abc.MetaPathFinder):
    """Calls `change` with one module as soon as it has been imported."""

    def __init__(self, name: str, change: Callable[[Any], None]):
        self.name, self.change = name, change

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        sys.meta_path.remove(self)  # whoever comes next finds it
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        run, change = spec.loader.exec_module, self.change

        def exec_module(module):
            run(module)
            change(module)
        spec.loader.exec_module = exec_module
        return spec


class Recorder:
    """Runs of all models whose generate the script calls."""

    def __init__(self, depth: str = "module", tags=(), experiment: Optional[str] = None):
        self.depth, self.tags, self.experiment = depth, list(tags), experiment
        self.profilers: dict = {}  # by id: a script's models live as long as it does
        self.results: list = []
        self._inside = threading.local()

    def install(self) -> None:
        if MODULE in sys.modules:
            self.change(sys.modules[MODULE])
        else:
            sys.meta_path.insert(0, Patch(MODULE, self.change))

    def change(self, module) -> None:
        mixin, inner, recorder = module.GenerationMixin, module.GenerationMixin.generate, self

        @functools.wraps(inner)
        def generate(model, *args, **kwargs):
            if getattr(recorder._inside, "yes", False):
                return inner(model, *args, **kwargs)
            recorder._inside.yes = True
            try:
                profiler = recorder.profiler_of(model)
                with profiler.run(tags=recorder.tags, experiment_name=recorder.experiment):
                    return model.generate(*args, **kwargs)
            finally:
                recorder._inside.yes = False
                if id(model) in recorder.profilers and recorder.profilers[id(model)].last is not None:
                    recorder.results.append(recorder.profilers[id(model)].last)
        mixin.generate = generate

    def profiler_of(self, model) -> InferencePipelineProfiler:
        found = self.profilers.get(id(model))
        if found is None:
            try:
                found = InferencePipelineProfiler(model, self.depth)
            except ModelNotRecognised as e:
                warn(str(e), PartlyRecognised)
                found = InferencePipelineProfiler(model, "off")
            self.profilers[id(model)] = found
        return found
