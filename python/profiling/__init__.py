"""The name under which the profiler's guide imports it; all of it is perjoule's."""
