"""GPU work of CUDA programs under `perjoule exec`, without CUDA: cuda_client.c plays the driver and the program,
fake_cupti.c is CUPTI. The power of each kernel is planted.

Usage: test_cuda.py PROGRAM CLIENT CUPTI OLD_CUPTI NVML
"""
import concurrent.futures
import ctypes
import json
import os
import pathlib
import sqlite3
import subprocess
import sys
import tempfile
import unittest

PROGRAM, CLIENT, CUPTI, OLD, NVML = (str(pathlib.Path(p).resolve()) for p in sys.argv[1:6])
WATTS = {"cutlass_80_tensorop_bf16_gemm_tn": 300, "flash::flash_fwd_kernel": 100, "rms_norm_kernel": 50,
         "first": 40, "second": 240}
SIM = "sim:rails=cpu+gpu,share=0.5+0.5,period_ms=1,noise=0,idle_mw=20000," + ",".join(
    f"class/{name}={watts * 1000}" for name, watts in WATTS.items())
# milliseconds of each kernel in ten steps
TEN = {"cutlass_80_tensorop_bf16_gemm_tn": 80, "flash::flash_fwd_kernel": 40, "rms_norm_kernel": 20, "graph 5": 20,
       "memcpy HtoD": 7, "memcpy PtoP": 3}
IN_GRAPHS = {name: ms for name, ms in TEN.items() if name != "graph 5"} | {"in_a_graph": 20}


def is_installed(library):
    try:
        return bool(ctypes.CDLL(library))
    except OSError:
        return False


HAS_CUPTI = any(is_installed(f"libcupti.so{version}") for version in (".13", ".12", ".11.8", ""))


class Run:
    def __init__(self, folder, name, *words, power="none", options=(), **extra):
        self.database = os.path.join(folder, name + ".db")
        environment = {k: v for k, v in os.environ.items()
                       if not k.startswith(("PERJOULE_", "NVTX_", "CUDA_", "FAKE_"))}
        done = subprocess.run([PROGRAM, "exec", "--baseline", "0", "--power", power, "--db", self.database, *options,
                               "--", CLIENT, *words], capture_output=True, text=True, check=False, timeout=300,
                              env={**environment, "PERJOULE_CUPTI": CUPTI, "CLIENT_CUPTI": CUPTI, **extra})
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr
        self.devices = json.loads(self.rows("select devices from profiling_runs")[0][0] or "{}")
        self.warnings = [text for text, in self.rows("select text from run_warnings where code like 'cuda%'")]
        self.ms = {n: round(ms, 6) for n, ms in self.rows(
            "select component_name, sum(time_ms) from component_metrics group by 1")}
        self.joules = {n: mj / 1e3 for n, mj in self.rows(
            "select component_name, sum(energy_mj) from component_metrics group by 1") if mj is not None}
        self.sd = dict(self.rows("select component_name, sum(energy_sd_mj) / 1e3 from component_metrics group by 1"))
        # what lies in ranges: their number and joules
        self.ranges = {n: (count, mj and mj / 1e3) for n, count, mj in self.rows(
            "select section_name, count(*), sum(energy_mj - self_energy_mj) from pipeline_sections group by 1")}
        self.busy_ms = self.rows("select sum(duration_ms) from pipeline_sections where device = 1")[0][0]

    def rows(self, query):
        with sqlite3.connect(self.database) as db:
            return db.execute(query).fetchall()


RUNS = {
    "work": (("work",), {"power": SIM}), "overlap": (("overlap",), {"power": SIM}),
    "old": (("work",), {"PERJOULE_CUPTI": OLD, "CLIENT_CUPTI": OLD}),
    # of two that are installed, the first is newer than the driver
    "installed": (("work",), {"PERJOULE_CUPTI": "", "CLIENT_CUPTI": OLD, "FAKE_CUPTI": "15"}),
    "toolkit": (("work",), {"PERJOULE_CUPTI": "", "CLIENT_CUPTI": OLD, "FAKE_CUPTI": "15"}), "deep": (("work",), {"options": ("-d", "deep")}),
    "off": (("work",), {"options": ("-d", "off")}), "_exit": (("_exit",), {}), "kill": (("kill",), {}),
    "fork": (("fork",), {}), "two": (("two",), {}), "hostile": (("hostile",), {}), "many": (("many", "20000"), {}),
    # the second of two cards, which NVML measures
    "card": (("work",), {"power": "nvml", "FAKE_NVML": "gpus=2"}),
    "quiet": (("quiet",), {"power": SIM}),
    "taken": (("work",), {"FAKE_CUPTI": "39"}), "refused": (("work",), {"FAKE_CUPTI": "15"}),
    "missing": (("work",), {"PERJOULE_CUPTI": "/nowhere/libcupti.so"}),
    "foreign": (("work",), {"CUDA_INJECTION64_PATH": "/nowhere/other.so"}),
}


class Cuda(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        libraries = pathlib.Path(cls.folder.name, "extras/CUPTI/lib64")
        libraries.mkdir(parents=True)
        libraries.joinpath("libcupti.so.13").symlink_to(CUPTI)
        libraries.joinpath("libcupti.so.12").symlink_to(OLD)
        RUNS["installed"][1]["LD_LIBRARY_PATH"] = str(libraries)
        RUNS["toolkit"][1]["CUDA_HOME"] = cls.folder.name
        libraries.joinpath("libnvidia-ml.so.1").symlink_to(NVML)
        RUNS["card"][1]["LD_LIBRARY_PATH"] = str(libraries)
        with concurrent.futures.ThreadPoolExecutor(len(RUNS)) as pool:
            started = {name: pool.submit(Run, cls.folder.name, name, *words, **how)
                       for name, (words, how) in RUNS.items()}
            cls.runs = {name: run.result() for name, run in started.items()}

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_of(self, name, code=0, warnings=0):
        run = self.runs[name]
        self.assertEqual(run.code, code, (run.out, run.err))
        self.assertEqual(len(run.warnings), warnings, run.warnings)
        return run

    def assert_planted(self, run, name, ms):
        """Within 2 %; where a busy machine has kept the sampler from reading, within what the run itself states."""
        planted = ms * 1e-3 * (WATTS[name] + 10)  # half of the idle power is the GPU's
        self.assertAlmostEqual(run.joules[name], planted, delta=max(0.02 * planted, 3 * run.sd[name]), msg=name)

    def test_kernels_by_name(self):
        run = self.run_of("work")
        self.assertEqual(run.ms, TEN)
        for name in TEN.keys() & WATTS.keys():
            self.assert_planted(run, name, TEN[name])
        self.assertEqual(run.devices["1"]["name"], "NVIDIA Stand-in")
        self.assertEqual((run.devices["1"]["rails"], run.devices["1"]["busy_ms"]), ("gpu", 170))

    def test_the_card_has_its_rail(self):
        device = self.run_of("card").devices["1"]
        self.assertEqual((device["rails"], device["rail_reason"]), ("gpu1", "by UUID"))
        self.assertEqual(device["uuid"], "GPU-aaaa0001111122223333444444444444")

    def test_ranges_have_what_they_launched(self):
        run = self.run_of("work")
        self.assertEqual((run.ranges["even"][0], run.ranges["odd"][0]), (5, 5))
        even, odd, whole = (run.ranges[name][1] for name in ("even", "odd", "stream 7"))
        self.assertAlmostEqual(even + odd, whole, places=6)
        self.assertAlmostEqual(whole, sum(run.joules.values()), places=6)
        self.assertAlmostEqual(even / odd, 1, delta=0.05)

    def test_work_at_once_shares_each_instant(self):
        run = self.run_of("overlap")
        self.assertEqual(run.ms, {"first": 150, "second": 150})
        self.assertAlmostEqual(run.busy_ms, 300, places=3)
        for name in run.ms:
            self.assert_planted(run, name, 150)
        self.assertEqual(set(run.ranges), {"stream 7", "stream 13"})

    def test_versions_and_depths(self):
        self.assertEqual(self.run_of("old").ms, IN_GRAPHS)  # CUPTI cannot record graphs, has a clock of its own
        self.assertEqual(self.run_of("installed").ms, IN_GRAPHS)
        if not HAS_CUPTI:  # which would be found before
            self.assertEqual(self.run_of("toolkit").ms, IN_GRAPHS)
        self.assertEqual(self.run_of("deep").ms, IN_GRAPHS)
        off = self.runs["off"]
        self.assertEqual((off.code, off.ms), (3, {}))  # nothing was injected

    def test_ends(self):
        for name, code, warnings in (("_exit", 5, 1), ("kill", 128 + 9, 1), ("fork", 0, 0)):
            run = self.run_of(name, code, warnings)
            self.assertEqual(run.ms, TEN, name)
            if warnings:
                self.assertIn("ended without running exit handlers", run.warnings[0])

    def test_two_processes_share_the_device(self):
        run = self.run_of("two")
        total = run.busy_ms
        self.assertGreaterEqual(round(total, 3), sum(TEN.values()))  # at most all of it at once
        self.assertLessEqual(round(total, 3), 2 * sum(TEN.values()))
        self.assertAlmostEqual(sum(run.ms.values()), total, places=2)

    def test_hostile_records(self):
        run = self.run_of("hostile", warnings=1)
        self.assertIn("6 records of GPU work had no valid times or devices", run.warnings[0])
        self.assertIn("unnamed kernel", run.ms)
        self.assertIn("bad???name", run.ms)
        self.assertIn("further kernels", run.ms)
        self.assertAlmostEqual(sum(run.ms.values()), 9, places=2)  # 9000 kernels of 1 us, three of 1 ms at once

    def test_launches_are_recorded_while_spans_are_reported(self):
        run = self.run_of("quiet")
        self.assertEqual(run.ms, {"rms_norm_kernel": 1})
        self.assertAlmostEqual(run.ranges["late range"][1], run.joules["rms_norm_kernel"], places=6)
        self.assertGreater(run.joules["rms_norm_kernel"], 0)

    def test_many(self):
        run = self.run_of("many")
        self.assertAlmostEqual(sum(run.ms.values()), 20000 * 0.0009, places=1)
        print(run.out.strip())

    def test_what_cannot_be_opened_is_said(self):
        for name, words in (("taken", "another profiler (Nsight Stand-in) uses CUPTI"),
                            ("refused", "it may be newer than the driver"),
                            ("missing", "/nowhere/libcupti.so, which PERJOULE_CUPTI names, cannot be opened")):
            run = self.runs[name]
            self.assertEqual(run.ms, {}, name)
            self.assertTrue(any(words in w for w in run.warnings), (name, run.warnings))
        self.assertEqual(self.runs["taken"].code, 0)
        foreign = self.runs["foreign"]
        self.assertIn("not injected: /nowhere/other.so", foreign.out)
        self.assertTrue(any("CUDA_INJECTION64_PATH names another library" in w for w in foreign.warnings))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[6:])
