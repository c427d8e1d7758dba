"""Monkey-patches dictionary entries so that patches can be undone in any order. Two profilers may watch one model at
the same time, or two models of one family that share a modelling file. The first one to undo its patch must neither
remove the other's nor leave its own in place. A module that is copied or pickled meanwhile leaves the patches behind:
in the copy they would call the original.
"""
from __future__ import annotations

import threading
from typing import Any, Callable, Dict, List, Tuple

_MISSING = object()
_lock = threading.Lock()
attaching = threading.RLock()  # held while patches are made or undone: a wrapper's original must still be the entry's value
_replaced: "Dict[Tuple[int, str], List[Replacement]]" = {}  # by dictionary and key, oldest first


class Replacement:
    """`owner[name] = value` until `undo()`, but for the time between `suspend()` and `resume()`."""

    def __init__(self, owner: Dict[str, Any], name: str, value: Any) -> None:
        self.owner, self.name, self.value = owner, name, value
        self.suspended = False
        with _lock:
            others = _replaced.setdefault((id(owner), name), [])
            if others and others[-1].suspended:
                others[-1]._put_back()  # to be called by this one, which can't know it otherwise
            self.before = owner.get(name, _MISSING)
            owner[name] = value
            others.append(self)

    def _put_back(self) -> None:
        self.suspended = False
        if self.owner.get(self.name, _MISSING) is self.before:
            self.owner[self.name] = self.value

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
            # otherwise other code has patched over ours and will restore it: ours then only forwards calls

    def _restore(self) -> None:
        if self.before is _MISSING:
            del self.owner[self.name]
        else:
            self.owner[self.name] = self.before


def suspend(replacements: List[Replacement]) -> None:
    """Takes the patches off that nobody has patched over, so that they cost nothing until `resume`."""
    with _lock:
        for each in replacements:
            if not each.suspended and each.owner.get(each.name) is each.value and len(_replaced[id(each.owner), each.name]) == 1:
                each._restore()
                each.suspended = True


def resume(replacements: List[Replacement]) -> None:
    """Puts suspended patches back, unless other code has patched what they patched."""
    with _lock:
        for each in replacements:
            if each.suspended:
                each._put_back()


def _without_patches(owner: Dict[str, Any]) -> Dict[str, Any]:
    """A copy of a patched dictionary as it was before."""
    out = dict(owner)
    with _lock:
        for name in owner:
            patches = _replaced.get((id(owner), name), [])
            if not any(out[name] is patch.value for patch in patches):
                continue  # none, or other code has patched over them
            if patches[0].before is _MISSING:
                del out[name]
            else:
                out[name] = patches[0].before
    return out


HOOKS = ("_forward_hooks", "_forward_pre_hooks")
FLAGS = ("_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs")


def as_hook(function: Callable[..., Any]) -> Callable[..., Any]:
    """Marks one of our functions that is registered as a hook of a module."""
    function.perjoule = True  # type: ignore[attr-defined]
    return function


def _without_hooks(state: Dict[str, Any]) -> None:
    for name in HOOKS:
        hooks = state.get(name) or {}
        ours = [id for id, hook in hooks.items() if getattr(hook, "perjoule", False)]
        if ours:
            for each in (name, *(flag for flag in FLAGS if flag in state and flag.startswith(name))):
                state[each] = type(state[each])((id, value) for id, value in state[each].items() if id not in ours)


def copy_unpatched(module: Any) -> Replacement:
    """Lets copies and pickles of a module be made without our patches and hooks, until undone."""
    kind: Any = type(module)

    def reduce(protocol: Any) -> Any:
        parts = kind.__reduce_ex__(module, protocol)
        if not isinstance(parts, tuple) or len(parts) < 3 or not isinstance(parts[2], dict):
            return parts  # the class has its own idea of a copy
        state = _without_patches(module.__dict__) if parts[2].keys() == module.__dict__.keys() else dict(parts[2])
        _without_hooks(state)
        return (*parts[:2], state, *parts[3:])
    return Replacement(module.__dict__, "__reduce_ex__", reduce)
