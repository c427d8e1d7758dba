"""Sessions and runs: records are read back from the database, and missing values are None."""
import array
import dataclasses
import os
import threading
import time
import unittest
from unittest import mock

import perjoule
from perjoule import _native as native
from support import StoredCase, recorded_warnings

NONE = 0xFFFFFFFF  # layer -1, no detail


def word(kind, id):
    return id | kind << 32


class Recording(StoredCase):
    def test_spans_tokens_and_facts_are_stored(self):
        session = self.session()
        with session.run(prompt="hello", model_name="mine", tags=["a", "b"], settings={"k": 1}) as run:
            run.describe(dtype="bf16", device="cuda", layers=1, model={"parameters": 12})
            with run.phase("decode"), run.token(0, "héllo", token_id=17), run.layer(0), run.component("q_proj"):
                time.sleep(0.02)
            run.set_tokens(3, 1)
        result = run.result
        self.assertEqual((result.status, result.energy_source), ("completed", "modelled"))
        if result.energy_net is not None:  # a busy machine has no baseline
            self.assertGreater(result.energy.mj, result.energy_net.mj)
        self.assertLess(result.energy.lo_mj, result.energy.hi_mj)
        self.assertEqual((result.input_tokens, result.output_tokens), (3, 1))
        self.assertGreaterEqual(result.phases["decode"].duration_ms, 20)
        self.assertEqual(result.summary["tags"], ["a", "b"])
        stored, = self.rows("SELECT * FROM profiling_runs WHERE id = ?", result.run_id)
        self.assertEqual((stored["prompt"], stored["dtype"], stored["isa"]), ("hello", "bf16", "cuda"))
        self.assertAlmostEqual(stored["total_energy_mj"], result.energy.mj, places=6)
        token, = self.rows("SELECT * FROM tokens")
        self.assertEqual((token["text"], token["vocabulary_id"]), ("héllo", 17))
        self.assertEqual(self.components(run.id), [(0, "q_proj")])

    @unittest.skipUnless(hasattr(os, "fork"), "needs fork")
    def test_a_session_stays_with_the_process_that_opened_it(self):
        session = self.session()
        with session.run() as run:
            child = os.fork()
            if child == 0:  # the library's threads do not exist in the child, and the database belongs to the parent
                code = 1
                try:
                    session.run()
                except RuntimeError as e:
                    code = 0 if "fork" in str(e) else 2
                run.__exit__(None, None, None)
                session.close()
                with perjoule.Session(power="sim", database="none", baseline_seconds=0) as own, own.run():
                    pass
                os._exit(code)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(run.result.status, "completed")
        self.assertEqual(len(self.rows("SELECT 1 FROM profiling_runs")), 1)

    def test_packed_spans_nest_by_their_times(self):
        session = self.session()
        with session.run() as run:
            q, begin = run.name("q_proj"), time.monotonic_ns()
            with run.phase("decode"):
                time.sleep(0.01)
                end = time.monotonic_ns()
                records = array.array("q", [
                    begin + 2000, end - 2000, word(native.COMPONENT, q), NONE,
                    begin + 1000, end - 1000, word(native.LAYER, 3), NONE,
                    begin + 500, end - 500, word(native.TOKEN, 0), NONE])
                run.add_spans(records, texts=[(2, 0, 5, "x")])
                run.add_spans(records[:0])
        self.assertEqual(self.components(run.id), [(3, "q_proj")])
        self.assertEqual([r["text"] for r in self.rows("SELECT text FROM tokens")], ["x"])
        with self.assertRaises(ValueError), session.run() as run:
            run.add_spans(b"123")

    def test_threads_have_lanes_of_their_own(self):
        session = self.session()
        with session.run() as run, run.phase("decode"):
            def work(position):
                with run.token(position), run.component("x"):
                    time.sleep(0.01)
            threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
            [t.start() for t in threads]
            [t.join() for t in threads]
        self.assertEqual(sorted(r["position"] for r in self.rows("SELECT position FROM tokens")), [0, 1, 2, 3])

    def test_runs_that_overlap_divide_what_a_window_measures(self):
        with perjoule.Session(database=self.db, baseline_seconds=0.1, share_rule="weight") as session:
            window = session.window()
            with session.run(weight=3) as first, session.run() as second:
                second.set_weight(2)
                time.sleep(0.3)
            measured = window.end()
            with self.assertRaisesRegex(RuntimeError, "over"):
                window.end()
        first, second = first.result, second.result
        self.assertEqual({first.summary["allocation"], second.summary["allocation"]}, {"weight"})
        self.assertGreater(first.joules, second.joules)
        self.assertLess(first.energy.mj + second.energy.mj, measured.energy.mj * 1.05)
        self.assertGreater(measured.energy.mj, 0.8 * sum(rail.mj for rail in measured.rails.values()))
        if measured.energy_net is not None:  # unavailable where the machine was busy during the baseline
            self.assertLess(measured.energy_net.mj, measured.energy.mj)

    def test_a_block_that_raises_is_a_failed_run_with_its_reason(self):
        session = self.session()
        with self.assertRaises(KeyError), session.run() as run:
            raise KeyError("lost")
        self.assertEqual(run.result.status, "failed")
        self.assertIn("lost", self.rows("SELECT failure FROM profiling_runs")[0]["failure"])
        with self.assertRaises(KeyboardInterrupt), session.run() as run:
            raise KeyboardInterrupt
        self.assertEqual(run.result.status, "cancelled")

    def test_tags_and_settings_of_any_type(self):
        session = self.session()
        for given, tags in ((None, []), ("one", ["one"]), ((1, None, 2.5), ["1", "2.5"]), ({"a": 0}, ["a"])):
            with session.run(tags=given) as run:
                pass
            self.assertEqual(perjoule.open(self.db).run(run.id).tags, tags)
        settings = {"dtype": complex, "loss": float("nan"), "deep": [{"x": float("inf")}, (1, 2)], 3: True, "none": None}
        with session.run(settings=settings) as run:
            pass
        self.assertEqual(perjoule.open(self.db).run(run.id).settings,
                         {"dtype": str(complex), "loss": "nan", "deep": [{"x": "inf"}, [1, 2]], "3": True, "none": None})

    def test_misuse_is_said(self):
        session = self.session()
        with self.assertRaisesRegex(ValueError, "deep"):
            session.run(depth="everything")
        for wrong, said in (({"batch_size": -1}, "batch_size"), ({"settings": "text"}, "dictionary")):
            with self.assertRaisesRegex((TypeError, ValueError), said):
                session.run(**wrong)
        run = session.run()
        for misuse, said in ((lambda: run.phase("bogus"), "prefill"), (lambda: run.token(-1), "position"),
                             (lambda: run.set_prompts([3, -1]), "-1"), (lambda: run.end("running"), "completed")):
            with self.assertRaisesRegex(ValueError, said):
                misuse()
        run.end()
        with self.assertRaisesRegex(RuntimeError, "ended"):
            run.end()
        session.close()
        session.close()
        with self.assertRaisesRegex(RuntimeError, "closed"):
            session.run()
        with self.assertRaisesRegex(perjoule.PerjouleError, "nonsense"):
            self.session(power="nonsense")

    def test_closing_keeps_what_goes_on(self):
        session = self.session()
        run = session.run(prompt="p")
        session.close()
        with self.assertRaises(RuntimeError):
            run.end()
        self.assertEqual(self.rows("SELECT status FROM profiling_runs"), [{"status": "interrupted"}])

    def test_without_a_sensor_energies_are_none_and_one_warning_says_so(self):
        caught = recorded_warnings(self)
        os.environ.pop("PERJOULE_POWER")  # every real source, on a machine that has none
        nothing = {"PERJOULE_SYSFS": self.folder, "PERJOULE_NVML": "/nowhere", "PERJOULE_POWERMETRICS": "/nowhere"}
        with mock.patch.dict(os.environ, nothing):
            session = self.session(database="none")
        for _ in range(2):
            with session.run() as run, run.phase("decode"), run.token(0):
                time.sleep(0.005)
        result = run.result
        self.assertEqual(result.energy_source, "unavailable")
        self.assertEqual((result.energy, result.energy_net, result.joules, result.joules_per_token), (None,) * 4)
        self.assertEqual([p.energy for p in result.phases.values()], [None] * len(result.phases))
        self.assertGreater(result.duration_ms, 5)
        warned = [w for w in caught if w.category is perjoule.EnergyUnavailable]
        self.assertEqual(len(warned), 1)
        self.assertEqual(warned[0].filename, __file__)

    def test_a_run_too_short_for_its_sensors_says_so(self):
        caught = recorded_warnings(self)
        with self.session().run() as run, run.phase("decode"):
            pass
        for reason, said in (("below_resolution", "too short"), ("sensor_gap", "no reading"), ("new", "no usable reading")):
            run._warn_unavailable(dataclasses.replace(run.result, summary={"rails": [{}], "unavailable_reason": reason}))
            self.assertIn(said, str(caught[-1].message))
        run._warn_unavailable(dataclasses.replace(run.result, summary={"rails": [], "unavailable_reason": "no_sensor"}))
        self.assertIn("no power sensor", str(caught[-1].message))

    def test_power_none_was_asked_for_and_warns_of_nothing(self):
        caught = recorded_warnings(self)
        with self.session(power="none", database="none").run() as run:
            pass
        self.assertIsNone(run.result.energy)
        self.assertEqual(caught, [])


if __name__ == "__main__":
    unittest.main()
