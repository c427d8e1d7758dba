"""Experiments through the API: queueing, progress, cancelling, resuming, and durability across kill -9 of the
server."""
import time
import unittest

import beside
from harness import SLOW, Server, Socket

API = "/api/profiling/experiments"
MODEL = "synthetic:smollm2-135m,layers=2"
PLAN = {"name": "sweep", "models": [MODEL], "dtypes": ["bf16", "q8_0"], "inputs": [8], "outputs": [4], "repeat": 2}
LONG = PLAN | {"name": "long", "outputs": [64], "repeat": 40}


def wait_until(what, seconds=180 * SLOW):  # a cell waits until the machine is idle
    end = time.time() + seconds
    while time.time() < end:
        found = what()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen in time")


def view(server, name):
    return server.get(f"{API}/{name}").json()


def places(server, name):
    runs = server.get(f"/api/profiling/runs?experiment={name}&status=completed&limit=1000").json()
    return [tuple(r["settings"][f"experiment_{k}"] for k in ("cell", "block", "round")) for r in runs]


class Experiments(unittest.TestCase):
    def begin(self, server, plan):
        answer = server.ask("POST", API, plan)
        self.assertEqual(answer.status, 202, answer.body)
        return answer.json()

    def await_state(self, server, name, *states):
        return wait_until(lambda: (v := view(server, name))["state"] in states and v)

    def test_runs_and_tells(self):
        with Server() as server, Socket(server.port) as ws:
            ticket = self.begin(server, PLAN)
            self.assertEqual(ticket, {"name": "sweep", "state": "queued", "cells": 2, "total": 4})
            seen = []
            while not seen or seen[-1]["state"] not in ("completed", "failed"):
                message = ws.message()
                if message["type"] == "experiment_progress":
                    seen.append(message)
            self.assertEqual((seen[-1]["state"], seen[-1]["done"], seen[-1]["total"]), ("completed", 4, 4), seen[-1])
            self.assertEqual(seen[0]["state"], "queued")
            self.assertTrue(any(m["run_id"] for m in seen))
            ended = [m for m in seen if m["joules_per_token"]]
            self.assertEqual([m["done"] for m in ended], [1, 2, 3, 4])
            self.assertTrue(all(m["left_s"] >= 0 for m in ended))
            result = view(server, "sweep")
            self.assertEqual((result["state"], result["progress"], result["done"]), ("completed", None, 4))
            self.assertEqual(sorted(places(server, "sweep")), [(c, b, 0) for c in (0, 1) for b in (0, 1)])
            self.assertEqual(server.get(API).json()[0]["state"], "completed")
            again = server.ask("POST", f"{API}/sweep/resume?again=true")
            self.assertEqual(again.status, 202, again.body)
            wait_until(lambda: view(server, "sweep")["state"] == "completed")
            self.assertEqual(len(view(server, "sweep")["against_former"]), 2)

    def test_cancel_and_resume(self):
        with Server() as server:
            self.begin(server, LONG)
            self.begin(server, PLAN)
            self.assertEqual(server.ask("POST", API, LONG).status, 409)
            progress = wait_until(lambda: (p := view(server, "long")["progress"]) and p["done"] and p["run_id"] and p)
            self.assertEqual(progress["total"], 80)
            # The run is visible while in progress, and single runs may be interleaved.
            self.assertEqual(server.get(f"/api/profiling/run/{progress['run_id']}/summary").status, 200)
            single = server.generate(model_name=MODEL, prompt_ids=[1, 2], prompt=None, max_length=2)
            self.assertEqual(single.json()["status"], "completed")
            self.assertEqual(server.ask("POST", f"{API}/sweep/cancel").json()["state"], "cancelled")
            self.assertEqual(server.ask("POST", f"{API}/long/cancel").json()["state"], "stopping")
            stopped = self.await_state(server, "long", "cancelled")
            self.assertGreater(stopped["done"], 0)
            self.assertEqual(server.ask("POST", f"{API}/long/cancel").status, 409)
            self.assertEqual(server.ask("POST", f"{API}/sweep/resume").status, 202)
            self.await_state(server, "sweep", "completed")

    def test_survives_kill_9(self):
        server = Server()
        self.begin(server, LONG | {"repeat": 3, "outputs": [16]})
        wait_until(lambda: (p := view(server, "long")["progress"]) and p["done"] >= 2)
        server.process.kill()
        server.process.wait()
        again = Server(db=server.db, folder=server.folder)
        self.await_state(again, "long", "completed")
        done = places(again, "long")
        self.assertEqual((len(done), len(set(done))), (6, 6))
        again.stop()
        server.stop()

    def test_a_run_of_an_experiment_can_be_cancelled(self):
        with Server() as server:
            self.begin(server, LONG | {"outputs": [2000]})
            run = wait_until(lambda: (p := view(server, "long")["progress"]) and p["run_id"])
            self.assertLess(server.ask("POST", f"/api/profiling/run/{run}/cancel").status, 300)
            self.await_state(server, "long", "cancelled")

    def test_a_knee_lies_within_the_batches(self):
        """With only two batch sizes the larger one cannot be reported as the point of diminishing returns."""
        with Server() as server:
            self.begin(server, PLAN | {"name": "knee", "batches": [1, 2], "outputs": [8]})
            done = self.await_state(server, "knee", "completed")
            by_batch = {c["cell"]: (c["batch"], c[done["metric"]]) for c in done["cells"]}
            for first, (batch, joules) in by_batch.items():
                if batch != 1:
                    continue
                knees = [k for k in done["knees"] if k["first_cell"] == first]
                second = next(j for c, (b, j) in by_batch.items() if c > first and b == 2)
                self.assertEqual([k["batch"] for k in knees], [1] if second > 0.9 * joules else [])
                for knee in knees:
                    self.assertTrue(knee["saves_lo"] <= knee["saves"] <= knee["saves_hi"], knee)
                    self.assertEqual(knee["settled"], knee["saves_hi"] < 0.1)
                    self.assertEqual("saves less than 10 %" in knee["text"], knee["settled"])

    def test_refusals(self):
        with Server(power="none") as server:
            for plan, status in [(b"{", 400), (b"", 400), ([], 422), (PLAN | {"repeats": 3}, 422), (PLAN | {"name": "a/b"}, 422),
                                 (PLAN | {"name": "x" * 64}, 422), (PLAN | {"name": 5}, 422), (PLAN | {"eval": "/etc/passwd"}, 422),
                                 (PLAN | {"tasks": "/etc/passwd"}, 422), (PLAN | {"tasks_text": "{}"}, 422),
                                 (PLAN | {"models": ["/etc"]}, 422), (PLAN | {"dtypes": ["q9"]}, 422), (PLAN | {"round": 3}, 422),
                                 (PLAN | {"batches": list(range(1, 66))}, 422), (PLAN | {"outputs": [10 ** 6]}, 422)]:
                answer = server.ask("POST", API, plan)
                self.assertEqual((answer.status, answer.headers["Content-Type"]), (status, "application/problem+json"), (plan, answer.body))
            self.assertEqual(server.ask("POST", f"{API}/none/resume").status, 404)
            self.assertEqual(server.ask("POST", f"{API}/none/cancel").status, 409)
            self.assertEqual(server.get(API).json(), [])
            self.begin(server, PLAN | {"eval_text": "A text whose loss is measured beside the joules."})
            done = self.await_state(server, "sweep", "completed", "failed")
            self.assertEqual(server.ask("POST", API, PLAN | {"dtypes": ["bf16"]}).status, 422)
            self.assertEqual(done["state"], "completed", done["error"])
            self.assertTrue(all(cell["loss"] > 0 for cell in done["cells"]))
            self.assertIsNone(done["answers"])

    def test_tasks_are_answered(self):
        lines = ['{"prompt": "The kettle", "choices": [" begins to sing", " qzx qzx"], "answer": " begins to sing"}',
                 '{"prompt": "The kettle", "answer": "qzx"}']
        with Server(power="sim") as server:
            self.begin(server, PLAN | {"models": ["demo"], "tasks_text": "\n".join(lines)})
            done = self.await_state(server, "sweep", "completed", "failed")
            self.assertEqual(done["state"], "completed", done["error"])
            for cell in done["cells"]:
                self.assertEqual((cell["tasks"], cell["tasks_solved"], cell["score"]), (2, 1, 0.5))
                self.assertTrue(0 < cell["score_lo"] < 0.5 < cell["score_hi"] < 1)
            self.assertEqual(done["answers"]["tasks"], 2)
            self.assertEqual(done["answers"]["best"], done["answers"]["least_energy"])
            self.assertIn("score", [front["over"] for front in done["fronts"]])


beside.main()
