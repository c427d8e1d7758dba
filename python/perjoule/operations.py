"""Operations within a torch model's components, at depth deep: a mode of torch's dispatcher sees each before its kernel runs.

It calls what it sees unchanged, so results are the same to the bit, but each call costs some microseconds of the host. Views
compute nothing and are left out. A compiled or captured region has no dispatch to see: models with one are not traced.
Imports torch when a run begins.
"""
from __future__ import annotations

import math
import threading
from bisect import bisect_right
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import _native as n
from .statistics import FIELDS
from .work import Amount, nbytes, tensors_in

# Names of perjoule's own engine for what torch calls by several names; others keep torch's.
NAMES = {
    "matmul": ("mm", "addmm", "bmm", "baddbmm", "linear", "matmul", "addmv", "mv", "_int_mm", "_scaled_mm", "dot", "mkldnn_linear"),
    "fused_attention": ("scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu",
                        "_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention",
                        "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_fused_attention_overrideable"),
    "softmax": ("_softmax", "_safe_softmax", "softmax"),
    "activation": ("silu", "silu_", "gelu", "relu", "relu_", "tanh", "sigmoid", "mish", "hardswish", "leaky_relu", "elu"),
    "gather": ("embedding", "index_select"),
    "norm": ("native_layer_norm", "layer_norm", "rms_norm", "_fused_rms_norm", "native_group_norm", "native_batch_norm"),
    "convolution": ("convolution", "_convolution", "mkldnn_convolution"),
}
ENGINE_NAME = {name: ours for ours, names in NAMES.items() for name in names}
PER_VALUE = {"add": 1, "sub": 1, "mul": 1, "div": 1, "neg": 1, "activation": 4, "softmax": 5}  # FLOPs, as docs/measurement.md has them
WITHOUT_KERNEL = ("detach", "alias", "empty", "empty_like", "empty_strided", "new_empty", "_unsafe_view", "reshape", "lift_fresh",
                  "contiguous", "is_pinned", "item", "_local_scalar_dense", "device", "equal", "set_", "resize_")


def name_of(operation: Any) -> Optional[str]:
    """The name of an operation of torch; None: it computes nothing on a device."""
    name: str = operation._schema.name.rsplit("::", 1)[-1]
    if getattr(operation, "is_view", False) or name in WITHOUT_KERNEL or name.startswith("sym_"):
        return None
    return ENGINE_NAME.get(name, name.strip("_") or name)


def amount_of(name: str, flops_of: Optional[Callable[..., Any]], args: Any, kwargs: Dict[str, Any], out: Any) -> Amount:
    """FLOPs, where torch or the shapes tell them, and bytes of what is read and written."""
    moved = sum(nbytes(tensor) for tensor in tensors_in((args, tuple(kwargs.values()), out)))
    if flops_of is not None:
        return float(flops_of(*args, **kwargs, out_val=out)), moved
    if name in PER_VALUE:
        return float(PER_VALUE[name] * out.numel()), moved
    if name == "gather":
        return 0.0, 2 * nbytes(out)  # of the table only the rows that were asked for are read
    if name == "matmul" and len(args) > 1:  # of a composite, which inference mode does not take apart
        return 2.0 * out.numel() * args[0].shape[-1], moved
    if name == "fused_attention":
        query, keys, values = args[:3]
        rows = query.numel() / (query.shape[-2] * query.shape[-1])
        return 2.0 * rows * query.shape[-2] * keys.shape[-2] * (query.shape[-1] + values.shape[-1]), moved
    return math.nan, moved


class Operations:
    """Those of one run's passes. `stamp` reads the clock, `thread` tells whose operations are timed."""

    def __init__(self, stamp: Callable[[], int], word_of: Callable[[str], int], thread: Callable[[], int]) -> None:
        from torch.utils._python_dispatch import TorchDispatchMode  # type: ignore[import-not-found,unused-ignore]
        from torch.utils.flop_counter import flop_registry  # type: ignore[import-not-found,unused-ignore]

        self.found: List[Tuple[int, int, int, Amount]] = []  # begin, end, word, and work of each operation of the pass
        self._words: Dict[Any, Optional[Tuple[str, int, Any]]] = {}
        self._word_of, self._registry = word_of, flop_registry
        operations = self

        class Mode(TorchDispatchMode):  # type: ignore[misc,no-untyped-call,unused-ignore]
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                kwargs = kwargs or {}
                if threading.get_ident() != thread():
                    return func(*args, **kwargs)
                begin = stamp()
                out = func(*args, **kwargs)
                operations.note(func, args, kwargs, out, begin, stamp())
                return out

        self._mode: Any = Mode

    def mode(self) -> Any:
        return self._mode()

    def note(self, func: Any, args: Any, kwargs: Dict[str, Any], out: Any, begin: int, end: int) -> None:
        try:
            if func not in self._words:
                name = name_of(func)
                self._words[func] = None if name is None else (name, self._word_of(name), self._registry.get(func.overloadpacket))
            known = self._words[func]
            if known is None or not (begin and end):
                return
            name, what, flops_of = known
            try:
                amount = amount_of(name, flops_of, args, kwargs, out)
            except Exception:  # called otherwise than the formula expects
                amount = math.nan, math.nan
            self.found.append((begin, end, what, amount))
        except Exception:  # an operation that describes itself otherwise: it is not recorded
            return

    def take(self, records: List[int]) -> List[Tuple[int, int, int, Amount]]:
        """The operations within the components that were recorded; what lies between components has no place."""
        found, self.found = self.found, []
        spans = sorted((begin, end) for begin, end, what in zip(records[::FIELDS], records[1::FIELDS], records[2::FIELDS])
                       if what >> 32 & 0xFFFF == n.COMPONENT)
        begins = [begin for begin, _ in spans]
        kept = []
        for each in found:
            at = bisect_right(begins, each[0]) - 1
            if at >= 0 and each[1] <= spans[at][1]:
                kept.append(each)
        return kept
