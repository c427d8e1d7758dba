"""Chooses by itself: writes tasks whose answers a program of its own finds the most likely (right.jsonl), and the
same tasks with another answer (wrong.jsonl). Likelihoods come from the logits of `perjoule eval`."""
import array
import json
import math
import os
import random
import subprocess
import sys

DEMO = sys.argv[1]
PROMPTS = ["The kettle", "Question: What is heat?\nAnswer:", "On a hill the wind is", "A battery of 50 watt"]
WORDS = [" stronger", " on the table", "s and a fan", " hours", " is 3,600 joules", " Heat is energy", "'s lid", " sang."]


def output(*args):
    return subprocess.run([os.environ["PERJOULE"], *args], capture_output=True, text=True, check=True).stdout


def ids_of(text):
    return json.loads(output("tokenize", "-m", DEMO, "--json", text))["ids"]


def likelihood(prompt, choice):
    given, ids = ids_of(prompt), ids_of(prompt + choice)
    output("eval", "-m", DEMO, "--ids", ",".join(map(str, ids)), "--logits", "logits.f32", "--json")
    logits = array.array("f", open("logits.f32", "rb").read())
    width = len(logits) // len(ids)
    total = 0.0
    for i in range(1, len(ids)):
        if i < len(given) and ids[:i + 1] == given[:i + 1]:
            continue
        row = logits[(i - 1) * width:i * width]
        most = max(row)
        total += row[ids[i]] - most - math.log(sum(math.exp(x - most) for x in row))
    return total


rng = random.Random(5)
with open("right.jsonl", "w") as right, open("wrong.jsonl", "w") as wrong:
    for prompt in PROMPTS:
        for _ in range(3):
            choices = rng.sample(WORDS, 4)
            order = sorted(choices, key=lambda c: likelihood(prompt, c))
            for file, answer in ((right, order[-1]), (wrong, order[-2])):
                file.write(json.dumps({"prompt": prompt, "choices": choices, "answer": answer}) + "\n")
