"""tools/device without a card: which device is meant, time that has run out, loads and fits. test_check.py PROJECT."""
import contextlib
import io
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
import types
import unittest
from unittest import mock

ROOT = pathlib.Path(sys.argv.pop()).resolve()
sys.path.insert(0, str(ROOT / "tools" / "device"))
import check  # noqa: E402
import compute  # noqa: E402
import report  # noqa: E402
import run  # noqa: E402

os.environ["PYTHONPATH"] = str(ROOT / "tests" / "device" / "standin")


def options(load=None):
    return types.SimpleNamespace(wave=None, load=load)


def entry(entry_id, name, uuid=None):
    return {"id": entry_id, "name": name, "uuid": uuid, "vendor": name.split()[0], "driver": None, "usable": True, "reason": None, "memory_bytes": 8 << 30, "fast_paths": "",
            "rail": None, "rail_reason": "no source"}


class Reports(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def report(self, seconds):
        return report.Report(self.folder.name, seconds)

    def chosen(self, name):
        entries = [entry("cpu", "AMD EPYC"), entry("gpu:0", "NVIDIA H100 80GB HBM3", "00112233-4455-6677-8899-aabbccddeeff"),
                   entry("gpu:1", "AMD Instinct MI300X"), entry("gpu:2", "NVIDIA A100", "10112233-4455-6677-8899-aabbccddeeff"),
                   entry("llvmpipe", "llvmpipe (LLVM 15.0.6, 256 bits)")]
        device = types.SimpleNamespace(name=name, report=self.report(60), environment={},
                                       call=lambda *words: json.dumps({"devices": entries, "no_vulkan": None}))
        found = compute.listed(device)
        self.assertEqual(device.environment.get("CUDA_VISIBLE_DEVICES"),
                         f"GPU-{device.report.facts['entry']['uuid']}" if found and device.report.facts["entry"]["vendor"] == "NVIDIA" else None)
        return device.report.facts["entry"]["id"] if found else None

    def test_the_device_that_the_program_takes(self):
        for name, found in (("gpu", "gpu:0"), ("GPU", "gpu:0"), ("gpu:1", "gpu:1"), ("NVIDIA H100", "gpu:0"), ("llvmpipe", "llvmpipe"),
                            ("00112233-4455-6677-8899-AABBCCDDEEFF", "gpu:0"),
                            ("GPU-00112233-4455-6677-8899-aabbccddeeff", "gpu:0"), ("gpu:3", None), ("nonsense", None), ("AMD Instinct", "gpu:1"),
                            ("NVIDIA", None), ("NVID", None), ("gpu:2", "gpu:2")):
            with self.subTest(name):
                self.assertEqual(self.chosen(name), found)

    def test_every_check_has_its_share_of_the_time(self):
        now, given = [0.0], []

        def slow(device):
            given.append(device.report.left())
            now[0] += device.report.left()
            raise subprocess.TimeoutExpired("", 0)

        def quick(device):
            given.append(device.report.left())

        with mock.patch("report.time.monotonic", lambda: now[0]), mock.patch.object(compute, "listed", lambda device: True), \
                mock.patch.object(compute, "CHECKS", {slow: 3, quick: 1, lambda device: slow(device): 2}):
            late = self.report(100)
            compute.check(types.SimpleNamespace(build=ROOT, device="gpu", small=False, golden=None), late, kept=40)
            self.assertEqual(given, [30, 10, 30])
            self.assertEqual(late.left(), 40)
        self.assertEqual([row["result"] for row in late.rows], ["skipped", "skipped"])

    def test_models_that_fit(self):
        device = compute.Device(types.SimpleNamespace(build=ROOT, device="gpu", small=False, golden=None), self.report(60))
        for memory, kind, model in ((80e9, "discrete", "bf16"), (2e9, "discrete", "q8_0"), (.5e9, "discrete", "demo"), (80e9, "software", "demo")):
            device.report.facts["entry"] = {"memory_bytes": memory, "kind": kind}
            self.assertTrue(device.large().endswith(model), (memory, device.large()))

    def test_quantised_weights_have_the_room_of_the_cpus_rounding(self):
        found = {model: room for model, _, room in compute.models(types.SimpleNamespace(small=False, golden=None))}
        self.assertEqual([found[f"synthetic:{shape},layers=2"] for shape in compute.SHAPES], [1e-2, 4e-2, 4e-2])

    def test_bandwidth_needs_no_room_for_a_large_model(self):
        asked = []
        device = types.SimpleNamespace(name="gpu", report=self.report(60),
                                       call=lambda *words: asked.append(words) or json.dumps({"copy_bytes_per_second": 3e12}))
        self.assertEqual(compute.bandwidth(device), 3e12)
        self.assertIn(compute.DEMO, asked[0])

    def test_sensors_without_time(self):
        late = self.report(2)
        run.sensors(types.SimpleNamespace(build=ROOT, seconds=2, load=None, wave=None), late)
        self.assertEqual([(row["result"], row["text"]) for row in late.rows], [("skipped", "no time left")])


    def test_sensors_of_another_vendor(self):
        amd = self.report(60)
        amd.facts["entry"] = entry("gpu:0", "AMD Instinct MI300X")
        run.sensors(types.SimpleNamespace(build=ROOT, seconds=2, load=None, wave=None), amd)
        self.assertEqual([(row["result"], row["text"]) for row in amd.rows],
                         [("skipped", "the check is of NVIDIA's readings, the device is of AMD")])

    def found(self, script, seconds=60):
        """The row of a check of sensors that is this script."""
        (pathlib.Path(self.folder.name) / "check.py").write_text(script)
        row = self.report(600)
        with mock.patch.object(run, "HERE", pathlib.Path(self.folder.name)), mock.patch.object(run, "MOST_SENSORS", seconds):
            run.sensors(types.SimpleNamespace(build=ROOT, seconds=2, load=None, wave=None), row)
        return [(r["result"], r["text"]) for r in row.rows]

    def test_what_is_lacking_is_no_failure_and_a_failure_is_not_lacking(self):
        module = f"import sys; sys.path.insert(0, {str(ROOT / 'tools' / 'device')!r}); import check\n"
        self.assertEqual(self.found(module + "check.lack('no driver')"), [("skipped", "no driver")])
        self.assertEqual(self.found(module + "check.fail('perjoule sensors: it crashed')"),
                         [("bad", "device-check: perjoule sensors: it crashed")])

    def test_a_load_ends_with_the_check(self):
        beats = pathlib.Path(self.folder.name) / "beats"
        script = f"""
import sys, time, types
sys.path.insert(0, {str(ROOT / 'tools' / 'device')!r})
import check
check.end_when_told()
load = check.Load(types.SimpleNamespace(wave=None, load="while echo >>{beats}; do sleep .1; done"), 1)
load.tick(0)
time.sleep(300)
"""
        self.assertEqual(self.found(script, 4), [("bad", "not done after 4 s")])
        seen = beats.stat().st_size
        time.sleep(.5)
        self.assertEqual(beats.stat().st_size, seen)


class Cards(unittest.TestCase):
    UUIDS = ["GPU-aaaa0000-1111-2222-3333-444444444444", "GPU-aaaa0001-1111-2222-3333-444444444444"]

    def test_the_card_that_is_meant(self):
        for wanted, visible, number in ((None, None, 0), (None, "1", 1), (None, "1,0", 1), (None, "2", None), (None, "", None), (None, "-1", None),
                                        (None, "GPU-aaaa0001", 1), (None, "GPU-bbbb", None), (None, "MIG-aaaa0000", None), (self.UUIDS[1], "0", 1),
                                        ("aaaa0001111122223333444444444444", None, 1), ("GPU-cccc", None, None)):
            with self.subTest(wanted=wanted, visible=visible):
                self.assertEqual(check.choose(self.UUIDS, wanted, visible), number)

    @unittest.skipUnless("PJ_FAKE_NVML" in os.environ, "the stand-in for the driver was not built")
    def test_what_the_driver_lists(self):
        with mock.patch.dict(os.environ, {"PERJOULE_NVML": os.environ["PJ_FAKE_NVML"], "FAKE_NVML": "gpus=2", "CUDA_VISIBLE_DEVICES": "0"}):
            for wanted in [None, *self.UUIDS]:
                card = check.Card(wanted)
                self.assertEqual(card.uuid, wanted or self.UUIDS[0])
                self.assertEqual(card.handle.value - check.Card(self.UUIDS[0]).handle.value, card.uuid == self.UUIDS[1])
            with contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit):
                check.Card("GPU-cccc0000-1111-2222-3333-444444444444")
            self.assertIn("has no card GPU-cccc0000", said.getvalue())


class Loads(unittest.TestCase):
    def test_pytorch(self):
        begin = time.monotonic()
        load = check.Load(options(), .5)
        child = load.child
        schedule = load.schedule(begin, begin + 1)
        self.assertEqual(child.returncode, 0)
        self.assertGreaterEqual(len(schedule.begins), 1)
        self.assertTrue(all(begin < b < e for b, e in zip(schedule.begins, schedule.ends)))
        self.assertAlmostEqual(schedule.busy(time.monotonic()), sum(schedule.ends) - sum(schedule.begins))

    def test_a_command(self):
        load = check.Load(options("sleep 60 & wait"), 1)
        load.tick(0)
        child = load.child
        self.assertIsNone(child.poll())
        load.tick(load.turn - .001)  # not yet
        self.assertIs(load.child, child)
        load.tick(load.turn)
        self.assertIsNone(load.child)
        self.assertIsNotNone(child.poll())
        (begin, end), = load.bursts
        self.assertLess(begin, end)
        load.tick(load.turn)
        self.assertEqual(len(load.schedule(0, 1).begins), 2)

    def test_no_load(self):
        os.environ["PYTHONPATH"], before = str(ROOT), os.environ["PYTHONPATH"]
        try:
            if not check.subprocess.run([sys.executable, "-c", "import torch"], stderr=check.subprocess.DEVNULL).returncode:
                self.skipTest("torch is installed")
            said = io.StringIO()
            with contextlib.redirect_stderr(said), self.assertRaises(SystemExit) as ended:
                check.Load(options(), 1)
            self.assertIn("--load", said.getvalue())
            self.assertEqual(ended.exception.code, check.LACKING)
        finally:
            os.environ["PYTHONPATH"] = before


class Fits(unittest.TestCase):
    def values(self, schedule, window, delay):
        return [(k * .02, 100 + 500 * schedule.share(k * .02 - delay - window, k * .02 - delay)) for k in range(50, 900)]

    def schedule(self, seed):
        chance, at, bursts = random.Random(seed), 0.0, []
        while at < 20:
            begin = at + chance.uniform(.02, .4)
            at = begin + chance.uniform(.02, .4)
            bursts.append((begin, at))
        return check.Schedule(bursts)

    def test_what_follows_the_load(self):
        schedule = self.schedule(1)
        r2, window, delay = check.fit(schedule, self.values(schedule, .1, .01), check.WINDOWS, check.DELAYS)
        self.assertGreater(r2, .999)
        self.assertEqual((window, delay), (.1, .01))

    def test_what_does_not(self):
        r2, *fitted = check.fit(self.schedule(1), self.values(self.schedule(2), .1, .01), check.WINDOWS, check.DELAYS)
        self.assertLess(r2, check.EXPLAINED)
        self.assertEqual(fitted, [None, None])

    def test_what_a_counter_adds_up(self):
        """On a machine so busy that ticks are seen up to 20 ms late, too."""
        schedule = check.Schedule(check.square_wave("730,310", 0, 8))
        for late in (0, .002, .02):
            for seen in (.1, .035):
                with self.subTest(late=late, seen=seen):
                    chance, ticks, energy = random.Random(4), [], 0.0
                    for k in range(10, 70):
                        energy += .1 * (90 + 560 * schedule.share(k * .1 - seen, k * .1))
                        ticks.append((k * .1 + chance.uniform(0, late), energy))
                    found = check.added_up(*check.counter_fit(schedule, ticks))
                    if seen == .1:
                        self.assertEqual(found, "all of the time")
                    elif late < .02:
                        self.assertRegex(found, "^35 of (9|10)")


unittest.main()
