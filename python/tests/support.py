"""Shared by the tests: a temporary database, and access to the rows of a stored run."""
import os
import sqlite3
import tempfile
import threading
import unittest
import warnings

import perjoule
from perjoule import session as session_module
from perjoule import window as window_module

SIM = "sim:seed=7"


def in_threads(*bodies):
    """Runs the bodies at the same time; raises the first error of any."""
    errors, start = [], threading.Barrier(len(bodies))

    def go(body):
        try:
            start.wait()
            body()
        except BaseException as e:
            errors.append(e)
    threads = [threading.Thread(target=go, args=[body]) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


class StoredCase(unittest.TestCase):
    """A test case with a temporary folder that holds PERJOULE_DB."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.db = os.path.join(folder.name, "runs.db")
        environment = {"PERJOULE_DB": self.db, "PERJOULE_POWER": SIM}
        before = {name: os.environ.get(name) for name in environment}
        os.environ.update(environment)

        def restore():
            for name, value in before.items():
                os.environ.pop(name, None) if value is None else os.environ.update({name: value})

        self.addCleanup(restore)
        self.addCleanup(session_module._close_default)
        self.addCleanup(window_module._shared.close)

    def session(self, **options):
        options.setdefault("baseline_seconds", 0.05)
        session = perjoule.Session(**options)
        self.addCleanup(session.close)
        return session

    def rows(self, query, *values):
        connection = sqlite3.connect(self.db)
        connection.row_factory = sqlite3.Row
        try:
            return [dict(row) for row in connection.execute(query, values)]
        finally:
            connection.close()

    def check_decode_has_its_tokens(self, result):
        tokens_ms = self.rows("SELECT sum(duration_ms) AS ms FROM tokens WHERE run_id = ? AND phase = 'decode'",
                              result.run_id)[0]["ms"]
        self.assertGreater(tokens_ms, 0)
        self.assertGreaterEqual(result.phases["decode"].duration_ms, tokens_ms * (1 - 1e-9))

    def components(self, run_id, position=None):
        """Unique (layer, component) pairs of a run in chronological order."""
        query = """SELECT l.layer_index, c.component_name, min(c.start_ms) AS begin FROM component_metrics c
            JOIN layer_metrics l ON l.id = c.layer_metric_id JOIN tokens t ON t.id = l.token_id
            WHERE t.run_id = ? AND (? IS NULL OR t.position = ?) GROUP BY 1, 2 ORDER BY begin"""
        return [(r["layer_index"], r["component_name"]) for r in self.rows(query, run_id, position, position)]


def recorded_warnings(test):
    """Collects all warnings until the test ends, and resets the package's warn-once flag."""
    catcher = warnings.catch_warnings(record=True)
    caught = catcher.__enter__()
    test.addCleanup(catcher.__exit__, None, None, None)
    warnings.simplefilter("always")
    session_module._warned = False
    return caught
