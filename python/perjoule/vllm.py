"""The plugin for vLLM: records a vLLM server or an offline `LLM` as runs, with each request's energy.

The package perjoule-vllm registers this module with vLLM (entry point groups `vllm.stat_logger_plugins` and
`vllm.general_plugins`); installing it turns recording on, VLLM_PLUGINS selects plugins as usual. PERJOULE_POWER and
PERJOULE_DB apply.

Steps and finished requests arrive through vLLM's statistics interface, StatLoggerBase. That interface does not report
arrivals, so OutputProcessor.add_request is wrapped if it has the expected signature; otherwise a run begins with its
first finished step, and that step's energy is missing from it. abort_requests is wrapped because no step may
follow it. This module imports vLLM, so it can be imported only where vLLM is installed.
"""
from __future__ import annotations

import atexit
import functools
import logging
import sys
import weakref
from typing import Any, Callable, List, Optional

from vllm.v1.metrics.loggers import StatLoggerBase  # type: ignore[import-not-found,unused-ignore]

from .serving import Request, ServingRecorder
from .session import Result, default_session

log = logging.getLogger("vllm.perjoule")
_recorders: "weakref.WeakSet[ServingRecorder]" = weakref.WeakSet()


def _report(result: Result) -> None:
    energy = "energy unavailable" if result.energy is None else f"{result.energy} {result.energy_source}"
    log.info("perjoule: run %s: %d requests, %d tokens, %s", result.run_id,
             len((result.summary.get("settings") or {}).get("requests") or ()), result.output_tokens, energy)


def _name_of(config: Any) -> Optional[str]:
    model = getattr(getattr(config, "model_config", None), "model", None)
    return None if model is None else str(model).rstrip("/").rsplit("/", 1)[-1]


def _request_of(finished: Any) -> Request:
    return Request(
        id=str(getattr(finished, "request_id", None) or ""), reason=str(finished.finish_reason).lower(),
        prompt_tokens=finished.num_prompt_tokens, cached_tokens=getattr(finished, "num_cached_tokens", 0),
        output_tokens=finished.num_generation_tokens, queued=finished.queued_time, prefill=finished.prefill_time,
        decode=finished.decode_time)


def _computed(iteration: Any) -> int:
    """Prompt tokens that the step computed; older versions of vLLM include the cached ones."""
    stats = getattr(iteration, "prompt_token_stats", None)
    return int(stats.computed if stats is not None else iteration.num_prompt_tokens)


class EnergyLogger(StatLoggerBase):  # type: ignore[misc,unused-ignore]
    """Records one engine's steps and requests as runs."""

    def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
        self.recorder: Optional[ServingRecorder] = None
        try:
            self.recorder = ServingRecorder(default_session(), _name_of(vllm_config), report=_report)
            _recorders.add(self.recorder)
        except Exception as e:  # a server must run even if recording fails
            log.warning("perjoule records nothing: %s", e)

    def record(self, scheduler_stats: Any, iteration_stats: Any, mm_cache_stats: Any = None,
               engine_idx: int = 0) -> None:
        if self.recorder is None or iteration_stats is None:
            return
        try:
            finished: List[Request] = [_request_of(f) for f in iteration_stats.finished_requests]
            in_flight = 0 if scheduler_stats is None else (
                scheduler_stats.num_running_reqs + scheduler_stats.num_waiting_reqs)
            self.recorder.stepped(_computed(iteration_stats), iteration_stats.num_generation_tokens, finished, in_flight)
        except Exception as e:
            log.warning("perjoule stops recording: %s", e)
            self.recorder = None

    def log_engine_initialized(self) -> None:
        pass


def close() -> None:
    """Ends and stores open runs; called at exit, if the session has not been closed before."""
    for recorder in list(_recorders):
        recorder.close()


atexit.register(close)


def _wrap(owner: Any, name: str, make: Any) -> None:
    inner = getattr(owner, name, None)
    if inner is not None and not hasattr(inner, "_perjoule"):
        outer: Any = functools.wraps(inner)(make(inner))
        outer._perjoule = True
        setattr(owner, name, outer)


def _tell_all(what: Callable[[ServingRecorder], None]) -> None:
    for recorder in list(_recorders):
        try:
            what(recorder)
        except Exception as e:  # as when the session has been closed
            _recorders.discard(recorder)
            log.warning("perjoule stops recording: %s", e)


def _with_arrival(inner: Any) -> Any:
    def add_request(self: Any, *args: Any, **kwargs: Any) -> Any:
        _tell_all(ServingRecorder.arrived)
        return inner(self, *args, **kwargs)
    return add_request


def _with_abort(inner: Any) -> Any:
    def abort_requests(self: Any, *args: Any, **kwargs: Any) -> Any:
        aborted = inner(self, *args, **kwargs)
        if not self.has_unfinished_requests():
            _tell_all(ServingRecorder.drained)
        return aborted
    return abort_requests


def _with_logger(inner: Any) -> Any:
    """An offline LLM does not load statistics plugins, so ours is passed in explicitly, with statistics enabled."""
    def init(self: Any, *given: Any, **kwargs: Any) -> None:
        args = list(given)
        if len(args) > 2:
            args[2] = True
        else:
            kwargs["log_stats"] = True
        if len(args) > 5:
            args[5] = [*(args[5] or ()), EnergyLogger]
        else:
            kwargs["stat_loggers"] = [*(kwargs.get("stat_loggers") or ()), EnergyLogger]
        inner(self, *args, **kwargs)
    return init


def register() -> None:
    """The entry point that vLLM calls in each of its processes; only the front end's process uses what it patches."""
    try:
        from vllm.v1.engine.output_processor import OutputProcessor  # type: ignore[import-not-found,unused-ignore]
        _wrap(OutputProcessor, "add_request", _with_arrival)
        if hasattr(OutputProcessor, "has_unfinished_requests"):
            _wrap(OutputProcessor, "abort_requests", _with_abort)
    except ImportError as e:
        log.warning("perjoule sees no arrivals of requests: %s", e)
    offline = sys.modules.get("vllm.v1.engine.llm_engine")
    if offline is not None:
        _wrap(offline.LLMEngine, "__init__", _with_logger)
