"""Strictness of the server: malformed request heads, names and bodies; tokens; its own description."""
import concurrent.futures
import contextlib
import gzip
import json
import re
import resource
import shutil
import socket
import subprocess
import threading
import time
import unittest

import beside
import harness

POST = "/api/profiling/generate"


class Strict(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = harness.Server()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def head(self, *lines, method="GET", target="/healthz", host="Host: localhost", body=""):
        text = "\r\n".join([f"{method} {target} HTTP/1.1", *([host] if host else []), *lines])
        return self.server.raw_status((text + "\r\nConnection: close\r\n\r\n" + body).encode("latin-1"))

    def problem(self, answer, status):
        self.assertEqual(answer.status, status, answer.body)
        self.assertEqual(answer.headers["Content-Type"], "application/problem+json")
        document = answer.json()
        self.assertEqual(set(document), {"type", "title", "status", "detail"})
        self.assertEqual(document["status"], status)
        self.assertGreater(len(document["detail"]), 10)
        return document["detail"]

    def post(self, body, status):
        return self.problem(self.server.ask("POST", POST, body), status)

    def test_head(self):
        self.assertEqual(self.head(), 200)
        for wrong, status in [
            (dict(method="G@T"), 400), (dict(method="PUT"), 405), (dict(method="OPTIONS"), 405),
            (dict(target="/health%00z"), 400), (dict(target="/health\0z"), 400),
            (dict(target="/health\x01z"), 400), (dict(target="/h\xe4"), 400), (dict(target="/%zz"), 400),
            (dict(target="/%"), 400), (dict(target="/a%2"), 400), (dict(target="/?a=%ff"), 400),
            (dict(target="/?a=%01"), 400), (dict(target="*"), 400), (dict(target="/" + "a" * 17000), 414),
            (dict(host=""), 400), (dict(host="Host: localhost\r\nHost: localhost"), 400),
            (dict(target="/" + "?" + "&".join("a=b" for _ in range(70))), 400),
        ]:
            self.assertEqual(self.head(**wrong), status, wrong)

    @unittest.skipUnless(shutil.which("bash"), "there is no bash here")
    def test_a_container_tells_its_health(self):
        command = json.loads(re.search(r"CMD (\[\"bash\".*\])", (harness.SOURCE / "packaging/Containerfile").read_text())[1])
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))  # nobody listens
            for port, code in ((self.server.port, 0), (closed.getsockname()[1], 1)):
                asked = [word.replace("/8000", f"/{port}") for word in command]
                self.assertEqual(subprocess.run(asked, capture_output=True).returncode, code, port)

    def test_lengths_in_two_ways(self):
        for lines in (["Content-Length: 5", "Transfer-Encoding: chunked"],
                      ["Content-Length: 5", "Content-Length: 5"],
                      ["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"]):
            status = self.head(*lines, method="POST", target=POST, body="0\r\n\r\n")
            self.assertEqual(status, 400, lines)

    def test_large_head_and_body(self):
        self.assertIn(self.head("X: " + "a" * 70000), (413, 431, 400, None))
        big = json.dumps({"prompt": "a" * (1 << 20)})
        self.assertIn("1048576", self.post(big.encode(), 413))

    def test_host(self):
        port = self.server.port
        for host in ("localhost", f"localhost:{port}", "127.0.0.1", f"127.0.0.1:{port}", "[::1]:1",
                     "LOCALHOST"):
            self.assertEqual(self.head(host=f"Host: {host}"), 200, host)
        for host in ("evil.example", f"localhost.evil.example:{port}", "10.1.2.3", "localhost:99999999",
                     "[::1", "", "localhost:x", "127.0.0.1.evil.example", "user@localhost"):
            self.assertIn(self.head(host=f"Host: {host}"), (400, 403), host)
        # for a target in absolute form the authority replaces Host (RFC 9112, 3.2.2)
        self.assertEqual(self.head(host="Host: evil.example", target=f"http://localhost:{port}/healthz"), 200)
        self.assertEqual(self.head(host="Host: localhost", target="http://evil.example/healthz"), 403)

    def test_origin(self):
        body = {"prompt": "x", "max_length": 1}
        own = {"Origin": self.server.url}
        self.assertEqual(self.server.ask("POST", POST, body, own).status, 200)
        for origin in ("http://evil.example", "null", self.server.url + "0", "https://localhost"):
            self.problem(self.server.ask("POST", POST, body, {"Origin": origin}), 403)
            for path in ("run/last", "runs?keep=1"):
                self.problem(self.server.ask("DELETE", "/api/profiling/" + path, None, {"Origin": origin}),
                             403)
            with harness.Socket(self.server.port, headers={"Origin": origin}) as ws:
                self.assertEqual(ws.status, 403)
        with harness.Socket(self.server.port, headers={"Origin": self.server.url}) as ws:
            self.assertEqual(ws.status, 101)

    def test_body(self):
        self.assertIn("max_length", self.post({"prompt": "x", "max_lenght": 5}, 422))
        self.assertRegex(self.post(b"{", 400), r"^the body is not valid JSON: line 1, ")
        self.assertIn("JSON", self.post(b'{"prompt":"a","prompt":"b"}', 400))
        self.assertIn("JSON", self.post(b'{"prompt":"\xff"}', 400))
        self.assertIn("object", self.post(b"[]", 422))
        self.assertIn("prompt", self.post({}, 422))
        self.assertIn("prompt", self.post({"prompt": ""}, 422))
        for field, value in [("max_length", 0), ("max_length", "5"), ("max_length", 1.5),
                             ("max_length", 1e30), ("temperature", -1), ("top_p", 2), ("top_k", -1),
                             ("seed", -1), ("batch_size", 0), ("batch_size", 100000), ("dtype", "q3"),
                             ("profiling_depth", "very"), ("tags", "a"), ("tags", [1]), ("tags", [""]),
                             ("tags", ["x" * 300]), ("wait", 1), ("model_name", 5),
                             ("experiment_name", []), ("prompt_ids", [1]), ("prompt", 5)]:
            self.assertIn(field, self.post({"prompt": "x", field: value}, 422), (field, value))
        self.assertIn("array", self.post({"prompt_ids": [-1]}, 422))

    def test_models_are_names(self):
        for name in ("../models/demo", "/etc", "..", ".", "demo/..", "./demo", "nosuch", "demo/config.json",
                     "", "synthetic:nosuch", "synthetic:llama-3.3-70b,f32", "~"):
            self.post({"prompt": "x", "model_name": name}, 422)
        self.assertIn("/api/profiling/models", self.post({"prompt": "x", "model_name": "../x"}, 422))

    def test_queries(self):
        get = self.server.get
        self.assertIn("limit", self.problem(get("/api/profiling/runs?limt=4"), 400))
        self.assertIn("limit", self.problem(get("/api/profiling/runs?limit=-4"), 400))
        self.assertIn("sort", self.problem(get("/api/profiling/runs?sort=size"), 400))
        self.assertIn("from", self.problem(get("/api/profiling/runs?from=yesterday"), 400))
        self.assertIn("twice", self.problem(get("/api/profiling/runs?limit=4&limit=5"), 400))
        self.assertIn("ids", self.problem(get("/api/profiling/compare?ids=last"), 400))
        self.problem(get("/api/profiling/compare"), 400)
        self.assertIn("a and b", self.problem(get("/api/profiling/compare/why?a=last"), 400))

    def test_what_cannot_fit_is_refused_before_it_is_queued(self):
        with harness.Server(power="none") as server:
            for fields in (dict(max_length=1000000), dict(max_length=512),
                           dict(prompt=None, prompt_ids=[1] * 600, max_length=1)):
                for wait in (True, False):
                    answer = server.generate(**fields, wait=wait)
                    self.assertIn("context of 512", self.problem(answer, 422))
            self.assertIn('"nonsense"', self.problem(server.ask("POST", POST, {"prompt": "x", "device": "nonsense"}), 422))
            self.assertEqual(server.get("/api/profiling/runs").json(), [])

    def test_report(self):
        """Markdown, and the page in one file with the API's own answers, which allows no network."""
        run = self.server.generate(wait=True).json()["id"]
        summary = self.server.get(f"/api/profiling/run/{run}/summary").json()
        text = self.server.get(f"/api/profiling/report?ids={run}&format=md")
        self.assertEqual((text.status, text.headers["Content-Type"]), (200, "text/markdown; charset=utf-8"))
        self.assertIn(f"run {run}", text.body.decode())
        page = self.server.get(f"/api/profiling/report?ids={run}")
        if page.status == 422:  # a build without the dashboard
            self.assertIn("--format md", page.json()["detail"])
            return
        self.assertEqual((page.status, page.headers["Content-Type"]), (200, "text/html; charset=utf-8"))
        self.assertIn("default-src 'none'", page.headers["Content-Security-Policy"])
        data = page.body.decode().split('id="perjoule-data">')[1].split("</script>")[0]
        inlined = json.loads(data)["answers"][f"api/profiling/run/{run}/summary"]
        self.assertEqual(inlined["total_energy_mj"], summary["total_energy_mj"])
        other = self.server.generate(wait=True).json()["id"]
        pair = self.server.get(f"/api/profiling/report?ids={run},{other}").body.decode()
        answers = json.loads(pair.split('id="perjoule-data">')[1].split("</script>")[0])["answers"]
        why = self.server.get(f"/api/profiling/compare/why?a={run}&b={other}").json()["why"]
        self.assertEqual(answers["api/profiling/compare/why"]["why"], why)
        self.assertEqual(self.server.get("/api/profiling/report?experiment=nope").status, 404)

    def test_name_and_note(self):
        with harness.Server(power="none") as server:
            run, other = [server.generate(max_length=2).json()["id"] for _ in range(2)]

            def describe(query, status=200, of=run):
                answer = server.ask("PATCH", f"/api/profiling/run/{of}{query}")
                if status != 200:
                    return self.problem(answer, status)
                self.assertEqual(answer.status, 200, answer.body)
                return answer.json()

            def found(text):
                return [r["id"] for r in server.get(f"/api/profiling/runs?search={text}").json()]

            self.assertEqual(describe("?name=after%20the%20update"), {"id": run, "name": "after the update", "note": None})
            self.assertEqual(describe("?note=%C3%A9t%C3%A9"), {"id": run, "name": "after the update", "note": "été"})
            self.assertEqual(describe("?name=50%25", of=other)["name"], "50%")
            self.assertEqual((found("UPDATE"), found("%C3%A9t"), found("50%25"), found("0%25%25")), ([run], [run], [other], []))
            shown = server.get(f"/api/profiling/run/{run}/summary").json()
            self.assertEqual((shown["name"], shown["note"]), ("after the update", "été"))
            copy = server.get(f"/api/profiling/export/{run}?format=json").json()
            self.assertEqual((copy["profiling_run"]["name"], copy["profiling_run"]["note"]), ("after the update", "été"))
            self.assertEqual(describe("?name=&note="), {"id": run, "name": None, "note": None})
            self.assertEqual(found("update"), [])
            describe("", 400)
            describe("?title=a", 400)
            self.assertIn("200", describe("?name=" + "x" * 201, 400))
            self.assertIn("2000", describe("?note=" + "x" * 2001, 400))
            self.assertEqual(len(describe("?name=" + "x" * 200)["name"]), 200)
            describe("?name=a", 404, of="0198ffff-0000-7000-8000-000000000000")

    def test_tags(self):
        with harness.Server(power="none") as server:
            run, other = [server.generate(max_length=2, tags=["a", "b"]).json()["id"] for _ in range(2)]

            def retag(query, status=200, of=run):
                answer = server.ask("POST", f"/api/profiling/run/{of}/tags{query}")
                if status != 200:
                    return self.problem(answer, status)
                self.assertEqual(answer.status, 200, answer.body)
                return answer.json()

            def tagged(tag):
                return {r["id"] for r in server.get(f"/api/profiling/runs?tag={tag}").json()}

            self.assertEqual(retag("?add=c%20d&add=a"), {"id": run, "tags": ["a", "b", "c d"]})
            self.assertEqual(retag("?remove=a&remove=nothing&add=%C3%A9"), {"id": run, "tags": ["b", "c d", "é"]})
            self.assertEqual((tagged("a"), tagged("b"), tagged("c+d")), ({other}, {run, other}, {run}))
            summary = server.get(f"/api/profiling/run/{run}/summary").json()
            self.assertEqual(summary["tags"], ["b", "c d", "é"])
            self.assertEqual(retag("?remove=b&remove=c+d&remove=%C3%A9"), {"id": run, "tags": []})
            self.assertEqual(tagged("b"), {other})
            retag("", 400)
            retag("?add=", 400)
            retag("?tag=a", 400)
            retag("?add=a", 404, of="0198ffff-0000-7000-8000-000000000000")
            most = 64 - 2
            self.assertEqual(len(retag("?" + "&".join(f"add={i}" for i in range(most)), of=other)["tags"]), 64)
            self.assertIn("64", retag("?add=one+more", 400, of=other))
            self.assertEqual(len(server.get(f"/api/profiling/run/{other}/summary").json()["tags"]), 64)

    def test_retention(self):
        with harness.Server(power="none") as server:
            def prune(query):
                answer = server.ask("DELETE", "/api/profiling/runs" + query)
                self.assertEqual(answer.status, 200, answer.body)
                return answer.json()

            def kept():
                return {r["id"] for r in server.get("/api/profiling/runs").json()}

            for query, word in [("", "before"), ("?dry_run=true", "before"), ("?keep=0", "before"),
                                ("?keep=-1", "keep"), ("?keep=x", "keep"), ("?before=30d", "before"),
                                ("?before=", "before"), ("?keep=1&dryrun=true", "dry_run"),
                                ("?keep=1&dry_run=yes", "dry_run"), ("?keep=1&tagged=1", "tagged")]:
                self.assertIn(word, self.problem(server.ask("DELETE", "/api/profiling/runs" + query), 400))
            old, tagged, new = [server.generate(max_length=2, **more).json()["id"]
                                for more in ({}, {"tags": ["a"]}, {})]
            self.assertEqual(prune("?before=2020-01-01"), {"runs": [], "deleted": 0, "dry_run": False})
            self.assertEqual(prune("?keep=1&dry_run=true"), {"runs": [old], "deleted": 0, "dry_run": True})
            self.assertEqual(kept(), {old, tagged, new})
            self.assertEqual(prune("?before=2200-01-01&keep=1"),
                             {"runs": [old], "deleted": 1, "dry_run": False})
            self.assertEqual(kept(), {tagged, new})
            self.assertEqual(server.get(f"/api/profiling/run/{old}").status, 404)
            self.assertEqual(prune("?keep=1&tagged=true&dry_run=false")["runs"], [tagged])
            self.assertEqual(prune("?before=2200-01-01&keep=0")["runs"], [new])
            self.assertEqual(kept(), set())

    def test_compacting(self):
        with harness.Server() as server:
            def compact(query):
                answer = server.ask("POST", "/api/profiling/compact" + query)
                self.assertEqual(answer.status, 200, answer.body)
                return answer.json()

            def operations(run):
                return server.get(f"/api/profiling/run/{run}/operations?token=1").json()["operations"]

            for query, word in [("", "before"), ("?keep=0", "before"), ("?keep=x", "keep"), ("?before=30d", "before"),
                                ("?keep=1&dry_run=yes", "dry_run")]:
                self.assertIn(word, self.problem(server.ask("POST", "/api/profiling/compact" + query), 400))
            old, coarse, tagged, new = [server.generate(max_length=2, **more).json()["id"] for more in
                                        ({"profiling_depth": "deep"}, {}, {"profiling_depth": "deep", "tags": ["a"]},
                                         {"profiling_depth": "deep"})]
            self.assertTrue(operations(old))
            self.assertEqual(compact("?keep=1&dry_run=true"), {"runs": [old], "compacted": 0, "dry_run": True})
            self.assertTrue(operations(old))
            before = server.get(f"/api/profiling/run/{old}/summary").json()
            self.assertEqual(compact("?before=2200-01-01&keep=1"), {"runs": [old], "compacted": 1, "dry_run": False})
            self.assertEqual(operations(old), [])
            self.assertTrue(server.get(f"/api/profiling/run/{old}/operations").json()["operations"])  # the sums
            self.assertEqual(server.get(f"/api/profiling/run/{old}/summary").json()["total_energy_mj"],
                             before["total_energy_mj"])
            self.assertEqual(compact("?keep=1&tagged=true")["runs"], [tagged])
            self.assertEqual(compact("?keep=1&tagged=true")["runs"], [])
            self.assertTrue(operations(new))
            self.assertEqual(server.get(f"/api/profiling/run/{coarse}").status, 200)

    def test_addresses(self):
        self.problem(self.server.get("/api/nothing"), 404)
        self.problem(self.server.get("/nothing.html"), 404)
        self.problem(self.server.get("/../../etc/passwd"), 404)
        self.problem(self.server.get("/assets/%2e%2e/secret"), 404)
        self.problem(self.server.get("/api/profiling/run/00000000"), 404)
        self.problem(self.server.get("/api/profiling/run/x" + "y" * 200), 404)
        answer = self.server.ask("POST", "/api/profiling/runs", {})
        self.problem(answer, 405)
        self.assertEqual(answer.headers["Allow"], "GET, DELETE")
        answer = self.server.ask("GET", POST)
        self.assertEqual((answer.status, answer.headers["Allow"]), (405, "POST"))
        self.problem(self.server.get("/ws/profiling"), 426)

    def test_handshakes(self):
        port = self.server.port
        for wrong, status in [({"Sec-WebSocket-Version": "8"}, 426), ({"Sec-WebSocket-Key": "short"}, 400),
                              ({"Sec-WebSocket-Key": "A" * 24}, 400), ({"Upgrade": "h2c"}, 426),
                              ({"Connection": "close"}, 426), ({"Host": "evil.example"}, 403)]:
            with harness.Socket(port, headers=wrong) as ws:
                self.assertEqual(ws.status, status, wrong)
        with harness.Socket(port, "?binary=2") as ws:
            self.assertEqual(ws.status, 400)
        key = {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}  # of RFC 6455
        with harness.Socket(port, headers=key) as ws:
            self.assertIn("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", ws.head)

    def test_frames(self):
        def ends(send):
            with harness.Socket(self.server.port) as ws:
                ws.message()
                send(ws)
                try:
                    while True:
                        ws.message()
                except harness.Closed as closed:
                    return closed.code
                except (EOFError, OSError):
                    return None

        self.assertIn(ends(lambda ws: ws.send(1, b"hello", mask=False)), (1002, None))
        self.assertIn(ends(lambda ws: ws.send(1, b"x" * 5000)), (1009, None))
        self.assertIn(ends(lambda ws: ws.send(1, b"\xff\xfe")), (1007, None))
        self.assertIn(ends(lambda ws: ws.send(3, b"")), (1002, None))
        self.assertEqual(ends(lambda ws: ws.send(8, b"\x03\xe8")), 1000)
        with harness.Socket(self.server.port) as ws:
            ws.message()
            for i in range(2000):  # backpressure: pings are answered only as fast as the pongs are read
                ws.send(9, b"%d" % i)
            self.assertEqual(self.server.get("/healthz").status, 200)

    def test_headers_of_every_answer(self):
        for path in ("/", "/healthz", "/api/nothing", "/metrics", "/api/profiling/runs"):
            headers = self.server.get(path).headers
            self.assertIn("default-src 'self'", headers["Content-Security-Policy"])
            self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
            self.assertEqual(headers["Referrer-Policy"], "no-referrer")
            self.assertIsNone(headers["Access-Control-Allow-Origin"])
        self.assertEqual(self.server.get("/api/profiling/runs").headers["Cache-Control"], "no-store")

    def test_page(self):
        page = self.server.get("/")
        self.assertIn("text/html", page.headers["Content-Type"])
        self.assertIn(b"perjoule", page.body)
        tag = page.headers["ETag"]
        if tag is None:
            self.skipTest("this build has no dashboard")
        again = self.server.get("/", **{"If-None-Match": tag})
        self.assertEqual((again.status, again.body), (304, b""))
        packed = self.server.get("/", **{"Accept-Encoding": "gzip;q=1, br;q=0"})
        self.assertEqual(packed.headers["Content-Encoding"], "gzip")
        self.assertEqual(gzip.decompress(packed.body), page.body)
        self.assertNotEqual(packed.headers["ETag"], tag)
        self.assertEqual(packed.headers["Vary"], "Accept-Encoding")

    def test_licences_of_the_page(self):
        """What others wrote of it is served beside it, with its terms, and the page links there."""
        if self.server.get("/").headers["ETag"] is None:
            self.skipTest("this build has no dashboard")
        notices = self.server.get("/licenses.txt")
        self.assertEqual(notices.status, 200)
        self.assertIn("text/plain", notices.headers["Content-Type"])
        for name in (b"preact", b"uplot", b"d3-array", b"Permission is hereby granted"):
            self.assertIn(name, notices.body)
        page = self.server.get("/").body.decode()
        scripts = re.findall(r'(?:src|href)="\.?/?([^"]+\.js)"', page)
        self.assertTrue(any(b"/licenses.txt" in self.server.get("/" + script).body for script in scripts), scripts)

    def test_one_request_a_connection_and_head(self):
        for target in ("/healthz", "/api/openapi.json"):
            got = self.server.raw(f"HEAD {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * 2)
            self.assertTrue(got.startswith(b"HTTP/1.1 200"))
            self.assertEqual(got.count(b"HTTP/1.1"), 1)
            self.assertIn(b"\r\nConnection: close\r\n", got)
            self.assertTrue(got.endswith(b"\r\n\r\n"))
        run = self.server.generate(max_length=40, profiling_depth="deep").json()["id"]
        for path in (f"run/{run}", f"export/{run}?format=json"):  # GET uses chunked transfer
            got = self.server.raw(f"HEAD /api/profiling/{path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            self.assertTrue(got.startswith(b"HTTP/1.1 200") and got.endswith(b"\r\n\r\n"), got[-200:])

    def refused(self, data, status):
        begin = time.monotonic()
        got = self.server.raw(data)
        head, _, body = got.partition(b"\r\n\r\n")
        self.assertEqual(int(head.split(b" ", 2)[1]), status, (data[:80], got[:300]))
        self.assertEqual(head.count(b"HTTP/1."), 1)
        self.assertIn(b"Connection: close", head)
        self.assertIn(b"application/problem+json", head)
        if not data.startswith(b"HEAD"):
            self.assertEqual(json.loads(body)["status"], status)
        else:
            self.assertEqual(body, b"")
        self.assertLess(time.monotonic() - begin, 15)  # before the timeout of 20 s for a head

    def test_heads_are_refused_once_with_the_right_status(self):
        get, host = b"GET /healthz HTTP/1.1\r\n", b"Host: localhost\r\n"
        post = b"POST /api/profiling/generate HTTP/1.1\r\n" + host
        for data, status in [
            (get + b"\r\n", 400), (get + host + b" folded: x\r\n\r\n", 400), (get + host + b"A : b\r\n\r\n", 400),
            (get + host + b"A\r\n\r\n", 400), (get + host + b"A: b\nC: d\r\n\r\n", 400), (b"GET  / HTTP/1.1\r\n\r\n", 400),
            (b"GET /\r\n\r\n", 400), (b"GET / HTTP/2.0\r\n" + host + b"\r\n", 505), (b"GET / HTTP/0.9\r\n" + host + b"\r\n", 505),
            (b"GET / FTP/1.1\r\n" + host + b"\r\n", 400), (b"GET /" + b"a" * 30000 + b" HTTP/1.1\r\n" + host + b"\r\n", 414),
            (get + host + b"X: " + b"a" * 30000 + b"\r\n\r\n", 431), (post + b"Content-Length: -5\r\n\r\n", 400),
            (post + b"Content-Length: 5x\r\n\r\n12345", 400), (post + b"Content-Length: 99999999999999999999\r\n\r\n", 413),
            (post + b"Content-Length: 5, 5\r\n\r\n12345", 400), (post + b"Transfer-Encoding: gzip\r\n\r\n", 501),
            (post + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
            (post + b"Transfer-Encoding: chunked\r\n\r\n5;" + b"x" * 50000 + b"\r\n", 411),
            (post + b"Expect: the-unexpected\r\nContent-Length: 0\r\n\r\n", 417),
            (b"HEAD / HTTP/1.1\r\n" + host * 2 + b"\r\n", 400), (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400),
        ]:
            with self.subTest(data=data[:90]):
                self.refused(data, status)

    def test_later_minor_versions_are_read_as_1_1(self):
        for version in (b"1.1", b"1.2", b"1.9"):
            with self.subTest(version=version), socket.create_connection(("127.0.0.1", self.server.port)) as s:
                s.sendall(b"GET /healthz HTTP/" + version + b"\r\nHost: localhost\r\n\r\n")
                s.settimeout(20)
                self.assertTrue(s.recv(4096).startswith(b"HTTP/1.1 200"))

    def test_a_head_in_single_bytes(self):
        with socket.create_connection(("127.0.0.1", self.server.port)) as s:
            for byte in b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n":
                s.sendall(bytes([byte]))
            s.settimeout(20)
            self.assertTrue(s.recv(4096).startswith(b"HTTP/1.1 200"))

    def test_no_files_left_is_no_spin(self):
        with harness.Server(power="none") as server:
            resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (40, 40))
            with contextlib.ExitStack() as stack:
                for _ in range(60):
                    stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
                def ticks():
                    return sum(map(int, open(f"/proc/{server.process.pid}/stat").read().rsplit(")", 1)[1].split()[11:13]))
                before = ticks()
                time.sleep(1)
                self.assertLess(ticks() - before, 15)
            self.assertEqual(server.get("/healthz").status, 200)

    def test_vanishing_and_half_open(self):
        sockets = [socket.create_connection(("127.0.0.1", self.server.port)) for _ in range(200)]
        for i, s in enumerate(sockets):
            s.sendall(b"GET /healthz HTTP/1.1\r\nHost: loc"[:i % 36])
        self.assertEqual(self.server.get("/healthz").status, 200)
        for s in sockets:
            s.close()
        self.assertEqual(self.server.get("/healthz").status, 200)


    def test_more_half_open_than_places(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard != resource.RLIM_INFINITY and hard < 4096:
            self.skipTest(f"only {hard} files may be open here")
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
        with harness.Server(power="none") as server, contextlib.ExitStack() as stack:
            for _ in range(1200):  # the server accepts 1024
                s = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
                s.sendall(b"GET /healthz HTTP/1.1\r\nHost: loc")
            self.assertEqual(server.get("/healthz").status, 200)

    def test_slow_readers_of_large_runs_hurt_nobody(self):
        run = self.server.generate(max_length=100, profiling_depth="deep", temperature=1, seed=1).json()["id"]
        request = f"GET /api/profiling/run/{run}?limit=100000 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        over = threading.Event()
        with contextlib.ExitStack() as stack:
            slow = [stack.enter_context(socket.socket()) for _ in range(12)]
            for s in slow:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                s.connect(("127.0.0.1", self.server.port))
                s.sendall(request)
                s.setblocking(False)

            def drip():  # never idle long enough, never done with 9 MB
                while not over.wait(.2):
                    for s in slow:
                        with contextlib.suppress(OSError):
                            s.recv(2048)
            thread = threading.Thread(target=drip)
            thread.start()
            stack.callback(thread.join)
            stack.callback(over.set)
            for _ in range(20):
                self.assertEqual(self.server.get(f"/api/profiling/run/{run}/tokens").status, 200)


class Token(unittest.TestCase):
    def test_token(self):
        with harness.Server("--host", "0.0.0.0", "--token", "the-secret-words") as server:
            port = server.port
            get = lambda path, **h: server.ask("GET", path, headers=h).status
            self.assertEqual(get("/api/profiling/runs"), 401)
            self.assertEqual(get("/metrics"), 401)
            self.assertEqual(get("/api/profiling/runs", Authorization="Bearer the-secret-word"), 401)
            self.assertEqual(get("/api/profiling/runs", Authorization="Bearer the-secret-words2"), 401)
            self.assertEqual(get("/api/profiling/runs", Authorization="Bearer the-secret-words"), 200)
            self.assertEqual(get("/"), 200)
            self.assertEqual(get("/healthz"), 200)
            with harness.Socket(port) as ws:
                self.assertEqual(ws.status, 401)
            with harness.Socket(port, "?token=the-secret-words") as ws:
                self.assertEqual(ws.status, 101)
            answer = server.get("/api/profiling/runs")
            self.assertIn("Bearer", answer.headers["WWW-Authenticate"])

    def test_session(self):
        with harness.Server("--host", "0.0.0.0", "--token", "the-secret-words") as server:
            own = {"Origin": server.url, "Content-Type": "text/plain"}
            runs = lambda cookie: server.ask("GET", "/api/profiling/runs", headers={"Cookie": cookie}).status
            for wrong in (b"the-secret-word", b"the-secret-words2", b"", b"Bearer the-secret-words"):
                answer = server.ask("POST", "/session", wrong, headers=own)
                self.assertEqual((answer.status, answer.headers["Set-Cookie"]), (401, None), wrong)
            self.assertEqual(server.ask("POST", "/session", b"the-secret-words", headers={
                **own, "Origin": "http://evil.example"}).status, 403)
            answer = server.ask("POST", "/session", b"the-secret-words", headers=own)
            self.assertEqual(answer.status, 204)
            cookie, *attributes = answer.headers["Set-Cookie"].split("; ")
            self.assertEqual(attributes, ["HttpOnly", "SameSite=Strict"])  # no Path: works below any prefix
            self.assertNotIn("secret", cookie)
            self.assertEqual(runs(cookie), 200)
            self.assertEqual(runs(f"other=1; {cookie}"), 200)
            self.assertEqual(runs(cookie[:-1] + "x"), 401)
            self.assertEqual(runs(cookie.split("=")[0] + "="), 401)
            secure = server.ask("POST", "/session", b"the-secret-words", headers={
                **own, "Origin": server.url.replace("http:", "https:")})
            self.assertIn("Secure", secure.headers["Set-Cookie"])
            # CSRF: a page of another site must not act even with the cookie.
            self.assertEqual(server.ask("DELETE", "/api/profiling/run/last", headers={
                "Cookie": cookie, "Origin": "http://evil.example"}).status, 403)
            again = server.ask("POST", "/session", b"the-secret-words", headers=own)
            other = again.headers["Set-Cookie"].split("; ")[0]
            self.assertNotEqual(other, cookie)  # each sign-in has a session of its own
            left = server.ask("DELETE", "/session", headers={**own, "Cookie": cookie})
            self.assertIn("Max-Age=0", left.headers["Set-Cookie"])
            self.assertEqual((runs(cookie), runs(other)), (401, 200))
        with harness.Server("--host", "0.0.0.0", "--token", "the-secret-words") as server:
            self.assertEqual(runs(other), 401)  # sessions end with the process
        with harness.Server() as server:
            self.assertEqual(server.ask("POST", "/session", b"anything").status, 204)
            self.assertIsNone(server.ask("POST", "/session", b"anything").headers["Set-Cookie"])

    def test_guesses_are_slowed_and_logged(self):
        with harness.Server("--host", "0.0.0.0", environment={"PERJOULE_TOKEN": "the-secret-words"}) as server:
            own = {"Origin": server.url, "Content-Type": "text/plain"}
            session = server.ask("POST", "/session", b"the-secret-words", headers=own).headers["Set-Cookie"]
            begin = time.monotonic()
            for number in range(12):
                answer = server.get("/api/profiling/runs", Authorization=f"Bearer guess-{number}")
                self.assertEqual(answer.status, 401)
            self.assertGreater(time.monotonic() - begin, 3)  # pauses of 60 ms to 2 s since the fifth
            with concurrent.futures.ThreadPoolExecutor(20) as pool:
                ask = lambda _: server.get("/api/profiling/runs", Authorization="Bearer guess").status
                answers = list(pool.map(ask, range(20)))
            self.assertIn(429, answers)
            # Whoever has signed in notices nothing of it.
            self.assertEqual(server.get("/api/profiling/runs", Cookie=session.split(";")[0]).status, 200)
            self.assertEqual(server.get("/healthz").status, 200)
            server.end()
            log = server.process.stderr.read()
            self.assertIn("wrong token from 127.0.0.1 (1 so far)", log)
            self.assertIn("wrong token from 127.0.0.1 (8 so far)", log)
            self.assertNotIn("guess-", log)

    def test_short_tokens_off_loopback(self):
        for options in (("--token", "fifteen-letters"), ("--token", "the-secret-words", "--join-token", "a=short")):
            done = subprocess.run([harness.PROGRAM, "serve", "--host", "0.0.0.0", "--port", "0", "--power", "none",
                                   "--db", "none", *options], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2)
            self.assertIn("at least 16 characters", done.stderr)

    def test_no_token_off_loopback(self):
        done = subprocess.run([harness.PROGRAM, "serve", "--host", "0.0.0.0", "--port", "0", "--power",
                               "none", "--db", "none"], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--token", done.stderr)

    def test_port_in_use(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            done = subprocess.run([harness.PROGRAM, "serve", "--port", str(taken.getsockname()[1]),
                                   "--power", "none", "--db", "none"], capture_output=True, text=True,
                                  timeout=60)
        self.assertEqual(done.returncode, 3)
        self.assertIn("in use", done.stderr)


beside.main()
