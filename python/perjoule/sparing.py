"""Chooses the decode steps in which layers and their parts are timed, where a stamp is expensive.

A CUDA event costs the host as much as a launch (11 us have been seen), and a part needs two. Where the host's launches
limit the speed, that time is added to every token. So some steps time nothing but themselves, every m-th times its layers
and the few modules outside them, and every k-th also the parts of layers: m and k are to keep the mean cost of a step below
`LIMIT` times that of empty hooks on these modules. A short generation must show its layers and parts too: the first `FIRST`
steps time layers, and the first few intervals between parts are no longer than that. While wrappers have nothing to time
they are taken off.
"""
from __future__ import annotations

import math
from typing import Any, Tuple

from .names import Plan
from .recorder import BARE, LAYERS, PARTS, HostClock, is_outer
from .session import clock_ns

LIMIT = 1.3  # of what empty hooks cost: the goal is 1.4, and both are estimates
WRAPPED = 1.0  # what a part's wrapper costs without its stamps, of the cost of two empty hooks
WRAPPED_LAYER = 12.0  # that of a layer, whose code the layer before has driven out of the caches
PASS = 150  # what following a pass and handing its spans over costs, of the same
LAYERS_SHARE = 0.5  # of what a step may cost, that its layers take
RAREST_LAYERS, RAREST = 8, 128
FIRST, FEW = 16, 4  # so many intervals at the beginning are not longer than that many steps, and so many steps have layers
CALLS, TRIES = 8, 5
IN_A_PASS = 1.7  # what hooks cost between a model's kernels, of their cost in a loop that stays in the caches (python/bench/hooks.py)
COLD = 1.2  # the same of a stamp


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


def intervals(layers: int, others: int, parts: int, stamp_ns: float, hooks_ns: float, passed_by: float = 0) -> Tuple[int, int]:
    """The m and k for a model of so many layers, modules outside them, and parts of layers. `passed_by`: what a wrapper costs
    that is there but has nothing to time, of the cost of two empty hooks."""
    modules = layers + others + parts
    stamp_ns *= COLD
    # two stamps mark the ends of the pass and of the step
    bare = 2 * stamp_ns + (PASS + modules * passed_by) * hooks_ns
    # a layer begins where another ended; one stamp marks the first
    of_layers = (layers + 2 * others + 1) * stamp_ns + (layers + others) * (WRAPPED_LAYER - passed_by) * hooks_ns
    of_parts = 2 * parts * stamp_ns + parts * (WRAPPED - passed_by) * hooks_ns
    left = LIMIT * modules * hooks_ns - bare
    if of_layers + of_parts <= left:
        return 1, 1
    if left <= 0:
        return RAREST_LAYERS, RAREST
    m = min(RAREST_LAYERS, math.ceil(of_layers / (LAYERS_SHARE * left)))
    left -= of_layers / m
    k = math.ceil(of_parts / left) if left > 0 else RAREST
    return m, min(RAREST, m * math.ceil(k / m))


class PartSteps:
    """How much of each pass is timed: everything in prefill, in the first decode step, and from there in every k-th;
    layers in the first steps and in every m-th after one with parts."""

    def __init__(self, every: int = 1, layers_every: int = 1) -> None:
        self.every, self.layers_every = every, layers_every
        self.omitted = self.bare = 0  # steps without parts of layers, and of these the ones without layers
        self._timed = self._since = self._steps = 0  # steps with parts, those since the last of them, and all

    @classmethod
    def for_clock(cls, torch: Any, plan: Plan, clock: HostClock, passed_by: float = 0) -> PartSteps:
        stamp_ns = clock.cost_ns()
        if not stamp_ns:
            return cls()
        others = sum(map(is_outer, plan.parts))
        parts = sum(part.layer >= 0 for part in plan.parts)  # an encoder is not called in decode
        m, k = intervals(len(plan.layers), others, parts, stamp_ns, empty_hooks_ns(torch), passed_by)
        return cls(k, m)

    def wants(self, phase: str, whole: bool = False) -> int:
        """BARE, LAYERS or PARTS; `whole`: PARTS anyway, for the sake of something else."""
        if phase == "prefill":
            return PARTS
        self._since, self._steps = self._since + 1, self._steps + 1
        interval = min(self.every, FIRST) if self._timed <= FEW else self.every
        if whole or not self._timed or self._since >= interval:
            self._timed, self._since = self._timed + 1, 0
            return PARTS
        self.omitted += 1
        if self._steps <= FIRST or self._since % self.layers_every == 0:
            return LAYERS
        self.bare += 1
        return BARE
