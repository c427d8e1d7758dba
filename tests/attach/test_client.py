"""`perjoule attach` as a client of scripted servers."""
import json
import os
import sqlite3
import subprocess
import tempfile
import unittest

import beside
from engine import Engine, chat_chunk, sse

PERJOULE = os.environ["PERJOULE"]


class Client(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.db = os.path.join(self.folder.name, "runs.db")

    def tearDown(self):
        self.folder.cleanup()

    def attach(self, engine, *words, power="sim", code=0, environment=None):
        got = subprocess.run(
            [PERJOULE, "attach", "--url", engine.url + "/v1", "--db", self.db, "--power", power, *words],
            capture_output=True, text=True, timeout=120, check=False,
            env={**os.environ, "OPENAI_API_KEY": "", **(environment or {})})
        self.assertEqual(got.returncode, code, got.stdout + got.stderr)
        return got

    def rows(self, query):
        with sqlite3.connect(self.db) as base:
            return base.execute(query).fetchall()

    def test_a_prompt_becomes_a_run(self):
        engine = Engine()
        engine.cached, engine.reasoning = 4, 3
        got = self.attach(engine, "Hello", "-n", "6", "--tag", "t")
        self.assertIn("w0 w1 w2 w3 w4 w5", got.stdout)
        self.assertIn("4 of 12 prompt tokens were cached", got.stdout)
        run = self.rows("SELECT status, engine, model_name, input_tokens, cached_tokens, output_tokens,"
                        " prompt, allocation, energy_source, scope, level FROM profiling_runs")
        self.assertEqual(run, [("completed", "openai", "m", 12, 4, 6, "Hello", None, "modelled", "request",
                                "coarse")])
        tokens = self.rows("SELECT position, text, phase, method FROM tokens ORDER BY position")
        self.assertEqual([t[:3] for t in tokens],
                         [(0, "w0 ", "prefill")] + [(i, f"w{i} ", "decode") for i in range(1, 6)])
        phases = dict(self.rows("SELECT phase, duration_ms FROM run_phases"))
        self.assertGreaterEqual(phases["prefill"], 20)
        self.assertGreaterEqual(phases["decode"], 5)  # less than the server's 25 where the first token was read late
        check = subprocess.run([PERJOULE, "check", "--db", self.db], capture_output=True, text=True, check=False)
        self.assertEqual(check.returncode, 0, check.stdout + check.stderr)
        show = subprocess.run([PERJOULE, "show", "last", "--db", self.db], capture_output=True, text=True, check=False)
        self.assertEqual(show.returncode, 0, show.stderr)
        self.assertRegex(show.stdout, r"(?m)^engine +\S.* \(scope request, level coarse")
        # of the three tokens that it thought, the first was in prefill
        self.assertRegex(show.stdout, r"(?m)^thinking +3 of 6 tokens in .*J.* % of the request$")
        thought, mj, all_mj, parts = self.rows(
            "SELECT thinking_tokens, thinking_energy_mj, request_energy_mj, (SELECT sum(energy_mj) FROM tokens"
            " WHERE position IN (1, 2)) FROM profiling_runs")[0]
        self.assertEqual(thought, 3)
        self.assertAlmostEqual(mj / parts, 1, places=6)
        self.assertLess(mj, all_mj)
        sent = json.loads(engine.requests[-1]["body"])
        self.assertEqual(sent["messages"], [{"role": "user", "content": "Hello"}])

    def test_requests_belong_to_the_session_that_is_named(self):
        engine = Engine()
        self.attach(engine, "Hello", "-n", "2", environment={"PERJOULE_SESSION": "of-the-shell"})
        self.attach(engine, "Hello", "-n", "2", "--session", "named", environment={"PERJOULE_SESSION": "of-the-shell"})
        tags = self.rows("SELECT tag FROM run_tags JOIN profiling_runs ON run_id = profiling_runs.id ORDER BY created_ns")
        self.assertEqual(tags, [("session=of-the-shell",), ("session=named",)])

    def test_a_request_alone_is_compared_with_our_engine(self):
        """Both are the machine's energy during the request; a request's share of it is not."""
        engine = Engine()
        engine.pause = 0.02
        model = os.path.join(os.path.dirname(__file__), "..", "..", "models", "demo")
        subprocess.run([PERJOULE, "run", "-m", model, "-n", "6", "--db", self.db, "--power", "sim", "Hello"], check=True,
                       capture_output=True)
        for concurrency, refused in (("1", False), ("4", True)):
            self.attach(engine, "--requests", "4", "--concurrency", concurrency, "--input-len", "8", "--output-len", "20")
            compared = subprocess.run([PERJOULE, "compare", "--by", "engine", "--with-disturbed", "--json", "--db", self.db],
                                      check=True, capture_output=True, text=True)
            codes = {caveat["code"] for caveat in json.loads(compared.stdout)["caveats"]}
            texts = [caveat["text"] for caveat in json.loads(compared.stdout)["caveats"]]
            self.assertTrue(all(text[0].isupper() for text in texts), texts)
            self.assertEqual("scope_differs" in codes, refused, codes)

    def test_an_endless_answer(self):
        """It is read up to a bound, which the run and the command name."""
        engine, sent = Engine(), []

        def answer(request, send):
            if request["method"] != "POST":
                return engine.chat(request, send)
            engine.head(send)
            piece = sse(chat_chunk("x" * 500_000), done=False).encode()
            while True:
                engine.chunk(send, piece)
                sent.append(len(piece))
        engine.answer = answer
        got = self.attach(engine, "Hello", "-n", "6", code=1)
        self.assertIn("the answer is too large from 127.0.0.1", got.stderr)
        status, failure = self.rows("SELECT status, failure FROM profiling_runs")[0]
        self.assertEqual(status, "failed")
        self.assertIn("the answer is too large from 127.0.0.1", failure)
        self.assertGreater(sum(sent), 16 << 20)
        self.assertLess(sum(sent), 64 << 20)  # with what the sockets hold

    def test_a_load_shares_the_machine(self):
        engine = Engine()
        engine.pause = 0.01
        got = json.loads(self.attach(engine, "--requests", "12", "--concurrency", "3", "--input-len", "20",
                                     "--output-len", "10", "--json").stdout)
        self.assertEqual((got["requests"], got["failed"], got["output_tokens"]), (12, 0, 120))
        self.assertEqual(len(got["runs"]), 12)
        steady = got["steady_state"]
        self.assertGreater(steady["duration_ms"], 50)
        self.assertGreater(steady["joules_per_output_token"], 0)
        self.assertEqual(len({json.loads(r["body"])["messages"][0]["content"]
                              for r in engine.requests if r["method"] == "POST"}), 12)
        # The requests' energies sum to what the machine drew while any of them was in flight: with three at once and no
        # pause, from the start of the first to the end of the last.
        total = sum(r["total_energy_mj"] for r in got["runs"])
        self.assertAlmostEqual(total / got["total_energy_mj"], 1, places=9)
        self.assertEqual({r["method"] for r in got["runs"]}, {"allocated"})
        self.assertIn("steady state", self.attach(engine, "--requests", "9", "--concurrency", "2", "Hi").stdout)
        # What a token costs depends on how many requests share the machine, so the two loads are no repeats of each other.
        rows = json.loads(subprocess.run([PERJOULE, "table", "--json", "--db", self.db], check=True, capture_output=True).stdout)
        self.assertEqual(sorted({(r["concurrency"], r["runs"]) for r in rows}), [(2, 9), (3, 12)])
        self.assertEqual({r["device"] for r in rows}, {None})  # which one a server uses is not known
        compared = json.loads(subprocess.run([PERJOULE, "compare", "--by", "settings.concurrency", "--json", "--db", self.db],
                                             check=True, capture_output=True).stdout)
        self.assertIn("settings.concurrency", json.dumps(compared))

    def test_a_load_without_usage_and_of_which_some_energy_is_unknown(self):
        """A sum of some requests is none of all, and what is not known is no number."""
        def answer(request, send):
            if request["path"].endswith("/models"):
                return Engine.chat(engine, request, send)
            engine.head(send)
            engine.chunk(send, sse(chat_chunk("a"), chat_chunk("b")))
            send(b"0\r\n\r\n")
            return True
        engine = Engine(answer)
        slow = "sim:kind=power,period_ms=1000,window_ms=1000"
        words = ("--requests", "5", "--input-len", "5", "--output-len", "2")
        got = json.loads(self.attach(engine, "--json", *words, power=slow).stdout)
        known = [run["total_energy_mj"] for run in got["runs"] if run["total_energy_mj"] is not None]
        self.assertEqual(got["requests_without_energy"], 5 - len(known))
        self.assertLess(len(known), 5)
        self.assertIsNone(got["total_energy_mj"])
        self.assertIn("shorter than the sensors can resolve", got["unavailable_reason"])
        self.assertIsNone(got["input_tokens"])
        text = self.attach(engine, *words, power=slow).stdout
        self.assertNotIn("nan", text)
        self.assertIn("unavailable:\nthe run was shorter than the sensors can resolve\n", text)
        one = " ".join(self.attach(engine, "Hi", power=slow).stdout.split())
        self.assertIn("tokens/s, unknown tokens in, 2 out", one)
        self.assertIn("energy is unavailable: the run was shorter than the sensors can resolve; at most ", one)
        self.assertRegex(self.attach(engine, *words, power="sim").stdout, r"machine .*\(.*, modelled\)|steady state: none")

    def test_a_load_of_which_some_break_off(self):
        """They are not in the sums, nor is it said that their tokens are counted by chunks."""
        def answer(request, send):
            asked = sum(r["path"].endswith("completions") for r in engine.requests)
            if request["path"].endswith("/models") or asked % 2:
                return Engine.chat(engine, request, send)
            engine.head(send)
            engine.chunk(send, sse(chat_chunk("a"), done=False))
            return False
        engine = Engine(answer)
        got = json.loads(self.attach(engine, "--json", "--requests", "4", "--input-len", "5", "--output-len", "6",
                                     code=1).stdout)
        self.assertEqual((got["failed"], got["output_tokens"], got["tokens_approximate"]), (2, 12, False))

    def test_this_machine_by_another_address(self):
        engine = Engine()
        engine.url = engine.url.replace("127.0.0.1", "0.0.0.0")
        self.assertNotIn("another machine", self.attach(engine, "Hi").stdout)
        self.assertEqual(self.rows("SELECT energy_source FROM profiling_runs"), [("modelled",)])

    def test_why_a_load_has_no_energy(self):
        engine = Engine()
        got = self.attach(engine, "--requests", "3", "--input-len", "5", "--output-len", "2", power="auto",
                          environment={"PERJOULE_SYSFS": self.folder.name, "PERJOULE_PROCFS": self.folder.name,
                                       "PERJOULE_NVML": "none", "PERJOULE_POWERMETRICS": "none"})
        self.assertRegex(got.stdout, r"energy unavailable:\nenergy is unavailable: No power sensor works")

    def test_an_error_keeps_its_words(self):
        def refuse(request, send):
            if request["method"] == "GET":
                return engine.chat(request, send)
            return engine.whole(send, {"error": {"message": "the request exceeds the context"}}, "400 Bad Request")
        engine = Engine(refuse)
        got = self.attach(engine, "Hello", code=1)
        self.assertIn("the server answered 400: the request exceeds the context", got.stderr)
        self.assertEqual(self.rows("SELECT status, failure FROM profiling_runs"),
                         [("failed", "the server answered 400: the request exceeds the context")])

    def test_a_repeated_key_is_not_stored(self):
        key, other = "sk-1234567890abcdef", "a-header-s-secret"

        def refuse(request, send):
            if request["method"] == "GET":
                return engine.chat(request, send)
            return engine.whole(send, {"error": {"message": f"Incorrect API key provided: {key}, {other}"}},
                                "401 Unauthorized")
        engine = Engine(refuse)
        headers = os.path.join(self.folder.name, "headers")
        with open(headers, "w", encoding="ascii") as file:
            file.write(f"X-Api-Key: {other}\n")
        got = self.attach(engine, "Hello", "--header-file", headers, code=1, environment={"OPENAI_API_KEY": key})
        self.assertNotIn("warning", got.stderr)
        self.assertIn("Incorrect API key provided: *******************, *****************", got.stderr)
        for name in os.listdir(self.folder.name):
            if name.startswith("runs.db") and os.path.isfile(path := os.path.join(self.folder.name, name)):
                with open(path, "rb") as file:
                    stored = file.read()
                self.assertNotIn(key.encode(), stored)
                self.assertNotIn(other.encode(), stored)
        self.assertIn(key, str(engine.requests[-1]))  # it was sent
        got = self.attach(engine, "Hello", "--header", f"Authorization: Bearer {key}", code=1)
        self.assertIn("warning: the secret of --header is visible to other users", got.stderr)

    def test_an_answer_of_which_nothing_can_be_read_is_a_failure(self):
        answers = {
            ("307 Temporary Redirect", "text/plain", b"", "Location: http://127.0.0.1:1/"): "answered 307",
            ("200 OK", "text/html", b"<html>welcome</html>"): "is this the address of its API?",
            ("200 OK", "application/json", b"\x1f\x8b\x08\x00", "Content-Encoding: gzip"): "compressed data",
            ("200 OK", "text/event-stream", b""): "answered 200 with nothing"}
        for (status, kind, body, *more), words in answers.items():
            def odd(request, send):
                if request["method"] == "GET":
                    return engine.chat(request, send)
                engine.head(send, status, kind, len(body), *more)
                send(body)
                return True
            with self.subTest(words):
                engine = Engine(odd)
                self.assertIn(words, self.attach(engine, "Hello", code=1).stderr)
        statuses = {row for row, in self.rows("SELECT status FROM profiling_runs")}
        self.assertEqual(statuses, {"failed"})

    def test_a_server_that_refuses_extras_is_asked_plainly(self):
        def strict(request, send):
            body = json.loads(request["body"] or b"{}")
            if "stream_options" in body:
                return engine.whole(send, {"error": {"message": "unknown field stream_options"}}, "422 Unprocessable")
            return engine.chat(request, send)
        engine = Engine(strict)
        got = self.attach(engine, "Hello", "-n", "3")
        self.assertIn("chunks were counted", got.stdout)
        self.assertEqual(self.rows("SELECT output_tokens FROM profiling_runs WHERE status = 'completed'"), [(3,)])

    def test_an_answer_that_breaks_off(self):
        def cut(request, send):
            if request["method"] == "GET":
                return engine.chat(request, send)
            engine.head(send)
            engine.chunk(send, sse(chat_chunk("a"), chat_chunk("b"), done=False))
            return False
        engine = Engine(cut)
        got = self.attach(engine, "Hello", code=1)
        self.assertIn("broke off", got.stderr)
        self.assertEqual(self.rows("SELECT status, output_tokens FROM profiling_runs"), [("failed", 2)])

    def test_no_server(self):
        engine = Engine()
        engine.close()
        got = self.attach(engine, "Hello", code=3)
        self.assertIn("no server answers", got.stderr)

    def test_ollama(self):
        lines = [{"model": "m", "message": {"role": "assistant", "content": f"w{i} "}, "done": False} for i in range(4)]
        last = {"model": "m", "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop",
                "load_duration": 5_000_000, "prompt_eval_count": 9, "eval_count": 4}

        def ollama(request, send):
            if request["path"] == "/api/tags":
                return engine.whole(send, {"models": [{"name": "llama:1b"}]})
            engine.head(send, "200 OK", "application/x-ndjson")
            import time
            for line in lines + [last]:
                time.sleep(0.01)
                engine.chunk(send, json.dumps(line) + "\n")
            send(b"0\r\n\r\n")
            return True
        engine = Engine(ollama)
        got = subprocess.run([PERJOULE, "attach", "--url", engine.url, "--db", self.db, "--power", "sim", "Why?"],
                             capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertEqual(self.rows("SELECT engine, model_name, input_tokens, output_tokens FROM profiling_runs"),
                         [("ollama", "m", 9, 4)])
        self.assertEqual(self.rows("SELECT section_name, phase FROM pipeline_sections"),
                         [("model_load", "pre_inference")])
        self.assertEqual(json.loads(engine.requests[-1]["body"])["model"], "llama:1b")

    def test_net_energy_knows_what_the_baseline_is_worth(self):
        """Nobody looks at idle power again, so it may have moved by a tenth; less than idle refutes it."""
        for level, net_is_known in ((60000, True), (20000, False)):
            trace = os.path.join(self.folder.name, "trace.csv")
            with open(trace, "w", encoding="utf-8") as file:
                print("timestamp_ms,cpu_mw", file=file)
                for i in range(3000):
                    print(f"{i * 10},{60000 if i <= 20 else level}", file=file)
            self.attach(Engine(), "Hello", "-n", "20", power="replay:" + trace, environment={"PERJOULE_BASELINE": "0.2"})
            gross, idle, net, sd, decode, warnings = self.rows(
                "SELECT total_energy_mj, idle_energy_mj, net_energy_mj, net_energy_sd_mj, decode_energy_net_mj, (SELECT count(*)"
                " FROM run_warnings WHERE run_id = profiling_runs.id AND code = 'idle_power_moved') FROM profiling_runs"
                " ORDER BY created_ns DESC LIMIT 1")[0]
            self.assertGreater(gross, 0)
            self.assertEqual([f is not None for f in (idle, net, sd, decode)], [net_is_known] * 4)
            self.assertEqual(warnings, 0 if net_is_known else 1)
            if net_is_known:
                self.assertGreater(sd, 0.099 * idle)
                self.assertLess(abs(net), sd)

    def test_private_texts_stay_out(self):
        engine = Engine()
        self.attach(engine, "a secret question", "-n", "3", "--private")
        with open(self.db, "rb") as file:
            stored = file.read()
        for suffix in ("-wal",):
            if os.path.exists(self.db + suffix):
                with open(self.db + suffix, "rb") as file:
                    stored += file.read()
        self.assertNotIn(b"secret", stored)
        self.assertNotIn(b"w1 ", stored)

    def test_words(self):
        engine = Engine()
        for words in (["--requests", "2"], ["a", "b"], ["--rule", "bytes", "x"], ["--model-shape", "weights=0", "x"],
                      ["--header", "bad", "x"]):
            self.attach(engine, *words, code=2)
        got = subprocess.run([PERJOULE, "attach", "--url", "https://example.invalid", "x"], capture_output=True,
                             text=True, check=False)
        self.assertIn("not https", got.stderr)
        self.assertEqual(got.returncode, 2)


if __name__ == "__main__":
    beside.main()
