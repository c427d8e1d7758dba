"""Chooses the decode steps in which the parts of layers are timed, where a stamp is expensive.

A CUDA event costs the host as much as a launch (11 us have been seen), and a part needs two. Where the host's launches
limit the speed, that time is added to every token. So layers, and the few modules outside them, are timed in every step,
their parts in every k-th: k is to keep the mean cost of a step below `LIMIT` times that of empty hooks on these modules.
A short generation must show its parts too, so the first few intervals are no longer than `FIRST`.
"""
from __future__ import annotations

import math
from typing import Any

from .names import Plan
from .recorder import HostClock, is_outer
from .session import clock_ns

LIMIT = 1.4  # of what empty hooks cost
WRAPPED = 1.0  # what a wrapper costs without its stamps, of the cost of two empty hooks
PASSED_BY = 0.25  # what a wrapper costs that does not time, of the same
PASS = 70  # what following a pass and handing its spans over costs, of the same
RAREST = 128
FIRST, FEW = 16, 4  # so many intervals at the beginning are not longer than that many steps
CALLS, TRIES = 8, 5
IN_A_PASS = 3.0  # what hooks cost between a model's kernels, of their cost in a loop that stays in the caches (bench: 3.6)


def _call_ns(module: Any) -> float:
    best = math.inf
    for _ in range(TRIES):
        begin = clock_ns()
        for _ in range(CALLS):
            module(None)
        best = min(best, (clock_ns() - begin) / CALLS)
    return best


def empty_hooks_ns(torch: Any) -> float:
    """What two empty hooks add to a module's call in a pass of a model."""
    module = torch.nn.Identity()
    plain = _call_ns(module)
    module.register_forward_pre_hook(lambda module, args: None)
    module.register_forward_hook(lambda module, args, out: None)
    return IN_A_PASS * max(_call_ns(module) - plain, 1.0)


def interval(layers: int, others: int, parts: int, stamp_ns: float, hooks_ns: float) -> int:
    """The k for a model of so many layers, modules outside them, and parts of layers."""
    modules = layers + others + parts
    limit = LIMIT * modules * hooks_ns
    # a layer begins where another ended; two stamps mark the ends of the pass and of the step, one the first layer
    sparse = (layers + 2 * others + 3) * stamp_ns + (PASS + (layers + others) * WRAPPED + parts * PASSED_BY) * hooks_ns
    full = sparse + parts * (2 * stamp_ns + (WRAPPED - PASSED_BY) * hooks_ns)
    if full <= limit:
        return 1
    return RAREST if sparse >= limit else min(RAREST, math.ceil((full - sparse) / (limit - sparse)))


class PartSteps:
    """Which passes time the parts of layers: every prefill, the first decode step, and from there every k-th."""

    def __init__(self, every: int = 1) -> None:
        self.every, self.omitted = every, 0
        self._timed = self._since = 0  # steps with parts, and those since the last of them

    @classmethod
    def for_clock(cls, torch: Any, plan: Plan, clock: HostClock) -> PartSteps:
        stamp_ns = clock.cost_ns()
        if not stamp_ns:
            return cls()
        others = sum(map(is_outer, plan.parts))
        return cls(interval(len(plan.layers), others, len(plan.parts) - others, stamp_ns, empty_hooks_ns(torch)))

    def wants(self, phase: str) -> bool:
        if phase == "prefill":
            return True
        self._since += 1
        interval = min(self.every, FIRST) if self._timed <= FEW else self.every
        wanted = not self._timed or self._since >= interval
        if wanted:
            self._timed, self._since = self._timed + 1, 0
        self.omitted += not wanted
        return wanted
