"""Statistics of component outputs, computed on the device and copied to the host once per token.

The figures are those of docs/measurement.md: mean magnitude, signed mean, population deviation, largest
magnitude, share below 0.01, counts of NaN and Inf. They cost about 40 us per component, so they are taken at
every k-th decode step only, and the run states how much time they took.
"""
from __future__ import annotations

import math
import struct
from typing import Any, List, NamedTuple, Optional, Tuple

from .session import clock_ns
from .work import UNKNOWN, Amount, Attention, Pass, Work, first_tensor

SPARSITY_TAU = 0.01
ROWS = 32  # rows of a prompt that are sampled, evenly spaced
FIELDS = 4  # of a record: begin, end, kind and name and device, layer and detail
DETAIL = struct.Struct("=ddfffffIII")  # pj_span_detail
AMOUNT, STATISTICS = struct.Struct("=dd"), struct.Struct("=fffffIII")  # of which it consists
NO_STATISTICS = (0, 0, 0, 0, 0, 0, 0, 0)


def rows_of(x: Any) -> Any:
    """At most ROWS evenly spaced rows of a tensor."""
    x = x.reshape(-1, x.shape[-1])
    return x if x.shape[0] <= ROWS else x[:: max(1, x.shape[0] // ROWS)][:ROWS]


class Gap(NamedTuple):
    """A detail of attention, whose work depends on what was read before."""

    number: int
    attention: Attention
    shape: Tuple[int, ...]
    size: int  # bytes of a value


class Look:
    """What is noted of the modules of one pass: their work if it is known `of` which pass, and statistics of the first `limit`
    components, None: of all."""

    def __init__(self, torch: Any, limit: Optional[int] = None, of: Optional[Pass] = None) -> None:
        self.torch, self.limit, self.of, self.spent_ns = torch, limit, of, 0
        self.amounts: List[Amount] = []  # of each detail
        self.gaps: List[Gap] = []
        self.figures: List[Tuple[int, Any]] = []  # detail, and its statistics
        self.first = 0  # details of the step before these

    def at(self, records: List[int], out: Any, inputs: Any = (), work: Optional[Work] = None, gap: Optional[int] = None) -> bool:
        """Notes the module that was recorded last; whether statistics were computed."""
        if work is not None and self.of is not None:
            if gap is not None and len(records) >= 8 and records[-6] == gap:
                values = first_tensor(inputs)
                if work.attention is not None and values is not None:
                    self.gaps.append(Gap(len(self.amounts), work.attention, tuple(values.shape), values.element_size()))
                # of two the second is the attention's output gate
                at = -5 if len(records) < 12 or records[-10] != gap else -9
                records[at] = records[at] & 0xFFFFFFFF | self._detail(work.of_gap(self.of, inputs)) << 32
            records[-1] = records[-1] & 0xFFFFFFFF | self._detail(work.of_call(inputs, out)) << 32
        return self._take_statistics(records, out)

    def _detail(self, amount: Amount) -> int:
        self.amounts.append(amount)
        return len(self.amounts)

    def _take_statistics(self, records: List[int], out: Any) -> bool:
        if self.limit is not None and len(self.figures) >= self.limit:
            return False
        begin = clock_ns()
        x = out[0] if isinstance(out, (tuple, list)) and out else out
        took = bool(self.torch.is_tensor(x) and x.is_floating_point() and x.dim() > 0 and x.numel())
        if took:
            number = records[-1] >> 32 or self._detail(UNKNOWN)
            records[-1] = records[-1] & 0xFFFFFFFF | number << 32
            self.figures.append((number - 1, self._figures(x.detach())))
        self.spent_ns += clock_ns() - begin
        return took

    def _figures(self, x: Any) -> Any:
        torch = self.torch
        bad = torch.stack([x.isnan().sum(), x.isinf().sum()]).float()
        x = rows_of(x).float()
        magnitude = x.abs()
        return torch.cat([
            torch.stack([magnitude.mean(), x.mean(), x.std(unbiased=False), magnitude.max(),
                         (magnitude < SPARSITY_TAU).float().mean()]), bad])

    def details(self) -> bytearray:
        """Packed details of the records, still without statistics."""
        return bytearray(b"".join([DETAIL.pack(*amount, *NO_STATISTICS) for amount in self.amounts]))

    def write_statistics(self, details: bytearray) -> None:
        """Completes the details of a step, with one transfer from the device."""
        if not self.figures:
            return
        begin = clock_ns()
        first = self.figures[0][1].device
        rows = self.torch.stack([f.to(first) for _, f in self.figures]).cpu().tolist()
        for (number, _), row in zip(self.figures, rows):
            STATISTICS.pack_into(details, (self.first + number) * DETAIL.size + AMOUNT.size, *row[:5], int(row[5]), int(row[6]), 1)
        self.figures = []
        self.spent_ns += clock_ns() - begin


def is_power_of_ten(number: int) -> bool:
    while number % 10 == 0 and number:
        number //= 10
    return number == 1


class Schedule:
    """Chooses the decode steps that get statistics. every=None chooses by cost: after timing a few components of one
    step, every k-th step is sampled, with k such that statistics take 1 % of the time; none, if k would exceed
    `RAREST`. Steps 1, 10, 100, ... are sampled whatever that costs, so that each run has some."""

    SHARE, RAREST, TRIAL, TRIED = 0.01, 64, 2, 4

    def __init__(self, every: Optional[int]) -> None:
        self.every, self.auto, self.count = every or 0, every is None, 0

    def wants(self, phase: str) -> bool:
        if phase == "prefill":
            return self.every == 1 and not self.auto
        self.count += 1
        if self.auto and (self.count == self.TRIAL or is_power_of_ten(self.count)):
            return True
        return self.every > 0 and self.count % self.every == 0

    @property
    def limit(self) -> Optional[int]:
        """How many components of this step are sampled; None: all."""
        return self.TRIED if self.auto and self.count == self.TRIAL else None

    def took(self, spent_ns: int, step_ns: int, components: int) -> None:
        """Records what the trial on a few components cost relative to the rest of the step."""
        if self.limit is None:
            return
        rest = max(1, step_ns - spent_ns)
        every = math.ceil(spent_ns * components / self.TRIED / (self.SHARE * rest))
        self.every = 0 if every > self.RAREST else max(1, every)
