"""Records a server with continuous batching, from its reports of each step and each finished request.

A run is a period with requests in flight; each step of the engine is a token of the run, and each request a sequence.
Which requests took part in a step is known when they finish (their times of prefill and decode), so steps
are kept until the run ends. A step's energy is divided by tokens: each prompt token that was computed and each
generated token weigh the same. A step that did both is recorded as two spans, of prefill and of decode, whose
lengths are in that proportion. What a request gets is allocated, never measured. Independent of any particular server.
"""
from __future__ import annotations

import array
import threading
from dataclasses import asdict, dataclass
from queue import Queue
from typing import Any, Callable, List, Optional, Tuple

from . import _native as n
from .session import Result, Run, Session, clock_ns, warn

NOWHERE = 0xFFFFFFFF  # in no layer, without detail
Text = Tuple[int, int, int, str]  # fields: index of the span, sequence, token id, text
MAX_STEPS = 4096  # longest run; a server that is never idle starts a new one then


@dataclass
class Step:
    """One iteration of the engine."""

    begin_ns: int
    end_ns: int
    prompt_tokens: int  # computed in this step; cached ones cost nothing
    new_tokens: int


@dataclass
class Request:
    """A finished request; seconds are its own."""

    id: str
    reason: str
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    queued: float
    prefill: float
    decode: float
    end_ns: int = 0  # time of its last token, on this process's clock

    @property
    def first_token_ns(self) -> int:
        return self.end_ns - int(self.decode * 1e9)

    @property
    def begin_ns(self) -> int:
        return self.first_token_ns - int(self.prefill * 1e9)

    @property
    def computed_tokens(self) -> int:
        return max(1, self.prompt_tokens - self.cached_tokens)


class ServingRecorder:
    """The runs of one engine. Ending a run waits for the sensors, so it happens on a thread of its own."""

    def __init__(self, session: Session, model_name: Optional[str] = None, engine: str = "vllm",
                 report: Optional[Callable[[Result], Any]] = None, max_steps: int = MAX_STEPS):
        self._session, self._model_name, self._engine = session, model_name, engine
        self._report, self._max_steps = report, max_steps
        self._run: Optional[Run] = None
        self._steps: List[Step] = []
        self._requests: List[Request] = []
        self._last_ns = 0
        self._drained = False  # no request is left: a step reported now belongs to an aborted one
        self._lock = threading.Lock()
        self._ending: Queue[Optional[Run]] = Queue()
        self._thread: Optional[threading.Thread] = None
        self.results: List[Result] = []
        session.before_close(self.close)

    def arrived(self) -> None:
        """A request arrived: it belongs to the open run, or to a new one."""
        with self._lock:
            self._drained = False
            if self._run is None:
                self._begin()

    def drained(self) -> None:
        """The last request was aborted: perhaps no further step will come to end the run."""
        with self._lock:
            self._drained = True
            self._end()

    def stepped(self, prompt_tokens: int, new_tokens: int, finished: List[Request], in_flight: int) -> None:
        """Called after each step of the engine; `in_flight` counts requests running or waiting."""
        now = clock_ns()
        with self._lock:
            if self._run is None:
                if not (prompt_tokens or new_tokens or finished) or (self._drained and not finished):
                    return
                self._begin()  # no arrival was reported, so the start of the first step is unknown
            elif prompt_tokens or new_tokens:
                self._steps.append(Step(self._last_ns, now, prompt_tokens, new_tokens))
            self._last_ns = now
            for request in finished:
                request.end_ns = now
                self._requests.append(request)
            if (finished and not in_flight) or len(self._steps) >= self._max_steps:
                self._end()
                if in_flight:
                    self._begin()

    def close(self) -> None:
        """Ends the open run and waits until all runs are stored."""
        with self._lock:
            run = self._take()
            thread, self._thread = self._thread, None
        if thread is not None:
            self._ending.put(None)
            thread.join()
        if run is not None:  # in this thread, because an interpreter that is shutting down starts no other
            self._finish(run)

    # ---- one run ----

    def _begin(self) -> None:
        self._run = self._session.run(model_name=self._model_name, engine=self._engine, depth="off")
        self._steps, self._requests = [], []
        self._last_ns = clock_ns()

    def _take(self) -> Optional[Run]:
        """The open run with its steps and requests, for which only the energy is outstanding."""
        run, self._run = self._run, None
        if run is not None:
            self._hand_over(run)
        return run

    def _end(self) -> None:
        run = self._take()
        if run is None:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._finish_all, name="perjoule", daemon=True)
            self._thread.start()
        self._ending.put(run)

    def _hand_over(self, run: Run) -> None:
        spans, texts = spans_of(self._steps, self._requests)
        if spans:
            run.add_spans(spans, texts=texts)
        told = [{key: value for key, value in asdict(r).items() if key != "end_ns"} for r in self._requests]
        run.describe(settings={"requests": told, "allocation_rule": "tokens"}, level="coarse", batch_rule="tokens",
                     scope="machine")
        run.set_prompts([r.computed_tokens for r in self._requests] + [1])
        run.set_tokens(sum(s.prompt_tokens for s in self._steps), sum(s.new_tokens for s in self._steps))

    def _finish_all(self) -> None:
        for run in iter(self._ending.get, None):
            self._finish(run)

    def _finish(self, run: Run) -> None:
        try:
            result = run.end()
        except Exception as e:  # this run is lost, not those that follow
            return warn(f"a run of {self._engine} was not stored: {e}", RuntimeWarning)
        self.results.append(result)
        if self._report is not None:
            self._report(result)


def _members(step: Step, requests: List[Request]) -> Tuple[List[int], List[int]]:
    """The sequences for which the step computed prompt tokens, and those for which it generated tokens."""
    middle = (step.begin_ns + step.end_ns) // 2  # the server's timestamps differ slightly from ours
    prefill: List[int] = []
    decode: List[int] = []
    for sequence, r in enumerate(requests):
        if r.begin_ns < middle <= r.end_ns:
            (prefill if middle <= r.first_token_ns else decode).append(sequence)
    return prefill, decode


def spans_of(steps: List[Step], requests: List[Request]) -> Tuple[array.array[int], List[Text]]:
    """Packed spans of phases and tokens, and the texts that name the sequences sharing them. The sequence after the
    last request's stands for all requests that were unfinished or aborted when the run ended."""
    spans: array.array[int] = array.array("q")
    texts: List[Text] = []
    other, position = len(requests), 0
    for step in steps:
        prefill, decode = _members(step, requests)
        # the pass that completes a prompt also yields a token; it counts as prefill
        decoded = max(0, step.new_tokens - len(prefill)) if step.prompt_tokens else step.new_tokens
        unknown = [other] * (decoded > len(decode))
        weights = ((n.PHASES.index("prefill"), step.prompt_tokens, prefill or [other]),
                   (n.PHASES.index("decode"), decoded, decode + unknown))
        total, begin = step.prompt_tokens + decoded, step.begin_ns
        for phase, tokens, members in weights:
            if not tokens:
                continue
            end = min(step.end_ns, begin + (step.end_ns - step.begin_ns) * tokens // total)
            spans.extend((begin, end, phase | n.PHASE << 32, NOWHERE))
            texts += [(len(spans) // 4, sequence, -1, "") for sequence in members]
            spans.extend((begin, end, position | n.TOKEN << 32, NOWHERE))
            begin, position = end, position + 1
    return spans, texts
