"""Energy of any piece of code: measure() as context manager and decorator, and Window, compatible with Zeus.

    with perjoule.measure() as m:
        work()
    print(m.joules)          # None where nothing here measures energy

    @perjoule.measure(report=print)
    def work(): ...

Windows nest and overlap freely, in threads and in asyncio tasks. Each has the energy that the whole machine
drew meanwhile: of two windows that overlap, both contain what they share.
"""
from __future__ import annotations

import asyncio
import atexit
import functools
import inspect
import os
import sys
import threading
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional

from . import _native as n
from .session import Energy, OpenWindow, Session, WindowResult


class _Shared:
    """The session that all windows of the process are in; it stores nothing and is opened on first use."""

    def __init__(self) -> None:
        self._session: Optional[Session] = None
        self._lock = threading.Lock()

    def begin(self) -> OpenWindow:
        with self._lock:
            if self._session is None:
                self._session = Session(database="none", baseline_seconds=0)
            session = self._session
        return session.window()

    def forget(self) -> None:
        """In a forked child: the session stays with the parent."""
        self._session, self._lock = None, threading.Lock()

    def close(self) -> None:
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            session.close()


_shared = _Shared()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _shared.forget())
atexit.register(lambda: _shared.close())


class Measured:
    """What a measured block took; filled in when it ends."""

    def __init__(self, name: Optional[str]) -> None:
        self.name = name
        self.result: Optional[WindowResult] = None

    @property
    def energy(self) -> Optional[Energy]:
        """Gross energy of the machine with its interval; None: unavailable, or the block goes on."""
        return self.result.energy if self.result else None

    @property
    def joules(self) -> Optional[float]:
        return self.energy.joules if self.energy else None

    @property
    def seconds(self) -> Optional[float]:
        return None if self.result is None else self.result.duration_ms / 1000

    @property
    def rails(self) -> Mapping[str, Optional[float]]:
        """Joules of each measured power domain."""
        return _rails(self.result)

    def __str__(self) -> str:
        label = f"{self.name}: " if self.name else ""
        if self.result is None:
            return f"{label}not measured yet"
        energy = f"{self.energy}" if self.energy else "energy unavailable"
        return f"{label}{self.seconds:.4g} s, {energy} ({self.result.energy_source})"


def _rails(result: Optional[WindowResult]) -> Dict[str, Optional[float]]:
    rails = result.rails if result else {}
    return {name: None if energy is None else energy.joules for name, energy in rails.items()}


class measure:
    """Measures a block, or every call of a function.

    name: label in `str()` of what was measured. report: called with it at the end (say, print).
    As a decorator it takes functions, coroutine functions and generators of neither: a generator's body runs
    between other code, so it is refused.
    """

    def __init__(self, name: Any = None, report: Optional[Callable[[Measured], Any]] = None) -> None:
        self._function = name if callable(name) else None
        self._name, self._report = (None if callable(name) else name), report
        self._open: Dict[Any, List[_Block]] = {}  # by task or thread: one object may be entered several times
        if self._function is not None:
            functools.update_wrapper(self, self._function)
            self._call = self._wrap(self._function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._function is not None:
            return self._call(*args, **kwargs)
        function, = args
        return self._wrap(function)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if self._function is None or instance is None:
            return self
        return functools.partial(self._call, instance)

    def _wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{function.__name__} is a generator: measure the loop that runs it")
        name = self._name or getattr(function, "__qualname__", None)
        if inspect.iscoroutinefunction(function):
            @functools.wraps(function)
            async def measured_coroutine(*args: Any, **kwargs: Any) -> Any:
                with _Block(name, self._report):
                    return await function(*args, **kwargs)
            return measured_coroutine

        @functools.wraps(function)
        def measured(*args: Any, **kwargs: Any) -> Any:
            with _Block(name, self._report):
                return function(*args, **kwargs)
        return measured

    def __enter__(self) -> Measured:
        block = _Block(self._name, self._report)
        measured = block.__enter__()
        self._open.setdefault(_here(), []).append(block)
        return measured

    def __exit__(self, *exc: Any) -> None:
        here = _here()
        block = self._open[here].pop()
        if not self._open[here]:
            del self._open[here]
        block.__exit__(*exc)

    async def __aenter__(self) -> Measured:
        return self.__enter__()

    async def __aexit__(self, *exc: Any) -> None:
        self.__exit__(*exc)


def _here() -> Any:
    """The asyncio task that runs, or else the thread."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # this thread has no event loop
        task = None
    return task or threading.get_ident()


class _Block:
    """One measured stretch of time."""

    def __init__(self, name: Optional[str], report: Optional[Callable[[Measured], Any]]) -> None:
        self.measured, self._report = Measured(name), report

    def __enter__(self) -> Measured:
        self._window = _shared.begin()
        return self.measured

    def __exit__(self, kind: Any, exc: Any, trace: Any) -> None:
        self.measured.result = self._window.end()
        if self._report is not None:
            self._report(self.measured)


# ---- Zeus's shape ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Measurement:
    """What a window took, with Zeus's names. Energies are in joules; None: unavailable, never 0."""

    time: float
    gpu_energy: Mapping[int, float]
    cpu_energy: Optional[Mapping[int, float]]
    dram_energy: Optional[Mapping[int, float]]
    total: Optional[Energy]  # of all rails, with its interval
    energy_source: str

    @property
    def total_energy(self) -> Optional[float]:
        """Joules of the GPUs, as Zeus has it; without a GPU of the machine's rails."""
        if self.gpu_energy:
            return sum(self.gpu_energy.values())
        return None if self.total is None else self.total.joules


class Window:
    """Named windows: begin_window(name), end_window(name), as zeus.monitor.ZeusMonitor has them.

    gpu_indices: GPUs to report (default all that are visible); synchronise: wait for torch's devices at
    both ends, when torch is loaded.
    """

    def __init__(self, gpu_indices: Optional[Iterable[int]] = None, synchronise: bool = True) -> None:
        self._indices = None if gpu_indices is None else list(gpu_indices)
        self._synchronise = synchronise
        self._open: Dict[str, Optional[OpenWindow]] = {}
        self._lock = threading.Lock()
        n.library()

    def begin_window(self, key: str, sync_execution: bool = True) -> None:
        if sync_execution and self._synchronise:
            synchronise_devices()
        with self._lock:
            if key in self._open:
                raise ValueError(f"the window {key!r} is open already")
            self._open[key] = None
        try:
            opened = _shared.begin()
        except BaseException:
            del self._open[key]
            raise
        self._open[key] = opened

    def end_window(self, key: str, sync_execution: bool = True, cancel: bool = False) -> Measurement:
        if sync_execution and self._synchronise:
            synchronise_devices()
        with self._lock:
            opened = self._open.pop(key, None)
        if opened is None:
            raise ValueError(f"no window {key!r} is open")
        return self._measurement(opened.end())

    def _measurement(self, result: WindowResult) -> Measurement:
        rails = {name: joules for name, joules in _rails(result).items() if joules is not None}
        gpus = {int(name[3:] or 0): joules for name, joules in rails.items()
                if name.startswith("gpu") and (name[3:].isdigit() or name == "gpu")}
        if self._indices is not None:
            gpus = {i: gpus[i] for i in self._indices if i in gpus}

        def of(name: str) -> Optional[Mapping[int, float]]:
            return {0: rails[name]} if name in rails else None
        return Measurement(
            time=result.duration_ms / 1000, gpu_energy=gpus, cpu_energy=of("cpu"), dram_energy=of("dram"),
            total=result.energy, energy_source=result.energy_source)


def synchronise_devices() -> None:
    torch = sys.modules.get("torch")
    if torch is None:
        return
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    elif getattr(torch.backends, "mps", None) is not None and torch.backends.mps.is_available():
        torch.mps.synchronize()


ZeusMonitor = Window  # so that only the import changes
__all__ = ["Measured", "Measurement", "Window", "ZeusMonitor", "measure"]
