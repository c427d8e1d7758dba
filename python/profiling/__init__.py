"""Alias package, so that perjoule's profiler can be imported as profiling.pipeline_profiler."""
