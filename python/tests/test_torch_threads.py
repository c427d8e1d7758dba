"""Several threads that use one model, errors inside the profiler, and runs that are used twice.

Skipped, with the reason, where torch and transformers can't be imported.
"""
import pathlib
import subprocess
import sys
import threading
import unittest
import unittest.mock

try:
    import torch
    import transformers  # noqa: F401
except ImportError as e:
    raise unittest.SkipTest(f"{e.name} is not installed: the tests with real models are not run") from None

import perjoule
from perjoule.statistics import Look
from perjoule.watch import WHY_BROKEN, WHY_SHARED
from profiling.pipeline_profiler import InferencePipelineProfiler
from support import StoredCase, in_threads, recorded_warnings
from test_torch import PROMPT, make, read_on


def options(count):
    return dict(max_new_tokens=count, min_new_tokens=count, do_sample=False)


class Meeting:
    """Makes both threads be inside a pass at the same time, at least once."""

    def __init__(self, model, parties=2):
        barrier, waited, mlp = threading.Barrier(parties), set(), model.model.layers[0].mlp
        inner = mlp.forward

        def forward(x):
            if threading.get_ident() not in waited and len(waited) < parties:
                waited.add(threading.get_ident())
                barrier.wait(45)
            return inner(x)
        mlp.forward = forward


class Threads(StoredCase):
    def setUp(self):
        super().setUp()
        self.caught = recorded_warnings(self)

    def profiler(self, model, **more):
        return InferencePipelineProfiler(model, session=self.session(), **more)

    def check_untouched(self, model):
        self.assertNotIn("generate", vars(model))
        for module in model.modules():
            self.assertFalse(module._forward_hooks or module._forward_pre_hooks)

    def tokens_of(self, run):
        return len(self.rows("SELECT 1 FROM tokens WHERE run_id = ?", run))

    def coarse(self):
        return [w for w in self.caught if w.category is perjoule.CoarseRecording]

    def test_each_thread_with_its_own_run(self):
        model, done = make(), []
        Meeting(model)

        def go(profiler, count):
            with profiler.run() as run:
                out = model.generate(PROMPT, **options(count))
            done.append((count, out.shape[1] - 5, run))
        session = self.session()
        first, second = (InferencePipelineProfiler(model, session=session, statistics_every=1) for _ in range(2))
        in_threads(lambda: go(first, 6), lambda: go(second, 9))
        for count, made, run in done:
            self.assertEqual((made, run.result.input_tokens, run.result.output_tokens), (count, 5, count))
            self.assertEqual((run.result.status, run.result.summary["level"]), ("completed", "fine"))
            self.assertEqual(self.tokens_of(run.run_id), count)
            found = self.rows("SELECT count(*) AS n FROM component_metrics c JOIN layer_metrics l ON l.id = c.layer_metric_id "
                              "JOIN tokens t ON t.id = l.token_id WHERE t.run_id = ? AND component_name = 'q_proj'", run.run_id)
            self.assertEqual(found[0]["n"], 2 * count)
        self.assertEqual(self.coarse(), [])
        self.check_untouched(model)

    def check_shared(self, result, inputs, outputs):
        self.assertEqual((result.status, result.input_tokens, result.output_tokens), ("completed", inputs, outputs))
        self.assertEqual((result.summary["level"], result.summary["settings"]["level_reason"]), ("coarse", WHY_SHARED))
        self.assertEqual(len(self.coarse()), 1)
        self.assertGreater(result.phases["decode"].duration_ms, result.phases["pre_inference"].duration_ms)

    def test_two_threads_in_one_run(self):
        model = make()
        expected = [model.generate(PROMPT, **options(n)) for n in (20, 30)]
        Meeting(model)
        profiler, got = self.profiler(model), {}

        def go(count):
            got[count] = model.generate(PROMPT, **options(count))
        with profiler.run():
            in_threads(lambda: go(20), lambda: go(30))
            go(2)
        self.assertTrue(torch.equal(got[20], expected[0]) and torch.equal(got[30], expected[1]))
        self.check_shared(profiler.result, 15, 52)
        self.check_untouched(model)

    def test_loops_of_ones_own_in_two_threads(self):
        model = make()
        Meeting(model)
        profiler = self.profiler(model)

        def loop(count):
            cache, ids = None, PROMPT
            with torch.no_grad():
                for _ in range(count):
                    ids, cache = read_on(model, ids, cache)
        with profiler.run():
            in_threads(lambda: loop(20), lambda: loop(30))
        self.check_shared(profiler.result, 10, 50)

    def test_threads_that_take_turns_are_fine(self):
        model, turn = make(), threading.Lock()
        profiler = self.profiler(model)

        def go(count):
            for _ in range(2):
                with turn:
                    model.generate(PROMPT, **options(count))
        with profiler.run() as run:
            in_threads(lambda: go(3), lambda: go(4))
        self.assertEqual((run.result.input_tokens, run.result.output_tokens), (20, 14))
        self.assertEqual(run.result.summary["level"], "fine")
        self.assertEqual(self.tokens_of(run.run_id), 14)
        self.assertEqual(self.coarse(), [])

    def test_an_error_of_the_profilers_own_stays_inside(self):
        model = make()
        expected = model.generate(PROMPT, **options(6))
        for place in ("perjoule.watch.Watch._begin_call", "perjoule.recorder.Recorder.forward_ended",
                      "perjoule.recorder.Recorder.end_step", "perjoule.watch.Watch.begin_generate"):
            self.caught.clear()
            profiler = self.profiler(model)
            with unittest.mock.patch(place, side_effect=IndexError("planted")), profiler.run():
                self.assertTrue(torch.equal(model.generate(PROMPT, **options(6)), expected))
                self.assertTrue(torch.equal(model.generate(PROMPT, **options(6)), expected))
            result = profiler.result
            self.assertEqual((result.status, result.summary["level"]), ("completed", "coarse"), place)
            self.assertEqual(result.summary["settings"]["level_reason"], f"{WHY_BROKEN}IndexError: planted")
            self.assertEqual((result.input_tokens, result.output_tokens), (10, 12), place)
            self.assertEqual(len(self.coarse()), 1, place)
            self.check_untouched(model)

    def test_an_error_in_the_statistics_costs_only_them(self):
        model = make()
        profiler = self.profiler(model, statistics_every=1)
        inner, calls = Look._figures, []

        def figures(look, x):
            calls.append(x)
            return inner(look, x) if len(calls) % 3 else 1 / 0
        with unittest.mock.patch.object(Look, "_figures", figures), profiler.run():
            model.generate(PROMPT, **options(4))
        self.assertEqual((profiler.result.output_tokens, profiler.result.summary["level"]), (4, "fine"))
        self.assertEqual(self.rows("SELECT 1 FROM component_metrics WHERE activation_mean IS NOT NULL"), [])

    def test_a_prompt_of_embeddings(self):
        model = make()
        for count in (1, 7, 12):
            for width in (3, 6):
                ids = torch.arange(4, 4 + width)[None]
                embeds = model.get_input_embeddings()(ids).detach()
                for given in (dict(inputs_embeds=embeds), dict(inputs_embeds=embeds, input_ids=ids)):
                    profiler = self.profiler(model)
                    with profiler.run() as run:
                        out = model.generate(**given, **options(count))
                    kept = given["input_ids"].shape[1] if "input_ids" in given else 0
                    self.assertEqual(out.shape[1], kept + count)
                    self.assertEqual((run.result.input_tokens, run.result.output_tokens), (width, count))
                    rows = self.rows("SELECT vocabulary_id AS id FROM tokens WHERE run_id = ? ORDER BY position", run.run_id)
                    self.assertEqual([r["id"] for r in rows], out[0, kept:].tolist())
                    self.assertEqual(run.result.summary["level"], "fine")

    def test_a_run_is_used_once(self):
        model = make()
        profiler = self.profiler(model)
        run = profiler.run()
        with run:
            with self.assertRaisesRegex(RuntimeError, "already begun"), run:
                pass
            model.generate(PROMPT, **options(2))
        with self.assertRaisesRegex(RuntimeError, "already begun"), run:
            pass
        self.assertEqual(run.result.output_tokens, 2)
        self.assertEqual(len(self.rows("SELECT 1 FROM profiling_runs")), 1)
        self.check_untouched(model)
        self.assertFalse(any("forward" in vars(m) for m in model.modules()))

    def run_script(self, text):
        folder = pathlib.Path(self.folder, "model")
        make().save_pretrained(folder)
        script = pathlib.Path(self.folder, "script.py")
        script.write_text("import sys, threading, torch, transformers\n"
                          "model = transformers.LlamaForCausalLM.from_pretrained(sys.argv[1])\n"
                          "def go(n):\n"
                          "    model.generate(torch.tensor([[5, 6, 7]]), max_new_tokens=n, min_new_tokens=n, do_sample=False)\n"
                          + text)
        done = subprocess.run([sys.executable, "-m", "perjoule", "run", str(script), str(folder)],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("Error", done.stderr)
        self.assertNotIn("CoarseRecording", done.stderr)
        return done.stderr

    def test_an_unchanged_script_with_threads_that_also_profiles_itself(self):
        said = self.run_script("threads = [threading.Thread(target=go, args=[n]) for n in (3, 4, 5)]\n"
                               "for t in threads: t.start()\n"
                               "for t in threads: t.join()\n"
                               "from profiling.pipeline_profiler import InferencePipelineProfiler\n"
                               "with InferencePipelineProfiler(model).run(tags=['own']):\n"
                               "    go(6)\n"
                               "go(2)\n")
        found = self.rows("SELECT output_tokens AS n, tags, (SELECT count(*) FROM tokens t WHERE t.run_id = r.id) "
                          "AS rows FROM profiling_runs r ORDER BY id")
        threads, own = found[:3], found[3:]
        self.assertEqual(sorted((r["n"], r["rows"]) for r in threads), [(3, 3), (4, 4), (5, 5)])
        self.assertEqual([f"{n} tokens" in said for n in (3, 4, 5)], [True] * 3)
        self.assertEqual([r["n"] for r in own], [6, 2])
        self.assertIn("own", own[0]["tags"])


if __name__ == "__main__":
    unittest.main()
