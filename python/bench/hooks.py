"""What recording costs: a step of a model with the profiler, against no hooks and against empty ones.

    python hooks.py [--layers 32] [--hidden 448] [--rounds 60]

Prints microseconds per module and step, the ratio to torch's empty hooks on the same modules, and the share of
a step. Every round is one step of each kind, in an order that rotates, so that a slow moment of the machine meets all
three; the figures are medians of the differences within a round, in processor time. Needs torch and transformers.
"""
import argparse
import statistics
import time

import torch
import transformers

import perjoule
from perjoule.names import plan_of
from perjoule.watch import Watch


def make(layers, hidden):
    config = transformers.LlamaConfig(
        vocab_size=1024, hidden_size=hidden, intermediate_size=3 * hidden, num_hidden_layers=layers,
        num_attention_heads=8, num_key_value_heads=8, max_position_embeddings=4096)
    return transformers.LlamaForCausalLM(config).eval()


class Loop:
    """A decode loop, whose steps are timed one by one."""

    def __init__(self, model):
        self.model, self.cache, self.ids = model, None, torch.arange(16)[None]

    def step(self):
        """Seconds of processor time of a step: what other programs do meanwhile is not in it."""
        with torch.no_grad():
            begin = time.thread_time()
            out = self.model(self.ids, past_key_values=self.cache, use_cache=True)
            self.cache, self.ids = out.past_key_values, out.logits[:, -1:].argmax(-1)
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
        loop.step()  # the code and the objects of this kind are in the caches as they are in a run
        return loop.step()
    finally:
        what.detach()


def measure(loop, kinds, rounds):
    """Medians of a plain step, and of what each kind adds to it."""
    names, plain, added = list(kinds), [], {name: [] for name in kinds}
    for i in range(rounds):
        order = names[i % len(names):] + names[:i % len(names)]
        took = {name: timed_step(loop, kinds[name]) for name in order}
        plain.append(took["nothing"])
        for name in names:
            added[name].append(took[name] - took["nothing"])
    return statistics.median(plain), {name: statistics.median(values) for name, values in added.items()}


def main():
    parser = argparse.ArgumentParser()
    for name, default in (("layers", 32), ("hidden", 448), ("rounds", 60)):
        parser.add_argument(f"--{name}", type=int, default=default)
    o = parser.parse_args()
    torch.set_num_threads(1)
    model = make(o.layers, o.hidden)
    plan = plan_of(model)
    modules = len(plan.layers) + len(plan.parts)
    loop = Loop(model)
    loop.step()
    with perjoule.Session(power="none", database="none") as session, session.run(depth="module") as run:
        watch = Watch(torch, run, model, plan, statistics_every=0)
        kinds = {"nothing": Nothing(), "empty hooks": EmptyHooks(plan), "profiler": watch}
        base, cost = measure(loop, kinds, o.rounds)
        watch.finish()
    print(f"{modules} modules, a step of {base * 1e3:.2f} ms")
    for name in ("empty hooks", "profiler"):
        print(f"{name:12} {cost[name] / modules * 1e6:6.2f} us per module and step, {100 * cost[name] / base:5.2f} % of the "
              f"step, {100 * cost[name] / 0.05:5.2f} % of 50 ms")
    print(f"ratio        {cost['profiler'] / cost['empty hooks']:.2f}")


if __name__ == "__main__":
    main()
