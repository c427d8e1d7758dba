"""Experiments with cells on other engines: a server, an external program, and our own engine."""
import json
import os
import sqlite3
import subprocess
import tempfile
import unittest

import beside
from engine import Engine

PERJOULE = os.environ["PERJOULE"]
MODEL = "synthetic:smollm2-135m,layers=1"
PROGRAM = """m=$PERJOULE_MARKERS
printf 'begin phase prefill\\nbegin token 0\\n' >&$m; sleep 0.05; printf 'end\\nend\\n' >&$m
printf 'begin phase decode\\n' >&$m
for i in $(seq $(($2 - 1))); do echo "begin token $i" >&$m; sleep 0.02; echo end >&$m; done
printf "end\\ntokens $1 $2\\n" >&$m
echo this is not ours
[ "$3" != "a b 'c'" ] || echo "$3" > asked
"""


class Engines(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.db = os.path.join(self.folder.name, "runs.db")
        with open(os.path.join(self.folder.name, "program.sh"), "w", encoding="utf-8") as out:
            out.write(PROGRAM)

    def tearDown(self):
        self.folder.cleanup()

    def experiment(self, *words, code=0):
        got = subprocess.run([PERJOULE, "experiment", "--db", self.db, "--power", "sim:period_ms=1", "--name", "e", *words],
                             capture_output=True, text=True, timeout=200, check=False, cwd=self.folder.name)
        self.assertEqual(got.returncode, code, got.stdout + got.stderr)
        return got

    def runs(self):
        with sqlite3.connect(self.db) as base:
            rows = base.execute("SELECT engine, status, input_tokens, output_tokens, settings FROM profiling_runs"
                                " WHERE experiment_name = 'e' ORDER BY id").fetchall()
        return [r[:4] + (json.loads(r[4]),) for r in rows]

    def test_three_engines_in_one_grid(self):
        engine = Engine()
        result = json.loads(self.experiment(
            "--engine", "perjoule", "--engine", f"attach:{engine.url}/v1", "--engine", "exec:sh program.sh {input} {output}",
            "--models", MODEL, "--inputs", "8", "--outputs", "5", "--repeat", "3", "--json").stdout)
        self.assertEqual((result["state"], result["done"], result["total"]), ("completed", 9, 9))
        self.assertEqual([c["engine"].split(":")[0] for c in result["cells"]], ["perjoule", "attach", "exec"])
        for cell in result["cells"]:
            self.assertEqual(cell["runs"], 3)
            self.assertGreater(cell["joules_per_token"], 0)
            self.assertLess(cell["joules_per_token_lo"], cell["joules_per_token"])
        runs = self.runs()
        self.assertEqual({r[0] for r in runs}, {"perjoule", "openai", "exec"})
        self.assertEqual({r[3] for r in runs}, {5})
        # Each cell once per block; the server is warmed up at each change of cells, and warm-up is not counted.
        self.assertEqual(sorted((r[4]["experiment_block"], r[4]["experiment_cell"]) for r in runs),
                         [(b, c) for b in range(3) for c in range(3)])
        posts = [json.loads(r["body"]) for r in engine.requests if r["method"] == "POST"]
        self.assertEqual(sum(p["max_tokens"] == 5 for p in posts), 3)
        self.assertIn(sum(p["max_tokens"] == 4 for p in posts), (1, 2, 3))
        self.assertEqual(len({p["messages"][0]["content"] for p in posts if p["max_tokens"] == 5}), 3)
        # Stored cells are complete: a second invocation runs nothing.
        sent = len(engine.requests)
        self.experiment("--engine", "perjoule", "--engine", f"attach:{engine.url}/v1", "--engine",
                        "exec:sh program.sh {input} {output}", "--models", MODEL, "--inputs", "8", "--outputs", "5", "--repeat", "3")
        self.assertEqual((len(engine.requests), len(self.runs())), (sent, 9))

    def test_no_verdict_between_measured_and_modelled(self):
        words = ["--engine", "perjoule", "--engine", "exec:sh program.sh {input} {output}", "--models", MODEL, "--inputs", "8",
                 "--outputs", "5", "--repeat", "4"]
        table = self.experiment(*words).stdout
        self.assertIn("exec:sh program.sh {input} {output}", table)  # the whole name, by which cells of two engines differ
        self.assertIn("Least energy per typical token", table)
        self.assertNotIn("nan", table)
        with sqlite3.connect(self.db) as base:
            base.execute("UPDATE profiling_runs SET energy_source = 'measured' WHERE engine = 'exec'")
        result = json.loads(self.experiment("--result", "--json").stdout)
        self.assertEqual(result["refusal"], "one is measured and the other modelled.")
        self.assertIsNone(result["optimum"])
        self.assertEqual([c["different"] for c in result["comparisons"]], [False])
        self.assertIsNone(result["comparisons"][0]["p_adjusted"])
        self.assertGreater(result["comparisons"][0]["ratio"], 0)
        self.assertIn("No verdict, since cells are not comparable: one is measured", self.experiment("--result").stdout)
        report = subprocess.run([PERJOULE, "report", "--experiment", "e", "--format", "md", "--db", self.db],
                                capture_output=True, text=True, timeout=100, check=True).stdout
        self.assertIn("No verdict, since cells are not comparable: one is measured", report)

    def test_texts_are_quoted(self):
        self.experiment("--engine", "exec:sh program.sh 1 2 {prompt}", "--prompt", "a b 'c'", "--repeat", "1")
        with open(os.path.join(self.folder.name, "asked"), encoding="utf-8") as asked:
            self.assertEqual(asked.read(), "a b 'c'\n")

    def test_what_fails_is_said(self):
        for engine, words, code in [("exec:exit 3", "exit code 3", 1), ("exec:true", "reported no tokens", 1),
                                    ("exec:", "is incomplete", 2), ("attach:http://127.0.0.1:9", "127.0.0.1:9", 3),
                                    ("attach:https://x", "https", 2)]:
            got = self.experiment("--engine", engine, "--repeat", "1", code=code)
            self.assertIn(words, got.stderr, engine)
            os.unlink(self.db)
        for words in (["--engine", "vllm"], ["--engine", "exec:x", "--dtypes", "bf16,q8_0"], ["--engine", "exec:x", "--threads", "2"],
                      ["--engine", "exec:x", "--ablate", "mlp"]):
            self.experiment(*words, code=2)
        engine = Engine(lambda request, send: send(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"))
        self.assertIn("500", self.experiment("--engine", f"attach:{engine.url}", "--repeat", "1", code=1).stderr)

    def test_an_interrupted_one_goes_on(self):
        engine = Engine()
        first = {"n": 0}

        def answer(request, send):
            first["n"] += request["method"] == "POST"
            if first["n"] > 3:
                return send(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")
            return engine.chat(request, send)

        engine.answer = answer
        words = ["--engine", f"attach:{engine.url}/v1", "--outputs", "4,6", "--repeat", "3"]
        self.experiment(*words, code=1)
        done = sum(r[1] == "completed" for r in self.runs())
        self.assertGreater(done, 0)
        engine.answer = engine.chat
        self.experiment(*words)
        places = [(r[4]["experiment_cell"], r[4]["experiment_block"]) for r in self.runs() if r[1] == "completed"]
        self.assertEqual((len(places), len(set(places))), (6, 6))


beside.main()
