"""The always-on meter: every series from the first scrape on, joules with and without a run."""
import re
import time
import unittest

import beside
import harness


def scrape(server):
    lines = server.get("/metrics").body.decode().splitlines()
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if line[0] != "#"}


def joules(series):
    return sum(v for k, v in series.items() if k.startswith("perjoule_rail_joules_total"))


class Meter(unittest.TestCase):
    def test_series_are_there_from_the_start_and_stay(self):
        for power in ("sim:seed=3", "none"):
            with harness.Server(power=power) as server:
                before = scrape(server)
                for name, value in before.items():
                    if re.match("perjoule_(energy_joules|tokens|runs|run_seconds)_", name):
                        self.assertEqual(value, 0, name)
                self.assertEqual(any("rail=" in name for name in before), power != "none")
                self.assertTrue(server.generate(wait=False).json()["run_id"])
                during = set()
                while True:
                    series = scrape(server)
                    during |= set(series)
                    if series['perjoule_runs_total{status="completed"}'] == 1:
                        break
                self.assertEqual(during, set(before))
                self.assertGreater(series['perjoule_tokens_total{kind="output"}'], 0)
                energy = [k for k in series if k.startswith("perjoule_energy") and series[k] > 0]
                self.assertEqual(bool(energy), power != "none")

    def test_counts_without_a_run_and_through_one(self):
        with harness.Server() as server:
            server.wait_until(lambda: joules(scrape(server)) > 0, "a first joule")
            started, first = time.monotonic(), joules(scrape(server))
            server.wait_until(lambda: joules(scrape(server)) > first + 15, "10 W for 1.5 s")
            idle_s = time.monotonic() - started
            self.assertGreater(idle_s, 0.5)  # nor may it count too much
            last = joules(scrape(server))
            for _ in range(3):
                run = server.generate(max_length=32).json()
                now = joules(scrape(server))
                self.assertGreaterEqual(now, last)
                last = now
            self.assertGreater(run["total_energy_mj"], 0)
            watts = (last - first) / (time.monotonic() - started)
            self.assertGreater(watts, 4)
            server.wait_until(lambda: joules(scrape(server)) > last, "it continues after a run")

    def test_power_now(self):
        with harness.Server() as server:
            def rail():
                return server.get("/api/profiling/power/now?seconds=5").json()["rails"][0]
            server.wait_until(lambda: sum(p is not None for p in rail()["power_mw"]) >= 2, "two seconds")
            found = rail()
            self.assertEqual((found["name"], found["source"], found["quality"]), ("cpu", "sim", "modelled"))
            self.assertEqual(len(found["power_mw"]), 5)
            for power in [found["now_mw"], *filter(None, found["power_mw"])]:
                self.assertAlmostEqual(power, 10000, delta=500)
            server.generate(max_length=16)
            found = rail()
            self.assertGreater(found["energy_mj"], 10000)
            end = server.get("/api/profiling/power/now").json()
            self.assertLess(abs(end["end_unix_ms"] / 1e3 - time.time()), 5)
            self.assertEqual((end["seconds"], len(end["rails"][0]["power_mw"])), (60, 60))
            self.assertEqual(server.get("/api/profiling/power/now?seconds=0").status, 400)
        with harness.Server(power="none") as server:
            self.assertEqual(server.get("/api/profiling/power/now").json()["rails"], [])


beside.main()
