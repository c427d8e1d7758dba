"""Counts the work on a watched model that is not traced: calls from a second thread while the first is in progress, and
hand-written loops that take turns over several texts.

Only one text at a time can be told apart into tokens and modules. Of the other calls the prompts and generated
tokens are counted, and the time during which only such calls were in progress becomes the phase decode. Every
method is called under the watch's lock.
"""
from __future__ import annotations

import threading
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

from .generating import Call, rows_of
from .loops import Text, Texts
from .session import clock_ns
from .steps import Request


class Worker:
    """One thread's untraced calls."""

    def __init__(self) -> None:
        self.text: Optional[Text] = None  # of a hand-written loop
        self.depth = 0  # calls of generate in progress
        self.passing: Optional[int] = None  # the entry point whose pass is in progress
        self.gain = 0  # tokens that the pass in progress yields


class Aside:
    """The untraced calls of one run. `times`: begin and end of the periods in which only such calls were in progress."""

    def __init__(self, texts: Texts) -> None:
        self.texts = texts
        self.times: List[Tuple[int, int]] = []
        self.prompts: List[int] = []
        self.output_tokens = self.requests = self.batch = 0
        self.workers: Dict[int, Worker] = {}
        self._active = 0
        self._since = 0

    def worker(self) -> Worker:
        return self.workers.setdefault(threading.get_ident(), Worker())

    # ---- generate ----

    def begin_generate(self, call: Call) -> Callable[[Any], None]:
        """Returns the function to call with what generate returned, or None when it raised."""
        worker = self.worker()
        if worker.depth or call.size is None and not call.nothing_given:
            return lambda out: None  # nested, or a wrapper whose inner call knows the prompts
        worker.depth += 1
        self._begin()

        def end(out: Any) -> None:
            worker.depth -= 1
            self._end()
            rows = rows_of(out) or []
            lengths = call.lengths() if call.size else [1] * len(rows)
            self.prompts += lengths
            self.batch = max(self.batch, len(lengths))
            self.requests += 1
            self.output_tokens += sum(call.new_tokens(rows, call.size[1] if call.size else 1))
        return end

    # ---- passes of a hand-written loop ----

    def begin_pass(self, number: int, rows: int, query: int, cached: int, cache: Any, ids: Any) -> None:
        worker = self.worker()
        if worker.depth or worker.passing is not None and number > worker.passing:
            return
        text = self.texts.find(cache, cached, query, ids)
        if text is None:
            text = self.texts.begin(Request())
            self.prompts += [cached + query] * rows
            self.requests += 1
        self.texts.read(text, cache, cached, query, ids)
        worker.text, request = text, text.request
        before, added = request.yielded, request.added
        request.begin_pass(cached, query)
        worker.gain = (request.yielded - before) * rows
        self.batch = max(self.batch, rows)
        if request.added != added:
            self.prompts += [request.added - added] * rows
        if worker.passing is None:
            self._begin()
        worker.passing = number

    def end_pass(self, number: int, cache: Any) -> None:
        worker = self.workers.get(threading.get_ident())
        if worker is None or worker.passing != number:
            return
        worker.passing = None
        self.texts.returned(worker.text, cache)
        self.output_tokens += worker.gain
        self._end()

    # ---- continuous batching ----

    def begin_packed(self, number: int) -> None:
        """A pass over several texts at once, whose tokens only their `generate_batch` tells."""
        worker = self.worker()
        if worker.passing is None:
            self._begin()
        worker.text, worker.passing, worker.gain = None, number, 0

    def end_batch(self, outputs: Iterable[Any]) -> None:
        """What `generate_batch` returned, one of each request."""
        found = [out for out in outputs if hasattr(out, "prompt_ids") and hasattr(out, "generated_tokens")]
        self.prompts += [len(out.prompt_ids) for out in found]
        self.output_tokens += sum(len(out.generated_tokens) for out in found)
        self.requests += len(found)
        self.batch = max(self.batch, len(found))

    # ---- time ----

    def _begin(self) -> None:
        if not self._active:
            self._since = clock_ns()
        self._active += 1

    def _end(self) -> None:
        self._active -= 1
        if not self._active:
            self._add(clock_ns())

    def _add(self, now: int) -> None:
        if self._since < now:
            self.times.append((self._since, now))
        self._since = now

    def traced_until(self, now: int) -> None:
        """The traced request has ended: its phases cover the time before."""
        self._since = max(self._since, now)

    def finish(self) -> None:
        if self._active:
            self._active = 0
            self._add(clock_ns())
