"""Spools of killed runs: impatient users do them no harm, and what was imported is gone."""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
import unittest

import beside
import harness


class Leftovers(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="perjoule-leftovers-")
        self.db = os.path.join(self.folder, "runs.db")
        self.spools = pathlib.Path(self.db + "-spool")
        self.env = {**os.environ, "HOME": self.folder, "XDG_DATA_HOME": self.folder}
        self.leave_a_run()

    def tearDown(self):
        shutil.rmtree(self.folder)

    def start(self, *words):
        return subprocess.Popen([harness.PROGRAM, *words, "--db", self.db], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, env=self.env)

    def perjoule(self, *words):
        with self.start(*words) as done:
            out, err = done.communicate(timeout=120 * harness.SLOW)
        self.assertEqual(done.returncode, 0, out + err)
        return out, err

    def leave_a_run(self):
        with self.start("run", "-m", "synthetic:smollm2-135m,layers=1", "--ids", "1,2,3", "-n", "7000", "--ignore-eos",
                        "--power", "none") as run:
            end = time.monotonic() + 60 * harness.SLOW
            while not any(b"smollm2" in spool.read_bytes() for spool in self.spools.glob("*.spool")):
                self.assertIsNone(run.poll())
                self.assertLess(time.monotonic(), end)
                time.sleep(0.05)
            run.kill()
            run.communicate()
        self.spool = next(self.spools.glob("*.spool"))
        self.tries = self.spool.with_suffix(".tries")

    def rows(self):
        with contextlib.closing(sqlite3.connect(self.db)) as base:
            return base.execute("SELECT status FROM profiling_runs").fetchall()

    def test_interrupts_are_no_failed_attempts(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGINT, signal.SIGINT):
            with self.start("ls") as listing:
                while listing.poll() is None and not self.tries.exists():
                    pass
                listing.send_signal(number)
                listing.communicate()
            self.assertFalse(self.tries.exists(), number)
        self.perjoule("check")
        self.assertEqual(self.rows(), [("interrupted",)])

    def test_recovery_says_what_it_does(self):
        _, err = self.perjoule("ls")
        self.assertTrue(err.startswith("perjoule: recovering 1 interrupted run\n"), err)

    def test_lists_show_what_is_not_recovered(self):
        """By the facts of its spool: this one is not even tried."""
        self.tries.write_bytes(b"xxxxx")
        run, lists = self.spool.stem, {}
        lists["ls"] = json.loads(self.perjoule("ls", "--json")[0])
        lists["interrupted"] = json.loads(self.perjoule("ls", "--json", "--status", "interrupted")[0])
        with harness.Server(db=self.db, power="none") as server:
            lists["API"] = server.get("/api/profiling/runs").json()
            self.assertEqual(server.get("/api/profiling/runs?status=completed").json(), [])
            lists["API, alone"] = [server.get(f"/api/profiling/run/{run}").json()]
            lists["API, last"] = [server.get("/api/profiling/run/last").json()]
            answer = server.get(f"/api/profiling/run/{run}/tokens")
            self.assertEqual(answer.status, 404)
            self.assertIn("perjoule check says why", answer.body.decode())
            self.assertEqual(server.ask("DELETE", f"/api/profiling/run/{run}").status, 404)
        lists["show"] = [json.loads(self.perjoule("show", "--json")[0])]
        lists["show by id"] = [json.loads(self.perjoule("show", run[:18], "--json")[0])]
        self.perjoule("run", "-m", "synthetic:smollm2-135m,layers=1", "--ids", "1", "-n", "1", "--power", "none")
        newest = json.loads(self.perjoule("show", "last", "--json")[0])["id"]
        self.assertNotEqual(newest, run)
        lists["show last~1"] = [json.loads(self.perjoule("show", "last~1", "--json")[0])]
        with self.start("compare", "last~1", "last") as comparison:
            _, err = comparison.communicate(timeout=120 * harness.SLOW)
        self.assertEqual(comparison.returncode, 1)
        self.assertIn(f"run {run} was interrupted, and its figures are not recovered yet", err)
        for place, runs in lists.items():
            self.assertEqual([(r["id"], r["status"], r["total_energy_mj"], r["total_energy_sd_bias_mj"]) for r in runs],
                             [(run, "interrupted", None, None)], place)
            self.assertIn("smollm2", runs[0]["model_name"])
        self.assertRegex(self.perjoule("ls")[0], f"{run[:13]}.* interrupted ")
        self.perjoule("run", "-m", "synthetic:smollm2-135m,layers=1", "--ids", "1", "-n", "1", "--power", "none")
        self.assertEqual(newest, json.loads(self.perjoule("compare", newest, "last", "--json")[0])["runs"][0]["id"])
        self.perjoule("import", str(self.spool))
        self.assertEqual([r["id"] for r in json.loads(self.perjoule("ls", "--json")[0])][1:], [newest, run])

    def test_nothing_waits_for_a_recovery(self):
        """It cannot end: the database is locked."""
        with contextlib.closing(sqlite3.connect(self.db, isolation_level=None)) as base:
            base.execute("BEGIN IMMEDIATE")
            shown = {words: self.perjoule(*words)[0] for words in (("show",), ("ls",))}
            with self.start("show", "--tokens") as tokens:
                _, err = tokens.communicate(timeout=120 * harness.SLOW)
        self.assertEqual(tokens.returncode, 1)
        self.assertIn("its rows are not recovered yet: perjoule check recovers them", err)
        self.assertRegex(shown["show",], f"run +{self.spool.stem}\nstatus +interrupted\n")
        self.assertIn("not recovered yet: perjoule check recovers them", shown["show",])
        self.assertRegex(shown["ls",], f"{self.spool.stem[:13]} .* interrupted ")
        self.perjoule("check")
        self.assertEqual(self.rows(), [("interrupted",)])
        self.assertIn("idle ", self.perjoule("show", "last", "--phases")[0])

    def test_an_imported_spool_is_gone(self):
        copy = os.path.join(self.folder, "copy.spool")
        shutil.copy(self.spool, copy)
        self.tries.write_bytes(b"xxxxx")
        self.assertIn("failed to finish 5 times", self.perjoule("ls")[1])
        self.perjoule("import", str(self.spool))
        self.assertEqual([p.name for p in self.spools.iterdir() if p.suffix in (".spool", ".tries")], [])
        self.assertNotIn("spool", self.perjoule("ls")[1])
        self.perjoule("import", "--replace", copy)
        self.assertTrue(os.path.exists(copy))  # a copy elsewhere is the user's
        self.assertEqual(self.rows(), [("interrupted",)])


beside.main()
