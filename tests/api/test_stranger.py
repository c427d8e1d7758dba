"""Databases from elsewhere: what they contain can neither change what is stored nor act on a terminal."""
import contextlib
import io
import json
import os
import shutil
import sqlite3
import subprocess
import tempfile
import unittest
import zipfile

import beside
import harness

TITLE = "\033]0;owned\a\033[2J\033[31m\033[1;7m\033[0m\u009b31m\u202e\u2066"


class Stranger(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="perjoule-stranger-")
        cls.made = os.path.join(cls.folder, "made.db")
        cls("run_demo").run_demo(cls.made)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def setUp(self):
        self.copy()

    def copy(self):
        """A fresh copy, without the log of another one beside it."""
        self.db = os.path.join(tempfile.mkdtemp(dir=self.folder), "runs.db")
        shutil.copy(self.made, self.db)

    def perjoule(self, *words, code=0, binary=False, **more):
        env = {**os.environ, "HOME": self.folder, "XDG_DATA_HOME": self.folder, "PERJOULE_BASELINE": "0.2", **more}
        done = subprocess.run([harness.PROGRAM, *words], capture_output=True, timeout=120 * harness.SLOW, env=env,
                              check=False)
        out, err = (text if binary else text.decode() for text in (done.stdout, done.stderr))
        if done.returncode != code:
            raise AssertionError(f"{words}: {done.returncode}, not {code}: {out}{err}")
        return out, err

    def run_demo(self, db, code=0):
        model = str(harness.MODELS / "demo")
        return self.perjoule("run", "-m", model, "-n", "4", "--power", "sim", "--db", db, "Hi", code=code)

    def change(self, *statements):
        base = sqlite3.connect(self.db)
        for statement, *values in statements:
            base.execute(statement, values)
        base.commit()
        base.close()

    def test_triggers_and_views_are_refused_by_name(self):
        for statement, named in (
                ("CREATE TRIGGER hush BEFORE INSERT ON profiling_runs BEGIN SELECT RAISE(IGNORE); END", "trigger hush"),
                ("CREATE VIEW endless AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT * FROM n",
                 "view endless")):
            self.copy()
            self.change((statement,))
            for words in (("ls",), ("check",), ("rm", "last", "--yes")):
                _, err = self.perjoule(*words, "--db", self.db, code=2)
                self.assertIn(f"contains the {named}, which is not perjoule's", err)
            _, err = self.run_demo(self.db, code=2)
            self.assertIn(named, err)

    def test_a_trigger_with_one_of_our_names_loses_nothing_silently(self):
        self.change(("DROP TRIGGER run_is_deleted",),
                    ("CREATE TRIGGER run_is_deleted BEFORE DELETE ON profiling_runs BEGIN SELECT RAISE(IGNORE); END",))
        _, err = self.perjoule("rm", "last", "--yes", "--db", self.db, code=1)
        self.assertIn("did not delete run", err)
        self.change(("DROP TRIGGER run_is_deleted",),
                    ("CREATE TRIGGER run_is_deleted BEFORE INSERT ON profiling_runs BEGIN SELECT RAISE(IGNORE); END",))
        _, err = self.run_demo(self.db, code=1)
        self.assertIn("did not take run", err)

    def test_a_huge_value_is_refused(self):
        self.change(("UPDATE profiling_runs SET model_name = CAST(zeroblob(170000000) AS TEXT)",))
        _, err = self.perjoule("ls", "--db", self.db, code=2)
        self.assertIn("holds a value of more than 160 MB", err)

    def test_a_run_with_an_invalid_value_is_named_and_can_be_deleted(self):
        self.run_demo(self.db)
        whole = json.loads(self.perjoule("ls", "--json", "--db", self.db)[0])
        bad = whole[1]["id"]
        for column, value in (("created_ns", "yesterday"), ("status", "fine"), ("total_energy_mj", "abc"), ("energy_source", 7),
                              ("settings", '{"a":'), ("conditions", '{"a": "\n"}'), ("model", "1, 2")):
            with contextlib.closing(sqlite3.connect(self.db)) as base:
                before = base.execute(f"SELECT {column} FROM profiling_runs WHERE id = ?", (bad,)).fetchone()[0]
            self.change((f"UPDATE profiling_runs SET {column} = ? WHERE id = ?", value, bad))
            for words, code in ((("ls",), 2), (("table",), 2), (("check",), 1), (("check", bad), 1)):
                out, err = self.perjoule(*words, "--db", self.db, code=code)
                self.assertRegex((out + err).replace("\n", " "), rf"profiling_runs\.{column} of run {bad} is invalid; perjoule rm")
            self.change((f"UPDATE profiling_runs SET {column} = ? WHERE id = ?", before, bad))
        self.change(("UPDATE profiling_runs SET created_ns = 'x' WHERE id = ?", bad))
        self.perjoule("rm", "--yes", bad, "--db", self.db)
        self.assertEqual([r["id"] for r in json.loads(self.perjoule("ls", "--json", "--db", self.db)[0])], [whole[0]["id"]])
        self.assertEqual(self.perjoule("check", "--db", self.db)[1], "")

    def test_values_of_every_table_are_checked(self):
        for table, column in (("tokens", "phase"), ("power_samples", "timestamp_ms"), ("component_metrics", "energy_mj"),
                              ("pipeline_sections", "start_ms"), ("layer_metrics", "layer_index")):
            self.copy()
            self.change((f"UPDATE {table} SET {column} = X'00FF'",))
            out, _ = self.perjoule("check", "--db", self.db, code=1)
            self.assertRegex(out, rf"(?s)integrity +\d+ findings?; .*{table}\.{column}")

    def test_a_long_wait_is_said(self):
        base = sqlite3.connect(self.db, isolation_level=None)
        base.execute("BEGIN IMMEDIATE")
        with subprocess.Popen([harness.PROGRAM, "rm", "last", "--yes", "--db", self.db], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as waiting:
            self.assertIn("waiting for another process that has locked database", waiting.stderr.readline())
            base.execute("ROLLBACK")
            _, err = waiting.communicate(timeout=60 * harness.SLOW)
        base.close()
        self.assertEqual((waiting.returncode, err), (0, ""))

    def test_a_database_in_memory_is_refused(self):
        _, err = self.run_demo(":memory:", code=2)
        self.assertIn("keeps nothing", err)

    def test_none_is_no_file(self):
        model, none = str(harness.MODELS / "demo"), {"PERJOULE_DB": "none"}
        for words in (("ls",), ("check",), ("show", "last"), ("predict", "-m", model, "--input", "2", "--output", "2"),
                      ("idle",)):
            _, err = self.perjoule(*words, code=2, **none)
            self.assertIn("the database is none", err, words)
        self.perjoule("experiment", "--models", model, "--outputs", "1", "--name", "e", code=2, **none)
        self.perjoule("run", "-m", model, "-n", "1", "--power", "none", "Hi", **none)
        self.assertFalse(os.path.exists("none"))

    def test_texts_cannot_act_on_a_terminal(self):
        self.run_demo(self.db)  # a second one, to compare
        self.change(("UPDATE profiling_runs SET model_name = ?, engine = ?, failure = ?, machine = ?",
                     *[f"m{TITLE}"] * 4),
                    ("UPDATE component_metrics SET component_name = ?", f"c{TITLE}"),
                    ("UPDATE profiling_runs SET isa = ?, power_sources = ?", *[f"x{TITLE}\nrm -rf x"] * 2),
                    ("UPDATE profiling_runs SET settings = ?, model = ?, conditions = ?, devices = ?",
                     *['{"a": "\x9b31m\u202e"}'] * 4), ("UPDATE run_texts SET machine_info = ?", '"\x9b31m\u202e"'))
        for words in (("show", "last"), ("show", "last", "--tokens"), ("show", "last", "--advice"), ("check",), ("ls",), ("compare", "last~1", "last"),
                      ("machines",), ("ls", "--json"), ("show", "last", "--json"), ("export", "last", "-o", "-"),
                      ("export", "last", "--format", "folded", "-o", "-"),
                      ("report", "last", "--format", "md", "-o", "-")):
            done = subprocess.run([harness.PROGRAM, *words, "--db", self.db], capture_output=True,
                                  timeout=120 * harness.SLOW, check=False)
            text = (done.stdout + done.stderr).decode()
            self.assertNotRegex(text, "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", words)
        # The commands of a report are copied: a text within them does not begin another.
        commands = text.partition("## How to repeat")[2].splitlines()
        self.assertEqual([line for line in commands if line.strip() and not line.startswith(("    perjoule ", "    # "))], [])
        for colour in ("never", "always"):  # styles are for our own words
            out, _ = self.perjoule("show", "last", "--color", colour, "--db", self.db)
            self.assertIn("m\ufffd]0;owned\ufffd\ufffd[2J\ufffd[31m\ufffd[1;7m\ufffd[0m\ufffd31m", out)
            self.assertEqual("\033[1m" in out, colour == "always")

    def test_names_cannot_be_styles(self):
        model = str(harness.MODELS / "demo")
        plan = ("experiment", "--models", model, "--outputs", "2", "--repeat", "1", "--cool-down", "0", "--power", "sim",
                "--db", self.db, "--name", "e\033[31m\033[7m")
        for colour in ("never", "always"):
            out, err = self.perjoule(*plan, "--color", colour)
            self.assertIn("e\ufffd[31m\ufffd[7m", out)
            self.assertNotRegex(out + err, "\033\\[(31|7)m")

    def test_cells_cannot_be_formulas(self):
        for text in ("\n=1", "\u00a0=1", "\uff1d1", "=1"):
            self.change(("UPDATE profiling_runs SET model_name = ?", text))
            out, _ = self.perjoule("export", "last", "--format", "csv", "-o", "-", "--db", self.db, binary=True)
            files = zipfile.ZipFile(io.BytesIO(out))
            whole = b"".join(files.read(name) for name in files.namelist())
            self.assertTrue(("'" + text).encode() in whole, text)


beside.main()
