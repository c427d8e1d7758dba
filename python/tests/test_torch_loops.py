"""Hand-written loops over a real model: several texts, conversations, drafts; and passes of other texts within generate.

Skipped, with the reason, where torch and transformers can't be imported.
"""
import copy
import threading
import unittest

try:
    import torch
    import transformers
except ImportError as e:
    raise unittest.SkipTest(f"{e.name} is not installed: the tests with real models are not run") from None

import perjoule
from perjoule.watch import WHY_ALTERNATING
from profiling.pipeline_profiler import InferencePipelineProfiler
from support import StoredCase, recorded_warnings
from test_torch import CACHE, make, read_on

LONG, SHORT = torch.tensor([[5, 9, 20, 33, 7, 8, 11]]), torch.tensor([[6, 12, 40]])


def loop(model, ids, count, cache=None):
    """One pass at each step; the last one's cache and next ids are what StopIteration holds."""
    for _ in range(count):
        ids, cache = read_on(model, ids, cache)
        yield
    return cache, ids


def run_through(steps):
    while True:
        try:
            next(steps)
        except StopIteration as e:
            return e.value


class Loops(StoredCase):
    def setUp(self):
        super().setUp()
        self.caught = recorded_warnings(self)
        self.model = make()

    def record(self, body):
        profiler = InferencePipelineProfiler(self.model, session=self.session())
        with profiler.run() as run, torch.no_grad():
            body()
        self.assertEqual(run.result.status, "completed")
        return run.result

    def check(self, result, inputs, outputs, level="fine", reason=None):
        self.assertEqual((result.input_tokens, result.output_tokens), (inputs, outputs))
        self.assertEqual((result.summary["level"], result.summary["settings"].get("level_reason")), (level, reason))
        warned = [str(w.message) for w in self.caught if w.category is perjoule.CoarseRecording]
        self.assertEqual(len(warned), reason is not None, warned)

    def phases(self):
        return [t["phase"] for t in self.rows("SELECT phase FROM tokens ORDER BY position")]

    def test_two_texts_in_turn_in_one_thread(self):
        def body():
            for _ in zip(loop(self.model, LONG, 6), loop(self.model, SHORT, 6)):
                pass
        self.check(self.record(body), 10, 12, "coarse", WHY_ALTERNATING)

    def test_two_texts_in_turn_in_two_threads(self):
        turns = threading.Semaphore(1), threading.Semaphore(0)

        def go(number, ids):
            with torch.no_grad():
                steps = loop(self.model, ids, 6)
                for _ in range(6):
                    turns[number].acquire(timeout=45)
                    next(steps)
                    turns[1 - number].release()

        def body():
            threads = [threading.Thread(target=go, args=each) for each in enumerate((LONG, SHORT))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.check(self.record(body), 10, 12, "coarse", WHY_ALTERNATING)

    def test_two_texts_in_turn_without_a_cache(self):
        def body():
            texts = [LONG, SHORT]
            for step in range(8):
                ids = texts[step % 2]
                texts[step % 2] = torch.cat([ids, self.model(ids, use_cache=False).logits[:, -1:].argmax(-1)], 1)
        self.check(self.record(body), 10, 8, "coarse", WHY_ALTERNATING)

    def test_one_text_after_another(self):
        def body():
            run_through(loop(self.model, LONG, 4))
            run_through(loop(self.model, SHORT, 3))
        self.check(self.record(body), 10, 7)
        self.assertEqual(self.phases(), ["prefill"] + ["decode"] * 3 + ["prefill"] + ["decode"] * 2)

    def test_texts_that_are_scored_one_token_longer_each_time(self):
        def body():
            for length in (4, 5, 6, 3):
                self.model(torch.full((1, length), 30 - length))
        self.check(self.record(body), 18, 4)
        self.assertEqual(set(self.phases()), {"prefill"})

    def test_branches_from_copies_of_a_cached_prefix(self):
        def body():
            _, prefix = read_on(self.model, LONG, None)
            for _ in range(3):
                run_through(loop(self.model, SHORT, 4, copy.deepcopy(prefix)))
        # each branch has the prefix and its own three tokens as its prompt
        self.check(self.record(body), 7 + 3 * 10, 1 + 3 * 4)
        self.assertEqual(self.phases(), ["prefill"] + (["prefill"] + ["decode"] * 3) * 3)

    def test_the_turns_of_a_conversation(self):
        def body():
            cache, ids = run_through(loop(self.model, LONG, 4))
            run_through(loop(self.model, torch.cat([ids, SHORT], 1), 4, cache))
        self.check(self.record(body), 10, 8)
        self.assertEqual(self.phases(), (["prefill"] + ["decode"] * 3) * 2)

    def test_a_prompt_in_parts(self):
        def body():
            _, cache = read_on(self.model, LONG[:, :3], None)
            run_through(loop(self.model, LONG[:, 3:], 4, cache))
        result = self.record(body)
        self.check(result, 7, 4)
        self.assertEqual(self.phases(), ["prefill"] + ["decode"] * 3)
        # the sections of both parts, none of which spans the other's
        sections = self.rows("SELECT section_name, start_ms, start_ms + duration_ms AS end_ms FROM pipeline_sections "
                             "WHERE phase = 'prefill' AND section_name != 'sampling' ORDER BY start_ms")
        self.assertEqual([s["section_name"] for s in sections].count("layers"), 2)
        for before, after in zip(sections, sections[1:]):
            if "position_embedding" not in (before["section_name"], after["section_name"]):
                self.assertLessEqual(before["end_ms"], after["start_ms"] + 1e-3)

    def test_drafts_that_a_loop_rejects(self):
        def body():
            ids, cache = read_on(self.model, LONG, None)
            for _ in range(3):  # five tokens read, two kept
                ids, cache = read_on(self.model, torch.cat([ids, torch.full((1, 4), 50)], 1), cache)
                cache.crop(-3)
        # one token of the prompt's pass, two of each pass that a later one follows, one of the last
        self.check(self.record(body), 7, 6)

    def test_recurrent_states_do_not_tell_their_length(self):
        """Models whose cache is a state of fixed size: positions are counted pass by pass."""
        small = dict(vocab_size=64, hidden_size=32, num_hidden_layers=2)
        for model, name in ((transformers.MambaForCausalLM(transformers.MambaConfig(state_size=8, **small)),
                             "cache" if CACHE == "cache" else "cache_params"),
                            (transformers.RwkvForCausalLM(transformers.RwkvConfig(attention_hidden_size=32, **small)), "state")):
            self.model = model.eval()

            def steps(ids):
                state = {}
                for _ in range(3):
                    out = self.model(ids, use_cache=True, **state)
                    state, ids = {name: out[name]}, out.logits[:, -1:].argmax(-1)
                    yield

            for body in (lambda: self.model.generate(LONG, max_new_tokens=3, min_new_tokens=3, do_sample=False),
                         lambda: run_through(steps(LONG))):
                result = self.record(body)
                self.check(result, 7, 3)
                phases = self.rows("SELECT phase FROM tokens WHERE run_id = ? ORDER BY position", result.run_id)
                self.assertEqual([t["phase"] for t in phases], ["prefill", "decode", "decode"])
                self.assertEqual({layer for layer, _ in self.components(result.run_id)}, {0, 1})
            self.check(self.record(lambda: [run_through(steps(LONG)), run_through(steps(SHORT))]), 10, 6)

    def test_guidance_without_a_prompt_belongs_to_the_step(self):
        for use_cache in (True, False):
            with self.subTest(use_cache=use_cache):
                result = self.record(lambda: self.model.generate(
                    LONG, max_new_tokens=9, min_new_tokens=9, do_sample=False, guidance_scale=1.5, use_cache=use_cache))
                self.check(result, 7, 9)
                rows = self.rows("SELECT t.phase, count(*) AS n FROM component_metrics c JOIN layer_metrics l ON l.id = "
                                 "c.layer_metric_id JOIN tokens t ON t.id = l.token_id WHERE component_name = 'q_proj' "
                                 "AND t.run_id = ? GROUP BY t.position ORDER BY t.position", result.run_id)
                # two passes of two layers for each token
                self.assertEqual([(r["phase"], r["n"]) for r in rows], [("prefill", 4)] + [("decode", 4)] * 8)


if __name__ == "__main__":
    unittest.main()
