#!/usr/bin/env python3
"""Judges the exported folder, and nothing else, in plain float32 NumPy.

Reads config.json, model.safetensors, tokenizer.json and generation_config.json as any
engine would, reports the loss on the held-out texts, and writes from six prompts,
greedily and sampled. It shares no code with the training, so that an error in one is
seen by the other.
"""

import argparse
import json
import math
import pathlib
import struct

import numpy as np
from tokenizers import Tokenizer

PROMPTS = ["Once upon a time", "The kettle", "What is a joule?", "How does a refrigerator work?", "On a rainy evening, Mara and Tom", "A language model"]


def read_safetensors(path):
    """Tensors of a BF16 file as float32."""
    raw = path.read_bytes()
    (size,) = struct.unpack_from("<Q", raw)
    tensors = {}
    for name, entry in json.loads(raw[8: 8 + size]).items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "BF16", name
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        wide = np.frombuffer(raw[begin:end], dtype="<u2").astype(np.uint32) << 16
        tensors[name] = wide.view(np.float32).reshape(entry["shape"])
    return tensors


class Model:
    def __init__(self, folder):
        self.c = json.loads((folder / "config.json").read_text())
        self.w = read_safetensors(folder / "model.safetensors")
        half = self.c["head_dim"] // 2
        frequency = np.float32(self.c["rope_theta"]) ** (-np.arange(half, dtype=np.float32) / half)
        angle = np.outer(np.arange(self.c["max_position_embeddings"], dtype=np.float32), frequency)
        self.cos, self.sin = np.cos(angle), np.sin(angle)

    def norm(self, x, name):
        return self.w[name] * (x / np.sqrt(np.mean(x * x, -1, keepdims=True) + np.float32(self.c["rms_norm_eps"])))

    def heads(self, x, prefix, count):
        return (x @ self.w[prefix].T).reshape(len(x), count, self.c["head_dim"]).transpose(1, 0, 2)

    def rotate(self, x, first):
        half = self.c["head_dim"] // 2
        cos, sin = self.cos[first: first + x.shape[1]], self.sin[first: first + x.shape[1]]
        low, high = x[..., :half], x[..., half:]
        return np.concatenate((low * cos - high * sin, high * cos + low * sin), -1)

    def logits(self, ids, cache):
        """Logits of new ids; `cache` holds keys and values of those before, by layer."""
        x = self.w["model.embed_tokens.weight"][ids]
        first = cache[0][0].shape[1] if cache else 0
        for i in range(self.c["num_hidden_layers"]):
            p = f"model.layers.{i}."
            h = self.norm(x, p + "input_layernorm.weight")
            heads, kv_heads = self.c["num_attention_heads"], self.c["num_key_value_heads"]
            q = self.rotate(self.heads(h, p + "self_attn.q_proj.weight", heads), first)
            k = self.rotate(self.heads(h, p + "self_attn.k_proj.weight", kv_heads), first)
            v = self.heads(h, p + "self_attn.v_proj.weight", kv_heads)
            if first:
                k, v = np.concatenate((cache[i][0], k), 1), np.concatenate((cache[i][1], v), 1)
                cache[i] = (k, v)
            else:
                cache.append((k, v))
            group = heads // kv_heads
            scores = q @ np.repeat(k, group, 0).transpose(0, 2, 1) / np.float32(math.sqrt(self.c["head_dim"]))
            future = np.arange(scores.shape[2])[None, :] > np.arange(first, first + len(x))[:, None]
            scores = np.where(future[None], np.float32(-np.inf), scores)
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            mixed = scores / scores.sum(-1, keepdims=True) @ np.repeat(v, group, 0)
            x = x + mixed.transpose(1, 0, 2).reshape(len(x), -1) @ self.w[p + "self_attn.o_proj.weight"].T
            h = self.norm(x, p + "post_attention_layernorm.weight")
            gate = h @ self.w[p + "mlp.gate_proj.weight"].T
            x = x + (gate / (1 + np.exp(-gate)) * (h @ self.w[p + "mlp.up_proj.weight"].T)) @ self.w[p + "mlp.down_proj.weight"].T
        return self.norm(x, "model.norm.weight") @ self.w["model.embed_tokens.weight"].T


def loss(model, tokenizer, texts):
    """Mean nats per token over whole texts, each from its BOS to its EOS."""
    total, count = 0.0, 0
    for text in texts:
        ids = tokenizer.encode(text).ids + [model.c["eos_token_id"]]
        ids = ids[: model.c["max_position_embeddings"]]
        logits = model.logits(np.array(ids[:-1]), [])
        top = logits.max(-1, keepdims=True)
        log_sum = top[:, 0] + np.log(np.exp(logits - top).sum(-1))
        total += float((log_sum - logits[np.arange(len(ids) - 1), ids[1:]]).sum())
        count += len(ids) - 1
    return total / count, count


def draw(logits, temperature, top_p, random):
    p = np.exp((logits - logits.max()).astype(np.float64) / temperature)
    p /= p.sum()
    order = np.argsort(-p, kind="stable")
    kept = order[: int(np.searchsorted(np.cumsum(p[order]), top_p)) + 1]
    return int(random.choice(kept, p=p[kept] / p[kept].sum()))


def write(model, tokenizer, prompt, limit, generation=None, seed=0):
    """Prompt and continuation; greedy without `generation`."""
    ids, cache, random = tokenizer.encode(prompt).ids, [], np.random.default_rng(seed)
    new = ids
    for _ in range(limit):
        logits = model.logits(np.array(new), cache)[-1]
        token = draw(logits, generation["temperature"], generation["top_p"], random) if generation else int(logits.argmax())
        if token == model.c["eos_token_id"]:
            break
        ids, new = ids + [token], [token]
    return tokenizer.decode(ids)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("."))
    parser.add_argument("--valid", type=pathlib.Path, default=pathlib.Path("work/valid.jsonl"))
    parser.add_argument("--limit", type=int, default=160)
    args = parser.parse_args()
    model, tokenizer = Model(args.folder), Tokenizer.from_file(str(args.folder / "tokenizer.json"))
    generation = json.loads((args.folder / "generation_config.json").read_text())
    if args.valid.exists():
        nats, count = loss(model, tokenizer, [json.loads(line) for line in args.valid.open(encoding="utf-8")])
        print(f"held-out loss of the exported weights: {nats:.4f} nats per token over {count:,} tokens, perplexity {math.exp(nats):.3f}\n")
    for prompt in PROMPTS:
        print(f"[greedy] {write(model, tokenizer, prompt, args.limit)}\n")
        print(f"[sampled] {write(model, tokenizer, prompt, args.limit, generation, seed=1)}\n")


if __name__ == "__main__":
    main()
