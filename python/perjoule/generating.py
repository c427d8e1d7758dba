"""Reads what a call of `generate` was given, and counts the tokens in what it returned. Does not import torch."""
from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from .names import Module
from .steps import count_until_end

Tensor = Any


def as_list(tensor: Any) -> List[Any]:
    return tensor.tolist() if hasattr(tensor, "tolist") else list(tensor)


def is_encoder_decoder(model: Module) -> bool:
    return bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False))


def rows_of(out: Any) -> Optional[List[List[int]]]:
    """The sequences that generate returned; None if it returned something else."""
    sequences = getattr(out, "sequences", out)
    return as_list(sequences) if hasattr(sequences, "tolist") else None


def _shape_of(tensor: Any) -> Optional[Tuple[int, int]]:
    shape: Any = getattr(tensor, "shape", ())
    return (int(shape[0]), int(shape[1])) if len(shape) >= 2 else None


class Call:
    """One call of `generate`: its prompts and what ends a sequence."""

    def __init__(self, module: Module, args: Any, kwargs: Dict[str, Any]) -> None:
        config = kwargs.get("generation_config") or (args[1] if len(args) > 1 else None) or getattr(
            module, "generation_config", None)

        def given(name: str, default: Any = None) -> Any:
            return kwargs.get(name, getattr(config, name, default))

        ends = given("eos_token_id")
        self.ends = set(as_list(ends) if hasattr(ends, "__len__") or hasattr(ends, "tolist") and ends.dim() else
                        [] if ends is None else [int(ends)])
        self.pad = given("pad_token_id")
        # a sequence ended by other criteria than an end token is followed by padding
        self.may_pad = bool(given("stop_strings") or kwargs.get("stopping_criteria"))
        self.beams = (given("num_beams", 1) or 1) > 1
        self.speculates = kwargs.get("assistant_model") is not None or bool(
            given("prompt_lookup_num_tokens") or given("assistant_early_exit"))
        self.encoder_decoder = is_encoder_decoder(module)
        self._read_prompt(kwargs.get("inputs", kwargs.get("input_ids", args[0] if args else None)),
                          kwargs.get("inputs_embeds"), kwargs.get("attention_mask"))

    def _read_prompt(self, ids: Any, embeds: Any, mask: Optional[Tensor]) -> None:
        """`size`: sequences and positions of the prompt; None where no tensor tells. `prefix`: how many positions
        of the prompt each returned sequence repeats; None: all of them. A prompt of embeddings is not repeated,
        only the ids that were given beside it."""
        self.nothing_given = ids is None and embeds is None
        self.prefix: Optional[int] = 1 if self.encoder_decoder else None
        given = _shape_of(ids)
        self.size = given
        if _shape_of(embeds) is not None:
            self.size = _shape_of(embeds)
            self.prefix = self.prefix or (given[1] if given else 0)
        self.mask = mask if getattr(mask, "dim", lambda: 0)() == 2 else None

    def lengths(self) -> List[int]:
        """Tokens of each prompt, without padding."""
        if self.mask is not None:
            return [int(x) for x in as_list(self.mask.sum(-1))]
        rows, width = self.size or (0, 0)
        return [width] * rows

    def repeated(self, prompt: Optional[int]) -> int:
        """How many of the prompt's positions begin each returned sequence."""
        return (prompt or 0) if self.prefix is None else self.prefix

    def new_tokens(self, rows: List[List[int]], prompt: Optional[int]) -> List[int]:
        """The generated tokens of each returned sequence."""
        pad = self.pad if isinstance(self.pad, int) and self.may_pad and len(rows) > 1 else None
        first = self.repeated(prompt)
        return [count_until_end(r[first:], self.ends, pad) for r in rows]
