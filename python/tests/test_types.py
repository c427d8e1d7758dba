"""The package has types: a program that uses it passes a strict type checker."""
import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import unittest

import perjoule

HERE = pathlib.Path(__file__).resolve().parent


class Types(unittest.TestCase):
    @unittest.skipUnless(importlib.util.find_spec("mypy"), "mypy is not installed")
    def test_a_program_with_types_passes_strictly(self):
        package = pathlib.Path(perjoule.__file__).parent
        with tempfile.TemporaryDirectory() as cache:
            done = subprocess.run(
                [sys.executable, "-m", "mypy", "--cache-dir", cache, "--ignore-missing-imports", "--strict",
                 "--follow-imports=silent", str(HERE / "typed_program.py")],
                cwd=package.parent, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_what_is_exported_is_what_there_is(self):
        self.assertLessEqual(set(perjoule._LATER), set(perjoule.__all__))
        for name in perjoule.__all__:
            self.assertTrue(hasattr(perjoule, name), name)


if __name__ == "__main__":
    unittest.main()
