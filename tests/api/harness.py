"""Shared by the API tests: a real server on a free port with its own database, plain HTTP, raw
sockets, and a WebSocket reader of thirty lines. Standard library only.
"""
import base64
import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

PROGRAM = os.environ["PERJOULE"]
SOURCE = pathlib.Path(__file__).resolve().parents[2]
MODELS = SOURCE / "models"
SLOW = int(os.environ.get("PJ_TEST_SLOWNESS", "1"))  # slower under sanitizers


def loopback_name():
    """"localhost", or its address on a machine without /etc/hosts."""
    try:
        socket.getaddrinfo("localhost", 80)
        return "localhost"
    except OSError:
        return "127.0.0.1"


NAME = loopback_name()


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)


class Server:
    """`perjoule serve` with simulated sensors. Terminated by SIGTERM when the test ends."""

    def __init__(self, *options, db=None, folder=None, power="sim:seed=3", environment=None):
        self.folder = folder or tempfile.mkdtemp(prefix="perjoule-api-")
        self.db = db or os.path.join(self.folder, "runs.db")
        env = {k: v for k, v in os.environ.items() if not k.startswith("PERJOULE")}
        env |= {"HOME": self.folder, "XDG_DATA_HOME": self.folder, "XDG_CACHE_HOME": self.folder,
                "PERJOULE_BASELINE": "0.2", **(environment or {})}
        self.process = subprocess.Popen(
            [PROGRAM, "serve", "--port", "0", "--db", self.db, "--models", str(MODELS), "--power", power,
             *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
        line = self.process.stdout.readline()
        found = re.search(r"http://\S+:(\d+)/", line)
        if not found:
            raise RuntimeError(f"the server did not start: {line}{self.process.stderr.read()}")
        self.port = int(found[1])
        self.url = f"http://{NAME}:{self.port}"
        self.ending = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def end(self):
        """Sends SIGTERM, once: a second one would end it without cleanup."""
        if not self.ending and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.ending = True

    def stop(self):
        """Sends SIGTERM and waits; returns the exit code."""
        self.end()
        try:
            _, self.errors = self.process.communicate(timeout=60 * SLOW)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        return self.process.returncode

    def ask(self, method, path, body=None, headers=None):
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method,
                                         headers=headers or {})
        try:
            with urllib.request.urlopen(request, timeout=120 * SLOW) as r:
                return Answer(r.status, r.headers, r.read())
        except urllib.error.HTTPError as e:
            return Answer(e.code, e.headers, e.read())

    def get(self, path, **headers):
        return self.ask("GET", path, headers=headers)

    def generate(self, **fields):
        return self.ask("POST", "/api/profiling/generate",
                        {"prompt": "Once upon a time", "max_length": 8} | fields)

    def wait_until(self, condition, what, seconds=180):  # only against hanging
        end = time.monotonic() + seconds * SLOW
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f"waited too long: {what}")
            time.sleep(0.02)

    def raw(self, data, timeout=30):
        """Sends bytes and reads until the server closes the connection (or has answered and waits)."""
        with socket.create_connection(("127.0.0.1", self.port)) as s:
            s.settimeout(timeout * SLOW)
            with contextlib.suppress(OSError):
                s.sendall(data)
                s.shutdown(socket.SHUT_WR)
            got = b""
            with contextlib.suppress(OSError):
                while piece := s.recv(65536):
                    got += piece
            return got

    def raw_status(self, data):
        got = self.raw(data)
        return int(got.split(b" ", 2)[1]) if got.startswith(b"HTTP/") else None

    def memory_kb(self):
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", text)[1])


class Closed(Exception):
    def __init__(self, code):
        super().__init__(f"closed with {code}")
        self.code = code


class Socket:
    """A WebSocket reader."""

    def __init__(self, port, query="", headers=None, receive_buffer=None):
        self.s = socket.socket()
        if receive_buffer:
            self.s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.s.connect(("127.0.0.1", port))
        self.s.settimeout(60 * SLOW)
        key = base64.b64encode(os.urandom(16)).decode()
        lines = {"Host": f"{NAME}:{port}", "Connection": "Upgrade", "Upgrade": "websocket",
                 "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key} | (headers or {})
        head = f"GET /ws/profiling{query} HTTP/1.1\r\n"
        self.s.sendall((head + "".join(f"{k}: {v}\r\n" for k, v in lines.items()) + "\r\n").encode())
        self.buffer = b""
        while b"\r\n\r\n" not in self.buffer:
            piece = self.s.recv(65536)
            if not piece:
                break
            self.buffer += piece
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        self.status = int(head.split(b" ")[1]) if head else None
        self.head = head.decode("latin-1")
        # The server answers before it admits the reader; what it publishes in between is not sent.
        # The greeting says that the reader is admitted.
        if self.status == 101:
            self.buffer = self._take(1) + self.buffer

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.s.close()

    def _take(self, n):
        while len(self.buffer) < n:
            piece = self.s.recv(65536)
            if not piece:
                raise EOFError
            self.buffer += piece
        taken, self.buffer = self.buffer[:n], self.buffer[n:]
        return taken

    def frame(self):
        """(opcode, payload) of the next frame; pings are answered."""
        while True:
            head = self._take(2)
            size = head[1] & 127
            if size == 126:
                size = struct.unpack(">H", self._take(2))[0]
            elif size == 127:
                size = struct.unpack(">Q", self._take(8))[0]
            payload = self._take(size)
            opcode = head[0] & 15
            if opcode == 9:
                self.send(10, payload)
            else:
                return opcode, payload

    def send(self, opcode, payload=b"", mask=True):
        size = len(payload)
        head = bytes([0x80 | opcode])
        flag = 0x80 if mask else 0
        if size < 126:
            head += bytes([flag | size])
        elif size < 65536:
            head += bytes([flag | 126]) + struct.pack(">H", size)
        else:
            head += bytes([flag | 127]) + struct.pack(">Q", size)
        if mask:
            head += b"\0\0\0\0"
        self.s.sendall(head + payload)

    def message(self):
        """The next JSON message as a dict, or a binary one as bytes; Closed at the end."""
        opcode, payload = self.frame()
        if opcode == 8:
            raise Closed(struct.unpack(">H", payload[:2])[0] if len(payload) >= 2 else None)
        return json.loads(payload) if opcode == 1 else payload

    def until(self, kind, run_id=None):
        """All messages up to and including the first of that type (and run)."""
        got = []
        while True:
            got.append(self.message())
            m = got[-1]
            if isinstance(m, dict) and m["type"] == kind and run_id in (None, m["run_id"]):
                return got
