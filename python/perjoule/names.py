"""Maps the modules of a model to the component names of a run.

Walks a module tree as Hugging Face models have it (`model.layers.3.self_attn.q_proj`) and decides which
modules are timed and under which component name, and which work happens between them without a module of
its own: the attention core is what lies between the projections of an attention module. The names are
those of perjoule's own engine, so that runs of both compare side by side. Unknown module trees are treated
the same way and keep the names of their modules; without a list of blocks their modules with weights are
components of one section. Does not import torch: a module is anything with `_modules` and `_parameters`.
"""
from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field, replace
from typing import Any, Container, Dict, Iterator, List, Optional, Tuple

from .errors import ModelNotRecognised

# Modules outside the blocks: attribute -> section of the run.
SECTIONS = {
    "embedding": ("embed_tokens", "wte", "word_embeddings", "embed_in", "tok_embeddings", "embed_tokens_per_layer",
                  "per_layer_model_projection", "per_layer_projection_norm", "word_embeddings_layernorm", "embeddings",
                  "tokens_embed", "layernorm_embedding", "embedder", "patch_embed", "altup_projections"),
    "position_embedding": ("rotary_emb", "wpe", "embed_positions", "rotary_emb_local", "positions_embed",
                           "position_embeddings"),
    "final_norm": ("norm", "final_layernorm", "ln_f", "final_layer_norm", "norm_f", "final_norm", "layer_norm", "ln_out",
                   "embedding_norm", "layernorm", "altup_unembed_projections"),
    "lm_head": ("lm_head", "embed_out", "output", "output_projection", "proj_out", "head", "pooler", "pre_classifier", "classifier", "score",
                "qa_outputs"),  # or what else makes the model's results of the last block's
}
MODULES = "modules"  # section of a model without blocks
ENCODER = "encoder"  # section of the encoder of a model whose decoder generates text
WITHOUT_COMPONENT = ("rotary_emb", "rotary_emb_local")  # tables, not work of a component
WHOLE = ("experts", "shared_expert", "shared_experts")  # timed as a whole, without their submodules
WHOLE_TYPES = ("MultiheadAttention",)  # uses its submodules' weights without calling the submodules
# Sizes that a linear layer or an embedding has, even if its weights are packed or buffers (quantised), or if it wraps
# the original layer (adapters).
SIZES = (("in_features", "out_features"), ("infeatures", "outfeatures"), ("num_embeddings", "embedding_dim"))
ACTIVATIONS = ("act_fn", "activation_fn", "act", "activation")
ATTENTION_OUT = ("o_proj", "o", "dense", "out_proj", "c_proj", "wo", "Wo", "out_lin", "attention_out")
MLP_OUT = ("down_proj", "fc2", "c_proj", "w2", "dense_4h_to_h", "fc_out", "wo", "Wo", "dense", "output_linear")
# Functions of a modelling file whose work has no module of its own: name -> component. A convolution has the name of the
# module that holds its weights.
FUNCTIONS = {
    "causal_conv1d_fn": "conv1d",
    "causal_conv1d_update": "conv1d",
    "torch_causal_conv1d_fn": "conv1d",
    "torch_causal_conv1d_update": "conv1d",
    "chunk_gated_delta_rule": "delta_rule",
    "fused_recurrent_gated_delta_rule": "delta_rule",
    "recurrent_gated_delta_rule": "delta_rule",
    "torch_chunk_gated_delta_rule": "delta_rule",
    "torch_recurrent_gated_delta_rule": "delta_rule",
}

# What mixes the streams of a block with several of them (Gemma 3n's), by the module before which it does.
STREAMS = {"input_layernorm": "altup_predict", "pre_feedforward_layernorm": "laurel", "per_layer_input_gate": "altup_correct"}

HEAD_FACTORS = ("logits_scaling", "logit_scale", "lm_head_multiplier")  # of a configuration

Module = Any  # torch.nn.Module, or anything with its attributes
Namespace = Dict[str, Any]
Leaf = Tuple[List[str], Module, List[str]]  # path inside a block, module, names of its siblings


@dataclass
class Part:
    """One module that is timed."""

    path: str
    module: Module
    component: Optional[str]
    section: Optional[str] = None  # outside the blocks
    layer: int = -1
    gap: Optional[str] = None  # component that runs between the end of the previous part and the start of this one
    parent: Optional[Module] = None  # the module within a block that holds it


@dataclass
class Plan:
    """The parts of a model that are timed."""

    blocks: str  # path of the list of blocks
    layers: List[Tuple[int, Module]] = field(default_factory=list)
    parts: List[Part] = field(default_factory=list)
    functions: List[Tuple[Namespace, str, str]] = field(default_factory=list)  # (namespace, name, component)
    gated_attention: List[Namespace] = field(default_factory=list)  # namespaces whose attention has an output gate
    logits: bool = False  # the head is followed by a scale or a soft cap
    encoder: Optional[Module] = None  # of a decoder, which is called before it
    unmatched: List[str] = field(default_factory=list)  # paths of modules with weights that no entry above covers

    def without_parts_of(self, blocks: Container[int]) -> "Plan":
        """The same without what is inside the blocks of these indices. Functions are left alone, too: blocks call them."""
        return replace(self, parts=[part for part in self.parts if part.layer not in blocks], functions=[], gated_attention=[])


def _children(module: Module) -> Iterator[Tuple[str, Module]]:
    return ((name, child) for name, child in module._modules.items() if child is not None)


def _is_projection(module: Module) -> bool:
    """Whether a module as a whole is one linear layer or embedding, whatever is inside."""
    return any(all(type(getattr(module, size, None)) is int for size in sizes) for sizes in SIZES)


def _own_weights(module: Module) -> bool:
    return any(p is not None for p in module._parameters.values()) or _is_projection(module)


def _has_weights(module: Module) -> bool:
    return _own_weights(module) or any(_has_weights(child) for _, child in _children(module))


def _is_list(module: Module) -> bool:
    names = [name for name, _ in _children(module)]
    return bool(names) and names == [str(i) for i in range(len(names))] and not _own_weights(module)


def _walk(module: Module, path: str = "") -> Iterator[Tuple[str, Module]]:
    for name, child in _children(module):
        here = f"{path}.{name}" if path else name
        yield here, child
        yield from _walk(child, here)


def _size(module: Module) -> int:
    return 1 + sum(_size(child) for _, child in _children(module))


# ---- blocks ----------------------------------------------------------------------------------


def _has_several_parts(block: Module) -> bool:
    """Whether a member of a list may be a block: it has several submodules, perhaps in one that holds them all (T5's)."""
    parts = [child for _, child in _children(block) if _has_weights(child)]
    return _has_several_parts(parts[0]) if len(parts) == 1 else len(parts) > 1


def _block_lists(module: Module, path: str = "") -> Iterator[Tuple[str, Module]]:
    """The outermost module lists whose members have submodules."""
    for name, child in _children(module):
        here = f"{path}.{name}" if path else name
        members = [m for _, m in _children(child)]
        if _is_list(child) and all(_has_several_parts(m) for m in members):
            yield here, child
        else:
            yield from _block_lists(child, here)


def _find_blocks(model: Module) -> Optional[Tuple[str, Module]]:
    """The list of blocks that generates text, rather than an encoder's or a vision tower's."""
    def rank(found: Tuple[str, Module]) -> Tuple[bool, int]:
        path, module = found
        other = re.search(r"vision|visual|image|audio|speech|encoder|draft|mtp", path) is not None
        return (not other, _size(module))

    found = sorted(_block_lists(model), key=rank)
    return found[-1] if found else None


# ---- parts of a block ------------------------------------------------------------------------


def _is_router(name: str, parent: str, siblings: List[str]) -> bool:
    return name == "router" or (name == "gate" and ("experts" in siblings or "moe" in parent))


def _is_shared(name: str, siblings: List[str]) -> bool:
    """Whether a block that has another name elsewhere is the expert of all tokens (Hunyuan's, Granite 4's)."""
    return name == "shared_mlp" and ("experts" in siblings or "block_sparse_moe" in siblings)


def _component(path: List[str], siblings: List[str]) -> str:
    """The component name of the module at `path` inside a block."""
    name, parent = path[-1], path[-2] if len(path) > 1 else ""
    if _is_router(name, parent, siblings):
        return "router"
    if parent == "block_sparse_moe" and name in ("input_linear", "output_linear"):
        return "experts"
    if _is_shared(name, siblings) or name in ("shared_expert_gate", "shared_experts", "shared_expert"):
        return "shared_expert"
    if name in ACTIVATIONS:
        return "act"
    if name == "norm" and parent in ("linear_attn", "mamba", "mixer"):
        return "linear_attn_norm" if parent == "linear_attn" else "mamba_norm"
    return name


def _used(module: Module) -> List[Tuple[str, Module]]:
    """Its submodules, without a norm that it has but does not call (Falcon-H1's state-space layers)."""
    return [(name, child) for name, child in _children(module) if name != "norm" or getattr(module, "mamba_rms_norm", True)]


def _leaves(block: Module) -> Iterator[Leaf]:
    """The parts of a block that are timed."""
    def visit(module: Module, path: List[str]) -> Iterator[Leaf]:
        siblings = [name for name, _ in _used(module)]
        for name, child in _used(module):
            here = path + [name]
            if name == "experts" and _is_list(child):  # each expert is called separately
                for _, expert in _children(child):
                    yield here, expert, siblings
            elif ((name in WHOLE or _is_shared(name, siblings)) and _has_weights(child)
                  or type(child).__name__ in WHOLE_TYPES or _is_projection(child)
                  or _is_router(name, path[-1] if path else "", siblings)):
                yield here, child, siblings
            elif any(_has_weights(grandchild) for _, grandchild in _children(child)):
                yield from visit(child, here)
            elif _own_weights(child) or "norm" in name.lower() or name in ACTIVATIONS:
                yield here, child, siblings
    yield from visit(block, [])


def _kind_of_place(path: List[str]) -> str:
    container = path[-2].lower() if len(path) > 1 else ""
    if container == "output":  # BERT and its relatives keep the output projections apart
        return _kind_of_place(path[:-1]) or "mlp"
    if "linear_attn" in container:
        return "delta"
    if re.search(r"mamba|mixer|ssm", container):
        return "mixer"
    if "attn" in container or "attention" in container:
        return "attention"
    if re.search(r"mlp|ffn|feed_forward|^ff$", container):
        return "mlp"
    return ""


def _gap_before(path: List[str], siblings: List[str]) -> Optional[str]:
    """The component that runs between the previous parts and this one without a module of its own."""
    name, place = path[-1], _kind_of_place(path)
    if place == "mixer":  # of a hybrid model: a state-space scan, or in other blocks attention or a feed-forward part
        place = next((kind for kind, sibling in (("attention", "k_proj"), ("mlp", "up_proj")) if sibling in siblings), place)
        if place == "mixer" and name == ("norm" if "norm" in siblings else "out_proj") and "in_proj" in siblings:
            return "scan"
    if place == "attention" and name in ATTENTION_OUT:
        return "attention"
    if place == "mlp" and name in MLP_OUT and "experts" not in siblings:
        return "act"
    if name in ("query_layernorm", "qk_norm"):  # Hunyuan's and Llama 4's, after the rotation
        return "rotary_emb"
    if name == "per_layer_projection":
        return "per_layer_act"
    if name in ("prediction_coefs", "correction_coefs"):  # Gemma 3n's, of the streams
        return "modalities"
    return STREAMS.get(name) if "altup" in siblings else None


def _is_timed(path: List[str], siblings: List[str]) -> bool:
    """An activation is part of the gap before the last projection, unless another projection comes between."""
    if path[-1] not in ACTIVATIONS:
        return True
    return _kind_of_place(path) == "mlp" and "gate_proj" in siblings and "up_proj" in siblings


def _at(module: Module, path: List[str]) -> Module:
    for name in path:
        module = module._modules[name]
    return module


def _block_parts(prefix: str, index: int, block: Module, taken: Container[str]) -> Iterator[Part]:
    """The parts of a block. The names `taken` belong to parts outside the blocks, by which a run's sections are found."""
    leaves = [leaf for leaf in _leaves(block) if _is_timed(leaf[0], leaf[2])]
    names = [_component(path, siblings) for path, _, siblings in leaves]
    places = {name: {tuple(p[0][:-1]) for p, n in zip(leaves, names) if n == name} for name in set(names)}
    for (path, module, siblings), name in zip(leaves, names):
        if name in taken or (len(places[name]) > 1 and name not in ("act", "router", "experts", "shared_expert")):
            name = ".".join(path if len(path) > 1 else ["layer", *path])  # disambiguate a name that occurs twice
        yield Part(f"{prefix}.{'.'.join(path)}", module, name, layer=index, gap=_gap_before(path, siblings),
                   parent=_at(block, path[:-1]))


# ---- the whole model -------------------------------------------------------------------------


def _name_outside(path: str) -> str:
    """The last name of a path; of a member of a list the list's."""
    names = [name for name in path.split(".") if not name.isdigit()]
    return names[-1]


def _outside(model: Module, blocks_path: str) -> Iterator[Tuple[str, Module]]:
    """(path, module) of the outermost modules outside the blocks that have weights or a section's name."""
    def visit(module: Module, path: str) -> Iterator[Tuple[str, Module]]:
        for name, child in _children(module):
            here = f"{path}.{name}" if path else name
            if here == blocks_path:
                continue
            known = any(name in names for names in SECTIONS.values())
            if known and not _is_list(child):
                yield here, child
            elif known and all(_is_projection(member) for _, member in _children(child)):
                yield from ((f"{here}.{number}", member) for number, member in _children(child))
            elif blocks_path.startswith(here + "."):
                yield from visit(child, here)
            elif _has_weights(child):
                yield here, child
    yield from visit(model, "")


def _has_output_gate(block: Module) -> bool:
    """Whether q_proj also computes the output gates: it then has twice as many rows as o_proj has inputs."""
    attention = block._modules.get("self_attn")
    if attention is None:
        return False
    q, o = attention._modules.get("q_proj"), attention._modules.get("o_proj")
    return bool(getattr(q, "out_features", 0) == 2 * getattr(o, "in_features", -1))


def _namespaces(plan: Plan) -> List[Namespace]:
    files = {type(block).__module__ for _, block in plan.layers}
    return [vars(sys.modules[name]) for name in sorted(files) if name in sys.modules]


def _convolution(block: Module) -> Optional[str]:
    """The name of the module of short convolutions in a block, whose weights functions use."""
    return next((here.rsplit(".", 1)[-1] for here, child in _walk(block) if type(child).__name__ == "Conv1d"), None)


def _add_functions(plan: Plan) -> None:
    convolution = next((name for name in (_convolution(block) for _, block in plan.layers) if name), None)
    for namespace in _namespaces(plan):
        if convolution:
            plan.functions += [(namespace, name, convolution if component == "conv1d" else component)
                               for name, component in FUNCTIONS.items() if callable(namespace.get(name))]
        if any(_has_output_gate(block) for _, block in plan.layers) and "ALL_ATTENTION_FUNCTIONS" in namespace:
            plan.gated_attention.append(namespace)


def _follows_head(model: Module) -> bool:
    config = getattr(model, "config", None)
    text = getattr(config, "text_config", None) or config
    scaling = next((s for s in (getattr(text, name, None) for name in HEAD_FACTORS) if s), None)
    return bool(getattr(text, "final_logit_softcapping", None)) or scaling not in (None, 1, 1.0)


def _outermost_with_weights(module: Module, path: str = "") -> Iterator[Tuple[str, Module]]:
    for name, child in _children(module):
        here = f"{path}.{name}" if path else name
        if _own_weights(child) or type(child).__name__ in WHOLE_TYPES:
            yield here, child
        else:
            yield from _outermost_with_weights(child, here)


def _plan_without_blocks(model: Module) -> Plan:
    """Every module with weights of its own, named by its path and assigned to no layer."""
    plan = Plan("")
    for path, module in _outermost_with_weights(model):
        plan.parts.append(Part(path, module, path, section=MODULES))
    if not plan.parts:
        raise ModelNotRecognised(
            f"{type(model).__name__} has no submodule with weights: there is nothing to tell apart; use "
            "profiling_depth='off', or perjoule.measure()"
        )
    return plan


def _encoder_parts(path: str, encoder: Module) -> Iterator[Part]:
    """The parts of an encoder, named as within a block or by their own names, and assigned to no layer."""
    def named(part: Part) -> Part:
        return replace(part, component=f"{ENCODER}.{part.component}", section=ENCODER, layer=-1,
                       gap=part.gap and f"{ENCODER}.{part.gap}")

    lists = {id(blocks): here for here, blocks in _block_lists(encoder, path)}

    def visit(module: Module, here: str) -> Iterator[Part]:
        for name, child in _children(module):
            inner = f"{here}.{name}"
            if id(child) in lists:
                for index, (number, block) in enumerate(_children(child)):
                    yield from map(named, _block_parts(f"{inner}.{number}", index, block, ()))
            elif _own_weights(child) or type(child).__name__ in WHOLE_TYPES:
                yield named(Part(inner, child, name))
            else:
                yield from visit(child, inner)
    return visit(encoder, path)


def _parameters(module: Module) -> Iterator[int]:
    for each in (module, *(child for _, child in _walk(module))):
        yield from (id(p) for p in each._parameters.values() if p is not None)


def _has_encoder(plan: Plan, name: str, module: Module) -> bool:
    """Whether a module beside the blocks is the encoder that their decoder reads from, rather than a tower for images."""
    return name == ENCODER and "decoder" in plan.blocks.split(".") and any(True for _ in _block_lists(module))


def plan_of(model: Module) -> Plan:
    """The plan of what to time in `model`; raises ModelNotRecognised if that is nothing."""
    found = _find_blocks(model)
    if found is None:
        return _plan_without_blocks(model)
    path, blocks = found
    plan = Plan(path)
    outside = list(_outside(model, path))
    taken = {_name_outside(here) for here, _ in outside}
    for index, (name, block) in enumerate(_children(blocks)):
        plan.layers.append((index, block))
        plan.parts += _block_parts(f"{path}.{name}", index, block, taken)
    unknown: List[Tuple[str, Module]] = []
    for here, module in outside:
        name = _name_outside(here)
        section = next((s for s, names in SECTIONS.items() if name in names), None)
        if section is None and _has_encoder(plan, name, module):
            plan.encoder = module
            plan.parts += _encoder_parts(here, module)
        elif section is None:
            unknown.append((here, module))
        else:
            plan.parts.append(Part(here, module, None if name in WITHOUT_COMPONENT else name, section=section))
    # what brings several streams together is called before the norm of their sum
    plan.parts.sort(key=lambda part: part.section == "final_norm" and "unembed" not in part.path)
    timed = {parameter for part in plan.parts for parameter in _parameters(part.module)}
    # weights that are another module's too are not computed with twice
    plan.unmatched += [here for here, module in unknown if not timed.issuperset(_parameters(module))]
    plan.logits = _follows_head(model)
    _add_functions(plan)
    return plan
