"""More connections than the server takes: plain requests whose answers are not read, and requests whose bodies never
come, in bursts far above the limit of 1,024. It answers within a second after each, refuses with 503 what it has no
room for, and gives memory and descriptors back.
"""
import contextlib
import os
import pathlib
import resource
import socket
import time
import unittest

import beside
import harness

CROWD = int(os.environ.get("PJ_CROWD", "1800"))
ROUNDS = int(os.environ.get("PJ_CROWD_ROUNDS", "2"))
PLAIN = b"GET /api/profiling/runs HTTP/1.1\r\nHost: localhost\r\n\r\n"
SLOW = b"POST /api/profiling/generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 90\r\n\r\n{"


class Crowd(unittest.TestCase):
    def burst(self, server, request, open_sockets):
        """Opens the crowd; the statuses of those that were answered within a second."""
        for _ in range(CROWD):
            with contextlib.suppress(ConnectionError, TimeoutError):
                s = socket.create_connection(("127.0.0.1", server.port), timeout=5)
                open_sockets.append(s)
                s.sendall(request)
        time.sleep(1)
        statuses = {}
        for s in open_sockets:
            s.setblocking(False)
            with contextlib.suppress(OSError):
                status = s.recv(64).split(b" ")[1:2]
                statuses[status[0] if status else b"closed"] = statuses.get(status[0] if status else b"closed", 0) + 1
        return statuses

    @staticmethod
    def sockets(server):
        names = []
        for f in pathlib.Path(f"/proc/{server.process.pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                names.append(os.readlink(f))
        return sum(name.startswith("socket:") for name in names)

    def test_answers_after_every_burst(self):
        with harness.Server() as server:
            self.assertEqual(server.get("/healthz").status, 200)
            before = self.sockets(server)
            for _ in range(ROUNDS):
                for request in (PLAIN, SLOW):
                    sockets = []
                    statuses = self.burst(server, request, sockets)
                    for s in sockets:
                        s.close()
                    begin = time.monotonic()
                    self.assertEqual(server.get("/healthz").status, 200)
                    self.assertLess(time.monotonic() - begin, harness.SLOW * 2, statuses)
                    self.assertLessEqual(set(statuses), {b"200", b"408", b"503", b"closed"}, statuses)
            server.wait_until(lambda: self.sockets(server) <= before, "sockets are closed", 30)
            self.assertLess(server.memory_kb(), 120_000)


if __name__ == "__main__":
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = CROWD + 200
    if hard != resource.RLIM_INFINITY and hard < needed:
        print(f"skipped: at most {hard} descriptors, and {needed} are needed")
        raise SystemExit(77)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    beside.main()
