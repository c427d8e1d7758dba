"""Records training as one run with a section for each step, from Lightning's and transformers' callbacks.

    trainer = transformers.Trainer(..., callbacks=[perjoule.trainer_callback()])
    trainer = lightning.Trainer(..., callbacks=[perjoule.lightning_callback()])

A step's energy is attributed when training ends, not while it goes on: waiting for a slow sensor after every
step would slow training down. `callback.result` is the run's result, `callback.joules_per_step` the mean.
In a hand-written training loop, use TrainingRecorder directly.
"""
from __future__ import annotations

import array
import importlib
from typing import Any, Iterable, Optional

from . import _native as n
from .devices import synchronise_devices
from .session import Result, Run, Session, clock_ns, default_session

SECTION = "train_step"
PHASE = "pre_inference"  # the phase of a run to which training steps belong
PENDING = 256  # steps passed to the library in one call
NOWHERE = 0xFFFFFFFF  # in no layer, without detail


class TrainingRecorder:
    """One training as a run, step by step.

    session: by default the process-wide one. synchronise: wait for torch's devices at both ends of a step, so that its
    time is that of the computation, not of the kernel launches; totals are right without it.
    """

    def __init__(self, session: Optional[Session] = None, tags: Iterable[str] = (),
                 experiment_name: Optional[str] = None, synchronise: bool = True):
        self._session, self._synchronise = session, synchronise
        self._tags, self._experiment_name = tags, experiment_name
        self._run: Optional[Run] = None
        self._spans = array.array("q")
        self._word = 0
        self._begun: Optional[int] = None
        self.steps = 0
        self.result: Optional[Result] = None

    def begin(self, model_name: Optional[str] = None) -> None:
        """Begins the run; a previous run that was not ended is stored as cancelled."""
        self.end("cancelled")
        self.steps, self.result, self._begun = 0, None, None
        session = self._session or default_session()
        self._run = session.run(model_name=model_name, engine="pytorch", depth="off", tags=self._tags,
                                experiment_name=self._experiment_name)
        self._word = self._run.name(SECTION) | n.SECTION << 32
        self._phase = self._run.phase(PHASE)
        self._phase.__enter__()

    def begin_step(self) -> None:
        if self._run is not None:
            self._begun = self._now()

    def end_step(self) -> None:
        if self._run is None or self._begun is None:
            return
        self._spans.extend((self._begun, self._now(), self._word, NOWHERE))
        self._begun = None
        self.steps += 1
        if len(self._spans) >= 4 * PENDING:
            self._hand_over()

    def end(self, status: str = "completed", reason: Optional[str] = None) -> Optional[Result]:
        """Ends the run, as failed if a reason is given. The result is kept in `result`."""
        run, self._run = self._run, None
        if run is None:
            return self.result
        try:
            self._hand_over(run)
            self._phase.__exit__()
        finally:
            self.result = run.fail(reason) if reason else run.end(status)
        return self.result

    @property
    def joules_per_step(self) -> Optional[float]:
        """Mean over the whole training, including time between steps; None: unavailable."""
        if self.result is None or self.result.joules is None or not self.steps:
            return None
        return self.result.joules / self.steps

    def _now(self) -> int:
        if self._synchronise:
            synchronise_devices()
        return clock_ns()

    def _hand_over(self, run: Optional[Run] = None) -> None:
        (run or self._run).add_spans(self._spans)  # type: ignore[union-attr]
        self._spans = array.array("q")


def _name_of(model: Any) -> Optional[str]:
    if model is None:
        return None
    path = getattr(getattr(model, "config", None), "_name_or_path", None)
    return (path or type(model).__name__).rstrip("/").rsplit("/", 1)[-1]


def trainer_callback(**options: Any) -> Any:
    """A transformers.TrainerCallback; options are TrainingRecorder's. Logs `energy_joules` at the end."""
    from transformers import TrainerCallback  # type: ignore[import-not-found,unused-ignore]

    class EnergyCallback(TrainerCallback):  # type: ignore[misc,unused-ignore]
        def __init__(self) -> None:
            self.recorder = TrainingRecorder(**options)

        result = property(lambda self: self.recorder.result)
        joules_per_step = property(lambda self: self.recorder.joules_per_step)

        def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            self.recorder.begin(_name_of(given.get("model")))

        def on_step_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            self.recorder.begin_step()

        def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            self.recorder.end_step()

        def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            result = self.recorder.end()
            if result is not None and result.joules is not None:
                state.log_history.append({"energy_joules": result.joules, "step": state.global_step})

    return EnergyCallback()


def _lightning() -> Any:
    """The Lightning package that the program uses, under either of its names."""
    try:
        return importlib.import_module("lightning.pytorch")
    except ImportError:
        return importlib.import_module("pytorch_lightning")


def lightning_callback(**options: Any) -> Any:
    """A Lightning callback; options are TrainingRecorder's. Steps are training batches."""
    class EnergyCallback(_lightning().Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.recorder = TrainingRecorder(**options)

        result = property(lambda self: self.recorder.result)
        joules_per_step = property(lambda self: self.recorder.joules_per_step)

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            self.recorder.begin(_name_of(pl_module))

        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            self.recorder.begin_step()

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            self.recorder.end_step()

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            self.recorder.end()

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            if isinstance(exception, KeyboardInterrupt):
                self.recorder.end("cancelled")
            else:
                self.recorder.end(reason=f"{type(exception).__name__}: {exception}")

    return EnergyCallback()
