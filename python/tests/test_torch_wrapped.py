"""Models inside wrappers, compiled and graph-captured models, and passes that raise: which tokens are counted, and at
which depth.

Skipped, with the reason, where torch and transformers can't be imported.
"""
import unittest

try:
    import torch
    import transformers
except ImportError as e:
    raise unittest.SkipTest(f"{e.name} is not installed: the tests with real models are not run") from None

import perjoule
from perjoule.session import clock_ns
from perjoule.watch import WHY_PACKED, WHY_REPLICATED, WHY_SILENT, WHY_UNCALLED, WHY_UNSEEN
from profiling.pipeline_profiler import InferencePipelineProfiler
from support import StoredCase, recorded_warnings
from test_torch import CACHE, PROMPT, make

OPTIONS = dict(max_new_tokens=4, min_new_tokens=4, do_sample=False)
PHASES = ["prefill"] + ["decode"] * 3


class Holder(torch.nn.Module):
    """A third-party wrapper that holds the model under an unusual attribute name."""

    def __init__(self, model):
        super().__init__()
        self.inner = model

    def forward(self, *args, **kwargs):
        return self.inner(*args, **kwargs)


class Generating(Holder):
    """Forwards generate, as adapter libraries do."""

    def generate(self, *args, **kwargs):
        return self.inner.generate(*args, **kwargs)


class Packed(torch.nn.Module):
    """A linear layer with its weights in a buffer, as quantised layers have it."""

    def __init__(self, layer):
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.register_buffer("qweight", layer.weight.detach().clone())

    def forward(self, x):
        return torch.nn.functional.linear(x, self.qweight)


class Adapted(torch.nn.Module):
    """A linear layer with low-rank matrices beside it, as adapter libraries have it."""

    def __init__(self, layer):
        super().__init__()
        self.in_features, self.out_features, self.base_layer = layer.in_features, layer.out_features, layer
        self.lora_A = torch.nn.ModuleDict({"default": torch.nn.Linear(self.in_features, 2, bias=False)})
        self.lora_B = torch.nn.ModuleDict({"default": torch.nn.Linear(2, self.out_features, bias=False)})

    def forward(self, x):
        return self.base_layer(x) + self.lora_B["default"](self.lora_A["default"](x))


class Wrapped(StoredCase):
    def setUp(self):
        super().setUp()
        torch._dynamo.reset()
        self.addCleanup(torch._dynamo.reset)
        self.caught = recorded_warnings(self)

    @staticmethod
    def replaced(module):
        return {name: value for name, value in vars(module).items()
                if name in ("generate", "forward", "get_compiled_call", "_compiled_call_impl")}

    def run_of(self, model, call, **options):
        """Profiles `call`, checks that the model is restored, and returns the run's result."""
        before = [self.replaced(m) for m in model.modules()]
        profiler = InferencePipelineProfiler(model, session=self.session(), **options)
        with profiler.run(), torch.no_grad():
            call()
        for module in model.modules():
            self.assertFalse(module._forward_hooks or module._forward_pre_hooks)
        self.assertEqual([self.replaced(m) for m in model.modules()], before)
        return profiler.result

    def check_generated(self, result, level):
        self.assertEqual((result.input_tokens, result.output_tokens), (5, 4))
        self.assertEqual([t["phase"] for t in self.rows("SELECT phase FROM tokens ORDER BY position")], PHASES)
        self.assertEqual(result.summary["level"], level)
        self.check_decode_has_its_tokens(result)
        coarse = [w for w in self.caught if w.category is perjoule.CoarseRecording]
        self.assertEqual(len(coarse), 1 if level == "coarse" else 0, coarse)

    def test_generate_of_what_data_parallel_holds(self):
        replicated = torch.nn.DataParallel(make())
        result = self.run_of(replicated, lambda: replicated.module.generate(PROMPT, **OPTIONS))
        self.check_generated(result, "coarse")
        self.assertEqual(result.summary["settings"]["level_reason"], WHY_REPLICATED)

    def test_a_call_of_data_parallel_is_one_pass(self):
        replicated = torch.nn.DataParallel(make())
        result = self.run_of(replicated, lambda: replicated(PROMPT))
        self.assertEqual((result.input_tokens, result.output_tokens), (5, 1))

    def test_generate_of_a_compiled_model(self):
        compiled = torch.compile(make(), backend="eager")
        self.check_generated(self.run_of(compiled, lambda: compiled.generate(PROMPT, **OPTIONS)), "coarse")

    def test_generate_of_a_wrapper_and_of_what_it_holds(self):
        for wrapper, of in ((Generating(make()), lambda w: w), (Generating(make()), lambda w: w.inner),
                            (Holder(make()), lambda w: w.inner)):
            result = self.run_of(wrapper, lambda: of(wrapper).generate(PROMPT, **OPTIONS))
            self.check_generated(result, "fine")
            self.assertIn((1, "q_proj"), self.components(result.run_id))
            self.setUp()

    def test_compiled_blocks_are_timed_as_layers(self):
        """As diffusers and transformers advise, in place or wrapped; the blocks are not compiled again because of the
        profiler."""
        model, graphs = make(), []

        def backend(graph, inputs):
            graphs.append(graph)
            return graph.forward
        blocks = model.model.layers
        blocks[0].compile(backend=backend)
        blocks[1] = torch.compile(blocks[1], backend=backend)
        expected, got = model.generate(PROMPT, **OPTIONS), []
        compiled = len(graphs)
        result = self.run_of(model, lambda: got.append(model.generate(PROMPT, **OPTIONS)))
        self.assertTrue(torch.equal(expected, got[0]))
        self.assertEqual(len(graphs), compiled)
        self.check_generated(result, "fine")
        self.assertEqual(result.summary["settings"]["compiled_layers"], 2)
        layers = self.rows("SELECT l.layer_index FROM layer_metrics l JOIN tokens t ON t.id = l.token_id "
                           "WHERE t.run_id = ? ORDER BY t.position, l.layer_index", result.run_id)
        self.assertEqual([row["layer_index"] for row in layers], [0, 1] * 4)
        self.assertEqual(self.components(result.run_id), [])
        self.assertIn(perjoule.PartlyRecognised, [w.category for w in self.caught])

    def test_transformers_compiles_the_steps_of_a_static_cache(self):
        model = make(num_hidden_layers=1)
        config = transformers.CompileConfig(backend="eager", fullgraph=False)
        config._compile_all_devices = True  # as it does on a GPU
        options = dict(OPTIONS, cache_implementation="static", compile_config=config)
        expected, got = model.generate(PROMPT, **options), []
        result = self.run_of(model, lambda: got.append(model.generate(PROMPT, **options)))
        self.assertTrue(torch.equal(expected, got[0]))
        self.check_generated(result, "coarse")
        self.assertEqual(result.summary["settings"]["level_reason"], WHY_SILENT)

    def test_a_compiled_copy_is_not_passed_over_in_silence(self):
        model = make(num_hidden_layers=1)
        compiled = torch.compile(model, backend="eager")
        result = self.run_of(model, lambda: compiled(PROMPT))
        self.assertEqual(result.summary["level"], "coarse")
        self.assertEqual(result.summary["settings"]["level_reason"], WHY_UNCALLED)
        self.assertEqual([w.category for w in self.caught if issubclass(w.category, perjoule.CoarseRecording)],
                         [perjoule.CoarseRecording])

    def test_a_captured_generation_counts_its_tokens(self):
        class Captured(Holder):
            def generate(self, ids, **options):
                end = clock_ns() + 30_000_000
                while clock_ns() < end:
                    pass
                return torch.cat([ids, ids[:, :3]], 1)
        model = Captured(make())
        result = self.run_of(model, lambda: model.generate(PROMPT))
        self.assertEqual((result.input_tokens, result.output_tokens), (5, 3))
        self.assertEqual(result.summary["settings"]["level_reason"], WHY_UNSEEN)
        self.assertGreaterEqual(result.phases["decode"].duration_ms, 30)
        self.assertAlmostEqual(result.joules_per_token * 3, result.summary["request_energy_mj"] / 1000, delta=1e-6)

    def test_a_model_that_drafts_for_itself(self):
        model, got = make(num_hidden_layers=4), []
        expected = model.generate(PROMPT, **OPTIONS)
        result = self.run_of(model, lambda: got.append(
            model.generate(PROMPT, assistant_early_exit=2, **OPTIONS)))
        self.assertTrue(torch.equal(expected, got[0]))
        self.assertEqual((result.input_tokens, result.output_tokens), (5, 4))
        self.assertEqual(result.summary["level"], "fine")

    def test_quantised_and_adapted_projections_have_the_names_of_plain_ones(self):
        expected = self.components(self.run_of(plain := make(), lambda: plain.generate(PROMPT, **OPTIONS)).run_id)
        self.assertIn((0, "attention"), expected)
        for kind in (Packed, Adapted):
            model, got = make(), []
            for block in model.model.layers:
                for owner in (block.self_attn, block.mlp):
                    for name, layer in [(name, layer) for name, layer in owner.named_children() if name.endswith("_proj")]:
                        setattr(owner, name, kind(layer))
            ids = model.generate(PROMPT, **OPTIONS)
            result = self.run_of(model, lambda model=model, got=got: got.append(model.generate(PROMPT, **OPTIONS)))
            self.assertTrue(torch.equal(ids, got[0]))
            self.assertEqual(self.components(result.run_id), expected, kind)

    def test_any_module_tree_and_any_input(self):
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 2)

            def forward(self, x, **more):
                return self.second(torch.relu(self.first(x["x"] if isinstance(x, dict) else x)))
        net = Net()
        for given in (torch.ones(8), torch.ones(4, 8), torch.ones(2, 3, 8), torch.ones(2, 3, 4, 8), {"x": torch.ones(8)}):
            result = self.run_of(net, lambda given=given: [net(given), net(given)])
            self.assertEqual((result.status, result.summary["level"]), ("completed", "fine"))
            found = self.rows("SELECT c.component_name AS name, count(*) AS n FROM component_metrics c JOIN pipeline_sections s "
                              "ON s.id = c.section_id WHERE s.run_id = ? GROUP BY 1 ORDER BY 1", result.run_id)
            self.assertEqual([(r["name"], r["n"]) for r in found], [("first", 2), ("second", 2)])
        said = [str(w.message) for w in self.caught if w.category is perjoule.PartlyRecognised]
        self.assertIn("no list of blocks", said[0])

    def test_torchs_own_encoder(self):
        layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        model = torch.nn.TransformerEncoder(layer, 2).train()  # in eval mode it does not call its submodules
        result = self.run_of(model, lambda: model(torch.ones(1, 5, 32)))
        self.assertEqual(result.input_tokens, 5)
        self.assertLessEqual({(0, "self_attn"), (1, "linear1"), (1, "linear2")}, set(self.components(result.run_id)))

    def test_an_encoder_is_a_section_of_the_prompt(self):
        t5 = transformers.T5ForConditionalGeneration(transformers.T5Config(
            vocab_size=96, d_model=32, d_kv=8, d_ff=48, num_layers=3, num_decoder_layers=2, num_heads=4,
            decoder_start_token_id=0, eos_token_id=1, pad_token_id=0)).eval()
        bart = transformers.BartForConditionalGeneration(transformers.BartConfig(
            vocab_size=96, d_model=32, encoder_layers=3, decoder_layers=2, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=64,
            pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=2, forced_eos_token_id=None)).eval()
        for model, calls in ((t5, {"encoder.q": 3, "encoder.attention": 3, "encoder.embed_tokens": 1}),
                             (bart, {"encoder.q_proj": 3, "encoder.attention": 3, "encoder.fc2": 3})):
            expected = model.generate(PROMPT, **OPTIONS)
            before = [self.replaced(m) for m in model.modules()]
            profiler = InferencePipelineProfiler(model, session=self.session())
            with profiler.run():
                found = model.generate(PROMPT, **OPTIONS)
            self.assertTrue(torch.equal(found, expected))
            self.assertEqual([self.replaced(m) for m in model.modules()], before)
            summary, run = profiler.get_summary(), profiler.result.run_id
            self.assertEqual((summary["input_tokens"], summary["output_tokens"]), (5, 4))
            self.assertEqual(summary["settings"]["level"], "fine")
            sections = self.rows("SELECT s.* FROM pipeline_sections s WHERE s.run_id = ? AND section_name = 'encoder'", run)
            self.assertEqual([s["phase"] for s in sections], ["prefill"])
            rows = self.rows("SELECT component_name, count(*) AS n, sum(time_ms) AS took, sum(energy_mj) AS energy, "
                             "sum(flops_estimate) AS flops FROM component_metrics c WHERE section_id = ? GROUP BY 1",
                             sections[0]["id"])
            self.assertLessEqual(calls.items(), {r["component_name"]: r["n"] for r in rows}.items())
            self.assertLessEqual(sum(r["took"] for r in rows), sections[0]["duration_ms"])
            self.assertLessEqual(sum(r["energy"] for r in rows), 1.000001 * sections[0]["energy_mj"])
            flops = {r["component_name"]: r["flops"] for r in rows}
            self.assertEqual(flops[next(iter(calls))], 3 * 5 * (2 * 32 * 32 + 32 * (model is bart)))
            self.assertGreater(flops["encoder.attention"], 3 * 4 * 32 * 25)  # every query sees every key
            self.assertFalse([w for w in self.caught if w.category is perjoule.PartlyRecognised and "encoder" in str(w.message)])

    def test_continuous_batching_is_coarse_and_counted(self):
        prompts = [[3, 5, 7], [4, 6, 8, 9, 3]]
        model, got, options = make(), [], dict(max_new_tokens=4, warmup=False)
        if hasattr(transformers, "ContinuousBatchingConfig"):  # or its cache takes most of the machine's memory
            small = transformers.ContinuousBatchingConfig(num_blocks=16, max_batch_tokens=64)
            options["continuous_batching_config"] = small
        result = self.run_of(model, lambda: got.append(model.generate_batch(prompts, **options)))
        made = sum(len(out.generated_tokens) for out in got[0].values())
        self.assertEqual((result.input_tokens, result.output_tokens, result.summary["batch_size"]), (8, made, 2))
        self.assertEqual(result.summary["level"], "coarse")
        self.assertEqual(result.summary["settings"]["level_reason"], WHY_PACKED)
        self.assertGreater(result.phases["decode"].energy.mj, 0)
        self.caught.clear()

    def test_models_without_tokens_have_joules_per_pass(self):
        images = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU())
        config = transformers.BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
                                         vocab_size=64)
        texts = transformers.BertForSequenceClassification(config).eval()
        for model, given, inputs in ((images, torch.ones(3, 3, 8, 8), None), (texts, PROMPT.repeat(3, 1), 30)):
            with self.subTest(type(model).__name__):
                profiler = InferencePipelineProfiler(model, session=self.session())
                with profiler.run():
                    for _ in range(2):
                        model(given)
                summary, joules = profiler.get_summary(), profiler.result.joules
                self.assertEqual((summary["input_tokens"], summary["output_tokens"], summary["batch_size"]), (inputs, 0, 3))
                self.assertIsNone(summary["joules_per_token"])
                self.assertEqual((summary["settings"]["passes"], summary["settings"]["items"]), (2, 6))
                self.assertAlmostEqual(summary["joules_per_pass"] * 2, joules)
                self.assertAlmostEqual(summary["joules_per_item"] * 6, joules)

    def test_a_model_without_its_head_that_continues_a_text_yields_tokens(self):
        decoder = make().model

        def loop():
            out = decoder(PROMPT, use_cache=True)
            decoder(PROMPT[:, :1], use_cache=True, **{CACHE: out[CACHE]})
        result = self.run_of(decoder, loop)
        self.assertEqual((result.input_tokens, result.output_tokens), (5, 2))
        self.assertNotIn("passes", result.summary["settings"])

    def test_a_pass_that_raises_yields_no_token(self):
        for fails_at, tokens in ((1, 0), (3, 2)):
            model, calls = make(), []
            mlp = model.model.layers[1].mlp
            inner = mlp.forward

            def forward(x):
                calls.append(x)
                return inner(x) if len(calls) < fails_at else 1 / 0
            mlp.forward = forward
            profiler = InferencePipelineProfiler(model, session=self.session())
            with self.assertRaises(ZeroDivisionError), profiler.run():
                model.generate(PROMPT, **OPTIONS)
            self.assertEqual((profiler.result.status, profiler.result.output_tokens), ("failed", tokens))
            self.assertEqual(len(self.rows("SELECT 1 FROM tokens WHERE run_id = ?", profiler.result.run_id)), tokens)
            self.assertEqual(profiler.result.joules_per_token is None, tokens == 0)
            self.assertGreater(profiler.result.phases["prefill"].energy.mj, 0)
        self.assertEqual([w for w in self.caught if w.category is perjoule.CoarseRecording], [])


if __name__ == "__main__":
    unittest.main()
