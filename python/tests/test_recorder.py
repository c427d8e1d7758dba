"""Timing of modules without torch: what is recorded, and that the modules are restored."""
import sys
import threading
import time
import unittest

from made_model import Linear, Model, Module
from perjoule import _native as native
from perjoule.names import plan_of
from perjoule.recorder import HostClock, Recorder, Step, word
from perjoule.session import clock_ns
from support import StoredCase, in_threads


def step_of(recorder, model, position=0):
    step = Step(recorder.clock.begin_step(), position)
    recorder.forward_begins()
    out = model(1)
    recorder.forward_ended(step)
    recorder.end_step(step, recorder.clock.stamp())
    return out


class LateClock(HostClock):
    """A fake device whose event times become available on demand; stamps are event numbers."""

    def __init__(self):
        self.times, self.done = [None], False  # stamp 0 is none

    def stamp(self):
        self.times.append(clock_ns())
        return len(self.times) - 1

    def stamp_of(self, module):
        return self.stamp

    def device_of(self, module):
        return "card"

    def begin_step(self, after=None):
        return after or self.stamp()

    def resolve(self, records):
        return [self.times[v] if i % 4 < 2 else v for i, v in enumerate(records)]

    def is_done(self, stamps):
        return self.done

    def finish(self):
        self.done = True
        return True


class Recording(StoredCase):
    def record(self, model, steps=2, clock=None, **options):
        plan = plan_of(model)
        with self.session().run() as run, run.phase("decode"):
            recorder = Recorder(run, plan, clock, **options)
            recorder.attach()
            try:
                outs = [step_of(recorder, model, i) for i in range(steps)]
                recorder.flush(everything=True)
            finally:
                recorder.detach()
        return run, outs

    def test_components_come_in_the_order_of_the_work(self):
        model = Model()
        expected = model(1)
        run, outs = self.record(model)
        self.assertEqual(outs, [expected] * 2)
        order = ["input_layernorm", "q_proj", "k_proj", "v_proj", "attention", "o_proj", "post_attention_layernorm",
                 "gate_proj", "act", "up_proj", "down_proj"]
        for position in (0, 1):
            self.assertEqual(self.components(run.id, position), [(layer, name) for layer in (0, 1) for name in order])
        sections = [r["section_name"] for r in self.rows(
            "SELECT section_name FROM pipeline_sections ORDER BY start_ms")]
        self.assertEqual(sections, ["embedding", "position_embedding", "layers", "final_norm", "lm_head", "sampling"] * 2)
        self.assertEqual([r["position"] for r in self.rows("SELECT position FROM tokens")], [0, 1])

    def test_a_late_device_loses_nothing(self):
        run, _ = self.record(Model(), steps=5, clock=LateClock())
        self.assertEqual(len(self.rows("SELECT 1 FROM tokens")), 5)
        self.assertEqual(len(self.components(run.id, 4)), 22)

    def test_a_late_device_has_the_modules_and_its_phases_the_tokens(self):
        model, phases = Model(), ("prefill", "decode", "decode")
        with self.session().run() as run:
            recorder = Recorder(run, plan_of(model), LateClock())
            recorder.attach()
            try:
                for i, phase in enumerate(phases):
                    step = Step(recorder.clock.begin_step(), i)
                    step.phase = phase
                    recorder.forward_begins()
                    model(1)
                    recorder.forward_ended(step)
                    recorder.end_step(step, recorder.clock.stamp())
                recorder.flush(everything=True)
            finally:
                recorder.detach()
        self.assertEqual([r["phase"] for r in self.rows("SELECT phase FROM tokens ORDER BY position")], list(phases))
        self.assertEqual([r["phase"] for r in self.rows("SELECT phase FROM run_phases WHERE phase <> 'idle'")],
                         ["prefill", "decode"])
        for table in ("component_metrics", "layer_metrics"):
            self.assertEqual([r["device"] for r in self.rows(f"SELECT DISTINCT device FROM {table}")], [1])
        self.assertEqual([r["n"] for r in self.rows("SELECT count(*) AS n FROM layer_metrics GROUP BY token_id")], [2] * 3)
        self.assertEqual([r["device"] for r in self.rows(
            "SELECT DISTINCT device FROM pipeline_sections WHERE section_name = 'layers'")], [None])
        self.assertIn('"name":"card"', self.rows("SELECT devices FROM profiling_runs")[0]["devices"])

    def test_the_core_is_what_lies_between_the_projections(self):
        model = Model()
        attention = model.model.layers._modules["0"].self_attn
        slow = attention.o_proj
        inner = attention.v_proj.forward
        attention.__dict__["forward"] = lambda x: (slow(self.pause(attention.v_proj(x))))
        run, _ = self.record(model, steps=1)
        rows = {r["component_name"]: r["time_ms"] for r in self.rows(
            "SELECT component_name, time_ms FROM component_metrics c JOIN layer_metrics l ON l.id = c.layer_metric_id "
            "WHERE l.layer_index = 0")}
        self.assertGreaterEqual(rows["attention"], 20)
        self.assertLess(rows["o_proj"], rows["attention"])
        self.assertEqual(attention.v_proj.forward, inner)

    def test_a_function_counts_where_the_model_computes(self):
        model, namespace = Model(), {"conv": lambda: None}
        plan = plan_of(model)
        plan.functions.append((namespace, "conv", "conv1d"))
        with self.session().run() as run, run.phase("decode"):
            recorder = Recorder(run, plan)
            recorder.attach()
            recorder.forward_begins()
            model(1)
            before = len(recorder.records)
            other = threading.Thread(target=namespace["conv"])  # of another model of the family
            other.start()
            other.join()
            self.assertEqual(len(recorder.records), before)
            namespace["conv"]()
            self.assertEqual(len(recorder.records), before + 4)
            recorder.detach()
        self.assertEqual(namespace["conv"].__name__, "<lambda>")

    @staticmethod
    def pause(x):
        time.sleep(0.02)
        return x

    def test_nothing_is_left_in_the_model(self):
        model = Model()
        own = model.lm_head.forward
        model.lm_head.__dict__["forward"] = own  # someone else's, as accelerate does

        def everything():
            found = []
            stack = [model]
            while stack:
                module = stack.pop()
                found.append((id(module), dict(module.__dict__)))
                stack += module._modules.values()
            return found
        before = everything()
        self.record(model)
        self.assertEqual(everything(), before)

        model.model.norm.forward = lambda x: 1 / 0
        before = everything()
        with self.assertRaises(ZeroDivisionError):
            self.record(model)
        self.assertEqual(everything(), before)

    def test_a_part_that_cannot_be_replaced_leaves_none_replaced(self):
        class Fixed(Linear):
            __slots__ = ()

            @property
            def __dict__(self):
                raise TypeError("fixed")
        model = Model()
        plan = plan_of(model)
        plan.parts[-1].module = Fixed.__new__(Fixed)
        with self.session().run() as run:
            with self.assertRaises(Exception):
                Recorder(run, plan).attach()
        self.assertNotIn("forward", model.model.embed_tokens.__dict__)

    def test_two_threads_attach_at_the_same_time(self):
        """Each wrapper must call what was there before it, or one of the two records nothing until the other ends."""
        model = Model()
        plan = plan_of(model)
        self.addCleanup(sys.setswitchinterval, sys.getswitchinterval())
        sys.setswitchinterval(1e-6)
        with self.session().run() as first, self.session().run() as second:
            recorders = [Recorder(run, plan) for run in (first, second)]
            for _ in range(100):
                in_threads(*(recorder.attach for recorder in recorders))
                for recorder in recorders:
                    recorder.forward_begins()
                model(1)
                self.assertEqual(*([words[2] for words in zip(*[iter(r.records)] * 4)] for r in recorders))
                in_threads(*(recorder.detach for recorder in recorders))
        self.assertFalse(any("forward" in part.module.__dict__ for part in plan.parts))

    def test_while_a_compiler_looks_nothing_is_recorded(self):
        model = Model()
        run, _ = self.record(model, compiling=lambda: True)
        self.assertEqual(self.components(run.id), [])
        self.assertEqual(len(self.rows("SELECT 1 FROM tokens")), 2)

    def test_a_softcap_after_the_head_is_a_component(self):
        model = Model()
        plan = plan_of(model)
        plan.logits = True
        with self.session().run() as run, run.phase("decode"):
            recorder = Recorder(run, plan)
            recorder.attach()
            step_of(recorder, model)
            recorder.detach()
        row, = self.rows("SELECT s.section_name, s.duration_ms, c.time_ms FROM component_metrics c "
                         "JOIN pipeline_sections s ON s.id = c.section_id WHERE component_name = 'logits'")
        self.assertEqual(row["section_name"], "lm_head")
        self.assertLessEqual(row["time_ms"], row["duration_ms"])

    def test_a_model_without_blocks_is_one_section_of_its_modules(self):
        class Backwards(Module):
            def forward(self, x):
                return self.first(self.last(x))
        run, _ = self.record(Backwards(first=Linear(), last=Linear()))
        rows = self.rows("SELECT s.section_name, s.start_ms AS begin, s.duration_ms AS took, c.component_name, c.start_ms, "
                         "c.time_ms FROM component_metrics c JOIN pipeline_sections s ON s.id = c.section_id ORDER BY c.start_ms")
        self.assertEqual([(r["section_name"], r["component_name"]) for r in rows],
                         [("modules", "last"), ("modules", "first")] * 2)
        for row in rows:
            self.assertGreaterEqual(row["start_ms"], row["begin"])
            self.assertLessEqual(row["start_ms"] + row["time_ms"], row["begin"] + row["took"] + 1e-6)

    def test_words_are_kind_and_id(self):
        self.assertEqual(word(native.COMPONENT, 5) >> 32, native.COMPONENT)
        self.assertEqual(word(native.COMPONENT, 5) & 0xFFFFFFFF, 5)


if __name__ == "__main__":
    unittest.main()
