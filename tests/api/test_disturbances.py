"""The switch "without disturbances": every route and every command that has it gives the figures that are left, whose
parts are not more than their wholes, gross and net; what they leave out is what the run says was disturbance."""
import collections
import csv
import io
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest
import zipfile

import beside
import harness

API = "/api/profiling/"
STALL_S = 0.03  # many times a step of the demo model, on a slow machine too


def stalled(*command, db):
    """Runs a command that is stopped again and again on its way."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PERJOULE")}
    process = subprocess.Popen([harness.PROGRAM, *command, "--power", "sim:preset=rapl,rails=cpu+gpu,seed=4", "--db", db],
                               env=environment | {"HOME": os.path.dirname(db), "PERJOULE_BASELINE": "0.1"},
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while process.poll() is None:
        time.sleep(STALL_S)
        process.send_signal(signal.SIGSTOP)
        time.sleep(STALL_S)
        process.send_signal(signal.SIGCONT)
    errors = process.communicate(timeout=300 * harness.SLOW)[1]
    if process.returncode:
        raise AssertionError(errors)


def total(rows, name):
    return sum(row[name] or 0 for row in rows)


def leaves(value):
    return [x for v in value for x in leaves(v)] if isinstance(value, list) else [value or 0]


class Disturbances(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="perjoule-disturbed-")
        cls.db = os.path.join(cls.folder, "runs.db")
        model = str(harness.MODELS / "demo")
        stalled("run", "-m", model, "-n", "100", "--ignore-eos", "--depth", "deep", "-b", "2", "--session", "task",
                "Once", db=cls.db)
        stalled("experiment", "--models", model, "--outputs", "400", "--batches", "1,2", "--repeat", "2", "--name", "e",
                db=cls.db)
        cls.server = harness.Server(db=cls.db, folder=cls.folder, power="none")
        cls.runs = cls.server.get(API + "runs").json()
        cls.id = min(r["run_id"] for r in cls.runs)
        cls.document = cls.server.get("/api/openapi.json").json()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def both(self, path):
        """The answer with disturbances, and without."""
        for mode in ("keep", "leave"):
            answer = self.server.get(f"{API}{path}{'&' if '?' in path else '?'}disturbances={mode}")
            self.assertEqual(answer.status, 200, (path, answer.body[:200]))
            yield answer if "format=" in path else answer.json()

    def at_most(self, part, whole, what):
        self.assertLessEqual(part, whole * (1 + 1e-6) + 1e-3, what)

    def falls(self, keep, leave, what):
        """The figure without disturbances is less."""
        self.assertLess(leave, keep, what)
        self.assertGreater(leave, 0, what)

    def whole_run(self, run, with_rows=False):
        self.at_most(run["request_energy_mj"], run["total_energy_mj"], "request")
        gaps = [p for p in run.get("phases", []) if p["phase"] == "idle"]
        for gap in gaps:  # left out of the request; negative within the baseline's interval at most
            self.assertGreaterEqual(gap["net_energy_mj"], -2 * gap["net_energy_sd_mj"] - 1e-3, gap)
        below_idle = -total(gaps, "net_energy_mj") if gaps else 2 * run["net_energy_sd_mj"]
        self.at_most(run["request_energy_net_mj"], run["net_energy_mj"] + below_idle, "request, net")
        self.assertAlmostEqual(run["idle_energy_mj"] + run["net_energy_mj"], run["total_energy_mj"], 2)
        for of, whole in (("energy_mj", "request_energy_mj"), ("energy_net_mj", "request_energy_net_mj"),
                          ("duration_ms", "request_duration_ms")):
            self.at_most(run["prefill_" + of] + run["decode_" + of], run[whole], of)
        for name, whole in (("energy_mj", "total_energy_mj"), ("net_energy_mj", "net_energy_mj")):
            if "phases" in run:
                self.assertAlmostEqual(total(run["phases"], name), run[whole], 2)
        for phase in run.get("phases", []) if with_rows else []:
            of_phase = [c for c in run["classes"] if c["phase"] == phase["phase"]]
            same = [p for p in run["phases"] if p["phase"] == phase["phase"]]
            for name in ("energy_mj", "net_energy_mj"):
                self.at_most(total(of_phase, name), total(same, name), (phase["phase"], name))
            self.at_most(total(phase["section_totals"], "energy_mj"), phase["energy_mj"], phase["phase"])
            rails = [r for r in run["rail_energy"] if r["phase"] == phase["phase"]]
            if phase["phase"] != "idle":  # no rows of rails
                self.assertAlmostEqual(total(rails, "gross_mj"), total(same, "energy_mj"), 2)

    # ---- one method per route --------------------------------------------------------------------------------------

    def runs_route(self):
        keep, leave = self.both("runs?sort=energy&order=asc")
        for answer in (keep, leave):
            energies = [r["total_energy_mj"] for r in answer]
            self.assertEqual(energies, sorted(energies))
            for run in answer:
                self.whole_run(run)
        for before in keep:
            after = next(r for r in leave if r["run_id"] == before["run_id"])
            self.assertEqual(before["joules_per_token_typical"], after["joules_per_token_typical"])
            self.assertAlmostEqual(before["total_energy_mj"] - before["disturbance"]["energy_mj"],
                                   after["total_energy_mj"], 3)
        for name, figure, scale in (("energy_mj", "total_energy_mj", 1), ("joules_per_token", "joules_per_token", 1)):
            middle = sorted(r[figure] for r in leave)[2] * scale
            found = self.server.get(f"{API}runs?disturbances=leave&max_{name}={middle * (1 + 1e-9)}").json()
            self.assertEqual(len(found), 3, name)
        typical = sorted(r["joules_per_token_typical"] for r in keep)[1]
        found = self.server.get(f"{API}runs?min_joules_per_token_typical={typical * (1 + 1e-9)}").json()
        self.assertEqual(len(found), 3)

    def summary(self):
        keep, leave = self.both(f"run/{self.id}/summary")
        for run in (keep, leave):
            self.whole_run(run, with_rows=True)
            self.at_most(total(run["components"], "energy_mj"), run["total_energy_mj"], "components")
            self.at_most(total(run["layers"], "energy_mj"), run["total_energy_mj"], "layers")
        self.falls(keep["joules_per_token"], leave["joules_per_token"], "joules_per_token")

    def rows(self):
        for run in self.both(f"run/{self.id}?limit=100000"):
            self.whole_run(run)
            parts = collections.defaultdict(list)
            for row in run["component_metrics"]["rows"]:
                parts["layer", row["layer_metric_id"]].append(row)
            for row in run["deep_operation_metrics"]["rows"]:
                parts["component", row["component_metric_id"]].append(row)
            for kind, table in (("layer", "layer_metrics"), ("component", "component_metrics")):
                for row in run[table]["rows"]:
                    self.at_most(total(parts[kind, row["id"]], "energy_mj"), row["energy_mj"], (kind, row["id"]))

    def pipeline(self):
        for answer in self.both(f"run/{self.id}/pipeline"):
            for phase in answer["phases"]:
                sections = phase.get("sections") or []
                self.at_most(total(sections, "energy_mj"), phase["energy_mj"], phase["phase"])
                self.at_most(total(sections, "duration_ms"), phase["duration_ms"], phase["phase"])

    def tokens(self):
        for (run, answer) in zip(self.both(f"run/{self.id}/summary"), self.both(f"run/{self.id}/tokens")):
            self.at_most(total(answer["tokens"], "energy_mj"), run["request_energy_mj"], "tokens")
            self.at_most(total(answer["tokens"], "net_energy_mj"), run["request_energy_net_mj"], "tokens, net")

    def heatmap(self):
        for (run, answer) in zip(self.both(f"run/{self.id}/summary"), self.both(f"run/{self.id}/heatmap?metric=energy")):
            self.at_most(sum(leaves(answer["values"])), run["total_energy_mj"], "heatmap")

    def tree(self):
        def check(node):
            children = node.get("children") or []
            self.at_most(sum(c["value"] for c in children), node["value"], node["name"])
            for child in children:
                check(child)
        for metric in ("energy", "time"):
            keep, leave = (a.get("tree", a.get("root", a)) for a in self.both(f"run/{self.id}/tree?metric={metric}"))
            check(keep)
            check(leave)
            self.falls(keep["value"], leave["value"], metric)

    def operations(self):
        for run, answer in zip(self.both(f"run/{self.id}/summary"), self.both(f"run/{self.id}/operations")):
            self.at_most(total(answer["operations"], "energy_mj"), run["total_energy_mj"], "operations")

    def advice(self):
        keep, leave = self.both(f"run/{self.id}/advice")
        self.assertNotIn("disturbed", [a["rule"] for a in leave["findings"]])
        self.assertEqual(sorted(keep), sorted(leave))

    def compare(self):
        ids = ",".join(r["run_id"] for r in self.runs[:2])
        self.sides(f"compare?ids={ids}")

    def why(self):
        a, b = (r["run_id"] for r in self.runs[:2])
        self.sides(f"compare/why?a={a}&b={b}")

    def groups(self):
        self.sides("compare/groups?by=batch&experiment=e&disturbed=keep")

    def sides(self, path):
        keep, leave = self.both(path)
        mean = [next(m["values"] for m in a["metrics"] if m["metric"] == "joules_per_token") for a in (keep, leave)]
        self.falls(*map(sum, mean), path)
        for before, after in zip(*mean):
            self.at_most(after, before, path)
        for answer in (keep, leave):
            for part in answer["decomposition"]:
                self.assertAlmostEqual(total(part["terms"], "difference_mj"), part["difference_mj"], 4)

    def experiment(self):
        keep, leave = self.both("experiments/e")
        self.falls(*(total(a["cells"], "joules_per_token") for a in (keep, leave)), "cells")
        for before, after in zip(keep["cells"], leave["cells"]):
            self.at_most(after["joules_per_token"], before["joules_per_token"], before["name"])
            self.assertEqual(before["joules_per_token_typical"], after["joules_per_token_typical"])

    def predict(self):
        for answer in self.both("predict?input=8&output=8"):
            self.assertTrue(answer["refusal"])

    def laws(self):
        keep, leave = self.both("laws")
        self.assertGreaterEqual(leave["runs"], keep["runs"])  # runs that are otherwise too disturbed

    def sessions(self):
        keep, leave = self.both("sessions?id=task")
        self.falls(total(keep, "energy_mj"), total(leave, "energy_mj"), "sessions")

    def report(self):
        keep, leave = (a.body.decode() for a in self.both(f"report?ids={self.id}&format=md"))
        self.assertNotEqual(keep, leave)
        self.assertIn("without disturbances", leave)
        self.assertNotIn("without disturbances", keep)

    def export(self):
        for run, answer in zip(self.both(f"run/{self.id}/summary"), self.both(f"export/{self.id}?format=csv")):
            tables = zipfile.ZipFile(io.BytesIO(answer.body))
            read = lambda name: list(csv.DictReader(io.TextIOWrapper(tables.open(name + ".csv"))))
            row = read("profiling_runs")[0]
            for name in ("total_energy_mj", "net_energy_mj", "idle_energy_mj", "tokens_per_second", "joules_per_token"):
                self.assertAlmostEqual(float(row[name]), run[name], 6, name)
            phases = sum(float(p["energy_mj"]) for p in read("run_phases"))
            self.assertAlmostEqual(phases, run["total_energy_mj"], 2)

    def test_every_route(self):
        checks = {"runs": self.runs_route, "compare": self.compare, "compare/why": self.why, "compare/groups": self.groups,
                  "experiments/{id}": self.experiment, "report": self.report, "predict": self.predict, "laws": self.laws,
                  "sessions": self.sessions,
                  "run/{id}": self.rows, "run/{id}/summary": self.summary, "run/{id}/advice": self.advice,
                  "run/{id}/pipeline": self.pipeline, "run/{id}/tokens": self.tokens, "run/{id}/heatmap": self.heatmap,
                  "run/{id}/tree": self.tree, "run/{id}/operations": self.operations, "export/{id}": self.export}
        has_switch = {path.removeprefix(API) for path, operations in self.document["paths"].items()
                      if any(p["name"] == "disturbances" for p in operations.get("get", {}).get("parameters", []))}
        self.assertEqual(has_switch, set(checks))
        for path, check in checks.items():
            with self.subTest(path):
                check()

    def output(self, *command):
        """What a command prints, or writes to the file that its -o names."""
        printed = subprocess.run([harness.PROGRAM, *command, "--db", self.db], check=True, capture_output=True,
                                 cwd=self.folder).stdout
        return pathlib.Path(self.folder, "out").read_bytes() if "out" in command else printed

    def test_every_command(self):
        cases = {"ls": ["ls", "--json"], "show": ["show", self.id, "--json"], "experiment": ["experiment", "--name", "e",
                 "--result", "--json"], "compare": ["compare", "--by", "batch", "--with-disturbed", "--json"],
                 "report": ["report", self.id, "--format", "md", "-o", "out"], "predict": ["predict", "--laws", "--json"],
                 "export": ["export", self.id, "--format", "json", "-o", "out"], "session": ["session", "task", "--json"]}
        listed = [p.stem.removeprefix("cmd_") for p in (harness.SOURCE / "src/cli").glob("cmd_*.c")
                  if "PJ_OPTION_WITHOUT" in p.read_text()]
        self.assertEqual(set(listed), set(cases))
        for name, command in cases.items():
            outputs = [self.output(*command, *option) for option in ([], ["--without-disturbances"])]
            if name != "predict":  # too few runs to say anything
                self.assertNotEqual(outputs[0], outputs[1], name)
            if name == "ls":
                self.falls(*(total(json.loads(text), "total_energy_mj") for text in outputs), name)


beside.main()
