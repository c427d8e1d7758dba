#!/usr/bin/env python3
"""Writes the trained model as a Hugging Face folder, and its loss curve.

The weights are rounded to bfloat16 here; nothing is measured on the unrounded ones
after this point. The head is the embedding, so it is not stored twice.
"""

import argparse
import csv
import json
import math
import pathlib

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def write_model(state, tokenizer, out):
    tensors = {name: t.to(torch.bfloat16).contiguous() for name, t in sorted(state["model"].items())}
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    (out / "model.safetensors").chmod(0o644)
    ids = {"bos_token_id": tokenizer.token_to_id("<s>"), "eos_token_id": tokenizer.token_to_id("</s>")}
    write_json(out / "config.json", {**state["config"], **ids, "torch_dtype": "bfloat16", "use_cache": True, "initializer_range": 0.02,
                                     "rope_scaling": None, "attention_dropout": 0.0})
    write_json(out / "generation_config.json", {**ids, "do_sample": True, "temperature": 0.7, "top_p": 0.9})


def write_curve(curve, path):
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["step", "tokens", "train_loss", "held_out_loss", "learning_rate", "seconds"])
        for step, tokens, train, held_out, rate, seconds in curve:
            rows.writerow([step, tokens, f"{train:.4f}", "" if math.isnan(held_out) else f"{held_out:.4f}", f"{rate:.3e}", f"{seconds:.0f}"])


def write_picture(curve, path):
    """The curve as SVG, logarithmic in loss because it falls by a factor of ten."""
    width, height, left, right, top, bottom = 640, 320, 52, 16, 16, 40
    last = curve[-1][0]
    low, high = math.log(0.25), math.log(8)

    def place(step, loss):
        x = left + step / last * (width - left - right)
        y = top + (high - math.log(loss)) / (high - low) * (height - top - bottom)
        return f"{x:.1f},{y:.1f}"

    train = " ".join(place(row[0], row[2]) for row in curve)
    held = [(row[0], row[3]) for row in curve if not math.isnan(row[3])]
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
             f'<title>Loss of the demo model over {last} training steps</title>', f'<rect width="{width}" height="{height}" fill="#fff"/>']
    for loss in (0.25, 0.5, 1, 2, 4, 8):
        y = place(0, loss).split(",")[1]
        parts.append(f'<path d="M{left} {y}H{width - right}" stroke="#ddd"/><text x="{left - 6}" y="{y}" dy="4" text-anchor="end" fill="#444">{loss}</text>')
    for step in range(0, last + 1, 500):
        x = place(step, 1).split(",")[0]
        parts.append(f'<text x="{x}" y="{height - bottom + 18}" text-anchor="middle" fill="#444">{step}</text>')
    parts += [f'<polyline points="{train}" fill="none" stroke="#1f77b4" stroke-width="1.5"/>',
              f'<polyline points="{" ".join(place(*point) for point in held)}" fill="none" stroke="#d62728" stroke-width="1.5"/>']
    parts += [f'<circle cx="{place(*point).split(",")[0]}" cy="{place(*point).split(",")[1]}" r="2.5" fill="#d62728"/>' for point in held]
    parts += [f'<text x="{width - right - 4}" y="{top + 16}" text-anchor="end" fill="#1f77b4">training, mean of 50 steps</text>',
              f'<text x="{width - right - 4}" y="{top + 32}" text-anchor="end" fill="#d62728">held-out texts</text>',
              f'<text x="{(left + width - right) / 2}" y="{height - 6}" text-anchor="middle" fill="#444">step (nats per token on the left)</text>', "</svg>"]
    path.write_text("\n".join(parts) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("work"))
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("."))
    args = parser.parse_args()
    state = torch.load(args.work / "checkpoint.pt", map_location="cpu")
    write_model(state, Tokenizer.from_file(str(args.out / "tokenizer.json")), args.out)
    write_curve(state["curve"], args.out / "loss.csv")
    write_picture(state["curve"], args.out / "loss.svg")
    print(f"step {state['step']}: {(args.out / 'model.safetensors').stat().st_size:,} bytes of weights")


if __name__ == "__main__":
    main()
