"""Sessions and runs: the interface of perjoule.h as Python objects.

    with perjoule.Session() as session, session.run(prompt="hello", model_name="mine") as run:
        with run.phase("prefill"), run.token(0):
            ...
    print(run.result.energy)

An energy that no sensor measured is None, never 0.
"""
from __future__ import annotations

import array
import atexit
import ctypes as c
import json
import math
import os
import sys
import threading
import time
import warnings
import weakref
from ctypes import c_void_p as Handle
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple, Type, Union

from . import _native as n
from .errors import EnergyUnavailable, SensorsContradict
from .notebook import per_token, result_table, said, window_table

clock_ns = time.monotonic_ns  # the clock that libperjoule uses throughout


class Energy(NamedTuple):
    """Millijoules with their 95 % interval; the bounds are None where none is known."""

    mj: float
    lo_mj: Optional[float] = None
    hi_mj: Optional[float] = None

    @property
    def joules(self) -> float:
        return self.mj / 1000

    def __str__(self) -> str:
        if self.lo_mj is None or self.hi_mj is None:
            return f"{self.joules:.4g} J"
        return f"{self.joules:.4g} J (95 %: {self.lo_mj / 1000:.4g} to {self.hi_mj / 1000:.4g})"


def _known(value: float) -> Optional[float]:
    return None if value != value else value


def _energy(figure: n.Joules) -> Optional[Energy]:
    if figure.mj != figure.mj:
        return None
    return Energy(figure.mj, _known(figure.lo_mj), _known(figure.hi_mj))


@dataclass(frozen=True)
class PhaseResult:
    """Time and energy of one phase of a run."""

    duration_ms: float
    energy: Optional[Energy]
    energy_net: Optional[Energy]


@dataclass(frozen=True)
class Result:
    """Energy and time of a finished run. `energy` is gross; `energy_net` excludes idle power."""

    run_id: str
    status: str
    duration_ms: Optional[float]
    energy_source: str  # measured, modelled or unavailable
    is_partial: bool  # a rail that belongs to the total was missing
    is_stored: bool
    energy: Optional[Energy]
    energy_net: Optional[Energy]
    energy_upper_mj: Optional[float]  # where the energy is unavailable: at most this, if known
    joules_per_token: Optional[float]  # mean over the output tokens
    input_tokens: int
    output_tokens: int
    phases: Mapping[str, PhaseResult] = field(default_factory=dict)
    summary: Mapping[str, Any] = field(default_factory=dict)  # the run's summary as the API gives it
    typical_token: Optional[Energy] = None  # the median decode token, by which runs are compared

    @property
    def joules(self) -> Optional[float]:
        return None if self.energy is None else self.energy.joules

    def __repr__(self) -> str:
        return f"<result of run {self.run_id}: {self.status}, {said(self.energy, self.energy_source)}, per token {per_token(self.summary)}>"

    def _repr_html_(self) -> str:
        return result_table(self)


def _phase(p: n.PhaseResult) -> PhaseResult:
    return PhaseResult(p.duration_ms, _energy(p.gross), _energy(p.net))


def _read_result(r: n.RunResult) -> Result:
    summary = json.loads(c.string_at(r.json).decode("utf-8", "replace")) if r.json else {}
    return Result(
        run_id=r.run_id.decode(),
        status=n.STATUSES[r.status],
        duration_ms=_known(r.duration_ms),
        energy_source=n.QUALITIES[r.energy_source],
        is_partial=r.is_partial,
        is_stored=r.is_stored,
        energy=_energy(r.total),
        energy_net=_energy(r.net),
        energy_upper_mj=_known(r.total_upper_mj),
        joules_per_token=_known(r.joules_per_token),
        input_tokens=r.input_tokens,
        output_tokens=r.output_tokens,
        phases={n.PHASES[p.phase]: _phase(p) for p in r.phases[: r.phase_count]},
        summary=summary,
        typical_token=_energy(r.typical_token),
    )


@dataclass(frozen=True)
class WindowResult:
    """The machine's energy between two moments. `energy` is gross; `energy_net` excludes idle power."""

    duration_ms: float
    energy_source: str  # measured, modelled or unavailable
    is_partial: bool  # a rail that belongs to the total was missing
    energy: Optional[Energy]
    energy_net: Optional[Energy]
    energy_upper_mj: Optional[float]  # where the energy is unavailable: at most this, if known
    rails: Mapping[str, Optional[Energy]] = field(default_factory=dict)  # each sensor's; some may contain others
    # parts of the interval of `energy`, each half of a 95 % one: what readings cannot tell of this window, and the
    # calibration of the sensors, which is the same factor in every window
    random_mj: Optional[float] = None
    gain_mj: Optional[float] = None
    warning: Optional[str] = None  # what the sensors contradict each other in

    def _repr_html_(self) -> str:
        return window_table(self)


def _read_window(r: n.WindowResult) -> WindowResult:
    return WindowResult(
        duration_ms=r.duration_ms,
        energy_source=n.QUALITIES[r.energy_source],
        is_partial=r.is_partial,
        energy=_energy(r.total),
        energy_net=_energy(r.net),
        energy_upper_mj=_known(r.total_upper_mj),
        rails={rail.name.decode(): _energy(rail.gross) for rail in r.rails[: r.rail_count]},
        random_mj=_known(r.total_random_mj),
        gain_mj=_known(r.total_gain_mj),
        warning=r.warning.decode() or None,
    )


_ABSENT = {
    "below_resolution": "it is too short for the sensors here: make it longer, or repeat the work within one run",
    "sensor_gap": "the sensors gave no reading during a part of it",
}
_warned = False
_contradicted: Set[bytes] = set()  # kinds of contradictions that a warning was issued of


def warn(text: str, category: Type[Warning]) -> None:
    """Issues a warning that points at the caller's line outside this package. Where warnings are errors (-W error) it is
    printed: raised, it would end the program's own call, and what was recorded would be lost."""
    here, level = os.path.dirname(__file__), 2
    frame: Optional[FrameType] = sys._getframe(1)
    while frame and os.path.dirname(frame.f_code.co_filename).startswith(here):
        frame, level = frame.f_back, level + 1
    try:
        warnings.warn(text, category, stacklevel=level)
    except category:
        print(f"{category.__name__}: {text}", file=sys.stderr)


def warn_unavailable() -> None:
    """Warns once per process that no sensor is available."""
    global _warned
    if _warned:
        return
    _warned = True
    warn(
        "no power sensor works here: energies are None, times are complete. "
        "`perjoule sensors` says what each sensor lacks; PERJOULE_POWER=estimate models the energy instead",
        EnergyUnavailable,
    )


def _settings_text(settings: Optional[Mapping[str, Any]]) -> Optional[bytes]:
    """Settings as a JSON object. Values that JSON lacks, such as dtypes and NaN, become text."""
    if not settings:
        return None
    if not hasattr(settings, "keys"):
        raise TypeError(f"settings are a dictionary, not {type(settings).__name__}")

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {str(k): plain(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(v) for v in value]
        if value is None or isinstance(value, (bool, int, str)):
            return value
        return value if isinstance(value, float) and math.isfinite(value) else str(value)
    return n.text(json.dumps(plain(dict(settings))))


class Session:
    """The sensors, the sampler and the database of this process.

    power: list of sources as in `perjoule run --power` (default PERJOULE_POWER, else "auto").
    database: a file, or "none" to store nothing (default PERJOULE_DB, else the user's own).
    interval_ms: sampling interval (default each source's own).
    baseline_seconds: how long idle power is measured before the first run; 0: not at all.
    share_rule: how concurrent runs share the machine's energy: "equal", or "weight" (see
    Run.set_weight).
    """

    def __init__(
        self,
        power: Optional[str] = None,
        database: Union[str, "os.PathLike[str]", None] = None,
        interval_ms: Optional[float] = None,
        baseline_seconds: float = 1.0,
        share_rule: Optional[str] = None,
    ) -> None:
        self._handle: Optional[Handle] = None
        self._native = n.library()
        self.power = power or os.environ.get("PERJOULE_POWER") or None
        self.database = os.fspath(database) if database is not None else None
        options = n.SessionOptions(
            power=n.text(self.power),
            interval_ns=int((interval_ms or 0) * 1e6),
            database=n.text(self.database),
            baseline_seconds=baseline_seconds if baseline_seconds > 0 else -1.0,
            share_rule=n.text(share_rule),
        )
        handle, error = c.c_void_p(), n.Error()
        n.check(self._native.pj_session_open(c.byref(options), c.byref(handle), c.byref(error)), error)
        self._handle = handle
        self._runs: Set[Run] = set()
        self._lock = threading.Lock()
        self._ending: Dict[Run, int] = {}  # runs whose end is in progress, and the thread that ends each
        self._ended = threading.Condition(self._lock)
        self._before_close: List[weakref.WeakMethod[Any]] = []
        _open_sessions.add(self)

    def run(
        self,
        prompt: Optional[str] = None,
        model_name: Optional[str] = None,
        model_path: Optional[str] = None,
        engine: Optional[str] = None,
        experiment_name: Optional[str] = None,
        tags: Optional[Iterable[str]] = (),
        depth: str = "module",
        batch_size: int = 1,
        settings: Optional[Mapping[str, Any]] = None,
        weight: float = 1.0,
    ) -> "Run":
        """Begins a run. Used with `with`, it ends when the block does, and fails when that raises."""
        if depth not in n.DEPTHS:
            raise ValueError(f"depth is one of {', '.join(n.DEPTHS)}, not {depth!r}")
        if batch_size < 1:
            raise ValueError(f"batch_size is 1 or more, not {batch_size}")
        words = [n.text(t) for t in ([tags] if isinstance(tags, str) else tags or ()) if t is not None]
        options = n.RunOptions(
            prompt=n.text(prompt),
            model_name=n.text(model_name),
            model_path=n.text(model_path),
            engine=n.text(engine),
            experiment_name=n.text(experiment_name),
            tags=(c.c_char_p * (len(words) + 1))(*words, None),
            depth=n.DEPTHS[depth],
            batch_size=batch_size,
            settings_json=_settings_text(settings),
            weight=weight,
        )
        handle, error = c.c_void_p(), n.Error()
        n.check(self._native.pj_run_begin(self._open(), c.byref(options), c.byref(handle), c.byref(error)), error)
        run = Run(self, handle, depth)
        with self._lock:
            self._runs.add(run)
        return run

    def window(self) -> "OpenWindow":
        """Begins to measure the machine without recording a run; `end()` returns the energy. Windows may overlap."""
        handle, error = c.c_void_p(), n.Error()
        n.check(self._native.pj_window_begin(self._open(), c.byref(handle), c.byref(error)), error)
        return OpenWindow(self, handle)

    def _open(self) -> Handle:
        if self._handle is None:
            raise RuntimeError("the session is closed, or a fork left it in the parent process: open one in the child")
        return self._handle

    def before_close(self, action: Callable[[], Any]) -> None:
        """Lets the recorder that owns `action`, a method, end its runs when the session is closed. It is not kept alive."""
        self._before_close.append(weakref.WeakMethod(action))

    def close(self) -> None:
        """Closes the session when the runs that other threads are ending are stored; open runs are stored as
        interrupted."""
        while self._before_close:
            action = self._before_close.pop()()
            if action is not None:
                action()
        with self._ended:
            while any(thread != threading.get_ident() for thread in self._ending.values()):
                self._ended.wait()
            handle, self._handle = self._handle, None
            for run in self._runs:
                run._handle = None
            self._runs.clear()
        if handle is not None:
            self._native.pj_session_close(handle)

    def _forget(self) -> None:
        """In a forked child: the library's threads and the database belong to the parent."""
        self._handle, self._lock = None, threading.Lock()
        self._ended = threading.Condition(self._lock)
        self._before_close.clear()
        self._ending.clear()
        for run in self._runs:
            run._handle = None
        self._runs.clear()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()


class OpenWindow:
    """An open window; made by Session.window."""

    def __init__(self, session: Session, handle: Handle) -> None:
        self._session = session
        self._handle: Optional[Handle] = handle

    def end(self) -> WindowResult:
        handle, self._handle = self._handle, None
        if handle is None or self._session._handle is None:
            raise RuntimeError("the window is over")
        result, error = n.WindowResult(), n.Error()
        n.check(self._session._native.pj_window_end(handle, c.byref(result), c.byref(error)), error)
        if result.energy_source == 0 and result.rail_count == 0:
            warn_unavailable()
        if result.warning_code and result.warning_code not in _contradicted:
            _contradicted.add(result.warning_code)
            warn(result.warning.decode(), SensorsContradict)
        return _read_window(result)

    def discard(self) -> None:
        """Ends the window without waiting for its energy."""
        handle, self._handle = self._handle, None
        if handle is not None and self._session._handle is not None:
            self._session._native.pj_window_end(handle, None, None)


class _Span:
    """One span of a run as a context manager."""

    __slots__ = ("run", "kind", "id", "text")

    def __init__(self, run: "Run", kind: int, id: int, text: Optional[Tuple[int, int, bytes]] = None) -> None:
        self.run, self.kind, self.id, self.text = run, kind, id, text

    def __enter__(self) -> "_Span":
        lane = self.run.lane()
        self.run._native.pj_span_begin(lane, self.kind, self.id)
        return self

    def __exit__(self, *exc: Any) -> None:
        lane, native = self.run.lane(), self.run._native
        if self.text is not None:
            sequence, token_id, words = self.text
            native.pj_token_text(lane, sequence, token_id, words, len(words))
        native.pj_span_end(lane, None)


class Run:
    """One recorded inference; made by Session.run."""

    def __init__(self, session: Session, handle: Handle, depth: str) -> None:
        self._session, self._native = session, session._native
        self._handle: Optional[Handle] = handle
        self._lanes = threading.local()
        self._names: Dict[str, int] = {}
        self.depth = depth
        self.id: str = self._native.pj_run_id(handle).decode()
        self.result: Optional[Result] = None

    # ---- spans as context managers ----

    def phase(self, name: str) -> _Span:
        """A phase: idle, pre_inference, prefill, decode or post_inference."""
        if name not in n.PHASES:
            raise ValueError(f"a phase is one of {', '.join(n.PHASES)}, not {name!r}")
        return _Span(self, n.PHASE, n.PHASES.index(name))

    def section(self, name: str) -> _Span:
        return _Span(self, n.SECTION, self.name(name))

    def token(self, position: int, text: Optional[str] = None, token_id: int = -1, sequence: int = 0) -> _Span:
        """One generated position; the prompt's prefill is position 0."""
        if position < 0:
            raise ValueError(f"a position is 0 or more, not {position}")
        words = None if text is None and token_id < 0 else (sequence, token_id, n.text(text or "") or b"")
        return _Span(self, n.TOKEN, position, words)

    def layer(self, index: int) -> _Span:
        return _Span(self, n.LAYER, index)

    def component(self, name: str) -> _Span:
        return _Span(self, n.COMPONENT, self.name(name))

    def operation(self, name: str) -> _Span:
        return _Span(self, n.OPERATION, self.name(name))

    # ---- many spans at once ----

    def add_spans(self, records: Union["array.array[int]", bytes], details: bytes = b"",
                  texts: Sequence[Tuple[int, int, int, Optional[str]]] = (), devices: Sequence[Tuple[int, int]] = ()) -> None:
        """Adds finished spans in one call: `records` is an array("q") or bytes of 32-byte records as
        pj_packed_span in perjoule.h says, `details` bytes of pj_span_detail, `texts` tuples (index of
        the span, sequence, token id, text) in the order of their spans, `devices` tuples (number,
        standard deviation of its times in ns)."""
        data = records if isinstance(records, array.array) else array.array("b", records)
        size = len(data) * data.itemsize
        if size % n.SPAN_BYTES or len(details) % n.DETAIL_BYTES:
            raise ValueError("records are of 32 bytes, details of 48")
        if not size:
            return
        listed = None
        if texts:
            words = [n.text(t[3] or "") or b"" for t in texts]
            listed = (n.Text * len(texts))(
                *(n.Text(t[0], t[1], t[2], len(w), w) for t, w in zip(texts, words))
            )
        batch = n.SpanBatch(
            spans=data.buffer_info()[0],
            span_count=size // n.SPAN_BYTES,
            details=c.cast(c.c_char_p(details), c.c_void_p) if details else None,
            detail_count=len(details) // n.DETAIL_BYTES,
            texts=listed,
            text_count=len(texts),
            devices=(n.PackedDevice * len(devices))(*(n.PackedDevice(number, 0, error) for number, error in devices)),
            device_count=len(devices),
        )
        error = n.Error()
        n.check(self._native.pj_spans_add(self.lane(), c.byref(batch), c.byref(error)), error)

    # ---- devices ----

    def declare_device(self, name: str, kind: str = "gpu", uuid: Optional[str] = None, pci: Optional[str] = None,
                       memory_bytes: int = 0, clock_mhz: float = 0, rail: Optional[str] = None) -> int:
        """Adds a device that computes; returns its number. One of the same UUID, else PCI address, else name is the same."""
        info = n.DeviceInfo(name=n.text(name), kind=n.text(kind), uuid=n.text(uuid), pci=n.text(pci),
                            memory_bytes=memory_bytes, clock_mhz=clock_mhz, rail=n.text(rail))
        number, error = c.c_uint32(), n.Error()
        n.check(self._native.pj_device_declare(self._open(), c.byref(info), c.byref(number), c.byref(error)), error)
        return number.value

    def begin_at(self, kind: int, id: int, ns: int) -> None:
        """Opens a span at a time that has passed."""
        self._native.pj_span_begin_at(self.lane(), kind, id, ns)

    def end_at(self, ns: int) -> None:
        self._native.pj_span_end_at(self.lane(), None, ns)

    def add_statistics_time(self, ns: int) -> None:
        """Time that the caller spent on statistics; it counts as profiling overhead of the run."""
        self._native.pj_statistics_time(self.lane(), ns)

    # ---- facts ----

    def name(self, text: str) -> int:
        """The id of a section's, component's or operation's name in this run."""
        found = self._names.get(text)
        if found is None:
            found = self._names[text] = int(self._native.pj_run_name(self._open(), n.text(text)))
        return found

    def describe(
        self,
        model_name: Optional[str] = None,
        model_path: Optional[str] = None,
        dtype: Optional[str] = None,
        device: Optional[str] = None,
        model: Optional[Mapping[str, Any]] = None,
        settings: Optional[Mapping[str, Any]] = None,
        threads: int = 0,
        layers: int = 0,
        level: Optional[str] = None,
        batch_rule: Optional[str] = None,
        scope: Optional[str] = None,
        batch_size: int = 0,
    ) -> None:
        """Sets facts of the model, as soon as they are known."""
        facts = n.RunFacts(
            model_name=n.text(model_name),
            model_path=n.text(model_path),
            dtype=n.text(dtype),
            isa=n.text(device),
            model_json=n.text(json.dumps(model)) if model else None,
            settings_json=_settings_text(settings),
            threads=threads,
            layer_count=layers,
            level=n.text(level),
            batch_rule=n.text(batch_rule),
            scope=n.text(scope),
            batch_size=batch_size,
        )
        error = n.Error()
        n.check(self._native.pj_run_describe(self._open(), c.byref(facts), c.byref(error)), error)

    def set_prompts(self, tokens: Sequence[int]) -> None:
        """Sets the number of prompt tokens of each sequence."""
        if any(t < 0 for t in tokens):
            raise ValueError(f"numbers of tokens are 0 or more, not {list(tokens)}")
        self._native.pj_run_set_prompts(self._open(), (c.c_uint32 * len(tokens))(*tokens), len(tokens))

    def set_weight(self, weight: float) -> None:
        """Sets the run's weight, for a session with share_rule="weight"."""
        error = n.Error()
        n.check(self._native.pj_run_set_weight(self._open(), weight, c.byref(error)), error)

    def set_tokens(self, input_tokens: int, output_tokens: Optional[int]) -> None:
        """`output_tokens` None: the run's token spans are passes that yield none, as a classifier's."""
        self._native.pj_run_set_tokens(self._open(), input_tokens, n.NO_TOKENS if output_tokens is None else output_tokens)

    # ---- the end ----

    def end(self, status: str = "completed") -> Result:
        """Attributes energy, stores the run and returns its result. `status`: completed, failed, cancelled or interrupted."""
        if status not in n.STATUSES[1:]:
            raise ValueError(f"a run ends as {', '.join(n.STATUSES[1:])}, not as {status!r}")
        return self._finish(lambda run, result, error: self._native.pj_run_end(
            run, n.STATUSES.index(status), result, error))

    def fail(self, reason: str) -> Result:
        """Ends a failed run, with the reason in one sentence."""
        return self._finish(lambda run, result, error: self._native.pj_run_fail(
            run, n.text(reason), result, error))

    def _finish(self, call: Callable[[Handle, Any, Any], int]) -> Result:
        session, result, error = self._session, n.RunResult(), n.Error()
        with session._lock:
            handle = self._open()
            session._ending[self] = threading.get_ident()
        try:
            status = call(handle, c.byref(result), c.byref(error))
        finally:
            with session._ended:
                self._handle = None
                session._runs.discard(self)
                session._ending.pop(self, None)
                session._ended.notify_all()
        try:
            self.result = _read_result(result)
        finally:
            self._native.pj_result_fini(c.byref(result))
        n.check(status, error)
        if self.result.energy_source == "unavailable" and self._session.power != "none":
            self._warn_unavailable(self.result)
        return self.result

    def _warn_unavailable(self, result: Result) -> None:
        if not result.summary.get("rails"):
            return warn_unavailable()
        reason = _ABSENT.get(str(result.summary.get("unavailable_reason")), "its sensors gave no usable reading")
        warn(f"the energy of a run is unavailable: {reason}", EnergyUnavailable)

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, kind: Any, exc: Any, trace: Any) -> None:
        if self._handle is None:
            return
        if kind is None:
            self.end()
        elif issubclass(kind, KeyboardInterrupt):
            self.end("cancelled")
        else:
            self.fail(f"{kind.__name__}: {exc}" if str(exc) else kind.__name__)

    def _open(self) -> Handle:
        if self._handle is None:
            raise RuntimeError("the run has ended")
        return self._handle

    def lane(self) -> Any:
        """This thread's recording lane, as the library's pointer."""
        lane = getattr(self._lanes, "lane", None)
        if lane is None:
            lane = self._lanes.lane = self._native.pj_run_lane(self._open())
        return lane


_open_sessions: "weakref.WeakSet[Session]" = weakref.WeakSet()


def _forget_sessions() -> None:
    global _default_lock
    _default_lock = threading.Lock()
    for session in list(_open_sessions):
        session._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_sessions)


# ---- the process-wide default session --------------------------------------------------

_default: Optional[Session] = None
_default_pid = 0
_default_lock = threading.Lock()


def default_session() -> Session:
    """The session that measure(), Window and the profiler share; closed at exit."""
    global _default, _default_pid
    with _default_lock:
        if _default is not None and _default_pid != os.getpid():
            _default = None
        if _default is None or _default._handle is None:
            _default, _default_pid = Session(), os.getpid()
            atexit.register(_close_default)
        return _default


def _close_default() -> None:
    global _default
    if _default is not None and _default_pid == os.getpid():
        _default.close()
    _default = None
