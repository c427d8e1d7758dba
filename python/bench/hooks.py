"""The overhead of recording: a decode step with the profiler, without hooks, and with empty hooks.

    python hooks.py [--layers 32] [--step 50] [--hidden N] [--rounds 60] [--event US] [--whole]

Prints microseconds per module and step, the ratio to torch's empty hooks on the same modules, and the share of
a step. The model is as wide as makes its step take --step milliseconds on this machine, unless --hidden gives the width:
a cost scaled from a step of another length is not the same, because a longer step leaves less of the profiler in the
caches. Each round runs one step of each kind in rotating order, so that a slowdown of the machine affects all three
alike; the figures are medians of the differences within a round, in CPU time.

--event US measures what a CUDA device's clock costs where an event takes the host so many microseconds: the model computes
on the CPU, events are those of the stand-in of the tests. Steps that time nothing inside, layers, and their parts are then timed
apart and weighted as in a long generation; the figures are lower deciles, because other programs can only slow a step.

--whole measures what a user pays instead: wall-clock and CPU time of a token of `generate`, with and without a run
whose sensors are sampled (simulated ones) and which is stored. Needs torch and transformers.
"""
import argparse
import contextlib
import inspect
import math
import os
import statistics
import sys
import tempfile
import time
import unittest.mock
import warnings

import torch
import transformers

import perjoule
from perjoule.devices import CudaClock
from perjoule.names import plan_of
from perjoule.recorder import BARE, LAYERS, PARTS
from perjoule.watch import Watch


CACHE = next(name for name in ("cache", "past_key_values")  # as this version of transformers calls it
             if name in inspect.signature(transformers.LlamaForCausalLM.forward).parameters)


def make(layers, hidden):
    config = transformers.LlamaConfig(
        vocab_size=1024, hidden_size=hidden, intermediate_size=3 * hidden, num_hidden_layers=layers,
        num_attention_heads=8, num_key_value_heads=8, max_position_embeddings=4096)
    return transformers.LlamaForCausalLM(config).eval()


class Loop:
    """A decode loop with each step timed."""

    def __init__(self, model):
        self.model, self.cache, self.ids = model, None, torch.arange(16)[None]

    def step(self):
        """CPU seconds of a step, which exclude what other programs do meanwhile."""
        with torch.no_grad():
            begin = time.thread_time()
            out = self.model(self.ids, use_cache=True, **{CACHE: self.cache})
            self.cache, self.ids = out[CACHE], out.logits[:, -1:].argmax(-1)
            return time.thread_time() - begin


class Nothing:
    def attach(self):
        pass

    detach = attach


class EmptyHooks:
    def __init__(self, plan):
        self.modules = [block for _, block in plan.layers] + [part.module for part in plan.parts]
        self.handles = []

    def attach(self):
        for module in self.modules:
            self.handles.append(module.register_forward_pre_hook(lambda module, args: None))
            self.handles.append(module.register_forward_hook(lambda module, args, out: None))

    def detach(self):
        while self.handles:
            self.handles.pop().remove()


def timed_step(loop, what):
    what.attach()
    try:
        loop.step()  # warms the caches with this kind's code and objects, as in a real run
        return loop.step()
    finally:
        what.detach()


def measure(loop, kinds, rounds):
    """Median of a plain step, and of each kind's overhead."""
    names, plain, added = list(kinds), [], {name: [] for name in kinds}
    for i in range(rounds):
        order = names[i % len(names):] + names[:i % len(names)]
        took = {name: timed_step(loop, kinds[name]) for name in order}
        plain.append(took["nothing"])
        for name in names:
            added[name].append(took[name] - took["nothing"])
    return statistics.median(plain), {name: statistics.median(values) for name, values in added.items()}


def measure_events(loop, hooks, watch, rounds):
    """Lower deciles of a plain step, and of what empty hooks and steps that time so much add to it."""
    kinds = ((Nothing(), None), (hooks, None), (watch, BARE), (watch, LAYERS), (watch, PARTS))
    found = [[] for _ in kinds]
    for _ in range(rounds):
        for (what, level), times in zip(kinds, found):
            what.attach()
            if level is not None:
                watch.part_steps.wants = lambda phase, whole, level=level: level
            loop.step()
            times += [loop.step() for _ in range(8)]
            what.detach()
    base, *added = (statistics.quantiles(times, n=10)[0] for times in found)
    return base, [each - base for each in added]


def of_step(layers, milliseconds):
    """A model whose step takes about so long: the time of its matrices grows with the square of the width."""
    hidden = 448
    for _ in range(2):
        loop = Loop(make(layers, hidden))
        loop.step()
        took = statistics.median(loop.step() for _ in range(9)) * 1e3
        hidden = max(64, round(hidden * math.sqrt(milliseconds / took) / 32) * 32)
    return make(layers, hidden)


class Times(transformers.LogitsProcessor):
    """Notes the times of each token."""

    def __init__(self):
        self.times = []

    def __call__(self, ids, scores):
        self.times.append((time.perf_counter(), time.process_time()))
        return scores

    def per_token(self):
        pairs = list(zip(self.times[2:], self.times[3:]))  # the first steps are slower
        return [statistics.median(b[i] - a[i] for a, b in pairs) for i in (0, 1)]


def generated(model):
    times = Times()
    model.generate(torch.arange(16)[None], max_new_tokens=25, do_sample=False, logits_processor=[times], pad_token_id=0)
    return times.per_token()


def measure_whole(model, rounds):
    def recorded(profiler):
        with profiler.run():
            return generated(model)

    warnings.simplefilter("ignore", perjoule.EnergyUnavailable)
    with tempfile.TemporaryDirectory() as folder, perjoule.Session(
            power="sim", database=os.path.join(folder, "runs.db")) as session:
        profiler = perjoule.InferencePipelineProfiler(model=model, session=session)
        recorded(profiler)
        found = []
        for i in range(rounds):
            kinds = [generated, lambda _: recorded(profiler)]
            took = [kind(model) for kind in (kinds if i % 2 else reversed(kinds))]
            plain, profiled = took if i % 2 else reversed(took)
            found.append((*plain, profiled[0] - plain[0], profiled[1] - plain[1]))
    wall, cpu, more_wall, more_cpu = (1e3 * statistics.median(column) for column in zip(*found))
    print(f"a token of {wall:.2f} ms: the run adds {more_wall:.2f} ms ({100 * more_wall / wall:.2f} %) of wall-clock time, "
          f"{more_cpu:.2f} ms ({100 * more_cpu / cpu:.2f} %) of CPU time")


def with_events(torch, event_us):
    """torch with a CUDA device whose events cost the host so much, and which has nothing to compute."""
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "tests"))
    from standin_cuda import Device, Event, Machine

    class Timed(Event):
        """Takes so long altogether, with what the stand-in does itself."""

        def record(self, stream=None):
            end = time.thread_time_ns() + int(1000 * event_us)
            super().record(stream)
            while time.thread_time_ns() < end:
                pass
            self.machine.now = time.monotonic_ns()

    machine = Machine(event_ns=0)
    standin = machine.torch(compiler=torch.compiler, is_tensor=torch.is_tensor)
    standin.cuda.Event = lambda enable_timing=False: Timed(machine, enable_timing)
    standin.nn = torch.nn
    clocks = lambda torch, model: (CudaClock(standin, Device("cuda:0")), "cuda")  # noqa: E731
    return standin, unittest.mock.patch("perjoule.watch.clock_for", clocks)


def main():
    parser = argparse.ArgumentParser()
    for name, default in (("layers", 32), ("step", 50), ("hidden", None), ("rounds", 60)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--event", type=float)
    parser.add_argument("--whole", action="store_true")
    o = parser.parse_args()
    torch.set_num_threads(1)
    model = make(o.layers, o.hidden) if o.hidden else of_step(o.layers, o.step)
    if o.whole:
        return measure_whole(model, o.rounds)
    plan = plan_of(model)
    modules = len(plan.layers) + len(plan.parts)
    loop = Loop(model)
    loop.step()
    with perjoule.Session(power="none", database="none") as session, session.run(depth="module") as run:
        known, patch = with_events(torch, o.event) if o.event else (torch, contextlib.nullcontext())
        with patch:
            watch = Watch(known, run, model, plan, statistics_every=0)
        if o.event:
            base, (hooks, bare, layers, parts) = measure_events(loop, EmptyHooks(plan), watch, o.rounds)
            watch.attach()
            every, layers_every = watch.part_steps.every, watch.part_steps.layers_every
            cost = {"empty hooks": hooks, "bare steps": bare, "layers": layers, "parts": parts,
                    "profiler": bare + (layers - bare) / layers_every + (parts - layers) / every}
        else:
            base, cost = measure(loop, {"nothing": Nothing(), "empty hooks": EmptyHooks(plan), "profiler": watch}, o.rounds)
        watch.finish()
    print(f"{modules} modules, a step of {base * 1e3:.2f} ms"
          + (f"; layers timed in every {layers_every}th step, their parts in every {every}th" if o.event else ""))
    for name in cost:
        if name != "nothing":
            print(f"{name:13} {cost[name] / modules * 1e6:6.2f} us per module and step, {100 * cost[name] / base:5.2f} % of the step")
    print(f"ratio         {cost['profiler'] / cost['empty hooks']:.2f}")


if __name__ == "__main__":
    main()
