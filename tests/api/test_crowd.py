"""More connections than the server takes: plain requests whose answers are not read, and requests whose bodies never
come, in bursts far above the limit of 1,024. It answers within a second after each, refuses with 503 what it has no
room for, and gives memory and descriptors back.
"""
import contextlib
import os
import pathlib
import resource
import socket
import sqlite3
import time
import unittest

import beside
import harness

CROWD = int(os.environ.get("PJ_CROWD", "1800"))
ROUNDS = int(os.environ.get("PJ_CROWD_ROUNDS", "2"))
PLAIN = b"GET /api/profiling/runs HTTP/1.1\r\nHost: localhost\r\n\r\n"
SLOW = b"POST /api/profiling/generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 90\r\n\r\n{"


def fill(database, count):
    """Copies of the only run, each a second older than the one before."""
    with contextlib.closing(sqlite3.connect(database)) as db, db:
        names = [row[1] for row in db.execute("PRAGMA table_info(profiling_runs)")]
        run = dict(zip(names, db.execute("SELECT * FROM profiling_runs").fetchone()))
        rows = [list((run | {"id": f"{i:08x}-0000-7000-8000-000000000000",
                             "created_ns": run["created_ns"] - (i + 1) * 10**9}).values()) for i in range(count)]
        db.executemany(f"INSERT INTO profiling_runs ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})", rows)


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

    def test_slow_readers_of_a_long_list(self):
        with harness.Server() as server:
            server.generate()
            server.stop()
            fill(server.db, 10_000)
            with harness.Server(db=server.db, folder=server.folder) as again:
                whole = again.get("/api/profiling/runs?limit=10000")
                runs = whole.json()
                self.assertEqual((whole.headers["X-Total-Count"], len(runs)), ("10001", 10_000))
                created = [r["created_at"] for r in runs]
                self.assertEqual(created, sorted(created, reverse=True))
                self.assertEqual(len({r["run_id"] for r in runs}), 10_000)
                page = again.get("/api/profiling/runs?limit=150&offset=9000")
                self.assertEqual(([r["run_id"] for r in page.json()], page.headers["X-Total-Count"]),
                                 ([r["run_id"] for r in runs[9000:9150]], "10001"))
                readers = []
                for _ in range(100):
                    s = socket.socket()
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                    s.connect(("127.0.0.1", again.port))
                    s.sendall(b"GET /api/profiling/runs?limit=10000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    readers.append(s)
                most = 0
                for _ in range(20):
                    time.sleep(0.2)
                    most = max(most, again.memory_kb())
                self.assertEqual(again.get("/api/profiling/runs?limit=5").status, 200)
                self.assertLess(most, 200_000 * harness.SLOW)
                for s in readers:
                    s.close()
                again.wait_until(lambda: self.sockets(again) <= 3, "sockets are closed")
                self.assertEqual(len(again.get("/api/profiling/runs?limit=1000").json()), 1000)

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
                    self.assertLess(time.monotonic() - begin, 15, statuses)  # before the timeout of 20 s
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
