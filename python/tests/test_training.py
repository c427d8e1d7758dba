"""Training as a run with a section per step: the tests that do not need torch."""
import time

from perjoule.training import TrainingRecorder
from support import StoredCase


class Training(StoredCase):
    def recorder(self, **options):
        return TrainingRecorder(session=self.session(), **options)

    def test_each_step_is_a_section_with_its_energy(self):
        recorder = self.recorder(tags=["t"], experiment_name="e")
        recorder.begin("mine")
        for seconds in (0.02, 0.04, 0.06):
            recorder.begin_step()
            time.sleep(seconds)
            recorder.end_step()
        result = recorder.end()
        self.assertEqual((recorder.steps, result.status, result.summary["tags"]), (3, "completed", ["t"]))
        self.assertAlmostEqual(recorder.joules_per_step, result.joules / 3)
        rows = self.rows("SELECT * FROM pipeline_sections WHERE section_name = 'train_step' ORDER BY start_ms")
        self.assertEqual([r["phase"] for r in rows], ["pre_inference"] * 3)
        energies = [r["energy_mj"] for r in rows]
        powers = [e / r["duration_ms"] for e, r in zip(energies, rows)]  # a sleep may take any time, at idle power
        self.assertLess(max(powers), 1.02 * min(powers), powers)
        self.assertLessEqual(sum(energies), result.energy.mj * (1 + 1e-9))

    def test_many_steps_are_handed_over_in_portions(self):
        recorder = self.recorder()
        recorder.begin()
        for _ in range(700):
            recorder.begin_step()
            recorder.end_step()
        recorder.end()
        self.assertEqual(len(self.rows("SELECT 1 FROM pipeline_sections WHERE section_name = 'train_step'")), 700)

    def test_a_failure_has_its_reason_and_the_next_training_starts_anew(self):
        recorder = self.recorder()
        self.assertIsNone(recorder.end())
        recorder.end_step()  # before training began
        recorder.begin()
        recorder.begin_step()
        recorder.end(reason="ValueError: nan")
        self.assertEqual((recorder.result.status, recorder.steps, recorder.joules_per_step), ("failed", 0, None))
        recorder.begin()
        recorder.begin()  # the previous run was never ended
        recorder.end()
        self.assertEqual([r["status"] for r in self.rows("SELECT status FROM profiling_runs ORDER BY id")],
                         ["failed", "cancelled", "completed"])

    def test_without_a_sensor(self):
        recorder = TrainingRecorder(session=self.session(power="none"))
        recorder.begin()
        recorder.begin_step()
        recorder.end_step()
        recorder.end()
        self.assertIsNone(recorder.joules_per_step)
        self.assertEqual(self.rows("SELECT energy_mj FROM pipeline_sections WHERE section_name = 'train_step'"),
                         [{"energy_mj": None}])
