"""The profiler on real transformers models with random weights.

Skipped, with the reason, where torch and transformers can't be imported.
"""
import contextlib
import copy
import gc
import inspect
import io
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time
import unittest
import unittest.mock
import weakref

try:
    import torch
    import transformers
except ImportError as e:
    raise unittest.SkipTest(f"{e.name} is not installed: the tests with real models are not run") from None

import perjoule
from perjoule.sparing import PartSteps
from perjoule.watch import WHY_COMPILED
from profiling.pipeline_profiler import InferencePipelineProfiler
from support import StoredCase, recorded_warnings

ROOT = pathlib.Path(__file__).resolve().parents[2]

torch.manual_seed(0)
torch.set_num_threads(1)
transformers.utils.logging.set_verbosity_error()


def make(cls="Llama", **more):
    shape = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=2, max_position_embeddings=128, bos_token_id=0, eos_token_id=1, pad_token_id=1)
    config = getattr(transformers, cls + "Config")(**{**shape, **more})
    return getattr(transformers, cls + "ForCausalLM")(config).eval()


PROMPT = torch.tensor([[5, 9, 20, 33, 7]])
CACHE = next(name for name in ("cache", "past_key_values")  # as this version of transformers calls it
             if name in inspect.signature(transformers.LlamaForCausalLM.forward).parameters)


def read_on(model, ids, cache):
    """One pass with a cache. Returns the next ids and the cache that it left."""
    out = model(ids, use_cache=True, **{CACHE: cache})
    return out.logits[:, -1:].argmax(-1), out[CACHE]


class Profiling(StoredCase):
    def profiler(self, model, **options):
        options.setdefault("session", self.session())
        return InferencePipelineProfiler(model=model, **options)

    def generate(self, model, ids=PROMPT, count=5, **options):
        options = {"max_new_tokens": count, "min_new_tokens": count, "do_sample": False, **options}
        return model.generate(ids, **options)

    def test_the_lines_of_the_guide(self):
        model = make()
        profiler = InferencePipelineProfiler(model=model, profiling_depth="module")
        with profiler.run(prompt="hello", tags=["a"]) as session:
            self.generate(model)
        summary = profiler.get_summary()
        self.assertGreater(summary["joules_per_token"], 0)
        self.assertEqual((summary["input_tokens"], summary["output_tokens"]), (5, 5))
        self.assertEqual((summary["prompt"], summary["tags"], summary["engine"]), ("hello", ["a"], "pytorch"))
        self.assertEqual(summary["settings"]["level"], "fine")
        self.assertEqual(summary["id"], session.run_id)
        self.assertEqual(summary["model"]["layers"], 2)

    @unittest.skipUnless((ROOT / "docs/python.md").exists(), "needs the source tree")
    def test_the_script_and_the_commands_of_the_document(self):
        """With fewer tokens, and in this process, because importing torch takes seconds."""
        text = (ROOT / "docs/python.md").read_text(encoding="utf-8")
        script, = re.findall(r"^```python joules.py\n(.*?)^```$", text, re.M | re.S)
        commands, = (block for block in re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S) if "joules.py" in block)
        first, *others = commands.replace("-n 300", "-n 8").replace("models/demo", str(ROOT / "models/demo")).splitlines()
        power, words = re.fullmatch(r"PERJOULE_POWER=(\S+) PERJOULE_DB=both.db python3 (.*)", first).groups()
        os.environ["PERJOULE_POWER"], said = power, io.StringIO()
        with unittest.mock.patch.object(sys, "argv", words.split()), contextlib.redirect_stdout(said):
            exec(compile(script.replace("max_new_tokens=300", "max_new_tokens=8"), "joules.py", "exec"), {})
        self.assertRegex(said.getvalue(), r"^([\d.e-]+|None)\n$")
        for line in others:
            words = shlex.split(line.replace("both.db", self.db))
            self.assertEqual(words.pop(0), "perjoule")
            subprocess.run([os.environ["PERJOULE_PROGRAM"], *words], check=True, stdout=subprocess.PIPE, timeout=200)
        ours, theirs = perjoule.open(self.db).runs(tag="side-by-side")
        self.assertEqual([(run["engine"], run["input_tokens"], run["output_tokens"]) for run in (ours, theirs)],
                         [(engine, theirs["input_tokens"], 8) for engine in ("perjoule", "pytorch")])

    def test_same_ids_with_and_without_and_nothing_left(self):
        for cls in ("Llama", "Gemma2", "Phi3", "Mixtral"):
            model = make(cls)
            before = {name: dict(m.__dict__) for name, m in model.named_modules()}
            for options in ({}, {"do_sample": True, "top_k": 5}, {"use_cache": False}, {"num_beams": 3}):
                torch.manual_seed(1)
                expected = self.generate(model, **options)
                torch.manual_seed(1)
                with self.profiler(model, statistics_every=1).run():
                    got = self.generate(model, **options)
                self.assertTrue(torch.equal(expected, got), (cls, options))
            for name, module in model.named_modules():
                self.assertEqual(set(module.__dict__), set(before[name]), name)
                self.assertNotIn("forward", module.__dict__)
                self.assertFalse(module._forward_hooks or module._forward_pre_hooks)

    def test_an_output_gate_begins_where_attention_ends(self):
        """Also where statistics of the projection before them took time, which is in neither."""
        if not hasattr(transformers, "Qwen3_5TextConfig"):
            self.skipTest("this version of transformers has no Qwen3.5")
        config = transformers.Qwen3_5TextConfig(
            vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, head_dim=8,
            num_key_value_heads=2, layer_types=["full_attention"] * 2, bos_token_id=0, eos_token_id=1, pad_token_id=1)
        model = transformers.Qwen3_5ForCausalLM(config).eval()
        profiler = self.profiler(model, statistics_every=1)
        with profiler.run():
            self.generate(model)
        parts = self.rows("SELECT layer_metric_id AS layer, component_name AS name, start_ms, time_ms FROM component_metrics "
                          "WHERE layer_metric_id IS NOT NULL ORDER BY start_ms")
        self.assertIn("output_gate", {part["name"] for part in parts})
        for before, after in zip(parts, parts[1:]):
            if before["layer"] == after["layer"]:
                self.assertGreaterEqual(after["start_ms"], before["start_ms"] + before["time_ms"] - 1e-6, (before, after))

    def test_parts_sum_and_planted_energies_come_back(self):
        """Over several runs: the errors of one run's tokens are not independent of each other."""
        model = make(hidden_size=256, intermediate_size=512, num_hidden_layers=3)
        rows = []
        for seed in range(8):
            profiler = self.profiler(model, session=self.session(power=f"sim:seed={seed},period_ms=1,noise=0.01"))
            with profiler.run():
                self.generate(model, count=20)
            rows += self.rows("SELECT energy_mj, planted_mj, energy_sd_mj FROM tokens WHERE run_id = ?",
                              profiler.result.run_id)
        for row in self.rows("SELECT * FROM conservation"):
            self.assertAlmostEqual(row["whole_mj"], row["parts_mj"], delta=1e-6 * max(1, abs(row["whole_mj"])))
        self.assertEqual(len(rows), 8 * 20)
        inside = sum(abs(r["energy_mj"] - r["planted_mj"]) <= 1.96 * r["energy_sd_mj"] + 1e-9 for r in rows)
        self.assertGreaterEqual(inside, 0.8 * len(rows))

    def test_a_component_of_known_cost_gets_it(self):
        """One projection is made to take 20 ms per step; its time and simulated energy are attributed to it."""
        model = make()
        projection = model.model.layers[1].mlp.down_proj
        inner = projection.forward

        def slow(x):
            end = time.monotonic() + 0.02
            while time.monotonic() < end:
                pass
            return inner(x)
        projection.forward = slow
        profiler = self.profiler(model, session=self.session(power="sim:seed=4,period_ms=5,noise=0.01"))
        with profiler.run():
            self.generate(model, count=30)
        rows = self.rows("SELECT l.layer_index, c.* FROM component_metrics c JOIN layer_metrics l ON l.id = c.layer_metric_id")
        ours = [r for r in rows if (r["layer_index"], r["component_name"]) == (1, "down_proj")]
        self.assertEqual(len(ours), 30)
        self.assertGreaterEqual(min(r["time_ms"] for r in ours), 20)
        inside = [abs(r["energy_mj"] - r["planted_mj"]) <= 1.96 * r["energy_sd_mj"] for r in ours]
        self.assertGreaterEqual(sum(inside), 24)  # nominally 95 % of 30 intervals
        planted, found = (sum(r[name] for r in ours) for name in ("planted_mj", "energy_mj"))
        self.assertAlmostEqual(found, planted, delta=0.03 * planted)
        others = max(sum(r["energy_mj"] for r in rows if (r["layer_index"], r["component_name"]) == other)
                     for other in {(r["layer_index"], r["component_name"]) for r in rows} - {(1, "down_proj")})
        self.assertGreater(found, others)

    def test_thinned_steps_agree_with_full_ones(self):
        """A load that is planted in one layer is found in it, whether all steps are timed inside or some."""
        model = make(num_hidden_layers=3)
        projection = model.model.layers[1].mlp.down_proj
        inner = projection.forward

        def slow(x):
            end = time.monotonic() + 0.006
            while time.monotonic() < end:
                pass
            return inner(x)
        projection.forward = slow
        found = {}
        for every, layers in ((1, 1), (8, 2)):
            profiler = self.profiler(model, session=self.session(power="sim:seed=4,period_ms=2,noise=0.01"))
            with unittest.mock.patch.object(PartSteps, "for_clock", lambda *a, **k: PartSteps(every, layers)), profiler.run():
                self.generate(model, count=60)
            run = profiler.result.run_id
            found[every] = [self.rows(query, run) for query in (
                "SELECT t.position, l.energy_mj AS energy, l.planted_mj AS planted, l.energy_sd_mj AS sd FROM layer_metrics l "
                "JOIN tokens t ON t.id = l.token_id WHERE t.run_id = ? AND phase = 'decode' AND layer_index = 1",
                "SELECT t.position, c.energy_mj AS energy, c.planted_mj AS planted, c.energy_sd_mj AS sd FROM component_metrics c "
                "JOIN layer_metrics l ON l.id = c.layer_metric_id JOIN tokens t ON t.id = l.token_id WHERE t.run_id = ? "
                "AND phase = 'decode' AND layer_index = 1 AND component_name = 'down_proj'")]
        said = profiler.get_summary()["settings"]
        self.assertEqual([len(rows) for rows in found[1]], [59, 59])
        self.assertEqual([len(rows) for rows in found[8]], [59 - said["steps_without_layers"], 59 - said["steps_without_parts"]])
        self.assertLess(len(found[8][1]), 20)
        for row in self.rows("SELECT * FROM conservation"):
            self.assertAlmostEqual(row["whole_mj"], row["parts_mj"], delta=1e-6 * max(1, abs(row["whole_mj"])))
        for rows in (*found[1], *found[8]):
            planted, energy = (sum(row[name] for row in rows) for name in ("planted", "energy"))
            self.assertAlmostEqual(energy, planted, delta=max(0.05 * planted, 2 * sum(row["sd"] for row in rows)))

    def test_phases_tokens_and_texts(self):
        model = make()

        class Tokenizer:
            def decode(self, ids):
                return " ".join(f"<{i}>" for i in ids)
        profiler = self.profiler(model, tokenizer=Tokenizer())
        with profiler.run():
            out = self.generate(model)
        tokens = self.rows("SELECT position, phase, text, vocabulary_id FROM tokens ORDER BY position")
        ids = out[0, 5:].tolist()
        self.assertEqual([t["vocabulary_id"] for t in tokens], ids)
        self.assertEqual([t["text"] for t in tokens], [f"<{i}>" for i in ids])
        self.assertEqual([t["phase"] for t in tokens], ["prefill"] + ["decode"] * 4)
        phases = {r["phase"] for r in self.rows("SELECT phase FROM run_phases")}
        self.assertLessEqual({"pre_inference", "prefill", "decode", "post_inference"}, phases)

    def test_a_loop_of_ones_own(self):
        model = make()
        profiler = self.profiler(model)
        with profiler.run(), torch.no_grad():
            cache, ids = None, PROMPT
            for _ in range(4):
                ids, cache = read_on(model, ids, cache)
        summary = profiler.get_summary()
        self.assertEqual((summary["input_tokens"], summary["output_tokens"]), (5, 4))
        self.assertEqual([t["phase"] for t in self.rows("SELECT phase FROM tokens ORDER BY position")],
                         ["prefill"] + ["decode"] * 3)

    def test_a_cache_by_position_and_results_as_a_tuple(self):
        model = make()
        profiler = self.profiler(model)
        with profiler.run(), torch.no_grad():
            cache, ids = None, PROMPT
            for _ in range(4):
                logits, cache = model(ids, None, None, cache, use_cache=True, return_dict=False)[:2]
                ids = logits[:, -1:].argmax(-1)
        self.assertEqual((profiler.result.input_tokens, profiler.result.output_tokens), (5, 4))

    def test_nothing_is_read_by_a_name_that_its_user_is_warned_of(self):
        model = make()
        profiler = self.profiler(model)
        with unittest.mock.patch("logging.Logger.warning_once", create=True) as warning, \
                profiler.run(), torch.no_grad():
            model(PROMPT, use_cache=False)
        warning.assert_not_called()
        self.assertEqual((profiler.result.input_tokens, profiler.result.output_tokens), (5, 1))

    def test_two_requests_in_one_run(self):
        model = make()
        profiler = self.profiler(model)
        with profiler.run():
            self.generate(model, count=3)
            self.generate(model, count=2)
        summary = profiler.get_summary()
        self.assertEqual((summary["input_tokens"], summary["output_tokens"]), (10, 5))
        self.assertEqual([t["position"] for t in self.rows("SELECT position FROM tokens ORDER BY start_ms")],
                         [0, 1, 2, 3, 4])

    def test_a_batch_counts_its_real_sequences(self):
        model = make()
        ids = torch.tensor([[1, 1, 5, 9], [6, 7, 8, 9]])
        mask = (torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]]))
        profiler = self.profiler(model)
        with profiler.run(prompt=["a", "b"]):
            out = model.generate(ids, attention_mask=mask, max_new_tokens=6, do_sample=False)
        ends = [r.index(1) + 1 if 1 in r else len(r) for r in out[:, 4:].tolist()]
        summary = profiler.get_summary()
        self.assertEqual((summary["input_tokens"], summary["output_tokens"]), (6, sum(ends)))
        rows = self.rows("SELECT sequence, count(*) AS n FROM tokens GROUP BY sequence ORDER BY sequence")
        self.assertEqual([r["n"] for r in rows], ends)

    def test_beams_count_what_comes_back(self):
        model = make()
        profiler = self.profiler(model)
        with profiler.run():
            out = self.generate(model, num_beams=4, num_return_sequences=2)
        summary = profiler.get_summary()
        self.assertEqual(summary["input_tokens"], 5)
        self.assertEqual(summary["output_tokens"], 2 * (out.shape[1] - 5))

    def test_speculative_decoding_counts_accepted_tokens(self):
        model, assistant = make(), make()
        assistant.load_state_dict(model.state_dict())  # every draft token is accepted
        profiler = self.profiler(model)
        with profiler.run():
            out = self.generate(model, count=12, assistant_model=assistant)
        self.assertEqual(profiler.get_summary()["output_tokens"], out.shape[1] - 5)
        steps = self.rows("SELECT count(DISTINCT step_id) AS n FROM tokens")[0]["n"]
        self.assertLess(steps, out.shape[1] - 5)
        with profiler.run():
            out = self.generate(model, torch.tensor([[5, 6, 7, 5, 6, 7, 5, 6]]), count=9, prompt_lookup_num_tokens=3)
        self.assertEqual(profiler.get_summary()["output_tokens"], out.shape[1] - 8)

    def test_statistics_at_every_second_step(self):
        model = make()
        with self.profiler(model, statistics_every=2).run():
            self.generate(model, count=5)
        rows = self.rows("SELECT t.position, count(c.activation_mean) AS n, max(c.activation_max) AS largest, "
                         "max(c.nan_count) AS bad FROM component_metrics c JOIN layer_metrics l ON l.id = c.layer_metric_id "
                         "JOIN tokens t ON t.id = l.token_id GROUP BY 1 ORDER BY 1")
        self.assertEqual([r["n"] > 0 for r in rows], [False, False, True, False, True])
        self.assertGreater(rows[2]["largest"], 0)
        self.assertEqual(rows[2]["bad"], 0)

    def test_statistics_by_default(self):
        model = make()
        with self.profiler(model).run():
            self.generate(model, count=12)
        rows = self.rows("SELECT t.position, count(c.activation_mean) AS n, count(*) AS all_of_it FROM component_metrics c "
                         "JOIN layer_metrics l ON l.id = c.layer_metric_id JOIN tokens t ON t.id = l.token_id GROUP BY 1")
        found = {r["position"]: r["n"] for r in rows}
        for position in (1, 10):  # all but what has no module: the attention core
            self.assertGreater(found[position], 0.8 * rows[0]["all_of_it"])
        self.assertEqual(found[0], 0)

    def test_hooks_are_gone_after_any_exit(self):
        model = make()
        profiler = self.profiler(model)
        for error in (ValueError, KeyboardInterrupt):
            with self.assertRaises(error), profiler.run():
                self.generate(model, count=2)
                raise error("x")
            self.assertNotIn("generate", model.__dict__)
            self.assertFalse(model._forward_hooks or model._forward_pre_hooks)
            self.assertFalse(any("forward" in m.__dict__ for m in model.modules()))
        self.assertEqual([r["status"] for r in self.rows("SELECT status FROM profiling_runs ORDER BY id")],
                         ["failed", "cancelled"])
        model.model.layers[1].mlp.forward = lambda x: 1 / 0  # in the middle of a pass
        with self.assertRaises(ZeroDivisionError), profiler.run():
            self.generate(model)
        self.assertFalse(any("forward" in m.__dict__ for m in model.modules() if m is not model.model.layers[1].mlp))

    def test_profilers_of_one_model_may_leave_in_any_order(self):
        model = make()
        expected = self.generate(model)
        runs = [self.profiler(model).run() for _ in range(3)]
        for run in runs:
            run.__enter__()
        for run in (runs[1], runs[0], runs[2]):
            self.assertTrue(torch.equal(self.generate(model), expected))
            run.__exit__(None, None, None)
        self.assertNotIn("generate", model.__dict__)
        self.assertFalse(model._forward_hooks or model._forward_pre_hooks)
        self.assertFalse(any("forward" in m.__dict__ for m in model.modules()))
        self.assertEqual([run.result.output_tokens for run in runs], [10, 5, 15])
        for run in runs:
            self.assertIn((1, "q_proj"), self.components(run.run_id))

    def test_a_padding_token_that_was_generated_counts(self):
        model = make(pad_token_id=2)
        profiler = self.profiler(model)
        with torch.no_grad():
            model.lm_head.weight.zero_()  # all logits are equal: greedy takes the lowest id that is allowed
        model.generation_config.suppress_tokens = [0]
        with profiler.run():
            ids = self.generate(model)
        self.assertEqual(ids[0, 5:].tolist(), [2] * 5)
        self.assertEqual(profiler.result.output_tokens, 5)

    @unittest.skipUnless(hasattr(os, "fork"), "needs fork")
    def test_a_forked_child_leaves_the_run_to_its_parent(self):
        model = make()
        profiler = self.profiler(model)
        with profiler.run():
            child = os.fork()
            if child == 0:
                clean = not any("forward" in m.__dict__ for m in model.modules())
                os._exit(0 if clean and "generate" not in model.__dict__ else 1)
            self.generate(model)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual((profiler.result.status, profiler.result.output_tokens), ("completed", 5))

    def test_a_copy_made_during_a_run_is_a_model_of_its_own(self):
        model, session = make(), self.session()
        file = os.path.join(self.folder, "model.pt")
        for mode in ("forward", "hooks"):
            with unittest.mock.patch("torch.cuda.is_available", return_value=mode == "hooks"), \
                    unittest.mock.patch("torch.cuda.device_count", return_value=2):
                profiler = self.profiler(model, session=session)
                with profiler.run():
                    other = copy.deepcopy(model)
                    torch.save(model, file)
                    for parameter in other.parameters():
                        parameter.data.normal_()
                    during = self.generate(other)
                    self.generate(model)
            self.assertEqual(profiler.get_summary()["output_tokens"], 5)
            self.assertTrue(torch.equal(during, self.generate(other)))
            self.assertFalse(torch.equal(during, self.generate(model)))
            for made in (other, torch.load(file, weights_only=False)):
                for module in made.modules():
                    self.assertFalse(module._forward_hooks or module._forward_pre_hooks)
                    self.assertFalse({"forward", "generate", "__reduce_ex__"} & set(vars(module)))

    def test_a_run_keeps_no_tensor_alive(self):
        model = make()
        profiler = self.profiler(model, statistics_every=1)
        ids = PROMPT.clone()
        with profiler.run():
            out = self.generate(model, ids, count=3)
        seen = [weakref.ref(ids), weakref.ref(out)]
        del ids, out
        gc.collect()
        self.assertEqual([r() for r in seen], [None, None])

    def test_depth_off_records_tokens_alone(self):
        model = make()
        with self.profiler(model, profiling_depth="off").run():
            self.generate(model, count=3)
        self.assertEqual(len(self.rows("SELECT 1 FROM tokens")), 3)
        self.assertEqual(self.rows("SELECT 1 FROM component_metrics"), [])

    def test_torch_hooks_give_the_same_tree(self):
        model = make()
        trees = []
        for count in (1, 2):
            with unittest.mock.patch("torch.cuda.is_available", lambda: True), \
                    unittest.mock.patch("torch.cuda.device_count", lambda n=count: n):
                profiler = self.profiler(model)
                with profiler.run() as session:
                    self.generate(model, count=2)
            trees.append(self.components(session.run_id))
        self.assertEqual(trees[0], trees[1])
        self.assertEqual(len(trees[0]), 2 * 11)

    def test_a_compiled_model_is_coarse(self):
        caught = recorded_warnings(self)
        model = make()
        compiled = torch.compile(model, backend="eager")
        profiler = self.profiler(compiled)
        with profiler.run(), torch.no_grad():
            compiled(PROMPT)
        summary = profiler.get_summary()
        self.assertEqual(summary["settings"]["level"], "coarse")
        self.assertEqual(summary["settings"]["level_reason"], WHY_COMPILED)
        self.assertEqual(self.rows("SELECT 1 FROM component_metrics"), [])
        self.assertEqual(len(self.rows("SELECT 1 FROM tokens")), 1)
        self.assertIn(perjoule.CoarseRecording, [w.category for w in caught])

    def test_a_model_that_compiled_itself_has_phases_and_tokens(self):
        model = make()
        torch._dynamo.reset()
        self.addCleanup(torch._dynamo.reset)
        model.compile(backend="eager")
        before = model._compiled_call_impl
        profiler = self.profiler(model)
        with profiler.run(), torch.no_grad():
            read_on(model, *read_on(model, PROMPT, None))
        self.assertIs(model._compiled_call_impl, before)
        self.assertEqual(profiler.get_summary()["level"], "coarse")
        self.assertEqual((profiler.result.input_tokens, profiler.result.output_tokens), (5, 2))
        self.assertEqual([r["phase"] for r in self.rows("SELECT phase FROM tokens ORDER BY position")], ["prefill", "decode"])

    def test_compiling_while_a_run_goes_on_traces_no_hook(self):
        model = make()
        seen = []

        def backend(graph, inputs):
            seen.append(graph)
            return graph.forward
        torch._dynamo.reset()
        self.addCleanup(torch._dynamo.reset)
        profiler = self.profiler(model)
        with profiler.run(), torch.no_grad():
            compiled = torch.compile(model.model.layers[0].mlp, backend=backend)
            compiled(torch.ones(1, 1, 32))
        self.assertEqual(len(seen), 1)

    def test_without_a_sensor(self):
        caught = recorded_warnings(self)
        os.environ.pop("PERJOULE_POWER")
        nothing = {"PERJOULE_SYSFS": self.folder, "PERJOULE_NVML": "/nowhere", "PERJOULE_POWERMETRICS": "/nowhere"}
        model = make()
        with unittest.mock.patch.dict(os.environ, nothing):
            profiler = self.profiler(model)
        for _ in range(2):
            with profiler.run():
                self.generate(model, count=2)
        summary = profiler.get_summary()
        self.assertEqual(summary["energy_source"], "unavailable")
        self.assertIsNone(summary["joules_per_token"])
        self.assertIsNone(summary["total_energy_mj"])
        self.assertEqual(len([w for w in caught if w.category is perjoule.EnergyUnavailable]), 1)
        for table in ("tokens", "layer_metrics", "component_metrics", "run_phases"):
            self.assertEqual(self.rows(f"SELECT 1 FROM {table} WHERE energy_mj IS NOT NULL"), [], table)
        self.assertGreater(self.rows("SELECT max(duration_ms) AS t FROM tokens")[0]["t"], 0)

    def test_an_unchanged_script(self):
        folder = pathlib.Path(self.folder, "model")
        make().save_pretrained(folder)
        script = pathlib.Path(self.folder, "script.py")
        script.write_text(
            "import gc, sys, torch, transformers, weakref\n"
            "model = transformers.LlamaForCausalLM.from_pretrained(sys.argv[1])\n"
            "for n in (2, 3):\n"
            "    model.generate(torch.tensor([[5, 6, 7]]), max_new_tokens=n, min_new_tokens=n, do_sample=False)\n"
            "model = weakref.ref(model)\n"
            "gc.collect()\n"
            "print('freed', model() is None)\n")
        done = subprocess.run([sys.executable, "-m", "perjoule", "run", "--tag", "t", str(script), str(folder)],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([r["output_tokens"] for r in self.rows("SELECT output_tokens FROM profiling_runs ORDER BY id")],
                         [2, 3])
        self.assertIn("2 tokens", done.stderr)
        self.assertEqual(done.stdout, "freed True\n")

    def test_prompts_of_several_kinds(self):
        model, session = make(), self.session()
        profiler = self.profiler(model, session=session)
        chat = [{"role": "user", "content": "h\u00e9"}]
        for given, stored, batch in (("a", "a", 1), (["a", "b"], "a\nb", 2), (("a", None), "a\n", 2), (b"a\xff", "a\ufffd", 1),
                                     (chat, '[{"role": "user", "content": "h\u00e9"}]', 1), (None, None, 1)):
            with profiler.run(prompt=given) as run:
                model(PROMPT.repeat(batch, 1))
            found = perjoule.open(self.db).run(run.run_id)
            self.assertEqual((found.prompt, found.batch_size), (stored, batch))
        with self.assertRaisesRegex(TypeError, "prompt is a text"):
            profiler.run(prompt=5)

    def test_arguments_of_a_wrong_type_are_named(self):
        import types
        pipeline = types.SimpleNamespace(model=make())
        for wrong, said in (({"model": "gpt2"}, "not str"), ({"model": None}, "not NoneType"), ({"model": pipeline}, r"its \.model"),
                            ({"statistics_every": "2"}, "'2'"), ({"statistics_every": -1}, "-1"), ({"session": "x"}, "not str")):
            with self.assertRaisesRegex((TypeError, ValueError), said):
                InferencePipelineProfiler(**{"model": pipeline.model, **wrong})


if __name__ == "__main__":
    unittest.main()
