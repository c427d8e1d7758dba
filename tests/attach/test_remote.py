"""Rails of another machine: `--power perjoule:http://HOST:PORT` reads a perjoule server's."""
import json
import os
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time
import unittest
from multiprocessing.pool import ThreadPool

import beside
from engine import Engine

PERJOULE = os.environ["PERJOULE"]
RAIL = {"name": "gpu0", "source": "nvml", "class": "gpu", "scope": "board", "quality": "measured"}


class Lender(Engine):
    """A fake perjoule server whose wall clock is a day ahead; 50 W in even seconds, 150 W in odd ones."""

    def __init__(self, token=None):
        super().__init__(self.lend)
        self.token = token

    def lend(self, request, send):
        if self.token and request["headers"].get("authorization") != "Bearer " + self.token:
            return self.whole(send, {"title": "Unauthorized"}, "401 Unauthorized")
        end = int(time.time()) + 86400
        power = [150000.0 if second % 2 else 50000.0 for second in range(end - 8, end)]
        return self.whole(send, {"end_unix_ms": end * 1000, "step_ms": 1000, "seconds": 8, "remedy": None,
                                 "rails": [{**RAIL, "power_mw": power, "now_mw": 1e5, "energy_mj": 1.0}]})


class Sixth(Lender):
    """The same at an address of IPv6."""

    def __init__(self):
        super().__init__()
        self.close()
        self.socket = socket.create_server(("::1", 0), family=socket.AF_INET6)
        self.url = f"http://[::1]:{self.socket.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()


class Remote(unittest.TestCase):
    def attach(self, engine, power, *words, db="none"):
        return subprocess.run([PERJOULE, "attach", "--url", engine.url + "/v1", "--power", power, "--db", db, *words],
                              capture_output=True, text=True, timeout=120, check=False)

    def test_a_run_gets_the_other_machines_energy(self):
        engine = Engine()
        engine.tokens, engine.pause = 80, 0.1
        lender = Lender()
        with tempfile.TemporaryDirectory() as folder:
            db = os.path.join(folder, "r.db")
            got = self.attach(engine, f"perjoule:{lender.url}", "Hi", db=db)
            self.assertEqual(got.returncode, 0, got.stderr)
            with sqlite3.connect(db) as base:
                run = base.execute("SELECT total_energy_mj, total_energy_sd_mj, total_duration_ms, energy_source,"
                                   " power_sources FROM profiling_runs").fetchone()
        self.assertEqual(run[3:], ("measured", "perjoule"))
        mean = run[0] / run[2]  # watts
        self.assertLess(abs(mean - 100), 3 * run[1] / run[2] + 15)

    def test_a_token(self):
        engine, lender = Engine(), Lender("secret")
        refused = self.attach(engine, f"perjoule:{lender.url}", "Hi")
        self.assertEqual(refused.returncode, 3)
        self.assertIn("requires a token", refused.stderr)
        self.assertEqual(self.attach(engine, f"perjoule:{lender.url},token=secret", "Hi").returncode, 0)

    def test_an_address_of_ipv6(self):
        try:
            lender = Sixth()
        except OSError as error:
            self.skipTest(f"no IPv6: {error}")
        self.assertEqual(self.attach(Engine(), f"perjoule:{lender.url}", "Hi").returncode, 0)
        self.assertEqual(self.attach(Engine(), f"perjoule:{lender.url[:-2]}x", "Hi").returncode, 2)

    def test_secrets_are_not_kept(self):
        engine, lender = Engine(), Lender("s3cret")
        power = f"perjoule:{lender.url},token=s3cret"
        with tempfile.TemporaryDirectory() as folder:
            db = os.path.join(folder, "r.db")
            making = subprocess.Popen([PERJOULE, "run", "-m", "synthetic:smollm2-135m,layers=1", "--ids", "1,2", "-n",
                                       "2", "--power", power, "--db", db], stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True)
            got = self.attach(engine, power, "--header", "Authorization: Bearer s3cret", "Hi", db=db)
            self.assertEqual(got.returncode, 0, got.stderr)
            made = making.communicate(timeout=120)
            self.assertEqual(making.returncode, 0, made)
            for root, _, names in os.walk(folder):
                for name in names:
                    with open(os.path.join(root, name), "rb") as file:
                        self.assertNotIn(b"s3cret", file.read(), name)
            self.assertNotIn("s3cret", got.stdout + got.stderr + "".join(made))

    def test_hostile_answers(self):
        rail = {**RAIL, "power_mw": [1e5] * 8, "now_mw": 1e5, "energy_mj": 1.0}
        whole = {"end_unix_ms": time.time() * 1000 // 1000 * 1000, "step_ms": 1000, "seconds": 8, "rails": [rail]}
        bad = [{**whole, "end_unix_ms": end} for end in (1e300, -1e300, 9.2e18, 0, "now")]
        bad += [{**whole, "rails": rails} for rails in
                (None, [None, {**rail, "name": ""}, {**rail, "class": 7}], [{**rail, "power_mw": {"a": 1}}],
                 [{**rail, "power_mw": [-1e308, "x", None, 1e308, [[]], True, 2, 3]}], [rail] * 300)]
        bad += [[]]
        engine = Engine()

        def try_one(answer):
            lender = Engine(lambda request, send: engine.whole(send, answer))
            return self.attach(engine, f"perjoule:{lender.url}", "Hi")

        with ThreadPool(len(bad)) as pool:  # run in parallel: each mostly waits for readings that never come
            for answer, got in zip(bad, pool.map(try_one, bad)):
                self.assertIn(got.returncode, (0, 3), (answer, got.stderr))
                self.assertNotIn("runtime error", got.stderr)

    def test_what_is_no_server(self):
        engine = Engine()
        for power, code, words in (("perjoule:gpu-box", 2, "is not a server address"),
                                   (f"perjoule:{engine.url}", 3, "no perjoule server answers"),
                                   ("perjoule:http://127.0.0.1:1", 3, "no perjoule server answers"),
                                   (f"perjoule:{engine.url},key=1", 2, "unknown setting")):
            got = self.attach(engine, power, "Hi")
            self.assertEqual(got.returncode, code, got.stderr)
            self.assertIn(words, got.stderr)


if __name__ == "__main__":
    beside.main()
