"""Statistics of component outputs, computed on the device and copied to the host once per token.

The figures are those of docs/measurement.md: mean magnitude, signed mean, population deviation, largest
magnitude, share below 0.01, counts of NaN and Inf. They cost about 40 us per component, so they are taken at
every k-th decode step only, and the run states how much time they took.
"""
from __future__ import annotations

import math
import struct
from typing import Any, List, Optional

from .session import clock_ns

SPARSITY_TAU = 0.01
ROWS = 32  # rows of a prompt that are sampled, evenly spaced
_DETAIL = struct.Struct("=ddfffffIII")


def rows_of(x: Any) -> Any:
    """At most ROWS evenly spaced rows of a tensor."""
    x = x.reshape(-1, x.shape[-1])
    return x if x.shape[0] <= ROWS else x[:: max(1, x.shape[0] // ROWS)][:ROWS]


class Look:
    """The statistics of one pass; if `limit` is given, of its first `limit` components only."""

    def __init__(self, torch: Any, limit: Optional[int] = None) -> None:
        self.torch, self.limit, self.spent_ns = torch, limit, 0
        self.figures: List[Any] = []

    def at(self, records: List[int], out: Any) -> None:
        """Computes statistics of the output of the most recently recorded module."""
        if self.limit is not None and len(self.figures) >= self.limit:
            return
        begin = clock_ns()
        x = out[0] if isinstance(out, (tuple, list)) and out else out
        if self.torch.is_tensor(x) and x.is_floating_point() and x.dim() > 0 and x.numel():
            self.figures.append(self._figures(x.detach()))
            records[-1] = records[-1] & 0xFFFFFFFF | len(self.figures) << 32
        self.spent_ns += clock_ns() - begin

    def _figures(self, x: Any) -> Any:
        torch = self.torch
        bad = torch.stack([x.isnan().sum(), x.isinf().sum()]).float()
        x = rows_of(x).float()
        magnitude = x.abs()
        return torch.cat([
            torch.stack([magnitude.mean(), x.mean(), x.std(unbiased=False), magnitude.max(),
                         (magnitude < SPARSITY_TAU).float().mean()]), bad])

    def details(self) -> bytes:
        """Packed pj_span_detail of every sampled output, fetched in one transfer."""
        if not self.figures:
            return b""
        begin = clock_ns()
        first = self.figures[0].device
        rows = self.torch.stack([f.to(first) for f in self.figures]).cpu().tolist()
        self.figures = []
        packed = b"".join(
            _DETAIL.pack(math.nan, math.nan, *row[:5], int(row[5]), int(row[6]), 1) for row in rows
        )
        self.spent_ns += clock_ns() - begin
        return packed


class Schedule:
    """Chooses the decode steps that get statistics. every=None chooses by cost: after timing a few components of one
    step, every k-th step is sampled, with k such that statistics take 1 % of the time; none, if k would exceed
    `RAREST`."""

    SHARE, RAREST, TRIAL, TRIED = 0.01, 64, 2, 4

    def __init__(self, every: Optional[int]) -> None:
        self.every, self.auto, self.count = every or 0, every is None, 0

    def wants(self, phase: str) -> bool:
        if phase == "prefill":
            return self.every == 1 and not self.auto
        self.count += 1
        if self.auto and self.count == self.TRIAL:
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
