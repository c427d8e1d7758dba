"""Durability: queued runs survive a restart and kill -9, and a run in progress survives a signal; a server stops in
time."""
import glob
import os
import signal
import time
import unittest

import beside
from harness import SLOW, Server, Socket

LONG = {"model_name": "synthetic:smollm2-135m,layers=2", "prompt_ids": [1, 2, 3], "max_length": 6000, "wait": False}
SHORT = {**LONG, "max_length": 2}


def wait_until(what, seconds=180 * SLOW):  # only against hanging
    end = time.time() + seconds
    while time.time() < end:
        found = what()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen in time")


def stored(server, run_id):
    answer = server.get(f"/api/profiling/run/{run_id}/summary")
    return answer.json() if answer.status == 200 and answer.json()["status"] not in ("queued", "running") else None


def contention():
    """How many times as long as alone a computation takes now, since others use the processor, too."""
    wall, cpu = time.monotonic(), time.thread_time()
    while time.thread_time() - cpu < 0.05:
        pass
    return max(1, (time.monotonic() - wall) / 0.05)


class Durable(unittest.TestCase):
    def ask(self, server, body):
        answer = server.ask("POST", "/api/profiling/generate", body)
        self.assertEqual(answer.status, 202, answer.body)
        return answer.json()["run_id"]

    def spools(self, server, run):
        return glob.glob(f"{server.db}-spool/{run}*.spool")

    def await_begin(self, server, run):
        # A run has begun once it has a spool; if killed before that, it is still a queued request and is started again.
        wait_until(lambda: self.spools(server, run))
        wait_until(lambda: server.get("/healthz").json()["running"] == run)

    def fill(self, server):
        """One run in progress and three queued, one of which is cancelled."""
        ids = [self.ask(server, LONG)] + [self.ask(server, SHORT) for _ in range(3)]
        self.await_begin(server, ids[0])
        time.sleep(0.3)
        self.assertLess(server.ask("POST", f"/api/profiling/run/{ids[2]}/cancel").status, 300)
        return ids

    def check_after(self, again, ids, first):
        for number in (1, 3):
            self.assertEqual(wait_until(lambda: stored(again, ids[number]))["status"], "completed")
        # On a busy machine the timeout of one second for stopping may pass before the run has ended properly.
        self.assertIn(wait_until(lambda: stored(again, ids[0]))["status"], (first, "interrupted"))
        self.assertEqual(again.get(f"/api/profiling/run/{ids[2]}/summary").status, 404)
        self.assertEqual(again.get("/healthz").json()["queue"], 0)

    def test_the_queue_survives_kill_9(self):
        server = Server()
        ids = self.fill(server)
        server.process.kill()
        server.process.wait()
        again = Server(db=server.db, folder=server.folder)
        self.check_after(again, ids, "interrupted")
        again.stop()
        server.stop()

    def test_an_interrupted_run_is_never_unknown(self):
        """Its spool is recovered in the background; until then the answer is "soon", not that there is no such run."""
        server = Server()
        run = self.ask(server, {**LONG, "profiling_depth": "deep", "batch_size": 32, "ignore_eos": True})
        self.await_begin(server, run)
        time.sleep(3)
        server.process.kill()
        server.process.wait()
        again = Server(db=server.db, folder=server.folder)
        seen = []
        wait_until(lambda: seen.append(again.get(f"/api/profiling/run/{run}/summary")) or seen[-1].status == 200)
        self.assertLessEqual({answer.status for answer in seen}, {200, 503})
        self.assertIn("recovered", seen[0].json().get("detail", "recovered"))
        self.assertEqual(seen[-1].json()["status"], "interrupted")
        again.stop()
        server.stop()

    def test_a_run_whose_spool_has_no_record_has_not_begun(self):
        """A process may die as soon as it has created the file, or has written its header."""
        server = Server()
        self.await_begin(server, self.ask(server, LONG))
        ids = [self.ask(server, SHORT) for _ in range(2)]
        server.process.kill()
        server.process.wait()
        with open(self.spools(server, "")[0], "rb") as f:
            header = f.read(64)
        for run, content in zip(ids, (b"", header)):
            with open(f"{server.db}-spool/{run}.spool", "wb") as f:
                f.write(content)
        again = Server(db=server.db, folder=server.folder)
        for run in ids:
            found = wait_until(lambda: stored(again, run))
            self.assertEqual((found["status"], found["warnings"]), ("completed", []))
        again.stop()
        server.stop()

    def test_the_queue_survives_a_stop(self):
        server = Server()
        ids = self.fill(server)
        server.process.terminate()
        server.process.wait(10)
        again = Server(db=server.db, folder=server.folder)
        self.check_after(again, ids, "cancelled")
        again.stop()
        server.stop()

    def test_a_private_server_keeps_no_text(self):
        words = "Zanzibar Quetzal"
        server = Server("--private")
        with Socket(server.port) as ws:
            ws.message()
            answer = server.generate(prompt=words, max_length=12).json()
            told = ws.until("inference_complete", answer["run_id"])
        self.assertTrue(answer["text"] and answer["token_ids"])
        self.assertIsNone(answer["prompt"])
        self.assertEqual((answer["prompt_private"]["words"], answer["output_private"]["bytes"]),
                         (2, len(answer["text"].encode())))
        tokens = [m for m in told if m["type"] == "token_complete"]
        self.assertEqual({(m["text"], m["token_id"]) for m in tokens}, {(None, None)})
        self.assertNotIn(words, repr(told))
        detail = server.get(f"/api/profiling/run/{answer['run_id']}")
        self.assertNotIn(words, detail.body.decode())
        self.ask(server, LONG)
        waiting = self.ask(server, {**SHORT, "prompt_ids": None, "model_name": None, "prompt": words})
        self.assertNotIn(words, server.get(f"/api/profiling/run/{waiting}/summary").body.decode())
        server.process.kill()
        server.process.wait()
        for place, _, names in os.walk(server.folder):
            for name in names:
                with open(os.path.join(place, name), "rb") as f:
                    content = f.read()
                self.assertNotIn(words.encode(), content, name)
                self.assertNotIn(answer["text"].strip().encode(), content, name)
        server.stop()

    def test_a_full_queue_is_429_and_leaves_nothing_behind(self):
        server = Server("--queue", "1")
        self.await_begin(server, self.ask(server, LONG))
        self.ask(server, SHORT)
        self.assertEqual(server.ask("POST", "/api/profiling/generate", SHORT).status, 429)
        server.process.kill()
        server.process.wait()
        again = Server("--queue", "1", db=server.db, folder=server.folder)
        wait_until(lambda: len(again.get("/api/profiling/runs").json()) == 2)
        time.sleep(0.3)
        self.assertEqual(len(again.get("/api/profiling/runs").json()), 2)
        again.stop()
        server.stop()

    def seconds_to_stop(self, number, model):
        server = Server()
        run = self.ask(server, {**LONG, "model_name": model})
        wait_until(lambda: server.get("/healthz").json()["running"])
        begin = time.time()
        server.process.send_signal(number)
        server.process.wait(45)
        seconds = time.time() - begin
        self.assertGreaterEqual(server.process.returncode, 0)
        has_begun = bool(self.spools(server, run))
        again = Server(db=server.db, folder=server.folder)
        # A run whose server exits before it has begun is still queued, and is started again.
        restarts = lambda: not has_begun and again.get("/healthz").json()["running"] == run
        found = wait_until(lambda: stored(again, run) or restarts())
        if found is not True:
            self.assertIn(found["status"], ("cancelled", "interrupted"))
        again.stop()
        server.stop()
        return seconds

    def test_every_signal_stops_within_a_second(self):
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            for model in ("synthetic:smollm2-135m,layers=2", "synthetic:llama-3.2-1b"):
                with self.subTest(number=number, model=model):
                    before = contention()
                    seconds = self.seconds_to_stop(number, model)
                    self.assertLess(seconds, 1.3 * SLOW * max(before, contention()))


if __name__ == "__main__":
    beside.main()
