#!/usr/bin/env python3
"""Trains the tokenizer: byte-level BPE, written as tokenizer.json."""

import argparse
import json
import pathlib

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

BOS, EOS = "<s>", "</s>"
# Contractions, words with their leading space, numbers digit by digit, signs, white space.
PATTERN = r"'(?:s|t|re|ve|m|ll|d)| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=pathlib.Path, default=pathlib.Path("work/train.jsonl"))
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("."))
    parser.add_argument("--vocab", type=int, default=2048)
    args = parser.parse_args()
    texts = [json.loads(line) for line in args.corpus.open(encoding="utf-8")]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=args.vocab, special_tokens=[BOS, EOS], initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False))
    bos = tokenizer.token_to_id(BOS)
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, bos)])
    tokenizer.save(str(args.out / "tokenizer.json"))
    (args.out / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BOS, "eos_token": EOS, "add_bos_token": True,
        "add_eos_token": False, "clean_up_tokenization_spaces": False, "model_max_length": 512}, indent=2) + "\n", encoding="utf-8")
    ids = sum(len(tokenizer.encode(t, add_special_tokens=False).ids) for t in texts[:2000])
    print(f"{tokenizer.get_vocab_size()} tokens, {sum(len(t.encode()) for t in texts[:2000]) / ids:.2f} bytes per token")


if __name__ == "__main__":
    main()
