#!/usr/bin/env python3
"""Trains the demo model on the packed corpus; one seed, one result.

The texts are joined as BOS text EOS and cut into windows of the context length. The
batch of a step depends on the seed and the step alone, so an interrupted training
that is resumed from its checkpoint goes on as if nothing had happened. The learning
rate warms up, stays, and falls linearly to zero over the last `DECAY` share of the
steps. Matrix products run in bfloat16, weights and optimiser state in float32.
"""

import argparse
import json
import math
import os
import pathlib
import time

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

from model import Llama

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 2048, "hidden_size": 192,
    "intermediate_size": 448, "num_hidden_layers": 5, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32,
    "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
    "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": True,
}
WARMUP, DECAY = 100, 0.35


def pack(path, tokenizer):
    """All texts of a file as one row of ids."""
    bos, eos = tokenizer.token_to_id("<s>"), tokenizer.token_to_id("</s>")
    texts = [json.loads(line) for line in path.open(encoding="utf-8")]
    ids = []
    for encoded in tokenizer.encode_batch(texts, add_special_tokens=False):
        ids += [bos, *encoded.ids, eos]
    return torch.tensor(ids, dtype=torch.int32)


def batch_of(data, step, args):
    """Windows of random places; a function of the seed and the step.

    Most texts are shorter than half the context, and attention is dear: windows are
    half as long and twice as many, but every eighth step trains all positions.
    """
    context = args.context if step % 8 == 0 else args.context // 2
    random = torch.Generator().manual_seed(args.seed * 1_000_003 + step)
    starts = torch.randint(len(data) - context - 1, (args.batch_tokens // context,), generator=random)
    windows = torch.stack([data[s: s + context + 1] for s in starts.tolist()]).long()
    return windows[:, :-1], windows[:, 1:]


def rate(step, args):
    decay_from = args.steps * (1 - DECAY)
    fall = min(1.0, (args.steps - step) / (args.steps - decay_from))
    return args.lr * min(1.0, (step + 1) / WARMUP) * fall


def loss_of(model, ids, targets):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(ids)
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


@torch.no_grad()
def held_out_loss(model, data, context, batch=8):
    """Mean loss over whole windows of the held-out texts."""
    count = (len(data) - 1) // context
    ids, targets = data[: count * context].view(count, context).long(), data[1: count * context + 1].view(count, context).long()
    total = sum(loss_of(model, ids[i: i + batch], targets[i: i + batch]).item() * len(ids[i: i + batch]) for i in range(0, count, batch))
    return total / count


def save(path, state):
    """Whole or not at all: written beside, then renamed."""
    partial = path.with_suffix(".partial")
    torch.save(state, partial)
    os.replace(partial, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("work"))
    parser.add_argument("--tokenizer", type=pathlib.Path, default=pathlib.Path("tokenizer.json"))
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--batch-tokens", type=int, default=2048)
    parser.add_argument("--context", type=int, default=CONFIG["max_position_embeddings"])
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--save-every", type=int, default=100)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # every output is written in full; filling costs 6 %
    tokenizer = Tokenizer.from_file(str(args.tokenizer))
    data, valid = pack(args.work / "train.jsonl", tokenizer), pack(args.work / "valid.jsonl", tokenizer)
    model = Llama(CONFIG)
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    optimiser = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}], lr=args.lr, betas=(0.9, 0.95))
    curve, first, seconds_before = [], 0, 0.0
    checkpoint = args.work / "checkpoint.pt"
    if checkpoint.exists():
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])
        curve, first, seconds_before = state["curve"], state["step"], state["seconds"]
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(data):,} tokens, from step {first}", flush=True)

    begin, running = time.monotonic(), []
    for step in range(first, args.steps):
        for group in optimiser.param_groups:
            group["lr"] = rate(step, args)
        loss = loss_of(model, *batch_of(data, step, args))
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        running.append(loss.item())
        done = step + 1
        if done % 50 == 0 or done == args.steps:
            seconds = seconds_before + time.monotonic() - begin
            held_out = held_out_loss(model, valid, args.context) if done % args.save_every == 0 or done == args.steps else math.nan
            curve.append((done, done * args.batch_tokens, sum(running) / len(running), held_out, rate(step, args), seconds))
            running = []
            print("step %d  tokens %d  loss %.4f  held-out %.4f  rate %.2e  %.0f s" % curve[-1], flush=True)
        if done % args.save_every == 0 or done == args.steps:
            save(checkpoint, {"model": model.state_dict(), "optimiser": optimiser.state_dict(), "curve": curve, "step": done,
                              "seconds": seconds_before + time.monotonic() - begin, "config": CONFIG})


if __name__ == "__main__":
    main()
