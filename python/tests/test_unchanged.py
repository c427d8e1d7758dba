"""python -m perjoule run: an unchanged script, its arguments, its exit code and its generate."""
import os
import pathlib
import subprocess
import sys

from support import StoredCase

# stands where transformers would: a package with the module that is patched
FAKE = """
class GenerationMixin:
    def generate(self, *args, **kwargs):
        return 'own'
"""


class Unchanged(StoredCase):
    def run_script(self, text, *arguments, more=()):
        script = pathlib.Path(self.folder, "script.py")
        script.write_text(text)
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join([self.folder, *sys.path]))
        return subprocess.run([sys.executable, "-m", "perjoule", "run", *more, str(script), *arguments],
                              capture_output=True, text=True, env=environment)

    def test_arguments_output_and_exit_code_pass_through(self):
        done = self.run_script("import sys\nprint(__name__, sys.argv[1:])\nsys.exit(5)", "--a", "b")
        self.assertEqual((done.returncode, done.stdout), (5, "__main__ ['--a', 'b']\n"))
        self.assertIn("no model's generate", done.stderr)

    def test_the_module_is_patched_when_the_script_imports_it(self):
        package = pathlib.Path(self.folder, "transformers", "generation")
        package.mkdir(parents=True)
        (package.parent / "__init__.py").touch()
        (package / "__init__.py").touch()
        (package / "utils.py").write_text(FAKE)
        done = self.run_script("import transformers.generation.utils as u\n"
                               "print(u.GenerationMixin.generate.__wrapped__(None), u.GenerationMixin.generate.__name__)")
        self.assertEqual((done.returncode, done.stdout), (0, "own generate\n"), done.stderr)
