"""The API as used by scripts with urllib."""
import csv
import io
import json
import re
import unittest
import urllib.request
import zipfile
from datetime import datetime, timedelta

import beside
import harness

SUMMARY = """id run_id prompt model_name model_path created_at status profiling_depth total_duration_ms
total_energy_mj idle_energy_mj energy_source input_tokens output_tokens tokens_per_second
prefill_tokens_per_second joules_per_token joules_per_input_token joules_per_output_token
joules_per_token_net tokens_per_joule energy_delay_product cost_usd co2_grams tags experiment_name
machine""".split()


class Scripts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server()
        cls.runs = [cls.server.generate(model_name="demo", prompt=p, profiling_depth=depth, max_length=n,
                                        tags=["batch-experiment"], seed=1).json()
                    for p, depth, n in [("Hello", "module", 12), ("The cat", "deep", 6)]]

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def test_generate_answers_the_summary(self):
        run = self.runs[0]
        for name in SUMMARY:
            self.assertIn(name, run)
        self.assertEqual(run["id"], run["run_id"])
        self.assertEqual((run["status"], run["tags"]), ("completed", ["batch-experiment"]))
        self.assertEqual(run["output_tokens"], len(run["token_ids"]))
        self.assertTrue(run["text"])
        self.assertGreater(run["joules_per_token"], 0)
        self.assertEqual(run["energy_source"], "modelled")

    def test_runs_are_a_table(self):
        rows = self.server.get("/api/profiling/runs?tag=batch-experiment").json()
        ordered = sorted(rows, key=lambda r: r["joules_per_token"])
        self.assertGreaterEqual(len(ordered), 2)
        by_server = self.server.get("/api/profiling/runs?tag=batch-experiment&sort=joules_per_token"
                                    "&order=asc").json()
        self.assertEqual([r["id"] for r in ordered], [r["id"] for r in by_server])

    def test_times_are_read_by_python_3_9(self):
        for run in self.server.get("/api/profiling/runs").json():
            when = datetime.fromisoformat(run["created_at"])
            self.assertEqual(when.utcoffset(), timedelta(0))
            self.assertTrue(run["created_at"].endswith("+00:00"))

    def test_export_json_and_csv(self):
        run_id = self.runs[1]["run_id"]
        answer = self.server.get(f"/api/profiling/export/{run_id}?format=json")
        whole = answer.json()
        self.assertIn(run_id, json.dumps(whole)[:4000])
        self.assertIn("attachment", answer.headers["Content-Disposition"])
        tables = zipfile.ZipFile(io.BytesIO(
            self.server.get(f"/api/profiling/export/{run_id}?format=csv").body))
        self.assertIsNone(tables.testzip())
        tokens = list(csv.DictReader(io.TextIOWrapper(tables.open(
            next(n for n in tables.namelist() if n.endswith("tokens.csv"))), "utf-8")))
        self.assertEqual(len(tokens), self.runs[1]["output_tokens"])

    def test_delete(self):
        run = self.server.generate(prompt="gone").json()
        request = urllib.request.Request(self.server.url + "/api/profiling/run/" + run["id"],
                                         method="DELETE")
        with urllib.request.urlopen(request) as answer:
            self.assertEqual((answer.status, answer.read()), (204, b""))
        self.assertEqual(self.server.get("/api/profiling/run/" + run["id"]).status, 404)
        self.assertNotIn(run["id"], [r["id"] for r in self.server.get("/api/profiling/runs").json()])

    def test_a_request_has_the_settings_of_run(self):
        run = self.server.generate(min_p=0.05, repetition_penalty=1.1, seed=3, max_length=6, ignore_eos=True, kv="f16",
                                   stop=["no such text"]).json()
        settings = self.server.get(f"/api/profiling/run/{run['id']}").json()["settings"]
        self.assertEqual([settings[k] for k in ("temperature", "min_p", "repetition_penalty", "seed", "ignore_eos")],
                         [1, 0.05, 1.1, 3, True])
        self.assertEqual(len(run["token_ids"]), 6)

    def test_same_seed_same_text(self):
        a, b = (self.server.generate(temperature=1, seed=7, max_length=16).json() for _ in range(2))
        self.assertEqual(a["token_ids"], b["token_ids"])

    def test_batch_and_ids(self):
        run = self.server.generate(prompt=None, prompt_ids=[0, 5, 9], batch_size=3).json()
        self.assertEqual((run["prompt_ids"], run["batch_size"], len(run["texts"])), ([0, 5, 9], 3, 3))

    def test_filters_and_pages(self):
        get = self.server.get
        answer = get("/api/profiling/runs?tag=batch-experiment&search=cat")
        self.assertEqual(([r["prompt"] for r in answer.json()], answer.headers["X-Total-Count"]),
                         (["The cat"], "1"))
        answer = get("/api/profiling/runs?limit=1&offset=1&tag=batch-experiment")
        self.assertEqual((len(answer.json()), answer.headers["X-Total-Count"]), (1, "2"))
        self.assertEqual(get("/api/profiling/runs?from=2001-01-01&to=2002-01-01").json(), [])

    def test_prices(self):
        path = f"/api/profiling/run/{self.runs[0]['id']}/summary"
        once, twice = (self.server.get(f"{path}?usd_per_kwh={p}").json()["cost_usd"] for p in (0.1, 0.2))
        self.assertAlmostEqual(twice, 2 * once)

    def test_every_view_answers(self):
        run_id = self.runs[1]["id"]
        for view in ("", "/summary", "/pipeline", "/power?points=50&rails=1", "/tokens", "/heatmap",
                     "/heatmap?metric=activation_mean&token=1", "/tree?metric=time&depth=2",
                     "/operations?layer=0&component=attention", "/live"):
            answer = self.server.get(f"/api/profiling/run/{run_id}{view}")
            self.assertEqual(answer.status, 200, view)
            answer.json()
        cube = self.server.get(f"/api/profiling/run/{run_id}/heatmap?format=f32").body
        self.assertEqual(cube[:8], b"PJCUBE1\0")
        self.assertEqual(self.server.get(f"/api/profiling/run/{run_id[:-2]}/tokens").status, 200)
        self.assertEqual(self.server.get("/api/profiling/run/last/tokens").status, 200)
        ids = ",".join(r["id"] for r in self.runs)
        self.assertEqual(len(self.server.get(f"/api/profiling/compare?ids={ids}").json()["runs"]), 2)

    def test_metrics(self):
        text = self.server.get("/metrics").body.decode()
        self.assertRegex(text, r'perjoule_tokens_total\{kind="output"\} [1-9]')
        self.assertRegex(text, r'perjoule_runs_total\{status="completed"\} [1-9]')
        self.assertRegex(text, r'perjoule_energy_joules_total\{rail="cpu",source="sim",phase="decode",.*\} [0-9.]+')
        self.assertRegex(text, r'perjoule_rail_power_watts\{rail="cpu",source="sim",class="cpu",quality="modelled"\} [1-9]')
        self.assertRegex(text, r'perjoule_rail_joules_total\{rail="cpu",source="sim",class="cpu",quality="modelled"\} [0-9.]+')
        for line in text.splitlines():
            self.assertRegex(line, r'^(# (HELP|TYPE) perjoule_\w+ .+|perjoule_\w+(\{[^}]*\})? ([-+0-9.e]+|NaN))$')

    def test_metrics_follow_the_conventions_of_prometheus(self):
        families, family, series = {}, None, set()
        for line in self.server.get("/metrics").body.decode().splitlines():
            head = re.match(r"# (HELP|TYPE) (\w+) (.+)$", line)
            if head and head[1] == "HELP":
                self.assertNotIn(head[2], families, "the samples of a metric family must be contiguous")
                self.assertTrue(head[3].endswith("."))
                family = head[2]
            elif head:
                self.assertEqual(head[2], family)
                families[family] = head[3]
            else:
                name, labels = re.match(r"(\w+)(?:\{(.*)\})? ", line).groups()
                self.assertEqual(name, family)
                self.assertNotIn((name, labels), series)
                series.add((name, labels))
                names = re.findall(r'(\w+)="(?:[^"\\]|\\.)*"', labels or "")
                self.assertLessEqual(set(names), {"rail", "source", "class", "phase", "quality", "kind", "status",
                                                  "version"})
        for name, kind in families.items():
            self.assertTrue(name.startswith("perjoule_"))
            self.assertEqual(name.endswith("_total"), kind == "counter", name)
            self.assertIn(kind, ("counter", "gauge"))
            self.assertNotRegex(name, "_(ms|mj|mw|us|ns|percent|kb)(_|$)")  # base units
        self.assertGreater(len(families), 15)

    def test_sensors_in_use(self):
        answer = self.server.get("/api/profiling/sensors").json()
        used = [s for s in answer["sources"] if s["in_use"]]
        self.assertEqual((answer["power"], [s["name"] for s in used]), ("sim:seed=3", ["sim"]))
        self.assertEqual((used[0]["state"], used[0]["reason"]), ("ready", None))
        self.assertGreater(used[0]["rails"][0]["power_mw"], 0)
        with harness.Server(power="none") as silent:
            answer = silent.get("/api/profiling/sensors").json()
            self.assertEqual(answer["power"], "none")
            self.assertFalse(any(s["in_use"] for s in answer["sources"]))


beside.main()
