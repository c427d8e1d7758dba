#!/usr/bin/env python3
"""A real Prometheus scrapes the server, loads the recording rules, and answers the dashboard's queries."""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

import beside
import harness

RULES = harness.SOURCE / "packaging/prometheus/perjoule.rules.yml"
DASHBOARD = harness.SOURCE / "packaging/grafana/perjoule.json"
PATIENCE_S = 45 * harness.SLOW
MISSING = "there is no Prometheus here (Debian: apt install prometheus)"


@contextlib.contextmanager
def prometheus(targets):
    """A Prometheus that scrapes and evaluates rules every second; yields a function that queries it."""
    with tempfile.TemporaryDirectory(prefix="pj-prom-") as folder:
        there = pathlib.Path(folder)
        # The shipped rules, evaluated every second instead of every half minute.
        (there / "rules.yml").write_text(RULES.read_text().replace("interval: 30s", "interval: 1s"))
        (there / "prometheus.yml").write_text(
            "global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [rules.yml]\nscrape_configs:\n"
            f"  - {{job_name: perjoule, static_configs: [{{targets: {json.dumps(targets)}}}]}}\n")
        with harness.socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        process = subprocess.Popen(
            ["prometheus", f"--config.file={there / 'prometheus.yml'}", f"--storage.tsdb.path={there / 'data'}",
             f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"], stdout=subprocess.DEVNULL,
            stderr=open(there / "log", "wb"), cwd=folder)

        def ask(path, **parameters):
            url = f"http://127.0.0.1:{port}/api/v1/{path}?" + urllib.parse.urlencode(parameters)
            try:
                with urllib.request.urlopen(url, timeout=10) as answer:
                    return json.load(answer)["data"]
            except urllib.error.HTTPError as problem:
                if problem.code == 503:  # it listens before it is ready
                    raise ConnectionError(problem) from None
                raise AssertionError(f"{parameters}: {problem.read().decode()}") from None
        try:
            yield ask, process, there / "log"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=30)


def until(condition, what):
    end = time.monotonic() + PATIENCE_S
    while True:
        with contextlib.suppress(OSError):
            if found := condition():
                return found
        if time.monotonic() > end:
            raise AssertionError(f"waited too long: {what}")
        time.sleep(0.2)


def promtool(*words, text=None):
    done = subprocess.run(["promtool", *map(str, words)], input=text, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@unittest.skipUnless(shutil.which("prometheus") and shutil.which("promtool"), MISSING)
class Prometheus(unittest.TestCase):
    def test_accepts_rules_and_exposition(self):
        code, said = promtool("check", "rules", RULES)
        self.assertEqual(code, 0, said)
        for power in ("sim:seed=3", "none"):
            with harness.Server(power=power) as server:
                code, said = promtool("check", "metrics", text=server.get("/metrics").body.decode())
                self.assertEqual(code, 0, said)

    def test_scrapes_and_evaluates(self):
        with harness.Server() as server, prometheus([f"127.0.0.1:{server.port}"]) as (ask, process, log):
            def value(expression):
                self.assertIsNone(process.poll(), log.read_text()[-500:])
                result = ask("query", query=expression)["result"]
                return float(result[0]["value"][1]) if result else None
            # increase() includes the first run's energy, because its series already existed, at 0.
            until(lambda: value('perjoule_runs_total{status="completed"}') == 0, "a first scrape")
            run = server.generate(max_length=32).json()
            until(lambda: value('perjoule_runs_total{status="completed"}') == 1, "a scrape after the run")
            until(lambda: value('increase(perjoule_runs_total{status="completed"}[1m])'), "the increase by the run")
            for rule in ("perjoule:rail_power_watts:rate1m", "perjoule:machine_power_watts:rate1m",
                         "perjoule:machine_joules:increase1h", "perjoule:joules_per_output_token:rate5m"):
                until(lambda rule=rule: (value(rule) or 0) > 0, rule)
            self.assertGreater(run["total_energy_mj"], 0)
            rules = [rule for group in ask("rules")["groups"] for rule in group["rules"]]
            self.assertEqual([rule for rule in rules if rule.get("lastError")], [])
            self.assertGreaterEqual(len(rules), 10)
            for panel in json.loads(DASHBOARD.read_text())["panels"]:
                for target in panel["targets"]:
                    expression = target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*")
                    self.assertTrue(ask("query", query=expression)["result"], (panel["title"], expression))


beside.main()
