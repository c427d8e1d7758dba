"""Tells which text a pass of a hand-written loop continues, so that loops over several texts can be counted.

A loop that uses a cache is recognised by the cache object, one that reads the whole text again by its ids, and one whose
caches can't be referred to (tuples) by the number of cached positions. Does not import torch.
"""
from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from typing import Any, Callable, Dict, Iterable, List, Optional

from .steps import Request

LIMIT = 64  # texts remembered, the latest first
# Names of a model's argument and result: of transformers since 5.24, of earlier ones, of Mamba's and of RWKV's.
CACHES = ("cache", "past_key_values", "cache_params", "state")


def reference(cache: Any) -> Optional[Callable[[], Any]]:
    """A weak reference to a cache; None if there is no cache or it can't have one."""
    if cache is None:
        return None
    try:
        return weakref.ref(cache)
    except TypeError:
        return None


def _cache_among(named: Callable[[str], Any], values: Iterable[Any]) -> Any:
    """The cache by its name, otherwise the value that can tell how many positions it has cached."""
    known = next((cache for cache in map(named, CACHES) if cache is not None), None)
    return known if known is not None else next((v for v in values if hasattr(v, "get_seq_length")), None)


def cache_given(args: Iterable[Any], kwargs: Dict[str, Any]) -> Any:
    """The cache that a pass was called with: of keys and values, or the state of a recurrent model."""
    return _cache_among(kwargs.get, (*args, *kwargs.values()))


def cache_returned(out: Any) -> Any:
    """The cache in what a pass returned. Asking a result of transformers for a deprecated name prints a warning, so its
    items are copied into a plain dictionary first."""
    if isinstance(out, Mapping):
        items = dict(out.items())
        return _cache_among(items.get, items.values())
    return _cache_among(lambda name: getattr(out, name, None), out if isinstance(out, (tuple, list)) else ())


def cached_in(cache: Any) -> Optional[int]:
    """Number of positions in a cache; None if it is a recurrent state, which does not tell."""
    if cache is None:
        return 0
    if hasattr(cache, "get_seq_length"):
        try:
            return int(cache.get_seq_length())
        except ValueError:  # transformers' answer for a cache without an attention layer
            return None
    try:
        first = cache[0]
        return int(first[0].shape[-2]) if isinstance(first, (tuple, list)) else None
    except (TypeError, LookupError, AttributeError):
        return 0


class Text:
    """One text, and its latest pass."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.thread = threading.get_ident()
        self.cache: Optional[Callable[[], Any]] = None
        self.ids: Any = None  # what the latest pass read
        self.cached = self.query = 0

    def has_cache(self, cache: Any) -> bool:
        return cache is not None and self.cache is not None and self.cache() is cache

    def is_read_again(self, query: int, ids: Any) -> bool:
        """Whether a pass without a cache reads this text and one more token."""
        if self.cached or query != self.query + 1:
            return False
        if ids is None or self.ids is None:
            return threading.get_ident() == self.thread
        return bool(ids.shape[0] == self.ids.shape[0] and (ids[:, :-1] == self.ids).all())

    def may_end_at(self, cached: int) -> bool:
        """Whether a cache that is not known by its object may be this text's, which has no other."""
        end = self.cached + self.query
        if threading.get_ident() != self.thread or self.cache is not None and self.cache() is not None:
            return False
        return end == cached or self.cache is None and end > cached  # shorter: cut short after a draft


class Texts:
    """The texts of one run."""

    def __init__(self) -> None:
        self._texts: List[Text] = []

    def find(self, cache: Any, cached: int, query: int, ids: Any) -> Optional[Text]:
        """The text that a pass continues; None if it begins one."""
        if not cached:
            return next((t for t in self._texts if t.is_read_again(query, ids)), None)
        for text in self._texts:
            if text.has_cache(cache):
                return text
        ending = [t for t in self._texts if t.may_end_at(cached)]
        return next((t for t in ending if t.cached + t.query == cached), ending[0] if ending else None)

    def read_into(self, cache: Any) -> int:
        """Positions that passes have read into a recurrent state; one that can't be referred to is this thread's latest."""
        for text in self._texts:
            if text.has_cache(cache) or (reference(cache) is None and text.cache is None
                                         and text.thread == threading.get_ident()):
                return text.cached + text.query
        return 0

    def begin(self, request: Request) -> Text:
        text = Text(request)
        self._texts.insert(0, text)
        del self._texts[LIMIT:]
        return text

    def read(self, text: Text, cache: Any, cached: int, query: int, ids: Any) -> None:
        """Notes the pass that is beginning."""
        for other in self._texts:
            if other is not text and other.has_cache(cache):
                other.cache = None  # the cache was emptied, and is used for another text
        text.cache, text.cached, text.query = reference(cache), cached, query
        text.ids = ids if not cached else None
        self._texts.remove(text)
        self._texts.insert(0, text)

    def returned(self, text: Optional[Text], cache: Any) -> None:
        """Notes the cache that the pass returned."""
        if text is not None and cache is not None:
            text.cache = reference(cache) or text.cache
