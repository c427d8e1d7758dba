"""Classifies forward passes as prefill or decode, and counts the tokens that each yielded.

A pass is known by two numbers: positions in the cache before it, and positions that it reads. With a
prompt of P positions, a pass that begins below P belongs to prefill (a prompt may be read in chunks, and
part of it may be cached already); every later one is a decode step. After a step the cache says how many
tokens it yielded: one, or several where guesses of a draft model were accepted. Without a cache the whole
text is read again each time, and its length says the same.
"""
from __future__ import annotations

from typing import Collection, Optional, Sequence


class Request:
    """One generation: a batch of prompts and the tokens that follow."""

    def __init__(self, prompt: Optional[int] = None, first_position: int = 0) -> None:
        self.prompt = prompt  # positions of the longest prompt; None: the first pass tells
        self.first_position = first_position  # tokens of earlier requests of the run
        self.length = 0  # positions known before the present pass
        self.passes = 0
        self._cached = self._query = 0

    def begin_pass(self, cached: int, query: int) -> str:
        """The phase of the pass that begins."""
        if self.prompt is None:
            self.prompt = cached + query
        reads_all_again = self.passes > 0 and cached == 0 and query > 1
        self.length = query if reads_all_again else max(self.prompt, cached + 1)
        in_prompt = self.passes == 0 or (cached < self.prompt and not reads_all_again)
        self.passes += 1
        self._cached, self._query = cached, query
        return "prefill" if in_prompt else "decode"

    def starts_anew(self, cached: int, query: int) -> bool:
        """Whether a pass belongs to another request: nothing is cached, nor is it the text so far and one token."""
        return self.passes > 0 and cached == 0 and (self._cached > 0 or query != self._query + 1)

    @property
    def generated(self) -> int:
        """Tokens of each sequence before the present pass."""
        return self.length - (self.prompt or 0)

    @property
    def position(self) -> int:
        return self.first_position + self.generated


def count_until_end(ids: Sequence[int], ends: Collection[int], pad: Optional[int] = None) -> int:
    """Tokens of one sequence up to the first end token, which counts; padding after it does not."""
    for i, token in enumerate(ids):
        if token in ends:
            return i + 1
    count = len(ids)
    while pad is not None and count and ids[count - 1] == pad:
        count -= 1
    return count
