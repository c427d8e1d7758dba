#!/usr/bin/env python3
"""Writes the corpus of the demo model: stories and facts about energy and machines.

Every text comes from the templates beside this file and a seed; nothing is copied.
One JSON string per line, so that a text may have lines of its own. The last part of
the texts is the held-out set; texts that occur twice are dropped before the split,
so no held-out text was trained on.
"""

import argparse
import json
import pathlib
import re

import facts
import scenes
import stories
from grammar import Writer

# How often each kind of text is drawn.
MIX = [(stories.story, 42), (scenes.scene, 26), (facts.topic_paragraph, 12), (facts.question_page, 12), (facts.sums, 6), (facts.unit_table, 2)]


# Share of texts that begin in the middle, so that a prompt need not be an opening.
MIDDLE = 0.15


def from_the_middle(w, text):
    """The text from a later sentence on; short texts and lists stay whole."""
    parts = re.split(r"(?<=[.!?]) (?=[A-Z])", text)
    if len(parts) < 5 or "\n" in text:
        return text
    return " ".join(parts[w.rng.randint(1, len(parts) - 3):])


def texts(seed, count):
    """`count` texts without repetition."""
    w = Writer(seed)
    kinds, weights = zip(*MIX)
    seen = set()
    while len(seen) < count:
        text = w.rng.choices(kinds, weights)[0](w).strip()
        if w.chance(MIDDLE):
            text = from_the_middle(w, text)
        if text not in seen:
            seen.add(text)
            yield text


def sentences(text):
    return [s for s in re.split(r"(?<=[.!?])[\"\s]+", text) if s]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("work"))
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--held-out", type=int, default=400)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    everything = list(texts(args.seed, args.count))
    split = len(everything) - args.held_out
    for name, part in (("train", everything[:split]), ("valid", everything[split:])):
        (args.out / f"{name}.jsonl").write_text("".join(json.dumps(t, ensure_ascii=False) + "\n" for t in part), encoding="utf-8")
    counted = [s for t in everything for s in sentences(t)]
    size = sum(len(t.encode()) for t in everything)
    print(f"{len(everything)} texts, {size / 1e6:.2f} MB, {len(counted)} sentences, {len(set(counted)) / len(counted):.1%} of them unique")


if __name__ == "__main__":
    main()
