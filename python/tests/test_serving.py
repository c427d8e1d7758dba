"""A server's steps and requests as runs: the sequences of each step, and each request's allocation."""
import subprocess
import sys
import time
import unittest

import perjoule
from perjoule import _native as native
from perjoule.serving import Request, ServingRecorder, Step, spans_of
from support import StoredCase

MS = 1_000_000


def request(name="r", prompt=8, cached=0, output=3, prefill=0.01, decode=0.02, end_ns=0):
    return Request(name, "length", prompt, cached, output, 0.0, prefill, decode, end_ns)


class Sharing(unittest.TestCase):
    def shared(self, steps, requests):
        """(kind, id, begin in ms, end in ms, sequences) per span."""
        spans, texts = spans_of(steps, requests)
        out = []
        for i in range(len(spans) // 4):
            begin, end, word, _ = spans[4 * i:4 * i + 4]
            sequences = [t[1] for t in texts if t[0] == i]
            out.append((word >> 32, word & 0xFFFFFFFF, begin / MS, end / MS, sequences))
        return out

    def test_a_step_belongs_to_those_whose_times_contain_it(self):
        # a: prefill until 10, decode until 30; b: prefill 10 to 20, decode until 40
        a = request("a", prompt=8, prefill=0.01, decode=0.02, end_ns=30 * MS)
        b = request("b", prompt=6, cached=3, prefill=0.01, decode=0.02, end_ns=40 * MS)
        steps = [Step(0, 10 * MS, 8, 1), Step(10 * MS, 20 * MS, 3, 2), Step(20 * MS, 30 * MS, 0, 2),
                 Step(30 * MS, 40 * MS, 0, 1)]
        prefill, decode = (native.PHASES.index(p) for p in ("prefill", "decode"))
        self.assertEqual(self.shared(steps, [a, b]), [
            (native.PHASE, prefill, 0, 10, []), (native.TOKEN, 0, 0, 10, [0]),
            # three prompt tokens of b and one generated token of a
            (native.PHASE, prefill, 10, 17.5, []), (native.TOKEN, 1, 10, 17.5, [1]),
            (native.PHASE, decode, 17.5, 20, []), (native.TOKEN, 2, 17.5, 20, [0]),
            (native.PHASE, decode, 20, 30, []), (native.TOKEN, 3, 20, 30, [0, 1]),
            (native.PHASE, decode, 30, 40, []), (native.TOKEN, 4, 30, 40, [1])])

    def test_work_of_nobody_known_belongs_to_others(self):
        self.assertEqual(self.shared([Step(0, MS, 0, 1)], [])[1][4], [0])
        known = request(prefill=0, decode=0.01, end_ns=10 * MS)
        self.assertEqual(self.shared([Step(4 * MS, 5 * MS, 0, 2)], [known])[1][4], [0, 1])
        self.assertEqual(self.shared([Step(4 * MS, 5 * MS, 0, 0)], [known]), [])


class Serving(StoredCase):
    def serve(self, recorder, step=0.02):
        """Two requests; the second arrives while the first decodes."""
        times = [time.monotonic()]

        def stepped(seconds, *told):
            time.sleep(seconds)
            times.append(time.monotonic())
            recorder.stepped(*told)
        recorder.arrived()
        stepped(2 * step, 16, 1, [], 1)
        recorder.arrived()
        stepped(step, 4, 2, [], 2)
        time.sleep(step)
        times.append(time.monotonic())
        first = request("first", prompt=16, output=3, prefill=times[1] - times[0], decode=times[3] - times[1])
        recorder.stepped(0, 2, [first], 1)
        time.sleep(step)
        times.append(time.monotonic())
        second = request("second", prompt=10, cached=6, output=3, prefill=times[2] - times[1], decode=times[4] - times[2])
        recorder.stepped(0, 1, [second], 0)

    def recorder(self, **options):
        return ServingRecorder(self.session(power="sim:seed=3,period_ms=1,noise=0.01"), "served", **options)

    def test_requests_get_all_that_the_steps_took(self):
        reported = []
        recorder = self.recorder(report=reported.append)
        self.serve(recorder)
        recorder.close()
        result, = recorder.results
        self.assertEqual(reported, [result])
        self.assertEqual((result.input_tokens, result.output_tokens, result.status), (20, 6, "completed"))
        run = perjoule.open(self.db).run()
        self.assertEqual((run.engine, run.level, run.batch_rule), ("vllm", "coarse", "tokens"))
        first, second = run.requests()
        self.assertEqual((first["id"], second["id"], second["cached_tokens"]), ("first", "second", 6))
        self.assertGreater(min(first["energy_mj"], second["energy_mj"]), 0)
        steps = sum(r["energy_mj"] for r in run.rows("tokens"))
        self.assertAlmostEqual(first["energy_mj"] + second["energy_mj"], steps, delta=1e-6 * steps)
        self.assertGreater(steps, 0.8 * result.energy.mj)
        self.assertLessEqual({"prefill", "decode"}, {r["phase"] for r in run.rows("phases")})
        shared = self.rows("SELECT method FROM tokens GROUP BY position HAVING count(*) > 1")
        self.assertEqual({r["method"] for r in shared}, {"allocated"})

    def test_idle_ends_a_run_and_so_does_a_length(self):
        recorder = self.recorder(max_steps=3)
        self.serve(recorder, 0.002)
        recorder.stepped(0, 0, [], 0)  # nothing happened
        self.serve(recorder, 0.002)
        recorder.close()
        recorder.close()
        self.assertEqual([r.output_tokens for r in recorder.results], [5, 1, 5, 1])

    def test_without_arrivals_and_without_a_sensor(self):
        recorder = ServingRecorder(self.session(power="none"))
        recorder.stepped(4, 1, [], 1)  # its arrival was not reported, so the start of this step is unknown
        time.sleep(0.01)
        recorder.stepped(0, 1, [request(prefill=0.005, decode=0.01)], 0)
        recorder.close()
        self.assertIsNone(recorder.results[0].energy)
        self.assertIsNone(perjoule.open(self.db).run().requests()[0]["energy_mj"])


class Exit(StoredCase):
    """A program that ends right after its last request: its runs are stored, in whatever order things are closed."""

    def end_of(self, text):
        script = "\n".join(["import time, perjoule.session", "from perjoule.serving import Request, ServingRecorder",
                            "recorder = ServingRecorder(perjoule.session.default_session(), 'm')",
                            "def one(finished):",
                            "    recorder.arrived()",
                            "    time.sleep(0.02)",
                            "    done = [Request('r', 'length', 8, 0, 3, 0.0, 0.01, 0.01)] if finished else []",
                            "    recorder.stepped(8, 3, done, not finished)", text])
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return [(r["status"], r["output_tokens"]) for r in self.rows("SELECT status, output_tokens FROM profiling_runs")]

    def test_while_the_last_run_is_being_ended(self):
        self.assertEqual(self.end_of("one(True)"), [("completed", 3)])

    def test_with_several_runs_to_end(self):
        self.assertEqual(self.end_of("for _ in range(4): one(True)"), [("completed", 3)] * 4)

    def test_with_an_open_run(self):
        self.assertEqual(self.end_of("one(False)"), [("completed", 3)])

    def test_when_the_session_is_closed_first(self):
        self.assertEqual(self.end_of("one(True)\nperjoule.session.default_session().close()\nrecorder.close()"),
                         [("completed", 3)])


if __name__ == "__main__":
    unittest.main()
