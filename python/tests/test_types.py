"""The package is typed: its sources and a program that uses it pass a strict type checker."""
import contextlib
import fcntl
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import perjoule

# Packages that torch imports and whose types no line here uses; reading them takes six sevenths of the time.
UNREAD = ["sympy", "numpy", "transformers"] + ["torch." + name for name in (
    "_inductor", "_dynamo", "_functorch", "_subclasses", "_prims", "_refs", "_decomp", "_export", "ao", "distributed",
    "export", "fx", "onnx", "testing")]
HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = pathlib.Path(perjoule.__file__).parent


@contextlib.contextmanager
def cache():
    """Where the checker keeps what it knows of torch, which is nearly all that it reads; of one checker at a time."""
    folder = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "perjoule/test-types")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            folder = os.devnull
        yield str(folder)


class Types(unittest.TestCase):
    @unittest.skipUnless(importlib.util.find_spec("mypy"), "mypy is not installed")
    def test_package_and_a_program_that_uses_it_pass_strictly(self):
        """Together: each alone would read all of torch, which takes most of the time."""
        with tempfile.NamedTemporaryFile("w", suffix=".ini") as settings, cache() as kept:
            settings.write("[mypy]\nstrict = True\nfollow_imports = silent\n"
                           f"[mypy-{','.join(name + '.*' for name in UNREAD)}]\nfollow_imports = skip\n"
                           "[mypy-pytest.*]\nignore_missing_imports = True\n"
                           "[mypy-perjoule.testing]\ndisallow_untyped_decorators = False\n")
            settings.flush()
            done = subprocess.run([sys.executable, "-m", "mypy", "--cache-dir", kept, "--config-file", settings.name,
                                   "perjoule", "profiling", str(HERE / "typed_program.py")],
                                  cwd=PACKAGE.parent, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_package_says_that_it_is_typed(self):
        self.assertTrue((PACKAGE / "py.typed").exists())

    def test_what_is_exported_is_what_there_is(self):
        self.assertLessEqual(set(perjoule._LATER), set(perjoule.__all__))
        for name in perjoule.__all__:
            self.assertTrue(hasattr(perjoule, name), name)


if __name__ == "__main__":
    unittest.main()
