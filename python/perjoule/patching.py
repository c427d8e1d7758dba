"""Replaces entries of dictionaries, and puts them back in whatever order their replacers leave.

Two profilers may watch one model at the same time, or two models of one family, whose functions live in one
modelling file. Whoever leaves first must neither take the other's replacement away nor leave its own behind.
"""
from __future__ import annotations

import threading
from typing import Any, Dict, List, Tuple

_MISSING = object()
_lock = threading.Lock()
_replaced: "Dict[Tuple[int, str], List[Replacement]]" = {}  # by dictionary and key, oldest first


class Replacement:
    """`owner[name] = value` until `undo()`."""

    def __init__(self, owner: Dict[str, Any], name: str, value: Any) -> None:
        self.owner, self.name, self.value = owner, name, value
        with _lock:
            self.before = owner.get(name, _MISSING)
            owner[name] = value
            _replaced.setdefault((id(owner), name), []).append(self)

    def undo(self) -> None:
        with _lock:
            others = _replaced[id(self.owner), self.name]
            position = others.index(self)
            del others[position]
            if not others:
                del _replaced[id(self.owner), self.name]
            if position < len(others):
                others[position].before = self.before
            elif self.owner.get(self.name) is self.value:
                self._restore()
            # else a stranger replaced ours and will put it back: what is left of ours only calls on

    def _restore(self) -> None:
        if self.before is _MISSING:
            del self.owner[self.name]
        else:
            self.owner[self.name] = self.before
