"""Models of MLX: with a stand-in everywhere, and with mlx and mlx-lm where they are installed."""
import importlib.util
import sys
import threading
import types
import unittest
import warnings

import perjoule
import standin_mlx as mlx
from support import StoredCase


def loop(model, steps, prompt=5):
    cache = [mlx.Cache() for _ in model.layers]
    for i in range(steps):
        mlx.evaluate(model(mlx.ids(1, 1 if i else prompt), cache))


class Mlx(StoredCase):
    def setUp(self):
        super().setUp()
        standin = mlx.installed()
        self.lm = standin.__enter__()
        self.addCleanup(standin.__exit__, None, None, None)

    def record(self, model, work, depth="module", **how):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", perjoule.PartlyRecognised)
            profiler = perjoule.InferencePipelineProfiler(model=model, profiling_depth=depth, session=self.session(), **how)
        kinds = [type(model)] + [type(block) for block in getattr(model, "layers", [])]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with profiler.run(prompt="x"):
                work()
        self.said = [str(w.message) for w in caught if issubclass(w.category, perjoule.CoarseRecording)]
        self.assertEqual([type(model)] + [type(block) for block in getattr(model, "layers", [])], kinds)
        return perjoule.open(self.db).run("last"), profiler.get_summary()

    def tokens(self, run):
        return [(t["position"], t["phase"]) for t in run.rows("tokens")]

    def test_a_loop_of_ones_own(self):
        run, summary = self.record(mlx.Model(), lambda: loop(mlx.Model(), 1))  # another model's calls are not its own
        self.assertEqual((summary["level"], summary["output_tokens"]), ("coarse", 0))
        model = mlx.Model()
        run, summary = self.record(model, lambda: (loop(model, 4), loop(model, 2, prompt=3)))
        self.assertEqual((summary["engine"], summary["level"], summary["dtype"]), ("mlx", "fine", "f32"))
        self.assertEqual((summary["input_tokens"], summary["output_tokens"]), (8, 6))
        self.assertEqual(self.tokens(run), [(0, "prefill"), (1, "decode"), (2, "decode"), (3, "decode"), (4, "prefill"), (5, "decode")])
        self.assertEqual(summary["model"]["parameters"], 11 * 4 * 2 + 2 * 3 * 16)
        self.assertEqual(summary["model"]["weight_bytes"], 4 * summary["model"]["parameters"])
        rows = {r["component_name"]: r for r in run.rows("energy_by_component") if r["phase"] == "prefill"}
        self.assertEqual(set(rows), {"embed_tokens", "q_proj", "attention", "o_proj", "up_proj", "lm_head"})
        # 2 layers, prompts of 5 and 3 tokens: 2 x 16 x 8 FLOPs each; weights of both passes, inputs and outputs
        self.assertEqual(rows["q_proj"]["flops"], 2 * 2 * 16 * 8)
        self.assertEqual(rows["q_proj"]["bytes"], 2 * (2 * 64 + 2 * 8 * 16))
        self.assertIsNone(rows["attention"]["flops"])

    def test_attention_of_a_model_that_states_its_sizes(self):
        model = mlx.Model()
        model.args = types.SimpleNamespace(num_hidden_layers=2, hidden_size=4, num_attention_heads=2, num_key_value_heads=2)
        run, summary = self.record(model, lambda: loop(model, 2))
        self.assertEqual(summary["model"]["kv_bytes_per_token"], 2 * 2 * 4 * 4)
        found = {r["phase"]: (r["flops"], r["bytes"]) for r in run.rows("energy_by_component") if r["component_name"] == "attention"}
        for phase, query, keys, pairs in (("prefill", 5, 5, 15), ("decode", 1, 6, 6)):
            flops = 4 * 4 * pairs + 5 * 2 * pairs + 4 * query  # of scores and values, the softmax of 2 heads, and scaling
            self.assertEqual(found[phase], (2 * flops, 2 * 4 * (2 * 4 * (keys + query) + 2 * 4 * query)), phase)
        model.args.layer_types = ["sliding_attention", "full_attention"]
        run, summary = self.record(model, lambda: loop(model, 2))
        self.assertNotIn("kv_bytes_per_token", summary["model"])
        self.assertEqual({r["flops"] for r in run.rows("energy_by_component") if r["component_name"] == "attention"}, {None})

    def test_work_lies_where_it_was_described(self):
        model, where = mlx.Model(layers=1), []
        kinds = {name: kind for name, kind in vars(mlx).items() if isinstance(kind, type)}
        self.record(model, lambda: where.extend(self.ends_of(model)))
        self.assertEqual(where, ["embed_tokens", "q_proj", "attention", "o_proj", "up_proj", "lm_head"])
        self.assertTrue(all(kind is getattr(mlx, name) for name, kind in kinds.items()))

    def ends_of(self, model):
        """What has been computed when the model's call returns, before anybody asks."""
        mlx.computed.clear()
        model(mlx.ids(1, 2))
        return list(mlx.computed)

    def test_at_depth_off_nothing_is_evaluated_but_a_prompts_logits(self):
        model = mlx.Model(layers=1)
        cache, seen = [mlx.Cache()], []

        def work():
            mlx.computed.clear()
            model(mlx.ids(1, 2), cache)
            seen.append(len(mlx.computed))
            model(mlx.ids(1, 1), cache)
            seen.append(len(mlx.computed))
        run, summary = self.record(model, work, depth="off")
        self.assertEqual(seen, [6, 6])
        self.assertEqual(self.tokens(run), [(0, "prefill"), (1, "decode")])
        self.assertEqual((summary["level"], run.rows("energy_by_component")), ("coarse", []))

    def test_mlx_lm(self):
        class Tokenizer:
            def decode(self, ids):
                return f"<{ids[0]}>"
        model, heads = mlx.Model(layers=1), []

        def work():
            heads.extend(token for token, _ in self.lm.generate_step([1, 2, 3, 4, 5], model))
        run, summary = self.record(model, work, tokenizer=Tokenizer())
        self.assertEqual(heads, [100, 101, 102])
        self.assertEqual((summary["input_tokens"], summary["output_tokens"]), (5, 3))
        # the prompt is read in three parts; one pass more is computed than tokens are handed out
        self.assertEqual(self.tokens(run), [(0, "prefill"), (1, "decode"), (2, "decode"), (3, "decode")])
        self.assertEqual([t["text"] for t in run.rows("tokens")], ["<100>", "<101>", "<102>", ""])
        counts = {(r["phase"], r["component_name"]): r["count"] for r in run.rows("energy_by_component")}
        self.assertEqual(counts["prefill", "q_proj"], 3)
        self.assertEqual(counts["prefill", "lm_head"], 1)  # logits that nobody needs are not computed
        self.assertIs(self.lm.generate_step, mlx.generate_step)

    def test_a_transformation_is_left_alone(self):
        model = mlx.Model()

        def work():
            mlx.transforming = True
            try:
                model(mlx.ids(1, 3))
            finally:
                mlx.transforming = False
            loop(model, 2)
        _, summary = self.record(model, work)
        self.assertEqual(summary["level"], "coarse")
        self.assertIn("mx.compile", self.said[0])

    def test_a_program_that_raises(self):
        model = mlx.Model()

        class Wrong:
            shape, dtype = (1, 3), "mlx.core.int32"
        with self.assertRaises(AttributeError):
            self.record(model, lambda: model(Wrong()))
        self.assertIs(type(model), mlx.Model)
        self.assertEqual(perjoule.open(self.db).run("last")["status"], "failed")

    def test_a_model_without_tokens(self):
        model = mlx.Classifier()
        run, summary = self.record(model, lambda: [model(mlx.array((3, 4))) for _ in range(2)])
        self.assertEqual((summary["input_tokens"], summary["output_tokens"]), (None, 0))
        self.assertEqual((summary["settings"]["passes"], summary["settings"]["items"]), (2, 6))
        self.assertEqual({r["component_name"] for r in run.rows("energy_by_component")}, {"first", "second"})

    def test_another_thread_is_not_traced(self):
        model = mlx.Model()

        def work():
            loop(model, 2)
            thread = threading.Thread(target=loop, args=[model, 3])
            thread.start()
            thread.join()
        run, summary = self.record(model, work)
        self.assertEqual(summary["output_tokens"], 2)
        self.assertEqual(len(run.rows("tokens")), 2)


@unittest.skipUnless(importlib.util.find_spec("mlx") and importlib.util.find_spec("mlx_lm"), "needs mlx and mlx-lm")
class RealMlx(StoredCase):
    def test_a_model_of_mlx_lm(self):
        import mlx.core as mx
        import mlx_lm.generate  # noqa: F401
        from mlx_lm.models import llama
        module = sys.modules["mlx_lm.generate"]  # the package has a function of that name
        generate_step = module.generate_step

        model = llama.Model(llama.ModelArgs(
            model_type="llama", hidden_size=64, num_hidden_layers=2, intermediate_size=128, num_attention_heads=4,
            rms_norm_eps=1e-5, vocab_size=97, num_key_value_heads=2))
        mx.eval(model.parameters())
        prompt = mx.array([1, 2, 3, 4, 5, 6, 7])

        def generate():
            return [int(token) for token, _ in module.generate_step(prompt, model, max_tokens=8)]
        alone = generate()
        profiler = perjoule.InferencePipelineProfiler(model=model, session=self.session())
        with profiler.run():
            traced = generate()
        self.assertEqual(traced, alone)
        self.assertIs(module.generate_step, generate_step)
        summary = profiler.get_summary()
        self.assertEqual((summary["input_tokens"], summary["output_tokens"], summary["level"]), (7, 8, "fine"))
        run = perjoule.open(self.db).run("last")
        counts = {(r["phase"], r["component_name"]): (r["count"], r["flops"]) for r in run.rows("energy_by_component")}
        self.assertEqual(counts["decode", "down_proj"], (2 * 8, 2 * 8 * 2 * 128 * 64))
        self.assertEqual(counts["prefill", "attention"][0], 2 * 2)
        self.assertEqual(counts["decode", "attention"][1], 2 * sum(4 * 64 * keys + 5 * 4 * keys + 64 for keys in range(8, 16)))
        self.assertEqual(counts["decode", "act"][1], 2 * 8 * 5 * 128)


if __name__ == "__main__":
    unittest.main()
