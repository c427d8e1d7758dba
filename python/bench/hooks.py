"""What recording costs: a step of a model with the profiler, against no hooks and against empty ones.

    python hooks.py [--layers 32] [--hidden 448] [--steps 40]

Prints microseconds per module and step, the ratio to torch's empty hooks on the same modules, and the share of
a step, in processor time; the three take turns, and of each the fastest tenth counts. Needs torch and transformers.
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


def loop(model, steps):
    """Seconds of processor time of each decode step: what other programs do meanwhile is not in it."""
    cache, ids, took = None, torch.arange(16)[None], []
    with torch.no_grad():
        for i in range(steps + 1):
            begin = time.thread_time()
            out = model(ids, past_key_values=cache, use_cache=True)
            cache, ids = out.past_key_values, out.logits[:, -1:].argmax(-1)
            if i:
                took.append(time.thread_time() - begin)
    return took


def with_empty_hooks(model, plan, steps):
    handles = []
    for module in [block for _, block in plan.layers] + [part.module for part in plan.parts]:
        handles.append(module.register_forward_pre_hook(lambda module, args: None))
        handles.append(module.register_forward_hook(lambda module, args, out: None))
    try:
        return loop(model, steps)
    finally:
        for handle in handles:
            handle.remove()


def with_profiler(model, plan, steps, session):
    with session.run(depth="module") as run:
        watch = Watch(torch, run, model, plan, statistics_every=0)
        watch.attach()
        try:
            return loop(model, steps)
        finally:
            watch.finish()


def main():
    parser = argparse.ArgumentParser()
    for name, default in (("layers", 32), ("hidden", 448), ("steps", 40), ("rounds", 6)):
        parser.add_argument(f"--{name}", type=int, default=default)
    o = parser.parse_args()
    torch.set_num_threads(1)
    model = make(o.layers, o.hidden)
    plan = plan_of(model)
    modules = len(plan.layers) + len(plan.parts)
    took = {"without": [], "empty hooks": [], "profiler": []}
    with perjoule.Session(power="none", database="none") as session:
        loop(model, o.steps)  # warm
        for _ in range(o.rounds):
            took["without"] += loop(model, o.steps)
            took["empty hooks"] += with_empty_hooks(model, plan, o.steps)
            took["profiler"] += with_profiler(model, plan, o.steps, session)
    fast = {name: statistics.quantiles(times, n=10)[0] for name, times in took.items()}
    base = fast["without"]
    cost = {name: fast[name] - base for name in fast}
    print(f"{modules} modules, a step of {base * 1e3:.2f} ms")
    for name in ("empty hooks", "profiler"):
        print(f"{name:12} {cost[name] / modules * 1e6:6.2f} us per module and step, {100 * cost[name] / base:5.2f} % of the step, "
              f"{100 * cost[name] / 0.05:5.2f} % of 50 ms")
    print(f"ratio        {cost['profiler'] / cost['empty hooks']:.2f}")


if __name__ == "__main__":
    main()
