"""The package is typed: its sources and a program that uses it pass a strict type checker."""
import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import unittest

import perjoule

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = pathlib.Path(perjoule.__file__).parent


class Types(unittest.TestCase):
    def check(self, *arguments):
        with tempfile.TemporaryDirectory() as cache:
            done = subprocess.run([sys.executable, "-m", "mypy", "--cache-dir", cache, "--strict",
                                   "--follow-imports=silent", *map(str, arguments)],
                                  cwd=PACKAGE.parent, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    @unittest.skipUnless(importlib.util.find_spec("mypy"), "mypy is not installed")
    def test_a_program_with_types_passes_strictly(self):
        self.check("--ignore-missing-imports", HERE / "typed_program.py")

    @unittest.skipUnless(importlib.util.find_spec("mypy"), "mypy is not installed")
    def test_the_package_itself_passes_strictly(self):
        self.check("perjoule", "profiling")

    def test_the_package_says_that_it_is_typed(self):
        self.assertTrue((PACKAGE / "py.typed").exists())

    def test_what_is_exported_is_what_there_is(self):
        self.assertLessEqual(set(perjoule._LATER), set(perjoule.__all__))
        for name in perjoule.__all__:
            self.assertTrue(hasattr(perjoule, name), name)


if __name__ == "__main__":
    unittest.main()
