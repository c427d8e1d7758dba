"""perjoule: where every joule of transformer inference goes.

Depends on Python's standard library only; torch, transformers, pandas and polars are imported on first use.
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from .errors import (
    CoarseRecording,
    EnergyUnavailable,
    LibraryNotFound,
    ModelNotRecognised,
    PartlyRecognised,
    PerjouleError,
    SensorsContradict,
)
from .session import Energy, Result, Run, Session

if TYPE_CHECKING:
    from .profiler import InferencePipelineProfiler
    from .reading import Database, StoredRun, compare, open
    from .training import TrainingRecorder, lightning_callback, trainer_callback
    from .window import Measured, Measurement, Window, measure

__version__ = "0.1.0"

_LATER = {
    "InferencePipelineProfiler": "profiler",
    "Measured": "window",
    "Measurement": "window",
    "Window": "window",
    "measure": "window",
    "Database": "reading",
    "StoredRun": "reading",
    "compare": "reading",
    "open": "reading",
    "TrainingRecorder": "training",
    "lightning_callback": "training",
    "trainer_callback": "training",
}
__all__ = [
    "CoarseRecording", "Energy", "EnergyUnavailable", "LibraryNotFound", "ModelNotRecognised",
    "PartlyRecognised", "PerjouleError", "Result", "Run", "SensorsContradict", "Session", "__version__",
    # of _LATER; by name, for type checkers
    "Database", "InferencePipelineProfiler", "Measured", "Measurement", "StoredRun", "TrainingRecorder", "Window",
    "compare", "lightning_callback", "measure", "open", "trainer_callback",
]


def __getattr__(name: str) -> object:
    if name in _LATER:
        return getattr(importlib.import_module("." + _LATER[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
