"""The live stream for readers that connect late, reconnect, are slow, or request binary frames."""
import contextlib
import struct
import threading
import unittest

import beside
import harness


def numbers(messages):
    return [m["seq"] for m in messages if isinstance(m, dict)]


class Live(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def start(self, **fields):
        return self.server.generate(wait=False, **fields).json()["run_id"]

    def test_a_run_is_told(self):
        with harness.Socket(self.server.port) as ws:
            hello = ws.message()
            self.assertEqual((hello["type"], hello["running"], hello["queue"]), ("hello", None, 0))
            run = self.start(max_length=30, profiling_depth="deep")
            told = ws.until("inference_complete", run)
        self.assertEqual(numbers(told), sorted(set(numbers(told))))
        for m in told:
            self.assertLessEqual({"type", "run_id", "t_ms", "seq"}, set(m))
            self.assertEqual(m["run_id"], run)
        kinds = {m["type"] for m in told}
        self.assertLessEqual({"run_queued", "run_started", "section_start", "section_end", "power_sample",
                              "token_complete", "layer_metrics", "component_metrics", "operation_metrics",
                              "inference_complete"}, kinds)
        summary = told[-1]["summary"]
        layers = [m["layer_count"] for m in told if m["type"] in ("run_started", "run_model")]
        self.assertEqual(layers, [None, summary["model"]["layers"]])
        tokens = [m for m in told if m["type"] == "token_complete"]
        self.assertEqual(len(tokens), summary["output_tokens"])
        self.assertEqual([m["position"] for m in tokens], list(range(len(tokens))))
        stored = self.server.get(f"/api/profiling/run/{run}/summary").json()
        self.assertEqual(stored["total_energy_mj"], summary["total_energy_mj"])

    def test_the_running_layer_is_told(self):
        with harness.Socket(self.server.port) as ws:
            ws.message()
            for _ in range(20):  # the state is polled: a run may end between two polls
                run = self.start(max_length=400, batch_size=32)
                told = ws.until("inference_complete", run)
                layers = [m for m in told if m["type"] == "layer_running"]
                if layers:
                    break
        count = told[-1]["summary"]["model"]["layers"]
        self.assertTrue(layers)
        for m in layers:
            self.assertIn(m["layer_index"], range(count))
            self.assertIn(m["phase"], ("prefill", "decode"))
            self.assertGreaterEqual(m["position"], 0)
        times = [m["t_ms"] for m in layers]
        self.assertTrue(all(b - a >= 49.9 for a, b in zip(times, times[1:])), times)

    def test_the_progress_of_a_model_load_is_told(self):
        with harness.Socket(self.server.port) as ws:
            ws.message()
            run = self.start(model_name="synthetic:smollm2-135m", dtype="q8_0", max_length=2)
            told = ws.until("inference_complete", run)
        total = told[-1]["summary"]["model"]["layers"]
        loads = [m for m in told if m["type"] == "load_progress"]
        self.assertGreater(len(loads), 1)
        self.assertEqual({m["layers_total"] for m in loads}, {total})
        done = [m["layers_done"] for m in loads]
        self.assertEqual(done, sorted(set(done)))
        self.assertLessEqual(done[-1], total)
        kinds = [m["type"] for m in told]
        self.assertLess(kinds.index("load_progress"), kinds.index("token_complete"))

    def test_the_end_is_told_after_the_energy_is_stored(self):
        with harness.Socket(self.server.port) as ws:
            for _ in range(12):
                run = self.start(max_length=2)
                told = ws.until("inference_complete", run)[-1]["summary"]
                stored = self.server.get(f"/api/profiling/run/{run}/summary").json()
                self.assertIsNotNone(told["total_energy_mj"])
                for key in ("status", "total_energy_mj", "request_energy_mj", "output_tokens"):
                    self.assertEqual(stored[key], told[key])

    def test_binary(self):
        with harness.Socket(self.server.port, "?binary=1") as ws:
            ws.message()
            run = self.start(max_length=30)
            told = ws.until("inference_complete", run)
        frames = [m for m in told if isinstance(m, bytes)]
        layout = next(m for m in told if isinstance(m, dict) and m["type"] == "heatmap_layout")
        heads = [struct.unpack("<BBHIdII", f[:24]) for f in frames]
        self.assertEqual({h[0] for h in heads}, {1, 2, 3})
        for (kind, version, columns, _, _, rows, _), f in zip(heads, frames):
            self.assertEqual((version, len(f)), (1, 24 + 4 * rows * columns))
            if kind == 1:
                self.assertEqual(columns, 7)
        last = [h for h in heads if h[0] == 2][-1]
        self.assertEqual((last[5], last[2]), (layout["layers"], len(layout["components"])))
        units = [(m["metric"], m["unit"], m["energy_source"]) for m in told
                 if isinstance(m, dict) and m["type"] == "heatmap_layout"]
        self.assertLessEqual(set(units), {("time", "ms", "unavailable"), ("energy", "mJ", "modelled")})
        for m in told:
            if isinstance(m, dict) and m["type"] in ("token_complete", "section_end"):
                self.assertEqual(m["energy_source"], "unavailable" if m["energy_mj"] is None else "modelled")
        layers = [struct.unpack(f"<{6 * h[5]}f", f[24:]) for h, f in zip(heads, frames) if h[0] == 3][-1]
        self.assertEqual(len(layers), 6 * layout["layers"])
        self.assertTrue(all(v >= 0 for i, v in enumerate(layers) if i % 6 != 1))  # energy may not be known yet
        kinds = [m["type"] for m in told if isinstance(m, dict)]
        self.assertEqual(kinds.count("power_sample"), 1)  # it names the source of the energy
        # Its reading is the last of a frame that came before: a page that has seen it skips what is older.
        at = next(i for i, m in enumerate(told) if isinstance(m, dict) and m["type"] == "power_sample")
        first = next(m for m in told if isinstance(m, bytes) and m[0] == 1)
        self.assertLess(told.index(first), at)
        t0, rows = struct.unpack("<BBHIdII", first[:24])[4:6]
        steps = struct.unpack(f"<{rows}f", first[24:24 + 4 * rows])
        self.assertAlmostEqual(t0 + steps[-1], told[at]["t_ms"], delta=0.01)
        self.assertFalse({"layer_metrics", "component_metrics"} & set(kinds))

    def test_no_energy_is_no_energy(self):
        with harness.Server(power="none") as server, harness.Socket(server.port, "?binary=1") as ws:
            ws.message()
            told = ws.until("inference_complete", server.generate(wait=False, max_length=8).json()["run_id"])
        layouts = [m for m in told if isinstance(m, dict) and m["type"] == "heatmap_layout"]
        self.assertTrue(layouts)
        self.assertEqual({(m["metric"], m["unit"], m["energy_source"]) for m in layouts},
                         {("time", "ms", "unavailable")})
        self.assertEqual({(m["energy_mj"], m["energy_source"]) for m in told
                          if isinstance(m, dict) and m["type"] == "token_complete"}, {(None, "unavailable")})

    def test_late_reader_is_told_all_events(self):
        run = self.start(max_length=400, temperature=1, seed=5, model_name="synthetic:smollm2-135m,layers=2")
        self.server.wait_until(lambda: any(m["type"] == "token_complete" for m in self.server.get(
            f"/api/profiling/run/{run}/live").json()), "first token")
        with harness.Socket(self.server.port) as ws:
            hello = ws.message()
            self.assertEqual(hello["running"]["run_id"], run)
            stopped = self.server.ask("POST", f"/api/profiling/run/{run}/cancel")
            self.assertEqual((stopped.status, stopped.json()["status"]), (202, "stopping"))
            told = ws.until("inference_complete", run)
        self.assertEqual(told[0]["type"], "run_started")
        positions = [m["position"] for m in told if m["type"] == "token_complete"]
        self.assertEqual(positions, list(range(len(positions))))
        self.assertEqual(told[-1]["status"], "cancelled")
        by_rest = self.server.get(f"/api/profiling/run/{run}/live").json()
        self.assertEqual([m["position"] for m in by_rest if m["type"] == "token_complete"], positions)

    def test_reconnect_without_duplicates(self):
        with harness.Socket(self.server.port) as ws:
            ws.message()
            run = self.start(max_length=20)
            first = [ws.message() for _ in range(6)]
        with harness.Socket(self.server.port, f"?from={first[-1]['seq'] + 1}") as ws:
            ws.message()
            rest = ws.until("inference_complete", run)
        tokens = [m["position"] for m in first + rest if m["type"] == "token_complete"]
        self.assertEqual(tokens, list(range(20)))
        self.assertEqual(numbers(first + rest), sorted(set(numbers(first + rest))))

    def test_one_run_only(self):
        first, second = self.start(max_length=60), self.start(max_length=4)
        with harness.Socket(self.server.port, f"?run_id={second}") as ws:
            ws.message()
            told = ws.until("inference_complete", second)
        self.assertEqual({m["run_id"] for m in told}, {second})
        self.server.wait_until(lambda: self.server.get("/healthz").json()["running"] is None, "end")
        self.assertEqual(self.server.get(f"/api/profiling/run/{first}").status, 200)

    def test_reader_that_does_not_read_hurts_nobody(self):
        with harness.Socket(self.server.port, receive_buffer=4096) as deaf, \
                harness.Socket(self.server.port) as ws:
            ws.message()
            run = self.start(max_length=120, profiling_depth="deep", model_name="demo")
            told = ws.until("inference_complete", run)
            self.assertNotIn("gap", {m["type"] for m in told})
            self.assertEqual(deaf.status, 101)

    def test_reader_that_vanishes(self):
        for _ in range(20):
            with harness.Socket(self.server.port) as ws:
                ws.message()
                ws.s.setsockopt(harness.socket.SOL_SOCKET, harness.socket.SO_LINGER,
                                struct.pack("ii", 1, 0))
        run = self.start(max_length=4)
        with harness.Socket(self.server.port, f"?run_id={run}") as ws:
            ws.message()
            ws.until("inference_complete", run)

    def test_queue_cancel_and_bound(self):
        with harness.Server("--queue", "2") as server, harness.Socket(server.port) as ws:
            ws.message()
            long = {"wait": False, "max_length": 4000, "model_name": "synthetic:smollm2-135m,layers=2",
                    "prompt": "x"}
            first = server.generate(**long).json()["run_id"]
            server.wait_until(lambda: server.get("/healthz").json()["running"] == first, "start")
            waiting = [server.generate(**long).json() for _ in range(2)]
            self.assertEqual([w["position"] for w in waiting], [1, 2])
            full = server.generate(**long)
            self.assertEqual(full.status, 429)
            self.assertIsNotNone(full.headers["Retry-After"])
            state = server.get("/healthz").json()
            self.assertEqual((state["queue"], state["running"]), (2, first))
            queued = server.get("/api/profiling/runs?status=queued").json()
            self.assertEqual({r["id"] for r in queued}, {w["run_id"] for w in waiting})
            self.assertEqual(server.get(f"/api/profiling/run/{waiting[0]['run_id']}").json()["status"],
                             "queued")
            self.assertEqual(server.get(f"/api/profiling/run/{first}/tokens").status, 409)
            self.assertEqual(server.ask("DELETE", f"/api/profiling/run/{first}").status, 409)
            pruned = server.ask("DELETE", "/api/profiling/runs?before=2200-01-01&tagged=true").json()
            self.assertEqual(pruned, {"runs": [], "deleted": 0, "dry_run": False})
            for w in waiting + [{"run_id": first}]:
                answer = server.ask("POST", f"/api/profiling/run/{w['run_id']}/cancel")
                self.assertEqual((answer.status, answer.json()["status"]), (202, "stopping" if w["run_id"] == first else "cancelled"))
            ws.until("inference_complete", first)
            self.assertEqual(server.get(f"/api/profiling/run/{first}").json()["status"], "cancelled")
            # a run is stored shortly before its slot is free
            server.wait_until(lambda: server.get("/healthz").json()["running"] != first, "end")
            self.assertEqual(server.ask("POST", f"/api/profiling/run/{first}/cancel").status, 409)
            self.assertEqual(server.stop(), 0)

    def test_stop_keeps_the_run_and_says_goodbye(self):
        answers, told, code = [], [], None

        def generate():
            with contextlib.suppress(OSError):
                answers.append(server.generate(max_length=4000, model_name="synthetic:smollm2-135m,layers=2").json())

        with harness.Server() as server:
            with harness.Socket(server.port) as ws:
                ws.message()
                waiter = threading.Thread(target=generate)
                waiter.start()
                ws.until("token_complete")
                server.end()
                try:
                    told = ws.until("inference_complete")
                    ws.until("nothing")
                except harness.Closed as closed:
                    code = closed.code
                except (OSError, EOFError):
                    pass
            self.assertEqual(server.stop(), 0)
            waiter.join()
        # On a busy machine the timeout of one second for stopping may pass before all of this was sent.
        in_time = "stopped at once" not in server.errors
        if in_time:
            self.assertEqual((told[-1]["status"], code, answers[0]["status"]), ("cancelled", 1001, "cancelled"))
        with harness.Server(folder=server.folder) as server:
            server.wait_until(lambda: server.get("/api/profiling/runs").json(), "the run to be recovered")
            runs = server.get("/api/profiling/runs").json()
            self.assertIn([r["status"] for r in runs], [["cancelled"]] if in_time else [["cancelled"], ["interrupted"]])
            self.assertGreater(runs[0]["output_tokens"], 0)

    def test_two_servers_and_a_command_line(self):
        with harness.Server() as a, harness.Server(db=a.db) as b:
            results = []
            def work(server, count):
                for i in range(count):
                    results.append(server.generate(prompt=f"run {i}", max_length=4).status)
            def command():
                for _ in range(3):
                    results.append(harness.subprocess.run(
                        [harness.PROGRAM, "run", "-m", str(harness.MODELS / "demo"), "--db", a.db, "--power",
                         "sim", "-n", "4", "Hello"], capture_output=True).returncode)
            threads = [threading.Thread(target=work, args=(a, 4)),
                       threading.Thread(target=work, args=(b, 4)), threading.Thread(target=command)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            self.assertEqual(sorted(results), [0] * 3 + [200] * 8)
            for server in (a, b):
                self.assertEqual(len(server.get("/api/profiling/runs").json()), 11)

    def test_a_refused_request_is_no_run(self):
        with harness.Socket(self.server.port) as ws:
            ws.message()
            answer = self.server.generate(prompt_ids=[10**9], prompt=None)
            self.assertEqual(answer.status, 422)
            self.assertIn("outside the model's vocabulary", answer.json()["detail"])
            run = self.start(max_length=1)
            told = ws.until("inference_complete", run)
        self.assertEqual({m["run_id"] for m in told if isinstance(m, dict)}, {run})


beside.main()
