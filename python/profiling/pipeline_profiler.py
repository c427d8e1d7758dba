"""Alias of perjoule's profiler, for imports as profiling.pipeline_profiler."""
from perjoule.profiler import InferencePipelineProfiler, ProfiledRun

__all__ = ["InferencePipelineProfiler", "ProfiledRun"]
