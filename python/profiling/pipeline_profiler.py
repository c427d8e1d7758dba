"""perjoule's profiler under the name that its guide uses."""
from perjoule.profiler import InferencePipelineProfiler, ProfiledRun

__all__ = ["InferencePipelineProfiler", "ProfiledRun"]
