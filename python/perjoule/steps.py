"""Classifies forward passes as prefill or decode, and counts the tokens that each yielded.

Two numbers characterise a pass: the positions in the cache before it, and the positions that it reads. With a
prompt of P positions, a pass that begins below P belongs to prefill (a prompt may be read in chunks, and
part of it may be cached already); every later one is a decode step. After a step the cache says how many
tokens it yielded: one, or several with speculative decoding. Without a cache every pass reads the whole text, whose
length gives the same information.

In a hand-written loop the first pass tells the prompt. A later pass that reads several tokens then reads more of it, or
another turn of a conversation, unless the cache has been cut short since: that is how rejected drafts are dropped.
"""
from __future__ import annotations

from typing import Collection, Optional, Sequence


class Request:
    """One generation: a batch of prompts and the tokens that follow."""

    def __init__(self, prompt: Optional[int] = None, first_position: int = 0) -> None:
        self.prompt = prompt  # positions of the longest prompt; None: the first pass tells
        self.by_hand = prompt is None  # a loop of the program's own
        self.added = 0  # prompt positions that such a loop read after the first pass
        self.first_position = first_position  # tokens of earlier requests of the run
        self.length = 0  # positions known before the current pass
        self.passes = 0
        self.guesses = False  # a decode pass read several tokens at once
        self._cached = self._query = self._last_added = 0
        self._in_prompt = True

    def adds(self, cached: int, query: int) -> bool:
        """Whether a pass of a loop reads more of the prompt, or another turn."""
        return (self.by_hand and self.passes > 0 and query > 1 and not self.guesses
                and 0 < cached == self._cached + self._query)

    def goes_on(self, cached: int, query: int) -> bool:
        """Whether a pass belongs to the step before it: both read parts of one prompt, and only the last yields a token."""
        return self.passes > 0 and (0 < cached < (self.prompt or 0) or self._in_prompt and self.adds(cached, query))

    def _add(self, query: int) -> None:
        # another turn's first token is the last one generated, which no pass has read yet
        self._last_added = query if self._in_prompt else query - 1
        self.added += self._last_added
        self.prompt = (self.prompt or 0) + self._last_added

    def _take_back(self) -> None:
        """What the last pass read was a draft after all: the cache has been cut short."""
        self.prompt = (self.prompt or 0) - self._last_added
        self.added -= self._last_added
        self._last_added, self.guesses = 0, True

    def begin_pass(self, cached: int, query: int) -> str:
        """The phase of the pass that is beginning."""
        if self.prompt is None:
            self.prompt = cached + query
        if self.adds(cached, query):
            self._add(query)
            return self._begun("prefill", max(self.prompt, cached + query), cached, query)
        if self.by_hand and self._last_added and cached < self._cached + self._query:
            self._take_back()
        self._last_added = 0
        reads_all_again = self.passes > 0 and cached == 0 and query > 1
        length = query if reads_all_again else max(self.prompt, cached + 1)
        in_prompt = self.passes == 0 or (cached < self.prompt and not reads_all_again)
        self.guesses = self.guesses or not (in_prompt or reads_all_again or query == 1)
        return self._begun("prefill" if in_prompt else "decode", length, cached, query)

    def _begun(self, phase: str, length: int, cached: int, query: int) -> str:
        self.length, self._cached, self._query = length, cached, query
        self.passes += 1
        self._in_prompt = phase == "prefill" and self.length == self.prompt
        return phase

    def is_of_another_text(self, cached: int, query: int) -> bool:
        """Whether a pass without a cache can't be one of this request's: it reads less than the one before."""
        return self.passes > 0 and cached == self._cached == 0 and query < self._query

    @property
    def read(self) -> int:
        """Positions that the passes before have read, those in the cache included."""
        return self._cached + self._query

    @property
    def generated(self) -> int:
        """Tokens of each sequence before the current pass."""
        return self.length - (self.prompt or 0)

    @property
    def yielded(self) -> int:
        """Tokens of each sequence after the current pass."""
        return self.generated + 1 if self.passes else 0

    @property
    def position(self) -> int:
        return self.first_position + self.generated


def count_until_end(ids: Sequence[int], ends: Collection[int], pad: Optional[int] = None) -> int:
    """Tokens of one sequence up to and including the first end token, without the padding after it."""
    for i, token in enumerate(ids):
        if token in ends:
            return i + 1
    count = len(ids)
    while pad is not None and count and ids[count - 1] == pad:
        count -= 1
    return count
