"""Stored runs as rows, tables and pictures."""
import os
import time
import unittest
import xml.etree.ElementTree

import perjoule
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

    def test_every_table_has_rows(self):
        self.record()
        run = perjoule.open(self.db).run()
        for table in set(TABLES) - {"sections"}:
            self.assertTrue(run.rows(table), table)
        self.assertEqual([t["text"] for t in run.rows()], ["<0>", "<1>", "<2>"])
        with self.assertRaisesRegex(ValueError, "tokens"):
            run.rows("nonsense")

    def test_pictures_are_whole_and_escape_what_they_show(self):
        self.record(model_name="<b>&")
        runs = perjoule.open(self.db).runs()
        for html in (runs[0]._repr_html_(), runs._repr_html_()):
            xml.etree.ElementTree.fromstring(html)
            self.assertIn("&lt;b&gt;&amp;", html)
            self.assertNotIn("http", html)
        self.assertIn("q_proj", runs[0]._repr_html_())

    def test_without_energy_the_picture_shows_time(self):
        with self.session(power="none").run() as run, run.phase("decode"), run.token(0):
            pass
        html = perjoule.open(self.db).run()._repr_html_()
        self.assertIn("Time by phase", html)
        self.assertIn("unavailable", html)
        self.assertNotIn("0 J", html)

    def test_tables_of_pandas_and_polars(self):
        self.record()
        runs = perjoule.open(self.db).runs()
        found = 0
        for name, method in (("pandas", "to_pandas"), ("polars", "to_polars")):
            try:
                __import__(name)
            except ImportError:
                continue
            found += 1
            self.assertEqual(list(getattr(runs[0], method)()["text"]), ["<0>", "<1>", "<2>"])
            self.assertEqual(list(getattr(runs, method)()["id"]), [runs[0].id])
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

    def test_a_missing_database_is_said(self):
        with self.assertRaisesRegex(FileNotFoundError, "no run"):
            perjoule.open("/nowhere/x.db")


if __name__ == "__main__":
    unittest.main()
