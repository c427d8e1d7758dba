"""`perjoule attach --listen`, the proxy: what it forwards, what it adds, and which faults it survives."""
import atexit
import contextlib
import http.client
import http.server
import json
import os
import pathlib
import re
import resource
import signal
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time
import unittest

import beside
from engine import Engine, chat_chunk, sse

os.environ["OTEL_METRIC_EXPORT_INTERVAL"] = "200"

PERJOULE = os.environ["PERJOULE"]
PATIENCE = 300  # only against hanging; sanitizers are slow
LONG_ENOUGH = 0.6  # seconds in which power is read, even where many programs share the processor


def wait_until(what):
    end = time.time() + PATIENCE
    while time.time() < end:
        found = what()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen in time")


class Proxy:
    def __init__(self, engine, *words, power="sim", listen="127.0.0.1:0"):
        self.folder = tempfile.TemporaryDirectory()
        self.db = os.path.join(self.folder.name, "runs.db")
        self.process = subprocess.Popen(
            [PERJOULE, "attach", "--url", engine.url, "--listen", listen, "--db", self.db, "--power", power, *words],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)  # where a test failed before it stopped the proxy
        line = self.process.stdout.readline()
        found = re.search(r":(\d+),", line)
        if not found:
            raise AssertionError(line + self.process.stderr.read())
        self.port = int(found[1])

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        out, err = self.process.communicate(timeout=PATIENCE)
        self.folder.cleanup()
        return self.process.returncode, out, err

    def rows(self, query):
        try:
            with sqlite3.connect(f"file:{self.db}?mode=ro", uri=True) as base:
                return base.execute(query).fetchall()
        except sqlite3.OperationalError:
            return []

    def raw(self, data, port=None, half=False):
        """The whole response to these bytes, until the connection closes or stays silent. `half`: the sending
        side is closed after them."""
        with socket.create_connection(("127.0.0.1", port or self.port), timeout=PATIENCE) as s:
            s.sendall(data)
            if half:
                s.shutdown(socket.SHUT_WR)
            got = b""
            while True:
                part = s.recv(65536)
                if not part:
                    return got
                got += part


def post(body, path="/v1/chat/completions", *headers):
    data = json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(data)}", "Connection: close", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + data


ENERGY = re.compile(rb',?"energy_joules":\{[^}]*\}')
STREAM = {"model": "m", "stream": True, "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}],
          "stream_options": {"include_usage": True}}


class Transparent(unittest.TestCase):
    def setUp(self):
        self.engine = Engine()
        self.proxy = Proxy(self.engine)

    def tearDown(self):
        code, out, err = self.proxy.stop()
        self.assertEqual(code, 0, out + err)
        self.assertNotIn("Sanitizer", err)

    def test_a_stream_passes_chunk_by_chunk_with_its_energy(self):
        direct = self.proxy.raw(post(STREAM), self.engine.port)
        self.engine.ttft, self.engine.pause = LONG_ENOUGH, LONG_ENOUGH / STREAM["max_tokens"]
        through = self.proxy.raw(post(STREAM))
        figures = ENERGY.findall(through)
        self.assertEqual(len(figures), 1)
        energy = json.loads(figures[0].split(b":", 1)[1])
        self.assertEqual(set(energy), {"total", "input", "output", "lo", "hi", "source", "method", "provisional",
                                       "scope"})
        self.assertEqual((energy["source"], energy["scope"]), ("modelled", "machine"))
        self.assertTrue(energy["provisional"])
        self.assertLessEqual(energy["lo"], energy["total"])
        self.assertLessEqual(energy["total"], energy["hi"])
        self.assertAlmostEqual(energy["input"] + energy["output"], energy["total"], places=6)
        # Apart from the addition and the length of that one chunk, the response is the server's, byte for byte.
        run = re.search(rb"X-Energy-Run: ([0-9a-f-]{36})\r\n", through)
        bare = ENERGY.sub(b"", through).replace(run[0], b"")
        longer = b"%x\r\n" % (len(figures[0]) + next(
            len(c) for c in re.findall(rb'data: \{"choices": \[\].*\n\n', direct)))
        self.assertIn(longer, bare)
        shorter = b"%x\r\n" % next(len(c) for c in re.findall(rb'data: \{"choices": \[\].*\n\n', direct))
        self.assertEqual(bare.replace(longer, shorter), direct)
        stored = f"SELECT status, input_tokens, output_tokens FROM profiling_runs WHERE id = '{run[1].decode()}'"
        wait_until(lambda: self.proxy.rows(stored))
        self.assertEqual(self.proxy.rows(stored), [("completed", 12, 5)])

    def test_a_whole_answer_has_headers(self):
        self.engine.ttft = LONG_ENOUGH
        body = {"model": "m", "max_tokens": 3, "messages": [{"role": "user", "content": "Hi"}]}
        through = self.proxy.raw(post(body))
        head, _, text = through.partition(b"\r\n\r\n")
        answer = json.loads(text)
        self.assertIn(b"Content-Length: %d" % len(text), head)
        energy = answer["usage"].pop("energy_joules")
        header = float(re.search(rb"X-Energy-Joules: ([0-9.e+-]+)", head)[1])
        self.assertAlmostEqual(header / energy["total"], 1, places=6)
        self.assertIn(b"X-Energy-Method: ", head)
        run = re.search(rb"X-Energy-Run: ([0-9a-f-]{36})", head)[1].decode()
        times = wait_until(lambda: self.proxy.rows(f"SELECT duration_ms FROM tokens WHERE run_id = '{run}'"))
        self.assertGreater(min(times)[0], 0.5 * max(times)[0])  # its tokens came at once: none of them took no time
        self.assertEqual(answer, json.loads(self.proxy.raw(post(body), self.engine.port).partition(b"\r\n\r\n")[2]))

    def test_a_whole_answer_is_divided_by_its_servers_times_alone(self):
        """0.1 s of prompt and 0.3 s of decoding, after 0.2 s in a queue; of another server nothing is known."""
        timings = {"prompt_n": 12, "prompt_ms": 100.0, "predicted_n": 3, "predicted_ms": 300.0}
        body = post({**STREAM, "stream": False, "max_tokens": 3}, "/v1/chat/completions", "X-Energy-Wait: 1")
        usage = {"prompt_tokens": 12, "completion_tokens": 3}

        def answer(request, send, **more):
            time.sleep(LONG_ENOUGH)
            return self.engine.whole(send, {"choices": [{"index": 0, "message": {"content": "a b c"}}], "usage": usage,
                                            **more})
        for more in ({"timings": timings}, {}):
            self.engine.answer = lambda request, send, more=more: answer(request, send, **more)
            for wait in (body, body.replace(b"X-Energy-Wait: 1", b"X-Nothing: 1")):
                through = self.proxy.raw(wait)
                energy = json.loads(ENERGY.findall(through)[0].split(b":", 1)[1])
                run = re.search(rb"X-Energy-Run: ([0-9a-f-]{36})", through)[1].decode()
                phases = wait_until(lambda: self.proxy.rows(
                    f"SELECT prefill_duration_ms, decode_duration_ms, decode_energy_mj, prefill_energy_mj FROM "
                    f"profiling_runs WHERE id = '{run}'"))[0]
                if not more:
                    self.assertEqual((energy["input"], energy["output"], phases[0], phases[3]), (None,) * 4)
                    continue
                self.assertEqual(phases[:2], (100, 300))
                # 40 W by the simulated sensors, which a busy machine reads late
                self.assertAlmostEqual(phases[2] / 12000, 1, delta=0.5)
                self.assertLess(phases[3], 5000)
                self.assertAlmostEqual(energy["output"] / 12, 1, delta=0.5)
                self.assertAlmostEqual(energy["input"] + energy["output"], energy["total"], places=6)

    def answered(self, wants_stream, *steps):
        """What was reported and stored of an answer: parts of it, and pauses in seconds."""
        def answer(request, send):
            if wants_stream:
                self.engine.head(send)
            for step in steps:
                if isinstance(step, float):
                    time.sleep(step)
                elif wants_stream:
                    self.engine.chunk(send, step)
                else:
                    return self.engine.whole(send, step)
            send(b"0\r\n\r\n")
            return True
        self.engine.answer = answer
        through = self.proxy.raw(post({**STREAM, "stream": wants_stream, "max_tokens": 20}, "/v1/chat/completions",
                                      "X-Energy-Wait: 1"))
        run = re.search(rb"X-Energy-Run: ([0-9a-f-]{36})", through)[1].decode()
        stored = wait_until(lambda: self.proxy.rows(
            f"SELECT total_energy_mj, prefill_energy_mj, decode_energy_mj, typical_token_energy_mj, output_tokens "
            f"FROM profiling_runs WHERE id = '{run}'"))[0]
        lengths = [ms for ms, in self.proxy.rows(f"SELECT duration_ms FROM tokens WHERE run_id = '{run}'")]
        warnings = {code for code, in self.proxy.rows(f"SELECT code FROM run_warnings WHERE run_id = '{run}'")}
        figures = ENERGY.findall(through)
        return json.loads(figures[0].split(b":", 1)[1]) if figures else None, stored, warnings, lengths

    def test_tokens_that_came_at_once_are_not_divided_by_their_times(self):
        """Nothing is known of when they were generated, so neither the answer nor the run has a prompt's part."""
        usage = {"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 20}}
        burst = "".join(sse(chat_chunk(f"w{i} "), done=False) for i in range(20))
        answers = {"one chunk": (LONG_ENOUGH, sse(chat_chunk("all of it", "stop"), usage)),
                   "no text": (LONG_ENOUGH, sse(chat_chunk(None, "stop"), usage)),
                   "a burst, and a late end": (LONG_ENOUGH, burst, LONG_ENOUGH, sse(chat_chunk(None, "stop"), usage))}
        for name, steps in answers.items():
            with self.subTest(name):
                energy, (total, prefill, decode, typical, tokens), warnings, lengths = self.answered(True, *steps)
                self.assertLessEqual(max(lengths, default=0), 1.01 * min(lengths, default=0))
                self.assertEqual((energy["input"], energy["output"]), (None, None))
                self.assertAlmostEqual(total / 1e3 / energy["total"], 1, places=6)
                self.assertEqual((prefill, decode, typical, tokens), (None, None, None, 20))
                self.assertIn("phases_unknown", warnings)

    def test_an_unknown_number_of_tokens_is_not_one(self):
        for usage in (None, {"prompt_tokens": 12, "completion_tokens": 10 ** 9}):
            with self.subTest(usage):
                body = {"choices": [{"index": 0, "message": {"content": "a b c " * 40}}]} | ({"usage": usage} if usage else {})
                energy, (total, prefill, decode, typical, tokens), warnings, _ = self.answered(False, LONG_ENOUGH, body)
                self.assertGreater(total, 0)
                self.assertEqual((prefill, decode, typical), (None, None, None))
                self.assertIn(tokens, (None, 0))
                self.assertIn("tokens_approximate", warnings)
                if energy:
                    self.assertEqual((energy["input"], energy["output"]), (None, None))
                shown = subprocess.run([PERJOULE, "show", "last", "--db", self.proxy.db], capture_output=True, text=True,
                                       check=True).stdout
                self.assertNotRegex(shown, r"[01] out|\nidle")
                self.assertEqual("12 in, unknown out" in shown, usage is not None)

    def test_the_final_figure_can_be_waited_for(self):
        for body in (STREAM, {**STREAM, "stream": False}):
            through = self.proxy.raw(post(body, "/v1/chat/completions", "X-Energy-Wait: 1"))
            energy = json.loads(ENERGY.findall(through)[0].split(b":", 1)[1])
            self.assertFalse(energy["provisional"])
            run = re.search(rb"X-Energy-Run: ([0-9a-f-]{36})", through)[1].decode()
            stored = wait_until(lambda: self.proxy.rows(f"SELECT total_energy_mj FROM profiling_runs WHERE id = '{run}'"))
            self.assertAlmostEqual(stored[0][0] / 1e3 / energy["total"], 1, places=6)
        self.assertNotIn(b"x-energy", self.engine.requests[-1]["body"].lower())
        self.assertNotIn("x-energy-wait", self.engine.requests[-1]["headers"])

    def test_nothing_is_added_where_nothing_is_wanted(self):
        for body in (STREAM, {**STREAM, "stream": False}):
            self.assertEqual(self.proxy.raw(post(body, "/v1/chat/completions", "X-Energy: none")),
                             self.proxy.raw(post(body), self.engine.port))
        plain = {key: value for key, value in STREAM.items() if key != "stream_options"}
        through = self.proxy.raw(post(plain))
        self.assertNotIn(b"energy_joules", through)

    def with_trailers(self, body):
        return self.proxy.raw(post(body, "/v1/chat/completions", "TE: trailers"))

    def test_a_trailer_where_trailers_are_taken(self):
        plain = {key: value for key, value in STREAM.items() if key != "stream_options"}
        self.engine.ttft = LONG_ENOUGH
        through = self.with_trailers(plain)
        self.assertRegex(through, rb"\r\n0\r\nX-Energy-Joules: [0-9.e+-]+\r\nX-Energy-Method: [^\r]*\r\n\r\n$")

    def test_trailers_survive_being_cut(self):
        """The energy trailers follow the server's own, however the last bytes are split."""
        end = b"0;last\r\nX-Checksum: 7\r\n\r\n"

        def answer(request, send):
            self.engine.head(send)
            time.sleep(LONG_ENOUGH)
            self.engine.chunk(send, sse(chat_chunk("a"), chat_chunk(None, "stop")))
            for i in range(len(end)):
                send(end[i:i + 1])
                time.sleep(0.03)  # longer than the limit for buffering an incomplete chunk
            return False
        self.engine.answer = answer
        through = self.with_trailers(STREAM)
        self.assertRegex(through, rb"\r\n0;last\r\nX-Checksum: 7\r\nX-Energy-Joules: [0-9.e+-]+\r\n"
                                  rb"X-Energy-Method: [^\r]*\r\n\r\n$")

    def test_chunks_of_a_whole_answer_stay_as_they_are(self):
        """Chunk boundaries, extensions and trailers are forwarded unchanged; only the chunk with the figure grows."""
        parts = (b'{"model":"m","choices":[{"index":0,"message":{"content":"a"}}],"us',
                 b'age":{"prompt_tokens":1,', b'"completion_tokens":1', b'}', b'}')
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
        end = b"000;e\r\nX-Sum: 1\r\nX-Other: two words\r\n\r\n"

        def framed(texts):
            return b"".join(b"%04X;n=%d\r\n%s\r\n" % (len(p), i, p) for i, p in enumerate(texts)) + end

        def answer(request, send):
            body = head + framed(parts)
            step = int(request["headers"].get("x-step", len(body)))
            for at in range(0, len(body), step):
                send(body[at:at + step])
            return True
        self.engine.answer = answer
        for header in ("X-A: b", "X-Step: 1", "X-Step: 7"):
            through = self.proxy.raw(post({**STREAM, "stream": False}, "/v1/chat/completions", header))
            got, _, text = through.partition(b"\r\n\r\n")
            figure = ENERGY.search(text)[0]
            self.assertIn(b"X-Energy-Method: ", got)
            self.assertIn(b"Trailer: X-Sum", got)
            self.assertEqual(text, framed(parts).replace(b"0001;n=3\r\n", b"%x;n=3\r\n%s" % (1 + len(figure), figure), 1))
            self.assertEqual(self.proxy.raw(post({**STREAM, "stream": False}, "/v1/chat/completions", "X-Energy: none",
                                                 header)), head + framed(parts))

    def test_extensions_of_a_grown_chunk_of_a_stream_stay(self):
        event = b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\n'

        def answer(request, send):
            self.engine.head(send)
            self.engine.chunk(send, sse(chat_chunk("a"), chat_chunk(None, "stop"), done=False))
            send(b"%X;sum=\"1\"\r\n%s\r\n0\r\n\r\n" % (len(event), event))
            return False
        self.engine.answer = answer
        through = self.proxy.raw(post(STREAM))
        figure = ENERGY.search(through)[0]
        self.assertIn(b'\r\n%x;sum="1"\r\n' % (len(event) + len(figure)), through)

    def test_connections_are_kept(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.proxy.port, timeout=PATIENCE)
        for _ in range(3):
            connection.request("POST", "/v1/chat/completions", json.dumps({**STREAM, "max_tokens": 2}))
            answer = connection.getresponse()
            self.assertIn(b"[DONE]", answer.read())
            connection.request("GET", "/v1/models")
            self.assertEqual(json.loads(connection.getresponse().read())["data"][0]["id"], "m")
        connection.close()
        wait_until(lambda: len(self.proxy.rows("SELECT 1 FROM profiling_runs")) == 3)

    def test_requests_of_a_session_are_grouped(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.proxy.port, timeout=PATIENCE)
        for session in ("agent-1", "x" * 65, None, "with blank", "agent-1", "\u00e9"):
            headers = {} if session is None else {"X-Session-Id": session}
            connection.request("POST", "/v1/chat/completions", json.dumps({**STREAM, "max_tokens": 2}), headers)
            connection.getresponse().read()
        connection.close()
        wait_until(lambda: len(self.proxy.rows("SELECT 1 FROM profiling_runs")) == 6)
        self.assertEqual(self.proxy.rows("SELECT tags, json_extract(settings, '$.session'), count(*) FROM profiling_runs "
                                         "GROUP BY 1, 2 ORDER BY 3"), [('["session=agent-1"]', "agent-1", 2), ("[]", None, 4)])
        listed = subprocess.run([PERJOULE, "ls", "--session", "agent-1", "--db", self.proxy.db], capture_output=True, text=True,
                                check=True).stdout.splitlines()
        self.assertEqual(len([line for line in listed if re.match("[0-9a-f]{8}-", line)]), 2)  # runs, all completed
        self.assertNotIn(" status ", listed[0])
        self.assertRegex(listed[-1], r"^session agent-1: 2 runs, 4 output tokens, [0-9.]+.* m?J, modelled$")

    def test_calls_of_tools_are_counted(self):
        def call(index, **function):
            return {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": index, "function": function}]}}]}

        def answer(request, send):
            self.engine.head(send)
            self.engine.chunk(send, sse(chat_chunk("so"), call(0, name="f", arguments=""), call(0, arguments="{}"),
                                        call(1, name="f", arguments="{}"), chat_chunk(None, "tool_calls")))
            send(b"0\r\n\r\n")
            return False
        offered = {**STREAM, "max_tokens": 2, "tools": [{"type": "function", "function": {"name": "f"}}]}
        for body, does_call in ((offered, True), (offered, False), (STREAM, False)):
            self.engine.answer = answer if does_call else self.engine.chat
            self.proxy.raw(post(body, "/v1/chat/completions", "X-Session-Id: fix"))
        wait_until(lambda: len(self.proxy.rows("SELECT 1 FROM profiling_runs")) == 3)
        self.assertEqual(self.proxy.rows("SELECT tool_calls FROM profiling_runs ORDER BY id"), [(2,), (0,), (None,)])
        task = json.loads(subprocess.run([PERJOULE, "session", "fix", "--json", "--db", self.proxy.db], capture_output=True,
                                         text=True, check=True).stdout)
        self.assertEqual((task["runs"], task["tool_calls"], task["calling_runs"]), (3, 2, 1))
        if task["energy_mj"] is None:  # a request was too short for the sensor
            self.assertIsNone(task["joules_per_tool_call"])
        else:
            self.assertAlmostEqual(task["joules_per_tool_call"] * 2, task["energy_mj"] / 1e3)

    def scrape(self, *headers):
        lines = ["GET /metrics HTTP/1.1", "Host: 127.0.0.1", *headers]
        head, _, text = self.proxy.raw(("\r\n".join(lines) + "\r\n\r\n").encode()).partition(b"\r\n\r\n")
        self.assertIn(b"200 OK", head)
        figures = {}
        for line in text.decode().splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                figures[name] = float(value)
        return figures

    def test_metrics_by_model_and_client(self):
        short = {**STREAM, "max_tokens": 2}
        for client, body in ((None, short), ("team-a", short), ('te"am', short), ("a b", short)):
            self.proxy.raw(post(body, "/v1/chat/completions", *([f"X-Client-Id: {client}"] if client else [])))
        wait_until(lambda: sum(value for name, value in self.scrape().items() if name.startswith("perjoule_requests_total")) == 4)
        got = self.scrape()
        here, team = 'model="m",client="127.0.0.1"', 'model="m",client="team-a"'
        # a name that is no identifier is not one: the address counts
        self.assertEqual(got[f'perjoule_requests_total{{{here},status="completed"}}'], 2)
        self.assertEqual(got[f'perjoule_requests_total{{{team},status="completed"}}'], 1)
        self.assertEqual(got[f'perjoule_requests_total{{{team},status="failed"}}'], 0)
        self.assertEqual(got[f'perjoule_request_tokens_total{{{here},kind="output"}}'], 4)
        self.assertEqual(got[f'perjoule_request_tokens_total{{{here},kind="input"}}'], 24)
        self.assertEqual(len([n for n in got if n.startswith("perjoule_request_seconds_total")]), 3)
        self.assertIn('perjoule_requests_total{model="m",client="te\\"am",status="completed"}', got)
        stored = self.proxy.rows("SELECT sum(total_energy_mj), json_extract(tags, '$[0]') FROM profiling_runs GROUP BY 2")
        self.assertEqual({tag for _, tag in stored}, {None, "client=team-a", 'client=te"am'})
        joules = sum(value for name, value in got.items() if name.startswith("perjoule_request_joules_total"))
        self.assertAlmostEqual(joules / sum(mj or 0 for mj, _ in stored) * 1e3, 1, places=6)
        self.assertEqual(sum(v for n, v in got.items() if "joules_total" in n and 'quality="measured"' in n), 0)
        self.assertEqual(got["perjoule_requests_in_flight"], 0)
        # the server's own are not lost
        self.proxy.raw(b"GET /upstream/metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        self.assertEqual(self.engine.requests[-1]["path"], "/metrics")

    def test_figures_under_other_names(self):
        body = {**STREAM, "stream": False, "max_tokens": 3}
        self.engine.ttft = LONG_ENOUGH
        through = self.proxy.raw(post(body, "/v1/chat/completions",
                                      "X-Energy-Fields: energy_kwh=total:kWh, energy.in=input:Wh,energy_j=total"))
        usage = json.loads(through.partition(b"\r\n\r\n")[2])["usage"]
        self.assertGreater(usage["energy_joules"]["total"], 0)
        self.assertEqual(usage["energy_j"], usage["energy_joules"]["total"])
        self.assertAlmostEqual(usage["energy_kwh"] * 3.6e6 / usage["energy_j"], 1, places=9)
        if usage["energy_joules"]["input"] is None:
            self.assertIsNone(usage["energy.in"])
        self.assertNotIn("x-energy-fields", self.engine.requests[-1]["headers"])
        for wrong in ("energy_kwh", "a=total:cal", "a=watts", "total_tokens=total", 'a"b=total', "=total"):
            before = len(self.engine.requests)
            self.assertIn(b" 400 ", self.proxy.raw(post(body, "/v1/chat/completions", f"X-Energy-Fields: {wrong}"))[:20])
            self.assertEqual(len(self.engine.requests), before)

    def test_an_answer_that_came_as_a_whole_has_no_typical_token_and_no_phases(self):
        self.engine.ttft, self.engine.pause = LONG_ENOUGH, 0.01
        for stream in (True, False):
            self.proxy.raw(post({**STREAM, "stream": stream, "max_tokens": 8}, "/v1/chat/completions", "X-Energy-Wait: 1"))
        wait_until(lambda: len(self.proxy.rows("SELECT 1 FROM profiling_runs WHERE status = 'completed'")) == 2)
        rows = self.proxy.rows("SELECT typical_token_energy_mj, decode_energy_mj, prefill_energy_mj, request_energy_mj, "
                               "output_tokens FROM profiling_runs ORDER BY id")
        (*streamed, _, _), (*whole, joules, tokens) = rows
        self.assertGreater(min(streamed), 0)
        self.assertEqual(whole, [None, None, None])
        self.assertGreater(joules / tokens, 0)

    def test_an_error_is_the_servers_own(self):
        direct = self.proxy.raw(post({}, "/v1/nothing/completions2"), self.engine.port)
        self.assertEqual(self.proxy.raw(post({}, "/v1/nothing/completions2")), direct)
        self.assertEqual(self.proxy.rows("SELECT 1 FROM profiling_runs"), [])

    def test_a_client_that_leaves_cancels(self):
        self.engine.tokens, self.engine.pause = 400, 0.02
        body = {key: value for key, value in STREAM.items() if key != "max_tokens"}
        with socket.create_connection(("127.0.0.1", self.proxy.port), timeout=PATIENCE) as s:
            s.sendall(post(body))
            got = b""
            while b"w2" not in got:
                got += s.recv(4096)
        wait_until(lambda: self.engine.cut == 1)
        found = wait_until(lambda: self.proxy.rows("SELECT status, output_tokens FROM profiling_runs"))
        self.assertEqual(found[0][0], "cancelled")
        self.assertGreaterEqual(found[0][1], 3)

    def test_a_client_that_sends_nothing_more_is_answered(self):
        kept = [post(body, "/v1/chat/completions", "X-Energy: none").replace(b"Connection: close\r\n", b"")
                for body in (STREAM, {**STREAM, "stream": False})]
        for data in (*kept, b"".join(kept)):
            through = self.proxy.raw(data, half=True)
            self.assertEqual(re.sub(rb"X-Energy-Run: [0-9a-f-]{36}\r\n", b"", through),
                             self.proxy.raw(data, self.engine.port, half=True))
        wait_until(lambda: self.proxy.rows("SELECT status FROM profiling_runs") == [("completed",)] * 4)

    def test_a_server_that_takes_the_end_of_sending_for_leaving(self):
        """As uvicorn and net/http do: they learn of it through the proxy, and the run is cancelled."""
        def leave(request, send):
            self.assertEqual(request["connection"].recv(1), b"")
        self.engine.answer = leave
        self.assertEqual(self.proxy.raw(post(STREAM), half=True), b"")
        found = wait_until(lambda: self.proxy.rows("SELECT status FROM profiling_runs"))
        self.assertEqual(found[0][0], "cancelled")


class Telemetry(unittest.TestCase):
    def test_metrics_and_a_span_of_each_request(self):
        class Collector(http.server.BaseHTTPRequestHandler):
            got = []

            def do_POST(self):
                self.got.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass
        collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        engine = Engine()
        proxy = Proxy(engine, "--otlp", f"http://127.0.0.1:{collector.server_port}",
                      "--otlp-name", "gen_ai.infrastructure.energy=acme.energy", "--energy-field", "energy_wh=total:Wh")
        through = proxy.raw(post({**STREAM, "stream": False}, "/v1/chat/completions", "X-Client-Id: team-a"))
        self.assertIn("energy_wh", json.loads(through.partition(b"\r\n\r\n")[2])["usage"])
        got = lambda path: [d for to, d in list(Collector.got) if to == path]

        def completed(document):
            metrics = {m["name"]: m for m in document["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]}
            return {p["attributes"][0]["value"]["stringValue"]: p["asDouble"]
                    for p in metrics["perjoule.runs"]["sum"]["dataPoints"]}["completed"]
        wait_until(lambda: got("/v1/traces") and completed(got("/v1/metrics")[-1]))
        code, out, err = proxy.stop()
        self.assertEqual(code, 0, out + err)
        spans = [d["resourceSpans"][0]["scopeSpans"][0]["spans"][0] for d in got("/v1/traces")]
        self.assertEqual(len(spans), 1)
        told = {a["key"]: next(iter(a["value"].values())) for a in spans[0]["attributes"]}
        self.assertEqual((told["gen_ai.request.model"], told["perjoule.client"], told["gen_ai.usage.output_tokens"]),
                         ("m", "team-a", "5"))
        self.assertIn("acme.energy", told)
        self.assertEqual(completed(got("/v1/metrics")[-1]), 1)
        collector.shutdown()


class Shared(unittest.TestCase):
    def test_the_sum_over_requests_is_the_machines(self):
        """Also with a counter that is known well by its log alone. Where the sensor sees all, so do shares."""
        for power in ("sim", "sim:preset=nvml-h200"):
            with self.subTest(power=power):
                engine = Engine()
                engine.tokens, engine.pause = 20, 0.01
                proxy = Proxy(engine, "--json", power=power)
                body = {key: value for key, value in STREAM.items() if key != "max_tokens"}
                threads = [threading.Thread(target=proxy.raw, args=(post(body),)) for _ in range(8)]
                for thread in threads:
                    thread.start()
                    time.sleep(0.03)
                for thread in threads:
                    thread.join()
                wait_until(lambda: len(proxy.rows("SELECT 1 FROM profiling_runs")) == 8)
                runs = proxy.rows("SELECT total_energy_mj, total_energy_sd_mj, method, allocation FROM profiling_runs")
                code, out, err = proxy.stop()
                self.assertEqual(code, 0, err)
                whole = json.loads(out.splitlines()[-1])
                self.assertIn(("allocated", "tokens"), {r[2:] for r in runs})
                self.assertAlmostEqual(sum(r[0] for r in runs) / whole["energy_mj"], 1, delta=1e-9)
                self.assertLess(max(r[1] / r[0] for r in runs), 0.02)

    def test_what_is_printed(self):
        """Ids that `show` takes, what is modelled, and which rail is missing; nothing unknown is zero."""
        engine = Engine()
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, "trace.csv")
            with open(trace, "w", encoding="ascii") as file:
                file.write("timestamp_ms,cpu_mw,gpu_mw,phase\n")
                file.writelines(f"{i * 10},20000,N/A,idle\n" for i in range(60000))
            for power, label in ((f"replay:{trace}", "partial"), ("sim", "modelled")):
                for words in ((), ("--json",)):
                    proxy = Proxy(engine, *words, power=power)
                    through = proxy.raw(post({**STREAM, "max_tokens": 80}))
                    energy = json.loads(ENERGY.findall(through)[0].split(b":", 1)[1])
                    self.assertEqual(energy["total"] is None, energy["lo"] is None)
                    wait_until(lambda: proxy.rows("SELECT 1 FROM profiling_runs"))
                    name = None if words else proxy.process.stdout.readline()
                    shown = not words and subprocess.run([PERJOULE, "show", name.split()[0], "--db", proxy.db],
                                                         capture_output=True, text=True, check=False)
                    code, out, err = proxy.stop()
                    self.assertEqual(code, 0, err)
                    if words:
                        end = json.loads(out.splitlines()[-1])
                        self.assertEqual(end["energy_source"], "unavailable" if label == "partial" else "modelled")
                        self.assertEqual(end["energy_mj"] is None, end["unknown_ms"] > 0 or label == "partial")
                        self.assertEqual(end["partial"], "CPU only, GPU missing" if label == "partial" else None)
                        continue
                    self.assertEqual(shown.returncode, 0, shown.stderr)
                    self.assertRegex(name, rf"J {label}\n$")
                    self.assertLessEqual(len(name.rstrip()), 80)
                    self.assertNotIn(" 0 nJ", out)
                    self.assertIn("partial: CPU only, GPU missing" if label == "partial" else "(modelled)", out)

    def test_two_hundred_streams(self):
        engine = Engine()
        engine.tokens, engine.pause, engine.ttft = 20, 0.05, 0.5
        proxy = Proxy(engine, "--json")
        body = post({key: value for key, value in STREAM.items() if key != "max_tokens"})
        good = []

        def one():
            got = proxy.raw(body)
            good.append(got.count(b'"content": "w') == 20 and got.endswith(b"0\r\n\r\n") and b"energy_joules" in got)
        threads = [threading.Thread(target=one) for _ in range(200)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(good.count(True), 200)
        wait_until(lambda: len(proxy.rows("SELECT 1 FROM profiling_runs WHERE status = 'completed'")) == 200)
        self.assertEqual(proxy.stop()[0], 0)


class Crowded(unittest.TestCase):
    def test_one_connection_too_many(self):
        """It is told why and when to come again; when there is room the next one is served."""
        most = 1024
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < most + 200:
            self.skipTest("too few file descriptors are allowed")
        proxy = Proxy(Engine())  # which raises its limit by itself
        self.addCleanup(proxy.stop)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE))
            for _ in range(most - 1):
                stack.enter_context(socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE))
            for _ in range(3):
                answer = proxy.raw(post(STREAM))
                self.assertIn(b"HTTP/1.1 503 Service Unavailable\r\n", answer)
                self.assertIn(b"\r\nRetry-After: 1\r\n", answer)
                self.assertIn(b"the proxy already serves 1024 connections", answer)
            first.sendall(post(STREAM))  # those inside are served
            self.assertIn(b"200 OK", first.recv(65536))
        self.assertIn(b"[DONE]", wait_until(lambda: answer if b"503" not in (answer := proxy.raw(post(STREAM))) else None))


class Hostile(unittest.TestCase):
    def through(self, answer, request=None):
        """The client's response for this server response; afterwards a normal request must still work."""
        engine = Engine()
        honest = engine.chat
        engine.answer = lambda request, send: (answer(engine, request, send) if request["method"] == "POST" and
                                               b"honest" not in request["body"] else honest(request, send))
        proxy = Proxy(engine)
        try:
            got = proxy.raw(request or post(STREAM))
            after = proxy.raw(post({**STREAM, "messages": [{"role": "user", "content": "honest"}]}))
            self.assertIn(b"[DONE]", after)
            found = wait_until(lambda: proxy.rows("SELECT status, failure, output_tokens FROM profiling_runs"
                                                  " WHERE prompt != 'honest'"))
            return got, found[0]
        finally:
            code, out, err = proxy.stop()
            self.assertEqual(code, 0, out + err)

    def test_a_server_that_hangs_up(self):
        def hang_up(engine, request, send):
            return False
        got, run = self.through(hang_up)
        self.assertIn(b"502 Bad Gateway", got)
        self.assertIn(b"application/problem+json", got)
        self.assertEqual(run[0], "failed")

    def test_a_server_that_repeats_the_key(self):
        def repeat(engine, request, send):
            key = request["headers"]["authorization"].removeprefix("Bearer ")
            return engine.whole(send, {"error": {"message": f"Incorrect API key provided: {key}"}}, "401 Unauthorized")
        got, run = self.through(repeat, post(STREAM, "/v1/chat/completions", "Authorization: Bearer sk-1234567890abcdef"))
        self.assertIn(b"sk-1234567890abcdef", got)  # the client gets every byte
        self.assertEqual(run[:2], ("failed", "the server answered 401: Incorrect API key provided: *******************"))

    def test_a_server_that_stops_in_the_middle(self):
        def stop(engine, request, send):
            engine.head(send)
            engine.chunk(send, sse(chat_chunk("a"), done=False))
            return False
        got, run = self.through(stop)
        self.assertTrue(got.endswith(b"\n\n\r\n") or got.endswith(b"\n\n"), got[-40:])
        self.assertEqual((run[0], run[2]), ("failed", 1))

    def test_a_server_that_is_no_http(self):
        def garbage(engine, request, send):
            send(b"SSH-2.0-OpenSSH\r\n\r\n")
            return False
        got, run = self.through(garbage)
        self.assertIn(b"502", got)
        self.assertEqual(run[0], "failed")

    def test_an_endless_event(self):
        def endless(engine, request, send):
            engine.head(send)
            engine.chunk(send, b"data: ")
            for _ in range(300):
                engine.chunk(send, b"x" * 10000)
            engine.chunk(send, b"\n\n" + sse(chat_chunk("a")).encode())
            send(b"0\r\n\r\n")
            return False
        got, run = self.through(endless)
        self.assertGreater(len(got), 3_000_000)
        self.assertEqual((run[0], run[2]), ("completed", 1))

    def test_usage_that_lies(self):
        def lie(engine, request, send):
            engine.head(send)
            engine.chunk(send, sse(chat_chunk("a\udcff".encode("utf-8", "surrogateescape").decode("latin-1")),
                                   {"choices": [], "usage": {}}, {"choices": [], "usage": {"completion_tokens": -7}},
                                   {"choices": [], "usage": {"completion_tokens": 1e30, "prompt_tokens": "many"}},
                                   {"usage": {"usage": {"usage": {}}}}, '{"usage": {', "[[[[", done=True))
            send(b"0\r\n\r\n")
            return False
        got, run = self.through(lie)
        self.assertIn(b'"usage": {"energy_joules":', got)
        self.assertEqual((run[0], run[2]), ("completed", 1))

    def test_chunks_that_are_broken(self):
        def broken(engine, request, send):
            engine.head(send)
            send(b"5\r\nabcdefgh\r\nzz\r\n")
            return False
        got, run = self.through(broken)
        self.assertEqual(run[0], "failed")

    def test_a_whole_answer_that_breaks_off(self):
        """The client gets the partial response exactly once, as it would without the proxy."""
        for body in (b"Content-Length: 90\r\n\r\n{\"choices\":[", b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\nzz\r\n",
                     b"Transfer-Encoding: chunked\r\n\r\n5\r\n{\"u"):
            def broken(engine, request, send, body=body):
                send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + body)
                return False
            got, run = self.through(broken)
            self.assertEqual(got.count(b"HTTP/1.1"), 1, got)
            self.assertTrue(got.endswith(body.partition(b"\r\n\r\n")[2]), got)
            self.assertEqual(run[0], "failed")

    def test_a_server_that_is_not_there(self):
        engine = Engine()
        proxy = Proxy(engine)
        engine.close()
        got = proxy.raw(post(STREAM))
        self.assertIn(b"502 Bad Gateway", got)
        wait_until(lambda: proxy.rows("SELECT 1 FROM profiling_runs WHERE status = 'failed'"))
        self.assertEqual(proxy.stop()[0], 0)

    def test_clients_that_break_the_rules(self):
        engine = Engine()
        proxy = Proxy(engine)
        for data, status in ((b"GET / HTTP/1.1\r\n\r\n", b"421"),
                             (b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", b"421"),
                             (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://evil.example\r\n\r\n", b"403"),
                             (b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\n"
                              b"Transfer-Encoding: chunked\r\n\r\n", b"400"),
                             (b"GARBAGE\r\n\r\n", b"400"),
                             (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"400"),
                             (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n\r\n", b"501"),
                             (b"A" * 100000, b"414")):
            self.assertIn(b"HTTP/1.1 " + status, proxy.raw(data)[:40], data[:60])
        quiet = [socket.create_connection(("127.0.0.1", proxy.port)) for _ in range(50)]
        for s in quiet[:25]:
            s.sendall(b"POST /v1/completions HTTP/1.1\r\n")
        self.assertIn(b"[DONE]", proxy.raw(post(STREAM)))
        for s in quiet:
            s.close()
        self.assertEqual(len([r for r in engine.requests if r["method"] == "POST"]), 1)
        self.assertEqual(proxy.stop()[0], 0)

    def test_a_token_where_others_can_come_in(self):
        engine = Engine()
        refused = subprocess.run([PERJOULE, "attach", "--url", engine.url, "--listen", "0.0.0.0:0", "--no-store"],
                                 capture_output=True, text=True, check=False, timeout=PATIENCE)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("--token", refused.stderr)
        proxy = Proxy(engine, "--token", "the-secret-words", listen="0.0.0.0:0")
        self.assertIn(b"401", proxy.raw(post(STREAM))[:20])
        self.assertIn(b"[DONE]", proxy.raw(post(STREAM, "/v1/chat/completions", "X-Perjoule-Token: the-secret-words",
                                                "Authorization: Bearer upstream-key")))
        self.assertEqual(engine.requests[-1]["headers"]["authorization"], "Bearer upstream-key")
        self.assertIn(b"[DONE]", proxy.raw(post(STREAM, "/v1/chat/completions", "Authorization: Bearer the-secret-words")))
        self.assertNotIn("authorization", engine.requests[-1]["headers"])
        self.assertEqual(proxy.stop()[0], 0)

    def test_killed_it_keeps_what_was_in_flight(self):
        engine = Engine()
        engine.tokens, engine.pause = 400, 0.02
        proxy = Proxy(engine)
        body = {key: value for key, value in STREAM.items() if key != "max_tokens"}
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE) as s:
            s.sendall(post(body))
            got = b""
            while b"w9" not in got:
                got += s.recv(4096)
            def is_recorded():
                spools = pathlib.Path(proxy.db + "-spool").glob("*")
                return any(b'"resolution"' in spool.read_bytes() for spool in spools if spool.is_file())
            wait_until(is_recorded)  # its power, which is later than its tokens
            time.sleep(2)  # the spool is written every few hundred milliseconds, later on a busy machine
            proxy.process.kill()
            proxy.process.wait()
        subprocess.run([PERJOULE, "check", "--db", proxy.db], check=False, capture_output=True, timeout=PATIENCE)
        found = wait_until(lambda: proxy.rows("SELECT status, total_energy_mj, prompt FROM profiling_runs"))
        self.assertEqual((found[0][0], found[0][2]), ("interrupted", "Hi"))
        self.assertGreater(found[0][1], 0)
        again = subprocess.run([PERJOULE, "check", "--db", proxy.db], check=False, capture_output=True, text=True)
        self.assertIn("conservation  ok", again.stdout)
        self.assertGreaterEqual(len(proxy.rows("SELECT 1 FROM tokens")), 9)
        proxy.stop()


if __name__ == "__main__":
    beside.main()
