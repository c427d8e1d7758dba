"""python -m perjoule run: an unchanged script, its arguments, its exit code and its generate."""
import os
import pathlib
import subprocess
import sys

from support import StoredCase

# a stand-in for transformers: a package with the module that is patched
FAKE = """
class GenerationMixin:
    def generate(self, *args, **kwargs):
        return 'own'
"""


class Unchanged(StoredCase):
    def run_script(self, text, *arguments, more=(), folder=None):
        script = pathlib.Path(self.folder, "script.py")
        script.write_text(text)
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join([self.folder, *sys.path]))
        return subprocess.run([sys.executable, "-m", "perjoule", "run", *more, str(script), *arguments],
                              capture_output=True, text=True, env=environment, cwd=folder)

    def test_arguments_output_and_exit_code_pass_through(self):
        done = self.run_script("import sys\nprint(__name__, sys.argv[1:])\nsys.exit(5)", "--a", "b")
        self.assertEqual((done.returncode, done.stdout), (5, "__main__ ['--a', 'b']\n"))
        self.assertIn("no model's generate", done.stderr)

    def test_what_cannot_be_profiled_is_said_before_the_script_starts(self):
        for more, said in ((("--power", "nonsense"), "nonsense"), (("--db", "/dev/null/x.db"), "/dev/null")):
            done = self.run_script("print('started')", more=more)
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            self.assertRegex(done.stderr, r"\Aperjoule: [^\n]*" + said + r"[^\n]*\n\Z")
        done = subprocess.run([sys.executable, "-m", "perjoule", "run", "/nowhere/script.py"], capture_output=True, text=True,
                              env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))
        self.assertEqual((done.returncode, done.stderr), (2, "perjoule: /nowhere/script.py: there is no such file\n"))

    def test_no_database_leaves_no_file(self):
        done = self.run_script("", more=("--db", "none"), folder=self.folder)
        self.assertEqual((done.returncode, os.listdir(self.folder)), (0, ["script.py"]), done.stderr)

    def test_the_module_is_patched_when_the_script_imports_it(self):
        package = pathlib.Path(self.folder, "transformers", "generation")
        package.mkdir(parents=True)
        (package.parent / "__init__.py").touch()
        (package / "__init__.py").touch()
        (package / "utils.py").write_text(FAKE)
        done = self.run_script("import transformers.generation.utils as u\n"
                               "print(u.GenerationMixin.generate.__wrapped__(None), u.GenerationMixin.generate.__name__)")
        self.assertEqual((done.returncode, done.stdout), (0, "own generate\n"), done.stderr)

    def run_module(self, name, *arguments):
        return subprocess.run([sys.executable, "-m", "perjoule", "run", "-m", name, *arguments], capture_output=True, text=True,
                              cwd=self.folder, env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))

    def test_a_module_of_a_package(self):
        package = pathlib.Path(self.folder, "tools")
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "helper.py").write_text("VALUE = 7")
        (package / "main.py").write_text("import sys\nfrom . import helper\n"
                                         "print(__name__, __package__, helper.VALUE, sys.argv[0], sys.argv[1:])\nsys.exit(4)")
        done = self.run_module("tools.main", "-m", "--tag", "b")
        self.assertEqual((done.returncode, done.stdout),
                         (4, f"__main__ tools 7 {package / 'main.py'} ['-m', '--tag', 'b']\n"), done.stderr)
        done = self.run_module("nowhere.main")
        self.assertEqual((done.returncode, done.stderr), (2, "perjoule: no module named nowhere.main\n"))

    def test_a_folder_with_a_main_file(self):
        pathlib.Path(self.folder, "app").mkdir()
        pathlib.Path(self.folder, "app", "__main__.py").write_text("import beside\nprint(beside.VALUE)")
        pathlib.Path(self.folder, "app", "beside.py").write_text("VALUE = 8")
        done = subprocess.run([sys.executable, "-m", "perjoule", "run", "app"], capture_output=True, text=True,
                              cwd=self.folder, env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))
        self.assertEqual((done.returncode, done.stdout), (0, "8\n"), done.stderr)

    def test_the_path_is_that_of_a_script(self):
        elsewhere = pathlib.Path(self.folder, "elsewhere")
        elsewhere.mkdir()
        done = self.run_script("import sys\nprint(sys.path[0])\nprint(sys.path.count(sys.argv[1]))", str(elsewhere),
                               folder=elsewhere)
        self.assertEqual(done.stdout, f"{os.path.realpath(self.folder)}\n0\n", done.stderr)

    def test_threads_and_exit_handlers_outlive_the_script(self):
        done = self.run_script(
            "import atexit, pickle, threading, time\n"
            "class Thing: pass\n"
            "def late():\n"
            "    time.sleep(0.2)\n"
            "    print('thread', type(pickle.loads(pickle.dumps(Thing()))).__name__)\n"
            "threading.Thread(target=late).start()\n"
            "atexit.register(lambda: print('exit', pickle.dumps(Thing())[:1], file=__import__('sys').stderr))\n")
        self.assertEqual((done.returncode, done.stdout), (0, "thread Thing\n"), done.stderr)
        lines = done.stderr.splitlines()
        self.assertTrue(lines[0].startswith("exit"), done.stderr)
        self.assertIn("no model's generate", lines[1])

    def test_processes_of_the_script(self):
        done = self.run_script(
            "import multiprocessing, sys\n"
            "def work(n): return n + 1\n"
            "if __name__ == '__main__':\n"
            "    for how in ('fork', 'spawn'):\n"
            "        with multiprocessing.get_context(how).Pool(1) as pool: print(how, pool.map(work, [1, 2]))\n")
        self.assertEqual((done.returncode, done.stdout), (0, "fork [2, 3]\nspawn [2, 3]\n"), done.stderr)
        self.assertEqual(done.stderr.count("no model's generate"), 1, done.stderr)
