"""Signals to `perjoule exec` around the start of its program: none is lost, none ends the recording
before the run is stored, and the program starts with the signals that perjoule's caller had.

Usage: test_signals.py PERJOULE HOLD_LIBRARY"""
import glob
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PERJOULE, HOLD = sys.argv[1], sys.argv[2]
for inherited in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
    signal.signal(inherited, signal.SIG_DFL)  # nohup and background jobs ignore some of them
DEFAULTS = "import signal, sys\n" \
    "print(*(int(signal.getsignal(getattr(signal, n)) == signal.SIG_IGN) for n in sys.argv[1:]),\n" \
    "      len(signal.pthread_sigmask(signal.SIG_BLOCK, [])))"


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="perjoule-signals-")
        self.db = os.path.join(self.folder.name, "runs.sqlite")

    def tearDown(self):
        self.folder.cleanup()

    def start(self, *program, **options):
        command = [PERJOULE, "exec", "--power", "none", "--db", self.db, "--", *program]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                start_new_session=True, **options)

    def runs(self):
        out = subprocess.run([PERJOULE, "ls", "--db", self.db, "--json"], capture_output=True, text=True,
                             check=True)
        return json.loads(out.stdout)


class Held(Folder):
    def wait_for_writer(self, fifo):
        with open(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            poll = select.poll()
            poll.register(file, select.POLLHUP)
            self.assertTrue(poll.poll(60_000), "never reached the place")

    def let_go(self, fifo, perjoule):
        """The signal may have ended the holder already."""
        for _ in range(6000):
            try:
                os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
                return
            except OSError:  # no reader yet
                if perjoule.poll() is not None:
                    return
                time.sleep(0.01)

    def send(self, where, number, to_group):
        """Starts a program that would run for long, sends it a signal while the start is held at `where`, and
        returns perjoule's exit code."""
        reached, go = (os.path.join(self.folder.name, n) for n in ("reached", "go"))
        for fifo in (reached, go):
            os.mkfifo(fifo)
        env = dict(os.environ, LD_PRELOAD=HOLD, PERJOULE_TEST_HOLD=f"{where}:{reached}:{go}")
        perjoule = self.start("sleep", "600", env=env)
        try:
            self.wait_for_writer(reached)
            (os.killpg if to_group else os.kill)(perjoule.pid, number)
            self.let_go(go, perjoule)
            perjoule.communicate(timeout=60)
            return perjoule.returncode
        finally:
            try:
                os.killpg(perjoule.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            perjoule.wait()

    def send_and_note(self, where, number, to_group):
        code = self.send(where, number, to_group)
        self.assertEqual(code, 128 + number, f"{where} {signal.Signals(number).name}")
        self.assertEqual(len(self.runs()), 1)


def held(where, number, to_group):
    return lambda self: self.send_and_note(where, number, to_group)


for place in ("before", "after", "exec"):
    for name in ("SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP"):
        setattr(Held, f"test_{name}_to_perjoule_{place}", held(place, getattr(signal, name), False))
    for name in ("SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP"):
        setattr(Held, f"test_{name}_to_the_group_{place}", held(place, getattr(signal, name), True))


class Running(Folder):
    """Signals while the program runs, which counts them until SIGTERM."""
    # os.write, because a handler may interrupt print, which is not reentrant
    COUNTER = "import os, signal, time\n" \
        "got = {}\n" \
        "def say(text): os.write(1, f'{text}\\n'.encode())\n" \
        "def count(number, _): got[number] = got.get(number, 0) + 1; say(number)\n" \
        "def leave(*_): say(' '.join(['end', *(f'{n}:{c}' for n, c in sorted(got.items()))])); raise SystemExit(7)\n" \
        "for n in (1, 2, 3, 10, 12): signal.signal(n, count)\n" \
        "signal.signal(15, leave)\n" \
        "say('ready')\n" \
        "end = time.monotonic() + 60\n" \
        "while time.monotonic() < end: time.sleep(1)"

    def test_every_signal_to_perjoule_reaches_the_program_once(self):
        numbers = [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2]
        with self.start(sys.executable, "-S", "-c", self.COUNTER) as perjoule:
            try:
                self.assertEqual(perjoule.stdout.readline(), "ready\n")
                for number in numbers:
                    os.kill(perjoule.pid, number)
                    self.assertEqual(perjoule.stdout.readline(), f"{int(number)}\n")
                os.kill(perjoule.pid, signal.SIGTERM)
                out, _ = perjoule.communicate(timeout=60)
            finally:
                try:
                    os.killpg(perjoule.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        self.assertEqual(out, "end " + " ".join(f"{int(n)}:1" for n in sorted(numbers)) + "\n")
        self.assertEqual(perjoule.returncode, 7)
        self.assertEqual([r["status"] for r in self.runs()], ["failed"])


class Endless(Folder):
    def test_a_writer_of_markers_that_outlives_the_program(self):
        """perjoule ends with its program, whatever a grandchild goes on writing."""
        stop, begun = (os.path.join(self.folder.name, n) for n in ("stop", "begun"))
        os.mkfifo(begun)
        writer = "import os, sys, time\n" \
            "fd, end = int(os.environ['PERJOULE_MARKERS']), time.monotonic() + 300\n" \
            "lines, begun = b'begin section x\\nend\\n' * 3000, False\n" \
            "while time.monotonic() < end and not os.path.exists(sys.argv[1]):\n" \
            "    try: os.write(fd, lines)\n" \
            "    except OSError: pass\n" \
            "    if not begun: begun = True; open(sys.argv[2], 'w').close()\n" \
            "open(sys.argv[1] + '.seen', 'w').close()"
        script = f"'{sys.executable}' -S -c \"$1\" {stop} {begun} >/dev/null 2>&1 & read nothing <{begun}; exit 3"
        perjoule = self.start("sh", "-c", script, "sh", writer)
        try:
            perjoule.communicate(timeout=120)
            self.assertEqual(perjoule.returncode, 3)
            self.assertFalse(os.path.exists(stop + ".seen"), "the writer had ended")
        finally:
            open(stop, "w", encoding="ascii").close()
            perjoule.kill()
            perjoule.wait()
            deadline = time.monotonic() + 60
            while not os.path.exists(stop + ".seen") and time.monotonic() < deadline:
                time.sleep(0.01)  # the writer's last file must not come while the folder is removed
        self.assertEqual(len(self.runs()), 1)


class Inherited(Folder):
    NAMES = ("SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGCHLD", "SIGPIPE", "SIGXFSZ")

    def seen(self, *command, ignored=(), limits=""):
        """Which signals a program finds ignored, and how many are blocked."""
        for name in ignored:
            signal.signal(getattr(signal, name), signal.SIG_IGN)
        try:
            shell = f"{limits} exec \"$@\""
            out = subprocess.run(["sh", "-c", shell, "sh", *command, sys.executable, "-S", "-c", DEFAULTS, *self.NAMES],
                                 capture_output=True, text=True, check=True, restore_signals=False)
        finally:
            for name in ignored:
                signal.signal(getattr(signal, name), signal.SIG_DFL)
        return out.stdout

    def compare(self, **options):
        exec_ = [PERJOULE, "exec", "--power", "none", "--db", self.db, "--"]
        self.assertEqual(self.seen(*exec_, **options), self.seen(**options))

    def test_defaults(self):
        for name in ("SIGPIPE", "SIGXFSZ"):  # python's own
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        self.compare()

    def test_ignored_by_the_caller(self):
        for name in self.NAMES:
            if name == "SIGCHLD":
                continue  # the shell in between needs it
            with self.subTest(name):
                self.compare(ignored=(name,))

    def test_with_a_small_stack(self):
        self.compare(limits="ulimit -s 512;")


class Experiment(Folder):
    @staticmethod
    def has_started(session, name):
        """Whether a process of the session runs the program."""
        for path in glob.glob("/proc/[0-9]*/stat"):
            try:
                with open(path, encoding="ascii", errors="replace") as file:
                    command, _, rest = file.read().partition("(")[2].rpartition(")")
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended meanwhile
            if command == name and rest.split()[3] == str(session):
                return True
        return False

    def test_a_signal_cancels_the_experiment_too(self):
        started = os.path.join(self.folder.name, "started")
        os.mkfifo(started)
        program = f"echo first >{started}; echo 'token 1' >&$PERJOULE_MARKERS; sleep 600"
        plan = [PERJOULE, "experiment", "--name", "signals", "--db", self.db, "--power", "sim", "--engine", "exec:" + program,
                "--inputs", "8", "--outputs", "8", "--repeat", "3"]
        with subprocess.Popen(plan, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              start_new_session=True) as perjoule:
            try:
                with open(started, encoding="ascii") as fifo:
                    fifo.read()
                # a shell that gets the signal before it has started sleep waits for sleep's end
                while not self.has_started(perjoule.pid, "sleep"):
                    time.sleep(0.01)
                os.killpg(perjoule.pid, signal.SIGINT)
                _, told = perjoule.communicate(timeout=60)
            finally:
                try:
                    os.killpg(perjoule.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        self.assertEqual(perjoule.returncode, 130, told)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
