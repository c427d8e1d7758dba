"""FLOPs and bytes of a torch model's modules, from their types, sizes, stored weights and the shapes of a pass.

The conventions are those of docs/measurement.md: a multiply-add is two operations, each value is read and written once;
activations and weights count as many bytes as they are stored in (packed ones as they are packed). What shapes do not tell
(state-space scans, the experts that several rows choose) is unknown, NaN. Does not import torch.
"""
from __future__ import annotations

import math
import re
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from .names import ACTIVATIONS, Module, Part, Plan

Amount = Tuple[float, float]  # FLOPs and bytes
UNKNOWN: Amount = (math.nan, math.nan)
ACTIVATION, SOFTMAX, NORM = 4, 5, 7  # FLOPs per value


class Pass(NamedTuple):
    """What is known of a pass before its modules are called."""

    rows: int
    query: int  # positions of each row; 0: not known, as of images
    cached: int  # positions that were read before
    causal: bool


# ---- tensors -----------------------------------------------------------------------------------


def nbytes(tensor: Any) -> float:
    """Bytes in which a tensor is stored; those of a packed one are its members'."""
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is not None:
        return sum(nbytes(getattr(tensor, name)) for name in flatten()[0])
    scales = getattr(getattr(tensor, "quant_state", None), "absmax", None)  # bitsandbytes keeps them beside the values
    return float(tensor.numel() * tensor.element_size()) + (nbytes(scales) if scales is not None else 0)


def tensors_in(value: Any) -> Iterator[Any]:
    """Tensors of values among a module's arguments or results; ids and masks are not."""
    if hasattr(value, "is_floating_point"):
        if value.is_floating_point():
            yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from tensors_in(each)


def _moved(*values: Any) -> float:
    return sum(nbytes(tensor) for tensor in tensors_in(values))


def stored_bytes(module: Module) -> float:
    """Bytes of a module's weights and those of its submodules; torch's own quantised layers pack them into an object."""
    packed = [m.weight() for m in module.modules() if callable(getattr(m, "weight", None))]
    return sum(nbytes(t) for t in [*module.parameters(), *module.buffers(), *packed])


def first_tensor(value: Any) -> Any:
    return next(tensors_in((value,)), None)


SIZES = {"layers": "num_hidden_layers", "hidden_size": "hidden_size", "vocab_size": "vocab_size", "heads": "num_attention_heads",
         "kv_heads": "num_key_value_heads", "ffn_size": "intermediate_size"}


def sizes_of(config: Any, value_bytes: float) -> Dict[str, Any]:
    """A model's sizes, as they are stored with its runs: those that its configuration states, and the bytes that a token
    takes in its cache if every layer keeps keys and values of all tokens in a type of so many bytes."""
    facts = {name: getattr(config, theirs) for name, theirs in SIZES.items() if isinstance(getattr(config, theirs, None), int)}
    if facts.keys() >= {"layers", "hidden_size", "heads"} and facts["heads"] and not any(
            getattr(config, name, None) for name in ("kv_lora_rank", "sliding_window", "layer_types", "layers_block_type", "state_size")):
        head = getattr(config, "head_dim", None) or facts["hidden_size"] // facts["heads"]
        facts["kv_bytes_per_token"] = int(2 * facts["layers"] * facts.get("kv_heads", facts["heads"]) * head * value_bytes)
    return facts


# ---- modules -----------------------------------------------------------------------------------


def _linear_size(module: Module) -> Optional[Tuple[int, int]]:
    for a, b in (("in_features", "out_features"), ("infeatures", "outfeatures"), ("nx", "nf")):
        if type(getattr(module, a, None)) is int and type(getattr(module, b, None)) is int:
            return getattr(module, a), getattr(module, b)
    return None


def _linear_leaves(module: Module) -> List[Module]:
    """The linear layers that a module consists of: an adapter has those of the original and its own."""
    inner = [leaf for child in module._modules.values() if child is not None for leaf in _linear_leaves(child)]
    return inner or ([module] if _linear_size(module) else [])


def _linear(module: Module) -> Callable[[Any, Any], Amount]:
    leaves, stored = _linear_leaves(module), stored_bytes(module) or math.nan
    sizes = [(_linear_size(leaf) or (0, 0), getattr(leaf, "bias", None) is not None) for leaf in leaves]
    per_row = float(sum(2 * i * o + biased * o for (i, o), biased in sizes))

    def amount(inputs: Any, out: Any) -> Amount:
        out = first_tensor(out)
        return per_row * out.numel() / out.shape[-1], stored + _moved(inputs, out)
    return amount


def _router(module: Module) -> Callable[[Any, Any], Amount]:
    """A product with a matrix of its own, before a choice of experts."""
    stored = stored_bytes(module)

    def amount(inputs: Any, out: Any) -> Amount:
        x = first_tensor(inputs)
        return 2.0 * module.weight.shape[0] * x.numel(), stored + _moved(x)
    return amount


def _embedding(module: Module) -> Callable[[Any, Any], Amount]:
    row = stored_bytes(module) / module.num_embeddings

    def amount(inputs: Any, out: Any) -> Amount:
        out = first_tensor(out)
        return 0.0, row * out.numel() / out.shape[-1] + _moved(out)
    return amount


def _convolution(module: Module) -> Callable[[Any, Any], Amount]:
    per_value, stored = 2.0 * math.prod(module.weight.shape[1:]), stored_bytes(module)
    transposed, biased = "Transpose" in type(module).__name__, getattr(module, "bias", None) is not None

    def amount(inputs: Any, out: Any) -> Amount:
        out = first_tensor(out)
        values = first_tensor(inputs).numel() if transposed else out.numel()
        return per_value * values + biased * out.numel(), stored + _moved(inputs, out)
    return amount


def _elementwise(module: Module, each: int) -> Callable[[Any, Any], Amount]:
    stored = stored_bytes(module)

    def amount(inputs: Any, out: Any) -> Amount:
        return float(each * first_tensor(out).numel()), stored + _moved(inputs[:1], out)
    return amount


def _experts(module: Module) -> Callable[[Any, Any], Amount]:
    """Experts in one module: how many rows each computes is in the routing that it is called with."""
    weights = [p for p in module.parameters(recurse=False) if p.dim() == 3]
    per_entry = 2.0 * sum(math.prod(w.shape[1:]) for w in weights)
    of_one = sum(nbytes(w) / w.shape[0] for w in weights)

    def amount(inputs: Any, out: Any) -> Amount:
        chosen = [t for t in inputs if getattr(t, "dim", lambda: 0)() == 2 and not t.is_floating_point()]
        if len(chosen) != 1:
            return UNKNOWN
        rows, each = chosen[0].shape
        # one row's experts differ; which ones several rows share would have to be read from the device
        return per_entry * rows * each, of_one * each + _moved(inputs[:1], out) if rows == 1 else math.nan
    return amount


def of_module(module: Module) -> Optional[Callable[[Any, Any], Amount]]:
    """A function that tells a call's FLOPs and bytes from its inputs and its output; None: not known for such modules."""
    kind, weight = type(module).__name__, getattr(module, "weight", None)
    if getattr(module, "num_experts", None) and any(p.dim() == 3 for p in module.parameters(recurse=False)):
        return _experts(module)
    if "MultiheadAttention" in kind:
        return None
    if _linear_leaves(module) == [module] or _linear_size(module):
        return _linear(module)
    if re.search("mlp|expert|ffn|feedforward", kind.lower()) and _linear_leaves(module):
        return _linear(module)  # a feed-forward block that is timed as a whole: each product has as many rows as its output
    if type(getattr(module, "num_embeddings", None)) is int:
        return _embedding(module)
    if hasattr(module, "kernel_size") and getattr(weight, "dim", lambda: 0)() > 2:
        return _convolution(module)
    if re.search("router|gate", kind.lower()) and getattr(weight, "dim", lambda: 0)() == 2 and not module._modules:
        return _router(module)
    if "norm" in kind.lower() and all(p.dim() <= 1 for p in module.parameters()):
        return _elementwise(module, NORM)
    return None if list(module.parameters()) else _elementwise(module, ACTIVATION)


# ---- what lies between modules -------------------------------------------------------------------


def visible_pairs(of: Pass, query: int, window: Optional[int]) -> float:
    """Pairs of a query and a key that one row's attention computes."""
    if not of.causal:
        return float(query * (of.cached + query))
    first = of.cached + 1
    if window is None or of.cached + query <= window:
        return query * (first + of.cached + query) / 2
    growing = max(0, min(query, window - of.cached))  # queries that see all before them
    return growing * (2 * first + growing - 1) / 2 + (query - growing) * window


class Attention:
    """Between the projections: scores, softmax, and the sum of values, and the cache."""

    def __init__(self, module: Module, config: Any) -> None:
        def width(*names: str) -> Optional[int]:
            size = next((s for s in (_linear_size(module._modules[n]) for n in names if n in module._modules) if s), None)
            return size[1] if size else None

        self.keys, self.values = width("k_proj", "key", "k", "k_lin"), width("v_proj", "value", "v", "v_lin")
        self.head = getattr(module, "head_dim", getattr(module, "key_value_proj_dim", None))
        heads, kv = getattr(config, "num_attention_heads", None), getattr(config, "num_key_value_heads", None)
        self.share = kv / heads if isinstance(kv, int) and isinstance(heads, int) else 1.0
        window = getattr(module, "sliding_window", None)
        if not hasattr(module, "sliding_window") and not hasattr(config, "layer_types"):
            window = getattr(config, "sliding_window", None)
        self.window: Optional[int] = window if isinstance(window, int) and window > 0 else None
        self.causal: Optional[bool] = getattr(module, "is_causal", None)
        # queries and keys of another width than values: DeepSeek's
        self.ratio = getattr(module, "qk_head_dim", 1) / getattr(module, "v_head_dim", 1)
        self.latent = hasattr(module, "kv_lora_rank")

    def amount(self, of: Pass, shape: Tuple[int, ...], size: int) -> Amount:
        """`shape`: of what the projection after it reads, in values of so many bytes."""
        query = shape[-2] if len(shape) > 2 else of.query
        if len(shape) < 2 or not query:
            return UNKNOWN
        width = shape[-1]
        rows = math.prod(shape[:-1]) // query
        if self.causal is not None:
            of = of._replace(causal=self.causal)
        pairs = rows * visible_pairs(of, query, self.window)
        flops = 2 * (1 + self.ratio) * width * pairs
        if isinstance(self.head, int) and self.head > 0:
            flops += SOFTMAX * pairs * width / self.head + rows * query * width
        if self.latent:
            return flops, math.nan  # whether it caches keys or what they are made of is the implementation's choice
        kept = (self.keys or width * self.share) + (self.values or width * self.share)
        seen = of.cached + query if self.window is None else min(of.cached + query, self.window + query - 1)
        return flops, size * rows * (kept * (seen + query) + 2 * query * width)


class GapWork:
    """The work that lies before a part, without a module of its own."""

    def __init__(self, part: Part, config: Any = None) -> None:
        parent, gap = part.parent, (part.gap or "").rsplit(".", 1)[-1]
        self.attention = Attention(parent, config) if gap == "attention" and parent is not None and not _is_cross(part) else None
        siblings: List[str] = list(parent._modules) if parent is not None else []
        self.activation = 0
        if gap == "act":
            gated = any("gate" in name for name in siblings)
            self.activation = ACTIVATION + gated
            if {"gate_proj", "up_proj"} <= set(siblings) and any(name in ACTIVATIONS for name in siblings):
                self.activation = 1  # the activation is a module that is timed itself, and only the product is left

    def amount(self, of: Pass, shape: Tuple[int, ...], size: int) -> Amount:
        """`shape`: of what the part reads, in values of so many bytes."""
        if self.attention is not None:
            return self.attention.amount(of, shape, size)
        if self.activation:
            values = math.prod(shape)
            return float(self.activation * values), float(size * values * (2 if self.activation == ACTIVATION else 3))
        return UNKNOWN


class Work:
    """The work of one part, and of what lies before it."""

    def __init__(self, part: Part, config: Any = None) -> None:
        self._of_module, self._gap = of_module(part.module), GapWork(part, config)
        self.attention = self._gap.attention

    def of_call(self, inputs: Any, out: Any) -> Amount:
        try:
            return UNKNOWN if self._of_module is None else self._of_module(inputs, out)
        except (AttributeError, TypeError, IndexError, ZeroDivisionError):  # called otherwise than others of its kind
            return UNKNOWN

    def of_gap(self, of: Pass, inputs: Any) -> Amount:
        values = first_tensor(inputs)
        return UNKNOWN if values is None else self._gap.amount(of, tuple(values.shape), values.element_size())


def works_of(plan: Plan, config: Any = None) -> Dict[int, Work]:
    """By id() of the modules that are parts of the plan."""
    config = getattr(config, "text_config", None) or config
    found: Dict[int, Work] = {}
    for part in plan.parts:
        try:
            found[id(part.module)] = Work(part, config)
        except (AttributeError, TypeError, KeyError, NotImplementedError):  # has weights of another sort: unknown
            continue
    return found


def _is_cross(part: Part) -> bool:
    """Whether attention reads another text than its own, whose length a pass of the model does not tell."""
    return bool(getattr(part.parent, "is_cross_attention", False)) or any(
        "cross" in name.lower() or name in ("encoder_attn", "EncDecAttention") for name in part.path.split(".")[:-1])
