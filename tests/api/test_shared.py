"""Several processes on one database: each queued run and experiment runs once, a cancellation reaches the process that
works on it, and what a killed one leaves is continued by another that lives."""
import os
import signal
import subprocess
import time
import unittest

import beside
from harness import PROGRAM, SLOW, Server

LONG = {"model_name": "synthetic:smollm2-135m,layers=2", "prompt_ids": [1, 2, 3], "max_length": 6000, "wait": False}
SHORT = {**LONG, "max_length": 2}
API = "/api/profiling/experiments"
PLAN = {"name": "shared", "models": [LONG["model_name"]], "dtypes": ["bf16", "q8_0"], "inputs": [8], "outputs": [4],
        "repeat": 2}
LONG_PLAN = PLAN | {"name": "long", "outputs": [64], "repeat": 40}


class Shared(unittest.TestCase):
    def queue(self, server, *requests):
        ids = []
        for request in requests:
            answer = server.ask("POST", "/api/profiling/generate", request)
            self.assertEqual(answer.status, 202, answer.body)
            ids.append(answer.json()["run_id"])
        return ids

    @staticmethod
    def statuses(server):
        return {run["run_id"]: run["status"] for run in server.get("/api/profiling/runs").json()}

    def test_every_run_once(self):
        with Server() as first, Server(db=first.db, folder=first.folder) as second:
            ids = self.queue(first, *[SHORT] * 6)
            with Server(db=first.db, folder=first.folder) as third:
                more = self.queue(third, *[SHORT] * 4)
                for server in (first, third):
                    server.wait_until(lambda s=server: s.get("/healthz").json()["queue"] == 0
                                      and not s.get("/healthz").json()["running"], "the queue's end")
                time.sleep(2.5)
                metrics = [s.get("/metrics").body.decode() for s in (first, second, third)]
            self.assertEqual(self.statuses(first), dict.fromkeys(ids + more, "completed"))
            counts = [int(next(line.split()[-1].split(".")[0] for line in m.splitlines()
                               if line.startswith("perjoule_runs_total") and '"completed"' in line)) for m in metrics]
            self.assertEqual(counts, [6, 0, 4])

    def test_cancel_reaches_the_owner(self):
        with Server() as first, Server(db=first.db, folder=first.folder) as second:
            running, waiting = self.queue(first, LONG, LONG)
            first.wait_until(lambda: first.get("/healthz").json()["running"] == running, "it runs")
            for run in (waiting, running):
                answer = second.ask("POST", f"/api/profiling/run/{run}/cancel")
                self.assertEqual(answer.status, 202, answer.body)
            first.wait_until(lambda: first.get("/healthz").json()["running"] is None, "it ends")
            first.wait_until(lambda: self.statuses(second).get(running) == "cancelled", "it is stored")
            self.assertEqual(first.get("/healthz").json()["queue"], 0)
            self.assertEqual(second.ask("POST", f"/api/profiling/run/{waiting}/cancel").status, 404)

    def test_a_killed_server_hands_over(self):
        with Server() as first, Server(db=first.db, folder=first.folder) as second:
            ids = self.queue(first, LONG, *[SHORT] * 3)
            first.wait_until(lambda: first.get("/healthz").json()["running"] == ids[0], "it runs")
            first.wait_until(lambda: any(n.startswith(ids[0]) for n in os.listdir(f"{first.db}-spool")), "it has begun")
            time.sleep(0.3)
            first.process.send_signal(signal.SIGKILL)
            second.wait_until(lambda: [self.statuses(second).get(i) for i in ids[1:]] == ["completed"] * 3, "taken over")
            second.wait_until(lambda: self.statuses(second).get(ids[0]) == "interrupted", "its run is recovered")

    def test_an_experiment_runs_once(self):
        with Server() as first, Server(db=first.db, folder=first.folder) as second:
            self.assertEqual(first.ask("POST", API, PLAN).status, 202)
            answer = second.ask("POST", API, PLAN)
            self.assertEqual(answer.status, 409, answer.body)
            first.wait_until(lambda: self.state(first, "shared") == "completed", "it ends")
            time.sleep(2.5)
            runs = first.get("/api/profiling/runs?experiment=shared&limit=1000").json()
            done = sorted((r["settings"]["experiment_cell"], r["settings"]["experiment_block"]) for r in runs)
            self.assertEqual(done, [(cell, block) for cell in (0, 1) for block in (0, 1)])

    def test_an_experiment_is_cancelled_handed_over_and_refused(self):
        with Server() as first, Server(db=first.db, folder=first.folder) as second:
            for name in ("long", "other"):
                self.assertEqual(first.ask("POST", API, LONG_PLAN | {"name": name}).status, 202)
            first.wait_until(lambda: self.state(first, "long") == "running", "it begins")
            refused = subprocess.run(
                [PROGRAM, "experiment", "--db", first.db, "--name", "long"], capture_output=True, text=True,
                env={**os.environ, "HOME": first.folder, "PERJOULE_POWER": "sim"}, timeout=60 * SLOW)
            self.assertIn("another process", refused.stderr)
            self.assertNotEqual(refused.returncode, 0)
            self.assertEqual(second.ask("POST", f"{API}/other/cancel").status, 202)
            first.wait_until(lambda: self.state(first, "other") == "cancelled", "the other one is cancelled")
            first.process.send_signal(signal.SIGKILL)
            second.wait_until(lambda: self.state(second, "long") == "running", "taken over")
            self.assertEqual(second.ask("POST", f"{API}/long/cancel").status, 202)
            second.wait_until(lambda: self.state(second, "long") == "cancelled", "it stops")

    @staticmethod
    def state(server, name):
        return server.get(f"{API}/{name}").json().get("state")


beside.main()
