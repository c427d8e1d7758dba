"""Hostile clients against a live server: bytes that are not HTTP, mutated requests, malformed parameters and bodies,
broken handshakes and frames, readers that disconnect. The traffic is generated from a seed. PJ_HOSTILE sets the number
of requests (600), PJ_HOSTILE_SEED the seed; a run under the
address and undefined sanitizers is PJ_HOSTILE=10000 with PERJOULE naming a program built with them.
"""
import contextlib
import json
import os
import pathlib
import random
import re
import socket
import struct
import threading
import unittest

import beside
import harness

COUNT = int(os.environ.get("PJ_HOSTILE", "600"))
SEED = int(os.environ.get("PJ_HOSTILE_SEED", "1"))
THREADS = 4
# acceptable status codes; 500 would be a server bug
EXPECTED = {408, 411, 417, 501, 101, 200, 202, 204, 304, 400, 401, 403, 404, 405, 409, 413, 414, 422, 426, 429, 431, 501, 503, 505}

VALUES = ["", "0", "-1", "1", "2", "1e9", "1e400", "-0", "NaN", "inf", "99999999999999999999999", "0x10", " 1", "1 ",
          "true", "null", "last", "last~0", "last~1", "last~99999999999", "last~-1", "00000000", "*", "%", "%2", "%zz",
          "%00", "%0a", "%0d%0aSet-Cookie:x", "%ff", "%c0%af", "%e2%82", "%ed%a0%80", "%f4%90%80%80", "'", "\"", "';--",
          "%27%20OR%201=1--", "../..", "..%2f..%2f", "2001-01-01", "2026-13-45T99:99:99", "9999999999-01-01", "a" * 3000,
          "%25" * 500, "energy", "time", "attention_entropy", "decode", "asc", "date", "csv", "trace", "folded", "f32",
          "demo", "synthetic:llama-3.3-70b", "1,2", ",,,,", "last,last", "&", "=", "+", "%2b", "\x7f", "é"]
TYPES = [None, True, False, 0, -1, 1, 2, 1.5, 1e308, -1e308, 10**30, "", "x", "demo", "../etc", "\0", "\ud800", "é" * 50,
         "a" * 70000, [], {}, [1], ["x"], [[[[]]]], {"a": {"b": [1]}}, [2**31], [-1], ["a" * 400], "q4_0", "deep", "NaN"]
NAMES = ["Host", "Content-Length", "Transfer-Encoding", "Connection", "Upgrade", "Origin", "Authorization", "Expect",
         "Content-Type", "Range", "If-None-Match", "Accept-Encoding", "Cookie", "Sec-WebSocket-Key", "X", "", " ", "a b",
         "Sec-WebSocket-Version", "Sec-WebSocket-Extensions", "TE", "Trailer", "Via", "Host "]
HEADERS = ["localhost", "evil.example", "", "0", "5", "-5", "+5", "5, 5", "0x5", "18446744073709551616", "chunked", "chunked,",
           "gzip, chunked", "identity", "close", "keep-alive", "Upgrade", "websocket", "h2c", "13", "8", "null",
           "http://localhost", "Bearer x", "100-continue", "bytes=0-,0-,0-", "*", "\t", "\x01", "a" * 9000, "é", "br;q=0,*;q=1",
           "dGhlIHNhbXBsZSBub25jZQ==", "permessage-deflate", "W/\"x\""]


def bend(r, data):
    """Mutates bytes: flips, drops, repeats and inserts some."""
    data = bytearray(data)
    for _ in range(r.randrange(1, 5)):
        at = r.randrange(len(data) + 1)
        kind = r.randrange(6)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << r.randrange(8)
        elif kind == 1:
            del data[at:at + r.randrange(1, 20)]
        elif kind == 2:
            data[at:at] = data[at:at + r.randrange(1, 60)]
        elif kind == 3:
            data[at:at] = r.choice([b"\0", b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"\xff", b" ", b":", b"%"])
        elif kind == 4:
            data[at:at] = bytes([r.randrange(256)]) * r.randrange(1, 3000)
        else:
            del data[at:]
    return bytes(data)


class Client:
    def __init__(self, server, routes, seed):
        self.server, self.routes, self.r = server, routes, random.Random(seed)
        self.wrong, self.statuses, self.left_open = [], {}, []

    def head(self, method, target, *lines, host="localhost"):
        return "\r\n".join([f"{method} {target} HTTP/1.1", f"Host: {host}", *lines, "", ""]).encode("utf-8", "replace")

    def target(self):
        r = self.r
        path, names = r.choice(self.routes)
        path = path.replace("{id}", r.choice(VALUES) if r.random() < .3 else "last")
        names = [r.choice(names) if names and r.random() < .95 else r.choice(VALUES) for _ in range(r.choice([0, 0, 1, 1, 2, 4]))]
        query = "&".join(f"{n}={r.choice(VALUES)}" for n in names)
        return path + ("?" + query if query else "")

    def request(self):
        """A complete request to a real route with odd values."""
        r = self.r
        lines = [f"{r.choice(NAMES)}: {r.choice(HEADERS)}" for _ in range(r.choice([0] * 6 + [1, 3]))]
        method = r.choice(["GET"] * 12 + ["HEAD", "POST", "PATCH", "DELETE", "PUT", "OPTIONS", "TRACE", "get", "G\x01T", ""])
        return self.head(method, self.target(), *lines)

    def body(self):
        r = self.r
        known = ["model_name", "prompt", "prompt_ids", "profiling_depth", "max_length", "tags", "experiment_name", "temperature",
                 "top_k", "top_p", "seed", "batch_size", "dtype", "wait", "nonsense"]
        fields = {"prompt": "x", "max_length": 1} | {r.choice(known): r.choice(TYPES) for _ in range(r.randrange(4))}
        fields["max_length"] = 1 if isinstance(fields["max_length"], int) and fields["max_length"] > 0 else fields["max_length"]
        body = json.dumps(fields).encode()
        kind = r.randrange(8)
        if kind == 0:
            body = bend(r, body)
        elif kind == 1:
            body = r.choice([b"[", b'{"a":', b"[{", b'{"prompt":[']) * r.randrange(1, 100000)
        elif kind == 2:
            body = b'{"prompt":"' + bytes(r.randrange(256) for _ in range(300)) + b'"}'
        length = f"Content-Length: {len(body)}"
        if kind == 3:
            length = f"Content-Length: {r.choice(HEADERS)}"
        elif kind == 4:
            length = "Transfer-Encoding: chunked"
            size = r.choice([f"{len(body):x}", "ffffffffffffffff", "-1", "", "1;ext=" + "a" * 500, "g"])
            body = size.encode() + b"\r\n" + body + r.choice([b"\r\n0\r\n\r\n", b"", b"\r\n0\r\nX: y\r\n\r\n"])
        return self.head("POST", "/api/profiling/generate", length, "Content-Type: application/json") + body

    def handshake(self, query=""):
        return self.head("GET", "/ws/profiling" + query, "Connection: Upgrade", "Upgrade: websocket",
                         "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")

    def frame(self):
        r = self.r
        payload = r.choice([b"", b"x", b"\x03\xe8", b"\x00\x00", b"\xff\xfe", b"y" * 125, b"z" * 126, b"w" * 5000,
                            bytes(r.randrange(256) for _ in range(r.randrange(200)))])
        first = r.choice([0x81, 0x82, 0x01, 0x00, 0x80, 0x88, 0x89, 0x8a, 0x09, 0xc1, 0x83, 0x8f, r.randrange(256)])
        size = r.choice([len(payload)] * 6 + [0, 125, 127, 65536, 2**31, 2**63, 2**64 - 1])
        mask = 0x80 if r.random() < .85 else 0
        head = bytes([first, mask | size]) if size < 126 else \
            bytes([first, mask | 126]) + struct.pack(">H", size) if size < 65536 else \
            bytes([first, mask | 127]) + struct.pack(">Q", size)
        return head + (bytes(r.randrange(256) for _ in range(4)) if mask else b"") + payload

    def frames(self):
        query = self.r.choice(["", "?binary=1", "?from=1", "?run_id=x", "?from=99999999999999", "?binary=" + self.r.choice(VALUES)])
        data = self.handshake(query) + b"".join(self.frame() for _ in range(self.r.randrange(1, 12)))
        return bend(self.r, data) if self.r.random() < .2 else data

    def noise(self):
        r = self.r
        return bend(r, r.choice([self.request, self.body, self.handshake])()) if r.random() < .8 else \
            bytes(r.randrange(256) for _ in range(r.randrange(1, 2000)))

    def check(self, sent, got):
        if not got:
            return
        found = re.match(rb"HTTP/1\.[01] (\d{3}) ", got)
        status = int(found[1]) if found else None
        self.statuses[status] = self.statuses.get(status, 0) + 1
        if status not in EXPECTED:
            self.wrong.append((status, sent[:300], got[:300]))
        head, _, rest = got.partition(b"\r\n\r\n")
        if b"application/problem+json" in head and not sent.startswith(b"HEAD") and b"\nHTTP/1" not in rest:
            document = json.loads(rest.partition(b"HTTP/1.1 ")[0])
            if document["status"] != status or len(document["detail"]) < 10:
                self.wrong.append((status, sent[:300], rest[:300]))

    def strike(self):
        r = self.r
        sent = r.choice([self.request, self.request, self.body, self.frames, self.frames, self.noise])()
        with contextlib.ExitStack() as stack:
            s = socket.create_connection(("127.0.0.1", self.server.port))
            s.settimeout(.05 if b"websocket" in sent else 30 * harness.SLOW)
            end = r.randrange(10)
            if end == 0 and len(self.left_open) < 20:
                self.left_open.append(s)  # a truncated request, then silence
                with contextlib.suppress(OSError):
                    s.sendall(sent[:r.randrange(len(sent) + 1)])
                return
            stack.enter_context(s)
            got = b""
            with contextlib.suppress(OSError):
                s.sendall(sent)
                if end == 1:  # connection reset
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return
                s.shutdown(socket.SHUT_WR)
                while (piece := s.recv(65536)) and len(got) < 1 << 20:
                    got += piece
            self.check(sent, got)

    def run(self, count):
        try:
            for _ in range(count):
                self.strike()
        except Exception as e:  # unittest does not report exceptions in threads
            self.wrong.append(repr(e))


class Hostile(unittest.TestCase):
    def test_hostile_clients_hurt_nobody(self):
        with harness.Server("--queue", "2") as server:
            self.attack(server)
        self.assertEqual(server.process.returncode, 0)
        # No sanitizer report. On a busy machine a run may not end within the timeout for stopping.
        self.assertRegex(server.errors, r"\Aperjoule serve: stopping\n(perjoule serve: stopped at once; [^\n]*\n)?\Z")

    def attack(self, server):
        paths = server.get("/api/openapi.json").json()["paths"]
        routes = [(path, [p["name"] for o in operations.values() for p in o.get("parameters", []) if p["in"] == "query"])
                  for path, operations in paths.items()]
        routes += [("/", []), ("/index.html", []), ("/assets/x", []), ("/../../etc/passwd", []), ("//", []), ("*", [])]
        server.generate(profiling_depth="deep")
        server.generate(batch_size=2)
        sockets = self.sockets(server)
        clients = [Client(server, routes, SEED * THREADS + i) for i in range(THREADS)]
        threads = [threading.Thread(target=c.run, args=(COUNT // THREADS,)) for c in clients]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        wrong = [w for c in clients for w in c.wrong]
        self.assertFalse(wrong, "\n".join(map(str, wrong[:5])))
        statuses = {}
        for c in clients:
            for status, count in c.statuses.items():
                statuses[status] = statuses.get(status, 0) + count
            for s in c.left_open:
                s.close()
        print("answers by status:", dict(sorted(statuses.items())), flush=True)
        self.assertLessEqual({101, 200, 400, 404, 405, 422}, set(statuses))
        self.assertEqual(server.get("/healthz").json()["status"], "ok")
        server.wait_until(lambda: self.idle(server), "the queue's end", 120)
        server.wait_until(lambda: self.sockets(server) <= sockets, "sockets are closed", 60)
        self.assertEqual(server.generate(max_length=2).status, 200)

    @staticmethod
    def idle(server):
        health = server.get("/healthz").json()
        return health["status"] == "ok" and health["queue"] == 0 and health["running"] is None

    @staticmethod
    def sockets(server):
        links = []
        for f in pathlib.Path(f"/proc/{server.process.pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                links.append(os.readlink(f))
        return len([l for l in links if l.startswith("socket:")])


beside.main()
