"""What the documents show runs as it is written, on a machine without a sensor: unavailable is None, not an error."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import warnings

import perjoule
from support import StoredCase

ROOT = pathlib.Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)


def snippets(name, containing):
    return [text for text in FENCE.findall((ROOT / name).read_text(encoding="utf-8")) if containing in text]


@unittest.skipUnless((ROOT / "docs/python.md").exists(), "needs the source tree")
class Snippets(StoredCase):
    def setUp(self):
        super().setUp()
        os.environ["PERJOULE_POWER"] = "none"
        warnings.simplefilter("ignore")
        self.addCleanup(warnings.resetwarnings)

    def run_all(self, name, containing, **names):
        found = snippets(name, containing)
        self.assertGreater(len(found), 0, f"{name} shows no {containing}")
        for text in found:
            text = text.replace(".html", ".md")  # HTML needs a program with the dashboard
            exec(compile("import perjoule\n" + text, name, "exec"), {"work": lambda: None, **names})

    def test_measuring(self):
        self.run_all("docs/python.md", "perjoule.measure(")
        self.run_all("python/README.md", "perjoule.measure(")

    def test_reading(self):
        try:
            import pandas  # noqa: F401
            import polars  # noqa: F401
        except ImportError:
            self.skipTest("needs pandas and polars")
        for _ in range(2):
            with self.session().run(model_name="toy", tags=["mine"]) as run:
                run.set_tokens(1, 1)
        os.chdir(self.folder)
        other = perjoule.open().run("last~1")
        self.run_all("docs/python.md", "perjoule.open()                     # or a path", other=other)
        self.assertTrue(os.path.exists("run.md"))

    def test_the_fixture_of_pytest(self):
        try:
            import pytest  # noqa: F401
        except ImportError:
            self.skipTest("needs pytest")
        shown, = snippets("docs/python.md", "perjoule_measure")
        more = ("def answer(): __import__('time').sleep(0.05)\n"
                "def test_too_much(perjoule_measure):\n    with perjoule_measure('much', max_joules=1e-9):\n        answer()\n")
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "test_it.py").write_text(shown + more)
            said = {}
            for power in ("none", "sim:seed=3,period_ms=2"):
                said[power] = subprocess.run(
                    [sys.executable, "-m", "pytest", "-p", "perjoule.testing", "-p", "no:cacheprovider", "-rs", "-q", folder],
                    env=dict(os.environ, PERJOULE_POWER=power, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"),
                    capture_output=True, text=True).stdout
        without, modelled = said.values()
        self.assertIn("2 skipped", without)
        self.assertIn("cannot be judged: energy unavailable", without)
        self.assertIn("1 failed, 1 passed", modelled)
        self.assertRegex(modelled, r"much: .* J .*: more than 1e-09 J")
        self.assertRegex(modelled, r"test_answer +answer: .* s, .* J")


if __name__ == "__main__":
    unittest.main()
