"""Finds the modules whose calls are forward passes of a model, and calls back around each of them.

A pass is usually a call of the model itself. Wrappers complicate this: with DataParallel, torch.compile or an
adapter library, `generate` belongs to a model inside the wrapper and calls that one, never the wrapper. So every
module that can begin a pass is watched, outermost first, and calls within a call are left to the caller to ignore.
A call may also bypass the module's hooks: through the graph of `Module.compile`, or through the compiled call that
transformers makes for static caches. Those are wrapped instead. Does not import torch.
"""
from __future__ import annotations

import functools
from typing import Any, Callable, Dict, List

from .names import Module
from .patching import Replacement, as_hook, copy_unpatched

Before = Callable[[int, Any, Dict[str, Any]], None]  # module number, positional arguments, keyword arguments
After = Callable[[int, Any], None]  # module number, what it returned
Undo = Callable[[], Any]

INNER = ("_orig_mod", "module")  # where torch.compile and DataParallel keep what they wrap


def has_generate(module: Module) -> bool:
    """Whether `generate` is the module's own, rather than reached through a wrapper's __getattr__."""
    return "generate" in vars(module) or callable(getattr(type(module), "generate", None))


def entry_points(model: Module) -> List[Module]:
    """The model, the modules inside its wrappers, and every submodule that can generate; outermost first."""
    found = [model]
    for name in INNER:
        if name in model._modules:
            found += entry_points(model._modules[name])
    found += [m for m in model.modules() if has_generate(m)]
    return list({id(m): m for m in found}.values())


def watch_calls(module: Module, number: int, before: Before, after: After) -> List[Undo]:
    """Calls `before` and `after` around each call of `module`; returns a function that undoes this."""
    def around(inner: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(inner)
        def call(*args: Any, **kwargs: Any) -> Any:
            before(number, args, kwargs)
            out = inner(*args, **kwargs)
            after(number, out)
            return out
        return call

    undo: List[Undo] = [copy_unpatched(module).undo]
    compiled = getattr(module, "_compiled_call_impl", None)
    if compiled is not None:
        undo.append(Replacement(module.__dict__, "_compiled_call_impl", around(compiled)).undo)
    else:
        undo.append(module.register_forward_pre_hook(
            # a call in another thread may meet the hook before torch has noted that it takes keywords
            as_hook(lambda _, args, kwargs=None: before(number, args, kwargs or {})), with_kwargs=True).remove)
        undo.append(module.register_forward_hook(as_hook(lambda _, args, out: after(number, out))).remove)
    get_compiled = getattr(type(module), "get_compiled_call", None)
    if get_compiled is not None:
        def get(*args: Any, **kwargs: Any) -> Any:
            call = get_compiled(module, *args, **kwargs)
            # some models return their plain __call__, which the hooks already cover
            return call if getattr(call, "__self__", None) is module else around(call)
        undo.append(Replacement(module.__dict__, "get_compiled_call", functools.wraps(get_compiled)(get)).undo)
    return undo
