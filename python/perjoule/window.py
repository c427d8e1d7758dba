"""Energy of any piece of code: measure() as context manager and decorator, and Window, compatible with Zeus.

    with perjoule.measure() as m:
        work()
    print(m.joules)          # None where nothing here measures energy

    @perjoule.measure(report=print)
    def work(): ...

Windows nest and overlap freely, in threads and in asyncio tasks. Each window reports the energy of the whole machine
during its time, so overlapping windows both include the overlap.
"""
from __future__ import annotations

import asyncio
import atexit
import csv
import functools
import inspect
import os
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Union

from . import _native as n
from .devices import synchronise_devices
from .frameworks import WAITS
from .notebook import said, table, window_table
from .session import Energy, OpenWindow, Session, WindowResult


def _joules(mj: Optional[float]) -> Optional[float]:
    return None if mj is None else mj / 1000


class _Shared:
    """The session of all windows in this process, opened on first use; it stores nothing."""

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
        """In a forked child: forgets the session, which belongs to the parent."""
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
    """Energy and time of a measured block; filled in when it ends."""

    def __init__(self, name: Optional[str]) -> None:
        self.name = name
        self.result: Optional[WindowResult] = None

    @property
    def energy(self) -> Optional[Energy]:
        """Gross energy of the machine with its interval; None: unavailable, or the block has not ended."""
        return self.result.energy if self.result else None

    @property
    def joules(self) -> Optional[float]:
        return self.energy.joules if self.energy else None

    @property
    def lo(self) -> Optional[float]:
        """Lower end of the 95 % interval, joules; None: unavailable, or the block has not ended."""
        return _joules(self.energy.lo_mj if self.energy else None)

    @property
    def hi(self) -> Optional[float]:
        return _joules(self.energy.hi_mj if self.energy else None)

    @property
    def random_joules(self) -> Optional[float]:
        """Half of a 95 % interval, without the calibration of the sensors (`result.gain_mj`): what differs between equal
        blocks, and averages out over many."""
        random = self.result.random_mj if self.result else None
        return None if random is None else random / 1000

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
        if self.energy and self.result.gain_mj and self.energy.joules > 0:
            share = 100 * self.result.gain_mj / (1000 * self.energy.joules)
            energy += f", of which the sensors' calibration ±{share:.2g} %"
        return f"{label}{self.seconds:.4g} s, {energy} ({self.result.energy_source})"

    def __repr__(self) -> str:
        return f"<measured {self}>"

    def _repr_html_(self) -> str:
        return window_table(self.result, self.name)


def _rails(result: Optional[WindowResult]) -> Dict[str, Optional[float]]:
    rails = result.rails if result else {}
    return {name: None if energy is None else energy.joules for name, energy in rails.items()}


class measure:
    """Measures a block, or every call of a function.

    name: label in `str()` of the measurement. report: called with the measurement at the end (for example, print).
    synchronise: wait for torch's devices at both ends, so that the measurement contains the work that was launched in the
    block, and no other. As a decorator it accepts functions and coroutine functions; `last` of the decorated function is the measurement of the
    call that ended last. Generators are refused, because other code runs between their steps.
    """

    def __init__(self, name: Any = None, report: Optional[Callable[[Measured], Any]] = None,
                 synchronise: bool = True) -> None:
        if isinstance(name, (property, classmethod, staticmethod)):
            raise TypeError(f"measure decorates functions: put it below @{type(name).__name__}")
        self._function = name if callable(name) else None
        self._name, self._report, self._synchronise = (None if callable(name) else name), report, synchronise
        self._open: Dict[Any, List[_Block]] = {}  # per task or thread, because one object may be entered several times
        if self._function is not None:
            functools.update_wrapper(self, self._function)
            self._call = self._wrap(self._function)

    @property
    def last(self) -> Optional[Measured]:
        """With measure as a bare decorator: the measurement of the call that ended last."""
        return getattr(self._call, "last", None) if self._function is not None else None

    def __reduce__(self) -> Any:
        if self._function is None:
            return type(self), (self._name, self._report, self._synchronise)
        return self._function.__qualname__  # a decorated function is pickled by its name, as any function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._function is not None:
            return self._call(*args, **kwargs)
        function, = args
        if not callable(function):
            raise TypeError(f"measure decorates functions, not {function!r}")
        return self._wrap(function)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if self._function is None or instance is None:
            return self
        return functools.partial(self._call, instance)

    def _wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if _is(inspect.isgeneratorfunction, function) or _is(inspect.isasyncgenfunction, function):
            raise TypeError(f"{getattr(function, '__name__', function)} is a generator: measure the loop that runs it")
        name = self._name or getattr(function, "__qualname__", None)
        report, synchronise = self._report, self._synchronise

        def end(measured: Measured) -> None:
            setattr(wrapper, "last", measured)
            if report is not None:
                report(measured)

        wrapper: Callable[..., Any]
        if _is(inspect.iscoroutinefunction, function):
            @functools.wraps(function)
            async def measured_coroutine(*args: Any, **kwargs: Any) -> Any:
                with _Block(name, end, synchronise):
                    return await function(*args, **kwargs)
            wrapper = measured_coroutine
        else:
            @functools.wraps(function)
            def measured_function(*args: Any, **kwargs: Any) -> Any:
                with _Block(name, end, synchronise):
                    return function(*args, **kwargs)
            wrapper = measured_function
        setattr(wrapper, "last", None)
        return wrapper

    def __enter__(self) -> Measured:
        block = _Block(self._name, self._report, self._synchronise)
        measured = block.__enter__()
        self._open.setdefault(_here(), []).append(block)
        return measured

    def __exit__(self, *exc: Any) -> None:
        here = _here()
        if here not in self._open:
            raise RuntimeError("a measurement must end in the thread or task that began it")
        block = self._open[here].pop()
        if not self._open[here]:
            del self._open[here]
        block.__exit__(*exc)

    async def __aenter__(self) -> Measured:
        return self.__enter__()

    async def __aexit__(self, *exc: Any) -> None:
        self.__exit__(*exc)


def _is(kind: Callable[[Any], bool], function: Callable[..., Any]) -> bool:
    """Whether a function, a partial of it, or the __call__ of an object is of a kind that `inspect` tells."""
    while isinstance(function, functools.partial):
        function = function.func
    return kind(function) or not inspect.isclass(function) and kind(getattr(type(function), "__call__", None))


def _here() -> Any:
    """The current asyncio task, or else the thread."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # this thread has no event loop
        task = None
    return task or threading.get_ident()


class _Block:
    """One measured period."""

    def __init__(self, name: Optional[str], report: Optional[Callable[[Measured], Any]], synchronise: bool) -> None:
        self.measured, self._report, self._synchronise = Measured(name), report, synchronise

    def __enter__(self) -> Measured:
        if self._synchronise:
            synchronise_devices()
        self._window = _shared.begin()
        return self.measured

    def __exit__(self, kind: Any, exc: Any, trace: Any) -> None:
        if self._synchronise:
            synchronise_devices()
        self.measured.result = self._window.end()
        if self._report is not None:
            self._report(self.measured)


# ---- the interface of Zeus ----------------------------------------------------------------------------


@dataclass(frozen=True)
class SocEnergy:
    """Millijoules of the parts of Apple's chips, with the attribute names of Zeus; None: unavailable."""

    cpu_total_mj: Optional[float]
    gpu_mj: Optional[float]
    dram_mj: Optional[float]
    ane_mj: Optional[float]


@dataclass(frozen=True)
class Measurement:
    """A window's measurement with the attribute names of Zeus. Energies in joules; None (never 0): unavailable."""

    time: float
    gpu_energy: Mapping[int, Optional[float]]
    cpu_energy: Optional[Mapping[int, Optional[float]]]
    dram_energy: Optional[Mapping[int, Optional[float]]]
    total: Optional[Energy]  # total of the machine, with its interval
    energy_source: str
    soc_energy: Optional[SocEnergy] = None  # None: not one of Apple's chips
    rails: Mapping[str, Optional[Energy]] = field(default_factory=dict)  # what the above are taken from, with intervals

    def _figures(self) -> Dict[str, str]:
        return {"time": f"{self.time:.4g} s", "total": said(self.total, self.energy_source),
                **{name: said(energy) for name, energy in self.rails.items()}}

    def __repr__(self) -> str:
        return f"<measurement: {', '.join(f'{name} {figure}' for name, figure in self._figures().items())}>"

    def _repr_html_(self) -> str:
        return table(self._figures().items())

    @property
    def total_energy(self) -> Optional[float]:
        """Total joules: of the GPUs, as in Zeus; None if one of them is missing. On a machine without a GPU, of its rails,
        unless GPUs were asked for."""
        if self.gpu_energy:
            known = [joules for joules in self.gpu_energy.values() if joules is not None]
            return sum(known) if len(known) == len(self.gpu_energy) else None
        return None if self.total is None else self.total.joules


def _numbered(rails: Mapping[str, Optional[float]], kind: str,
              wanted: Optional[Sequence[int]]) -> Dict[int, Optional[float]]:
    """Joules of each device of a kind; None: it is there, or was asked for, and gives no energy. Rails are named `cpu`, or
    `cpu0`, `cpu1` if there are several."""
    found: Dict[int, Optional[float]] = {}
    for name, joules in rails.items():
        if name == kind or (name.startswith(kind) and name[len(kind):].isdigit()):
            found[int(name[len(kind):] or 0)] = joules
    return found if wanted is None else {i: found.get(i) for i in wanted}


def _soc_energy(rails: Mapping[str, Optional[float]]) -> Optional[SocEnergy]:
    """Only Apple's chips have a rail of their neural engine."""
    if "ane" not in rails:
        return None
    mj = {name: None if joules is None else joules * 1000 for name, joules in rails.items()}
    return SocEnergy(mj.get("cpu"), mj.get("gpu"), mj.get("dram"), mj.get("ane"))


def _indices_of(name: str, given: Optional[Iterable[int]]) -> Optional[List[int]]:
    if given is None:
        return None
    indices = list(given)
    if not all(isinstance(i, int) and i >= 0 for i in indices):
        raise ValueError(f"{name} takes a list of device numbers, not {given!r}")
    return indices


class Window:
    """Named windows: begin_window(name), end_window(name), as zeus.monitor.ZeusMonitor has them.

    gpu_indices: GPUs to report, in the order of CUDA_VISIBLE_DEVICES (default all that are visible). cpu_indices:
    processor packages to report. log_file: a CSV file with one row per window. sync_execution_with:
    "torch", "jax" or "cupy", for which both ends wait; synchronise=False waits for none. approx_instant_energy has no effect: a window too
    short for a sensor gets a wide interval, or None.
    """

    def __init__(self, gpu_indices: Optional[Iterable[int]] = None, cpu_indices: Optional[Iterable[int]] = None,
                 approx_instant_energy: bool = False, log_file: Union[str, "os.PathLike[str]", None] = None,
                 sync_execution_with: str = "torch", synchronise: bool = True) -> None:
        if synchronise and sync_execution_with not in WAITS:
            raise ValueError(f"can wait for {', '.join(WAITS)}, not for {sync_execution_with}: synchronise before and after "
                             "the window, and pass synchronise=False")
        self._indices = _indices_of("gpu_indices", gpu_indices)
        self._cpu_indices = _indices_of("cpu_indices", cpu_indices)
        self._wait: Callable[[], None] = WAITS[sync_execution_with] if synchronise else lambda: None
        self._log = None if log_file is None else open(log_file, "w", encoding="utf-8", newline="")
        self._begun: Dict[str, float] = {}  # wall-clock time, for the log
        self._logged = False
        self._open: Dict[str, Optional[OpenWindow]] = {}
        self._lock = threading.Lock()
        n.library()

    def begin_window(self, key: str, sync_execution: bool = True, restart: bool = False) -> None:
        """`restart`: a window of this name that is open is discarded."""
        if restart and key in self._open:
            self._discard(key)
        if sync_execution:
            self._wait()
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
        self._begun[key] = time.time()

    def end_window(self, key: str, sync_execution: bool = True, cancel: bool = False) -> Measurement:
        if sync_execution:
            self._wait()
        with self._lock:
            opened = self._open.pop(key, None)
        if opened is None:
            raise ValueError(f"no window {key!r} is open")
        measured = self._measurement(opened.end())
        begun = self._begun.pop(key, 0.0)
        if not cancel:
            self._write(key, begun, measured)
        return measured

    def reset_windows(self) -> None:
        """Discards all open windows."""
        for key in list(self._open):
            self._discard(key)

    def _discard(self, key: str) -> None:
        with self._lock:
            opened = self._open.pop(key, None)
        if opened is not None:
            opened.discard()
        self._begun.pop(key, None)

    def _write(self, key: str, begun: float, measured: Measurement) -> None:
        """Writes one row of the log; its GPU columns are those of the header."""
        if self._log is None:
            return
        with self._lock:
            lines = csv.writer(self._log, lineterminator="\n")
            if not self._logged:
                self._logged, self._logged_gpus = True, list(measured.gpu_energy if self._indices is None else self._indices)
                lines.writerow(["start_time", "window_name", "elapsed_time", *(f"gpu{i}_energy" for i in self._logged_gpus)])
            lines.writerow([begun, key, measured.time, *(measured.gpu_energy.get(i) for i in self._logged_gpus)])
            self._log.flush()

    def _measurement(self, result: WindowResult) -> Measurement:
        rails = _rails(result)
        return Measurement(
            time=result.duration_ms / 1000, gpu_energy=_numbered(rails, "gpu", self._indices),
            cpu_energy=_numbered(rails, "cpu", self._cpu_indices) or None,
            dram_energy=_numbered(rails, "dram", self._cpu_indices) or None,
            total=result.energy, energy_source=result.energy_source, soc_energy=_soc_energy(rails), rails=result.rails)


ZeusMonitor = Window  # aliases, so that migrating from Zeus changes only the import
__all__ = ["Measured", "Measurement", "Window", "ZeusMonitor", "measure"]
