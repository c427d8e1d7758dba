"""Which modules are timed and what they are called; no torch needed."""
import types
import unittest

from made_model import Attention, Block, Gated, Linear, Model, Module, ModuleList, Norm
from perjoule.errors import ModelNotRecognised
from perjoule.names import plan_of


def names(plan, layer):
    return [name for part in plan.parts if part.layer == layer for name in (part.gap, part.component) if name]


class Names(unittest.TestCase):
    def test_a_block_has_its_projections_norms_and_what_lies_between(self):
        plan = plan_of(Model())
        self.assertEqual(plan.blocks, "model.layers")
        self.assertEqual(sorted(names(plan, 0)), sorted(
            ["attention", "o_proj", "q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "act", "act", "down_proj",
             "input_layernorm", "post_attention_layernorm"]))
        self.assertEqual(names(plan, 0), names(plan, 1))
        outside = {part.path: (part.section, part.component) for part in plan.parts if part.layer < 0}
        self.assertEqual(outside, {
            "model.embed_tokens": ("embedding", "embed_tokens"), "model.norm": ("final_norm", "norm"),
            "model.rotary_emb": ("position_embedding", None), "lm_head": ("lm_head", "lm_head")})
        self.assertEqual((plan.unmatched, plan.logits, plan.gated_attention), ([], False, []))

    def test_a_plain_mlp_has_one_activation(self):
        mlp = Module(fc1=Linear(), activation_fn=Module(), fc2=Linear())
        self.assertEqual([n for n in names(plan_of(Model(Block(mlp))), 0) if n == "act"], ["act"])

    def test_experts_are_one_component_and_their_gate_is_the_router(self):
        one = Module(gate_proj=Linear(), up_proj=Linear(), down_proj=Linear())
        whole = Module(gate=Linear(), experts=Module(weights=True), shared_expert=one, shared_expert_gate=Linear())
        apart = Module(gate=Linear(), experts=ModuleList([Module(w1=Linear(), w2=Linear()), Module(w1=Linear(), w2=Linear())]))
        found = names(plan_of(Model(Block(whole))), 0)
        self.assertEqual([n for n in found if n in ("router", "experts", "shared_expert", "act", "gate_proj")],
                         ["router", "experts", "shared_expert", "shared_expert"])
        found = names(plan_of(Model(Block(apart))), 0)
        self.assertEqual(found.count("experts"), 2)
        self.assertNotIn("w1", found)

    def test_a_shared_block_beside_experts_is_the_shared_expert(self):
        def linear(*parts):
            return Module(**{part: Linear() for part in parts})
        shared = linear("gate_proj", "up_proj", "down_proj")
        hunyuan = Module(gate=Module(wg=Linear()), experts=Module(weights=True), shared_mlp=shared)
        self.assertEqual([n for n in names(plan_of(Model(Block(hunyuan))), 0) if "proj" not in n and "norm" not in n],
                         ["attention", "router", "experts", "shared_expert"])
        granite = Module(self_attn=Attention(), block_sparse_moe=Module(
            router=Module(layer=Linear()), input_linear=Module(weights=True), output_linear=Module(weights=True)),
            shared_mlp=linear("input_linear", "output_linear"))
        self.assertEqual([n for n in names(plan_of(Model(granite)), 0) if "proj" not in n],
                         ["attention", "router", "experts", "experts", "shared_expert"])
        dense = Module(self_attn=Attention(), shared_mlp=linear("input_linear", "output_linear"))
        self.assertIn("input_linear", names(plan_of(Model(dense)), 0))

    def test_other_trees_keep_the_names_that_they_have(self):
        def block():
            return Module(ln_1=Norm(), attn=Module(c_attn=Linear(), c_proj=Linear()),
                          mlp=Module(c_fc=Linear(), c_proj=Linear(), act=Module()))
        model = Module(transformer=Module(wte=Linear(), wpe=Linear(), h=ModuleList([block(), block()]), ln_f=Norm()),
                       lm_head=Linear())
        plan = plan_of(model)
        self.assertEqual(plan.blocks, "transformer.h")
        self.assertEqual(names(plan, 1), ["ln_1", "c_attn", "attention", "attn.c_proj", "c_fc", "act", "mlp.c_proj"])

    def test_what_lies_between_projections_in_other_families(self):
        def linear(*names):
            return Module(**{name: Linear() for name in names})
        bert = Module(attention=Module(inner=linear("query", "key", "value"), output=linear("dense", "LayerNorm")),
                      intermediate=linear("dense"), output=linear("dense", "LayerNorm"))
        mamba = Module(norm=Norm(), mixer=linear("in_proj", "x_proj", "out_proj"))
        attention = Module(norm=Norm(), mixer=linear("q_proj", "k_proj", "v_proj", "o_proj"))
        mlp = Module(norm=Norm(), mixer=linear("up_proj", "down_proj"))
        for block, expected in ((bert, ["attention", "act"]), (mamba, ["scan"]), (attention, ["attention"]), (mlp, ["act"])):
            self.assertEqual([part.gap for part in plan_of(Model(block, block)).parts if part.layer == 0 and part.gap], expected)

    def test_a_scan_ends_before_the_norm_that_follows_it(self):
        mixer = Module(in_proj=Linear(), conv1d=Linear(), norm=Norm(), out_proj=Linear())
        plan = plan_of(Model(Module(norm=Norm(), mamba=mixer)))
        self.assertEqual(names(plan, 0), ["layer.norm", "in_proj", "conv1d", "scan", "mamba_norm", "out_proj"])

    def test_a_norm_that_is_not_called_ends_nothing(self):
        mixer = Module(in_proj=Linear(), conv1d=Linear(), norm=Norm(), out_proj=Linear())
        mixer.mamba_rms_norm = False
        plan = plan_of(Model(Module(norm=Norm(), mamba=mixer)))
        self.assertEqual(names(plan, 0), ["layer.norm", "in_proj", "conv1d", "scan", "out_proj"])

    def test_a_rotation_ends_where_queries_are_normed_after_it(self):
        attention = Module(q_proj=Linear(), k_proj=Linear(), qk_norm=Norm(), v_proj=Linear(), o_proj=Linear())
        plan = plan_of(Model(Module(self_attn=attention, norm=Norm())))
        self.assertIn("rotary_emb", names(plan, 0))

    def test_streams_of_gemma_3n_have_the_engines_names(self):
        altup = Module(router_norm=Norm(), modality_router=Linear(), prediction_coefs=Linear(), correction_coefs=Linear())
        laurel = Module(linear_left=Linear(), linear_right=Linear(), post_laurel_norm=Norm())
        model = Model(Module(altup=altup, laurel=laurel, per_layer_input_gate=Linear(), per_layer_projection=Linear()))
        inner = model._modules["model"]
        inner._modules["altup_projections"] = ModuleList([Linear(), Linear()])
        inner._modules["altup_unembed_projections"] = ModuleList([Linear(), Linear()])
        plan = plan_of(model)
        self.assertEqual(names(plan, 0), [
            "router_norm", "modality_router", "modalities", "prediction_coefs", "modalities", "correction_coefs", "linear_left",
            "linear_right", "post_laurel_norm", "altup_correct", "per_layer_input_gate", "per_layer_act", "per_layer_projection"])
        final = [part.component for part in plan.parts if part.section == "final_norm"]
        self.assertEqual(final[-1], "norm" if "norm" in final else "altup_unembed_projections")
        outside = [(part.path, part.section, part.component) for part in plan.parts if "altup" in part.path and part.layer < 0]
        self.assertEqual(outside, [
            (f"model.{name}.{i}", section, name)
            for name, section in (("altup_projections", "embedding"), ("altup_unembed_projections", "final_norm"))
            for i in range(2)])
        self.assertEqual(plan.unmatched, [])

    def test_no_part_of_a_block_has_the_name_of_one_outside(self):
        plan = plan_of(Model(Module(norm=Norm(), mlp=Module(head=Linear(), lm_head=Linear(), embed_tokens=Norm()))))
        outside = {part.component for part in plan.parts if part.layer < 0}
        self.assertFalse(outside & set(names(plan, 0)))
        self.assertEqual(names(plan, 0), ["layer.norm", "head", "mlp.lm_head", "mlp.embed_tokens"])

    def test_a_router_with_parts_of_its_own_is_timed_as_a_whole(self):
        moe = Module(gate=Module(True, statics=Linear()), experts=Module(True))
        found = names(plan_of(Model(Block(moe))), 0)
        self.assertEqual([name for name in found if name in ("router", "statics", "experts")], ["router", "experts"])

    def test_a_projection_is_one_part_whatever_is_inside(self):
        def packed(*sizes):  # quantised: its weights are buffers
            layer = Module()
            layer.__dict__.update(zip(sizes or ("in_features", "out_features"), (4, 4)))
            return layer

        def adapted():
            layer = packed()
            layer._modules.update(base_layer=Linear(), lora_A=Module(default=Linear()), lora_B=Module(default=Linear()))
            return layer

        for make in (packed, adapted, lambda: packed("infeatures", "outfeatures")):
            block = Block()
            for owner in (block.self_attn, block.mlp):
                owner._modules.update((name, make()) for name in owner._modules if name.endswith("_proj"))
            model = Model(block, Block())
            model.model._modules["embed_tokens"] = packed("num_embeddings", "embedding_dim")
            plan = plan_of(model)
            self.assertEqual((names(plan, 0), plan.unmatched), (names(plan, 1), []))
            self.assertIn("attention", names(plan, 0))
            self.assertIn("embed_tokens", [part.component for part in plan.parts if part.layer < 0])
        self.assertEqual([part.component for part in plan_of(Module(first=packed(), act=Module())).parts], ["first"])

    def test_blocks_whose_parts_are_in_one_list(self):
        def block(*parts):
            return Module(layer=ModuleList([Module(layer_norm=Norm(), **{name: Attention()}) for name in parts]))
        model = Module(encoder=Module(block=ModuleList([block("SelfAttention") for _ in range(3)])),
                       decoder=Module(block=ModuleList([block("SelfAttention", "EncDecAttention") for _ in range(2)])))
        plan = plan_of(model)
        self.assertEqual((plan.blocks, len(plan.layers), plan.unmatched), ("decoder.block", 2, []))
        encoder = [part.component for part in plan.parts if part.section == "encoder"]
        self.assertEqual((len(encoder), len(set(encoder))), (15, 5))
        self.assertIn("encoder.attention", {part.gap for part in plan.parts})

    def test_heads_of_classifiers(self):
        model = Model(pooler=Module(dense=Linear()), classifier=Linear())
        plan = plan_of(model)
        self.assertEqual(plan.unmatched, [])
        self.assertEqual([p.component for p in plan.parts if p.section == "lm_head" and p.component != "lm_head"], ["pooler", "classifier"])

    def test_weights_of_two_modules_are_matched_once(self):
        model = Model()
        twin, other = Linear(), Linear()
        twin._parameters = model.model.embed_tokens._parameters
        model._modules.update(twin=twin, other=other)
        self.assertEqual(plan_of(model).unmatched, ["other"])

    def test_what_matches_nothing_is_said(self):
        tower = Module(encoder=Module(layers=ModuleList([Block(), Block(), Block(), Block()])))
        plan = plan_of(Model(vision_tower=tower, odd=Linear()))
        self.assertEqual(plan.blocks, "model.layers")
        self.assertEqual(plan.unmatched, ["vision_tower", "odd"])

    def test_a_model_without_blocks_has_its_modules_by_their_paths(self):
        class MultiheadAttention(Module):
            pass
        plan = plan_of(Module(first=Linear(), act=Module(), inside=Module(
            deep=Linear(), attend=MultiheadAttention(out_proj=Linear()))))
        self.assertEqual([(p.component, p.section, p.layer) for p in plan.parts], [
            (path, "modules", -1) for path in ("first", "inside.deep", "inside.attend")])
        self.assertEqual((plan.layers, plan.unmatched), ([], []))

    def test_a_model_without_parts_is_refused_with_the_remedy(self):
        with self.assertRaisesRegex(ModelNotRecognised, "profiling_depth='off'"):
            plan_of(Module(act=Module()))

    def test_a_gate_of_the_output_is_seen_by_its_shape(self):
        plan = plan_of(Model(Block(gated=True)))
        self.assertEqual(plan.gated_attention, [])  # this file has no attention functions
        import made_model
        made_model.ALL_ATTENTION_FUNCTIONS = {}
        self.addCleanup(delattr, made_model, "ALL_ATTENTION_FUNCTIONS")
        self.assertEqual(plan_of(Model(Block(gated=True))).gated_attention, [vars(made_model)])
        self.assertEqual(plan_of(Model()).gated_attention, [])

    def test_what_follows_the_head(self):
        for config, expected in ((dict(final_logit_softcapping=30.0), True), (dict(logits_scaling=8.0), True),
                                 (dict(logits_scaling=1.0), False), (dict(final_logit_softcapping=None), False)):
            model = Model()
            model.config = types.SimpleNamespace(**config)
            self.assertEqual(plan_of(model).logits, expected, config)


class Numbers(unittest.TestCase):
    def test_every_block_has_its_index(self):
        plan = plan_of(Model(*(Block(Gated()) for _ in range(5))))
        self.assertEqual([index for index, _ in plan.layers], list(range(5)))
        self.assertEqual({part.layer for part in plan.parts}, {-1, 0, 1, 2, 3, 4})


if __name__ == "__main__":
    unittest.main()
