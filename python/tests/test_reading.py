"""Stored runs as rows, data frames and notebook HTML."""
import contextlib
import os
import re
import sqlite3
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree
from unittest import mock

import perjoule
from perjoule import reading
from perjoule.reading import TABLES
from support import StoredCase


class Reading(StoredCase):
    def record(self, **about):
        with self.session().run(**about) as run, run.phase("decode"):
            for i in range(3):
                with run.token(i, f"<{i}>"), run.layer(0), run.component("q_proj"):
                    time.sleep(0.003)
        return run.result

    def test_runs_are_found_newest_first(self):
        first = self.record(model_name="a", tags=["x"])
        second = self.record(model_name="b", experiment_name="e")
        runs = perjoule.open(self.db).runs()
        self.assertEqual([r.id for r in runs], [second.run_id, first.run_id])
        self.assertEqual([r.id for r in perjoule.open().runs(tag="x")], [first.run_id])
        self.assertEqual([r.id for r in perjoule.open().runs(experiment="e", model="b", limit=1)], [second.run_id])
        self.assertEqual(runs[1]["tags"], ["x"])
        self.assertIn(first.run_id, repr(runs[1]))
        database = perjoule.open(self.db)
        self.assertEqual(database.run().id, second.run_id)
        self.assertEqual(database.run(first.run_id).model_name, "a")
        with self.assertRaises(KeyError):
            database.run("zzz")
        with self.assertRaises(AttributeError):
            runs[0].nothing

    def test_a_database_that_is_not_a_file_is_refused_by_name(self):
        with self.assertRaisesRegex(ValueError, "PostgreSQL"):
            perjoule.open("postgresql:///runs")

    def test_what_is_no_database_of_ours_is_refused_by_name(self):
        text, foreign = os.path.join(self.folder, "text.db"), os.path.join(self.folder, "foreign.db")
        with open(text, "w", encoding="utf-8") as file:
            file.write("not a database, but long enough to be read as the header of one: " + "x" * 200)
        with contextlib.closing(sqlite3.connect(foreign)) as connection:
            connection.execute("CREATE TABLE other (a)")
        for path in (text, foreign, self.folder):
            with self.assertRaisesRegex(ValueError, re.escape(path) + " is not a perjoule database: "):
                perjoule.open(path)

    def test_a_run_is_named_as_the_program_names_it(self):
        for _ in range(2):
            self.record()
        database = perjoule.open(self.db)
        runs = database.runs()
        self.assertEqual([database.run(f"last~{i}").id for i in range(len(runs))], [r.id for r in runs])
        with self.assertRaisesRegex(KeyError, "last~99"):
            database.run("last~99")
        with self.assertRaisesRegex(TypeError, "by its id, not by 3"):
            database.run(3)

    def test_every_table_has_rows(self):
        self.record()
        run = perjoule.open(self.db).run()
        for table in set(TABLES) - {"sections"}:
            self.assertTrue(run.rows(table), table)
        self.assertEqual([t["text"] for t in run.rows()], ["<0>", "<1>", "<2>"])
        with self.assertRaisesRegex(ValueError, "tokens"):
            run.rows("nonsense")

    def test_components_outside_steps_are_read(self):
        """As those of a program of which only its kernels and their sections are known."""
        with self.session().run() as run, run.phase("decode"), run.section("stream 7"):
            for _ in range(2):
                with run.component("gemm"):
                    time.sleep(0.01)
        run = perjoule.open(self.db).run()
        self.assertEqual([(r["component_name"], r["position"], r["layer_index"]) for r in run.rows("components")],
                         [("gemm", None, None)] * 2)
        self.assertEqual([(r["component_name"], r["phase"], r["count"]) for r in run.rows("energy_by_component")],
                         [("gemm", "decode", 2)])
        self.assertIn(">gemm</text>", run._repr_html_())

    def test_pictures_are_whole_and_escape_what_they_show(self):
        self.record(model_name="<b>&")
        runs = perjoule.open(self.db).runs()
        for html in (runs[0]._repr_html_(), runs._repr_html_()):
            xml.etree.ElementTree.fromstring(html)
            self.assertIn("&lt;b&gt;&amp;", html)
            self.assertNotIn("http", html)
        self.assertIn("q_proj", runs[0]._repr_html_())

    def test_no_energy_without_its_interval(self):
        self.record()
        run = perjoule.open(self.db).run()
        for text in (run._repr_html_(), perjoule.open(self.db).runs()._repr_html_(), repr(run)):
            energies = re.findall(r"([^<>]*\d J\b)", text)
            self.assertTrue(energies)
            self.assertEqual([e for e in energies if "\u00b1" not in e], [])
        for table in ("tokens", "phases"):
            self.assertTrue(all(r["net_energy_sd_mj"] > 0 for r in run.rows(table)), table)
        half = perjoule.notebook.NORMAL_95 * run["total_energy_sd_mj"] / 1000
        self.assertIn(f"{run['total_energy_mj'] / 1000:.4g} \u00b1 {half:.2g} J", run._repr_html_())

    def test_results_and_windows_show_no_energy_without_its_interval(self):
        result, monitor = self.record(), perjoule.Window()
        monitor.begin_window("w")
        with perjoule.measure() as m:
            time.sleep(0.02)
        for shown in (result, m, m.result, monitor.end_window("w")):
            for text in (repr(shown), shown._repr_html_()):
                self.assertRegex(text, r"\d J\b|Energy\(mj=")
                self.assertEqual(re.findall(r"\d J\b(?! \(95 %: )", re.sub("\u00b1 [^ ]+ J", "", text)), [], text)
        self.assertRegex(repr(result), r"^<result of run .*: completed, .* J \(95 %: .*\) \(modelled\), "
                                       "per token .* \u00b1 .* J")
        unknown = perjoule.session.WindowResult(20, "unavailable", False, None, None, None)
        self.assertIn("<td>unavailable</td>", unknown._repr_html_())

    def test_without_energy_the_picture_shows_time(self):
        with self.session(power="none").run() as run, run.phase("decode"), run.token(0):
            pass
        html = perjoule.open(self.db).run()._repr_html_()
        self.assertIn("Time by phase", html)
        self.assertIn("unavailable", html)
        self.assertNotIn("0 J", html)

    def test_a_run_is_a_mapping_and_a_part_of_a_list_is_a_list_of_runs(self):
        self.record(model_name="a")
        self.record(model_name="b")
        runs = perjoule.open(self.db).runs()
        run = runs[0]
        self.assertEqual((dict(run), len(run), list(run)), (run._row, len(run.keys()), run.keys()))
        self.assertEqual(("id" in run, "other" in run, run.get("other", 5), run.get("id")), (True, False, 5, run.id))
        self.assertIsInstance(runs[:1], perjoule.reading.Runs)
        self.assertEqual([r.model_name for r in runs[:1]], ["b"])

    def test_a_run_without_tokens_is_told_from_one_without_energy(self):
        with self.session().run() as run, run.phase("decode"):
            time.sleep(0.05)
        self.assertRegex(repr(perjoule.open(self.db).run()), r"\d J>$")
        with self.session(power="none").run():
            pass
        self.assertIn("energy unavailable", repr(perjoule.open(self.db).run()))

    def test_tables_of_pandas_and_polars(self):
        self.record(tags=["mine"], settings={"one": 1})
        runs = perjoule.open(self.db).runs()
        found = 0
        for name, method in (("pandas", "to_pandas"), ("polars", "to_polars")):
            try:
                __import__(name)
            except ImportError:
                continue
            found += 1
            self.assertEqual(list(getattr(runs[0], method)()["text"]), ["<0>", "<1>", "<2>"])
            table = getattr(runs, method)()
            self.assertEqual(list(table["id"]), [runs[0].id])
            self.assertEqual(set(table.columns), set(runs[0].keys()))
            self.assertIn("mine", table["tags"][0])
            self.assertIn("one", table["settings"][0])
            # a table without rows has its columns all the same
            self.assertIn("energy_mj", getattr(runs[0], method)("sections").columns)
        if not found:
            self.skipTest("neither pandas nor polars is installed")

    @unittest.skipUnless(os.environ.get("PERJOULE_PROGRAM"), "needs the perjoule program (PERJOULE_PROGRAM)")
    def test_comparing_and_what_the_program_refuses(self):
        self.record()
        self.record()
        runs = perjoule.open(self.db).runs()
        self.assertIn(runs[0].id, str(runs[0].compare(runs[1])))
        with self.assertRaises(RuntimeError):
            perjoule.open(self.db).compare("zzz", "yyy")

    @unittest.skipUnless(os.environ.get("PERJOULE_PROGRAM"), "needs the perjoule program (PERJOULE_PROGRAM)")
    def test_runs_are_compared_by_name(self):
        self.record()
        self.record()
        database = perjoule.open(self.db)
        first, second = database.run("last~1"), database.run("last")
        self.assertEqual(perjoule.compare(first, second.id), database.compare(first, second))
        self.assertEqual(perjoule.compare("last~1", "last", database=self.db), database.compare("last~1", "last"))
        with tempfile.TemporaryDirectory() as folder:
            copy = os.path.join(folder, "copy.db")
            with contextlib.closing(sqlite3.connect(self.db)) as base, contextlib.closing(sqlite3.connect(copy)) as to:
                base.backup(to)
            other = perjoule.open(copy).run("last")
            with self.assertRaisesRegex(ValueError, "different databases"):
                perjoule.compare(first, other)

    def test_the_program_that_came_with_the_package_is_found(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"PATH": folder}):
            os.environ.pop("PERJOULE_PROGRAM", None)
            inside, info = os.path.join(folder, "bin/perjoule"), os.path.join(folder, "lib/perjoule-9.dist-info")
            for path in (os.path.dirname(inside), info):
                os.makedirs(path)
            for path, text in ((inside, "#!/bin/sh\n"), (f"{info}/METADATA", "Metadata-Version: 2.1\nName: perjoule\nVersion: 9\n"),
                               (f"{info}/RECORD", "../bin/perjoule,,\nperjoule-9.dist-info/METADATA,,\n")):
                with open(path, "w", encoding="ascii") as file:
                    file.write(text)
            with mock.patch.object(sys, "path", [os.path.join(folder, "lib"), *sys.path]):
                with self.assertRaisesRegex(FileNotFoundError, "without the perjoule program"):
                    reading.program()  # it is not executable
                os.chmod(inside, 0o755)
                self.assertEqual(os.path.realpath(reading.program()), os.path.realpath(inside))

    def test_a_missing_database_is_said(self):
        with self.assertRaisesRegex(FileNotFoundError, "no run"):
            perjoule.open("/nowhere/x.db")


if __name__ == "__main__":
    unittest.main()
