"""Alias package: lets the profiler be imported as profiling.pipeline_profiler; the implementation is perjoule's."""
