#!/usr/bin/env python3
"""Checks the documentation against the program.

Usage: check.py PROGRAM SOURCE_ROOT LIBRARY_FOLDER

1. Every relative link and anchor of README.md and docs/ has a target, every picture exists.
2. Every option that a document shows after `perjoule COMMAND` is one that the command has.
3. Every command of `perjoule help` is mentioned in the README or the guide; every `make` target that
   a document names is one; help, the choices of --power and docs/power-sources.md name every power source.
   It lists every value of an option that has fixed ones, and a letter stands for the same option in every command.
4. The program can print every sentence that docs/troubleshooting.md quotes.
5. Every line of the ```sh blocks of README, guide and tutorials runs: in order, in one fresh folder
   per document, with its own home and data folders, `models/demo` and `examples` available and no
   sensors. A fenced block with a file's name after its language (```python budget.py) becomes
   that file. `# exits N` after a command expects that exit code; the line `<!-- not run: WHY -->` before a block skips
   it. A fake server stands in for another engine at port 8080, and a PyTorch trace that a document imports is
   generated to cover the power file used with it. Commands of make, sudo and git are always skipped: they build, or
   change the machine.
   Runs that a `perjoule compare` compares differ in one setting: otherwise the example misleads. A run on
   `--power replay:` has energy: otherwise its recording is too short.
6. Every query of the ```sql blocks finds something in a database with one run.
"""
import csv
import json
import multiprocessing.pool
import os
import pathlib
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "attach"))
import engine  # noqa: E402

ENGINE = engine.Engine()
PROGRAM, ROOT, LIBRARY = (pathlib.Path(p).resolve() for p in sys.argv[1:4])
ALL = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN = [ROOT / "README.md", ROOT / "docs/guide.md", *sorted((ROOT / "docs/tutorials").glob("*.md"))]
LEFT_OUT = re.compile(r"(make|sudo|git)\b")
SECONDS = 300  # timeout of one command, on a busy machine
FENCE = re.compile(r"(?:^<!-- not run: ([^\n]+) -->\n)?^```([^\n]*)\n(.*?)^```", re.M | re.S)
counts = {True: 0, False: 0}


def report(good, text, why=""):
    counts[good] += 1
    if not good:
        print(f"FAIL {text}" + (f"\n     {why}" if why else ""))


def name_of(path):
    return path.relative_to(ROOT).as_posix()


# ---- links ------------------------------------------------------------------------------------


def anchors(path):
    """The anchors that code hosting sites derive from headings: lower case, blanks to dashes, no punctuation."""
    found = set()
    for heading in re.findall(r"^#+ +(.*?)\s*$", FENCE.sub("", path.read_text()), re.M):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        number = sum(1 for f in found if re.fullmatch(re.escape(slug) + r"(-\d+)?", f))
        found.add(f"{slug}-{number}" if number else slug)
    return found


def check_links(path):
    text = re.sub(r"`[^`\n]*`", "", FENCE.sub("", path.read_text()))
    for target in re.findall(r"\]\(([^)\s]+)\)|<(?:img|a) [^>]*(?:src|href)=\"([^\"]+)\"", text):
        target = "".join(target)
        if re.match(r"(https?|mailto):", target):
            continue
        where, _, anchor = target.partition("#")
        there = (path.parent / where).resolve() if where else path
        good = there.exists() and (not anchor or there.suffix != ".md" or anchor in anchors(there))
        report(good, f"{name_of(path)}: the link to {target} is broken")


# ---- commands and options ---------------------------------------------------------------------


def output(*words):
    """On a database of its own: the user's may be of a later version."""
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run([PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS,
                              env={**os.environ, "PERJOULE_DB": f"{folder}/runs.db"}).stdout


def read_help():
    """{command: its options}; benchmarks are "bench NAME"."""
    names = re.findall(r"^  (\w+) +\S", output("help"), re.M)
    names += ["bench " + n for n in re.findall(r"^  (\w+) +\S", output("bench"), re.M)]
    found = {}
    for name in names:
        text = output(*name.split(), "--help")
        found[name] = set(re.findall(r"^ +(?:-\w, )?(--[\w-]+)", text, re.M))
        found[name] |= set(re.findall(r"^ +(-\w), --", text, re.M)) | {"--help", "-h"}
    return found


def check_help(known):
    """Help lists every value of an option that has fixed ones; a letter stands for the same option in every command."""
    letters = {}
    for name in known:
        for row in output(*name.split(), "--list-options").splitlines():
            option, _, choices, text = [*row.split("\t"), "", "", ""][:4]
            missing = [c for c in choices.split() if not re.search(rf"(?<![\w-]){re.escape(c)}", text)]
            report(not missing, f"perjoule {name} --help: --{option} does not list {missing}")
        for letter, option in re.findall(r"^ +-(\w), --([\w-]+)", output(*name.split(), "--help"), re.M):
            first = letters.setdefault(letter, (option, name))
            report(first[0] == option, f"-{letter} is --{option} for {name}, and --{first[0]} for {first[1]}")


def commands_in(line):
    """The words of each perjoule command in a line of shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words, here = [], None
    try:
        tokens = list(lexer)
    except ValueError:  # prose, not shell
        return []
    for token in tokens:
        if token.endswith("perjoule") and (token == "perjoule" or "/" in token or token == "$(perjoule"):
            here = []
            words.append(here)
        elif set(token) <= set("();<>|&"):
            here = None
        elif here is not None:
            here.append(token)
    return words


def wrong_options(words, known):
    if not words:
        return []
    if words[0] in ("--version", "-V", "--help", "-h"):
        return []
    command = words[0] if words[0] != "bench" or len(words) < 2 else " ".join(words[:2])
    if command.upper() == command or not re.fullmatch(r"[\w ]+", command):
        return []  # a placeholder
    if command not in known:
        return [f"unknown command {command}"]
    wrong = []
    for word in words[1:]:
        if word == "--":
            break
        option = word.split("=")[0] if word.startswith("--") else word[:2]
        positive = re.sub(r"^--no-", "--", option)
        if re.match(r"--?[A-Za-z]", word) and not {option, positive} & known[command]:
            wrong.append(f"{command} has no option {option}")
    return wrong


def statements(block):
    """Lines of shell, with continuation lines joined."""
    held = ""
    for line in block.splitlines():
        held += line if not held else "\n" + line
        if held.strip() and not held.endswith("\\") and subprocess.run(
                ["sh", "-n", "-c", held], capture_output=True).returncode == 0:
            if not held.lstrip().startswith("#"):
                yield held.strip()
            held = ""
    if held.strip():
        yield held.strip()


def check_options(path, known):
    text = path.read_text()
    lines = [s for _, info, block in FENCE.findall(text) if info in ("", "sh")
             for s in statements(block)]
    lines += re.findall(r"`((?:sudo )?perjoule [^`]+)`", FENCE.sub("", text))
    for line in lines:
        for words in commands_in(line):
            wrong = wrong_options(words, known)
            report(not wrong, f"{name_of(path)}: {line}", "; ".join(wrong))


def check_mentions(known):
    text = (ROOT / "README.md").read_text() + (ROOT / "docs/guide.md").read_text()
    for command in known:
        good = " " in command or re.search(rf"perjoule {command}\b", text) is not None
        report(good, f"neither README.md nor docs/guide.md mentions perjoule {command}")


def check_sources():
    known = re.search(r"known: ([^)]*)\)", output("run", "-m", str(ROOT / "models/demo"), "--power", "?", "x"))
    text = output("run", "--help").split("--power LIST")[1].split("--interval")[0]
    row = re.search(r"^power\t.*", output("run", "--list-options"), re.M)
    choices = re.findall(r"\w+", row[0].split("\t")[2]) if row else []
    document = (ROOT / "docs/power-sources.md").read_text()
    for source in known[1].split(", ") if known else [""]:
        report(bool(source and re.search(rf"\b{source}\b", text)), f"run --help does not name {source}")
        report(source in choices, f"the choices of --power lack {source}")
        report(source in ("auto", "none") or re.search(rf"^\| `{source}\b", document, re.M) is not None,
               f"the table of docs/power-sources.md lacks {source}")


def check_targets(path):
    known = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
    for target in re.findall(r"(?:`|^)make ([a-z-]+)", path.read_text(), re.M):
        report(target in known, f"{name_of(path)}: there is no make {target}")


# ---- quoted sentences -------------------------------------------------------------------------


def literals():
    """All string literals of the sources and scripts; adjacent literals are joined, printf conversions become dots."""
    texts = []
    for path in sorted((ROOT / "src").rglob("*.[ch]")):
        source = path.read_text()
        for run in re.findall(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*', source):
            parts = re.findall(r'"((?:[^"\\\n]|\\.)*)"', run)
            texts.append("".join(parts).replace('\\"', '"').replace("\\\\", "\\"))
    texts += [p.read_text() for p in sorted((ROOT / "tools").glob("*.sh"))]
    texts.append((ROOT / "ui/meson.build").read_text())
    joined = "\n".join(texts).replace("%%", "\0")
    return re.sub(r"%[-+0-9.*]*(?:ll|z|h)?[a-z]", "…", joined).replace("\0", "%")


def check_quotes(path):
    known = literals()
    for quote in re.findall(r"“(.+?)”", re.sub(r"\s+", " ", path.read_text())):
        pieces = [p.strip() for p in quote.replace("`", "").split("…") if len(p.strip()) > 2]
        missing = [p for p in pieces if p not in known.replace("`", "")]
        report(bool(pieces) and not missing,
               f"{name_of(path)}: the program never prints: {quote}", "; ".join(missing))


# ---- running ----------------------------------------------------------------------------------


def furnish(folder):
    """A home folder without sensors, with the program, the demo model and the examples."""
    for name in ("bin", "home", "nothing", "work/models"):
        (folder / name).mkdir(parents=True)
    (folder / "bin/perjoule").symlink_to(PROGRAM)
    (folder / "work/models/demo").symlink_to(ROOT / "models/demo")
    (folder / "work/examples").symlink_to(ROOT / "examples")
    home = str(folder / "home")
    return {**{k: v for k, v in os.environ.items() if not k.startswith("PERJOULE_")},
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "HOME": home, "XDG_DATA_HOME": home,
            "XDG_CACHE_HOME": home, "NO_COLOR": "1", "PERJOULE_BASELINE": "0.2", "LC_ALL": "C.UTF-8",
            "PERJOULE_SYSFS": str(folder / "nothing"), "PERJOULE_NVML": "/nonexistent",
            "CPATH": str(ROOT / "include"), "LIBRARY_PATH": str(LIBRARY),
            "LD_LIBRARY_PATH": str(LIBRARY)}


def serve(line, folder, env):
    """Starts a server on a free port, waits until it listens, and ends it; returns the error, or ""."""
    words = shlex.split(line, comments=True)
    while re.match(r"\w+=", words[0]):
        key, value = words.pop(0).split("=", 1)
        env = {**env, key: value}
    words = [w for w in words if w != "--open"]
    words += [] if "--port" in words else ["--port", "0"]
    with subprocess.Popen(words, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True) as server:
        said = server.stdout.readline()
        server.send_signal(signal.SIGINT)
        rest, _ = server.communicate(timeout=SECONDS)
    good = "listens on" in said and server.returncode == 0
    return "" if good else f"exit code {server.returncode}: {said}{rest}"


def pass_through(line, folder, env):
    """Starts the proxy, sends a request through it, and ends it; returns the error, or ""."""
    words = shlex.split(re.sub(r"(--listen 127.0.0.1):\d+", r"\1:0", line))
    question = json.dumps({"messages": [{"role": "user", "content": "Hi"}]}).encode()
    with subprocess.Popen(words, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True) as proxy:
        said, url = "", None
        while not url and (words := proxy.stdout.readline()):
            said += words
            url = re.search(r"listening on (http://[^\s,]+)", words)
        answer = {}
        if url:
            ask = urllib.request.Request(url[1] + "/v1/chat/completions", question, {"Content-Type": "application/json"})
            answer = json.load(urllib.request.urlopen(ask, timeout=SECONDS))
        proxy.send_signal(signal.SIGINT)
        rest, _ = proxy.communicate(timeout=SECONDS)
    good = "energy_joules" in answer.get("usage", {}) and "1 request" in rest and proxy.returncode == 0
    return "" if good else f"exit code {proxy.returncode}, answer {answer}: {said}{rest}"


def write_trace(line, folder):
    """Writes the trace that a command imports: an operator of 100 ms within a range every half second of the recorded
    power."""
    words = shlex.split(line, comments=True)
    trace, power = (folder / words[words.index(option) + 1] for option in ("--torch-trace", "--power"))
    with power.open() as lines:
        times = [float(row["unix_ms"]) for row in csv.DictReader(lines)]
    events = [{"ph": "X", "cat": category, "name": name, "ts": 500_000 * i, "dur": ms * 1000, "pid": 1, "tid": 1}
              for i in range(int((times[-1] - times[0]) / 500))
              for category, name, ms in (("user_annotation", "step", 200), ("cpu_op", "aten::mm", 100))]
    trace.write_text(json.dumps({"baseTimeNanoseconds": int(times[0] * 1e6), "traceEvents": events}))


def run(line, folder, env):
    """Runs the line; returns the error, or ""."""
    if " --torch-trace " in line:
        write_trace(line, folder)
    line = line.replace("http://127.0.0.1:8080", ENGINE.url)
    if " --listen " in line:
        return pass_through(line, folder, env)
    if re.match(r"(\w+=\S+ )*perjoule serve\b", line):
        return serve(line, folder, env)
    wanted = re.search(r"# exits (\d+)", line)
    try:
        done = subprocess.run(["sh", "-e", "-c", line], cwd=folder, env=env, capture_output=True, text=True,
                              timeout=SECONDS, stdin=subprocess.DEVNULL, errors="replace")
    except subprocess.TimeoutExpired:
        return f"it did not end within {SECONDS} s"
    if done.returncode == (int(wanted[1]) if wanted else 0):
        return ""
    if line.startswith("perjoule report ") and "this build has no dashboard" in done.stderr:
        print(f"skip {line}: HTML reports need the dashboard")
        return ""
    return f"exit code {done.returncode}: {done.stderr[-400:] or done.stdout[-400:]}"


def check_comparison(path, line, folder, env):
    command = line.split("#")[0].split(">")[0].replace("--json", "")
    done = subprocess.run(["sh", "-e", "-c", command + " --json"], cwd=folder, env=env, capture_output=True, text=True,
                          timeout=SECONDS)
    found = [d["setting"] for d in json.loads(done.stdout)["differences"]] if done.returncode == 0 else done.stderr
    report(isinstance(found, list) and len(found) <= 1, f"{name_of(path)}: {line}", f"compares runs that differ in {found}")


def check_energy(path, line, folder, env):
    """A recording that is played back must be long enough for the run."""
    done = subprocess.run(["perjoule", "show", "last", "--json"], cwd=folder, env=env, capture_output=True, text=True,
                          timeout=SECONDS)
    shown = json.loads(done.stdout) if done.returncode == 0 else {}
    report(shown.get("total_energy_mj") is not None, f"{name_of(path)}: {line}",
           f"its energy is unavailable: {shown.get('warnings')} {done.stderr}")


def check_runs(path):
    with tempfile.TemporaryDirectory() as top:
        folder = pathlib.Path(top).resolve()
        env = furnish(folder)
        blocks = [(info.split(), block) for skipped, info, block in FENCE.findall(path.read_text()) if not skipped]
        for words, block in blocks:
            if len(words) == 2:
                (folder / "work" / words[1]).write_text(block)
        for words, block in blocks:
            if words != ["sh"]:
                continue
            for line in statements(block):
                if setting := re.match(r"export (PERJOULE_\w+)=(\S+)", line):
                    env = {**env, setting[1]: setting[2]}
                    continue
                if LEFT_OUT.match(line) or line.startswith("cc ") and not shutil.which("cc"):
                    continue
                wrong = run(line, folder / "work", env)
                report(not wrong, f"{name_of(path)}: {line}", wrong)
                if line.startswith("perjoule run --power replay:"):
                    check_energy(path, line, folder / "work", env)
                if line.startswith("perjoule compare "):
                    check_comparison(path, line, folder / "work", env)


def check_queries(path):
    """Runs the document's ```sql blocks on a database with one deep run."""
    blocks = [block for _, info, block in FENCE.findall(path.read_text()) if info == "sql"]
    if not blocks:
        return
    with tempfile.TemporaryDirectory() as top:
        folder = pathlib.Path(top).resolve()
        env = furnish(folder)
        wrong = run("perjoule run --power sim --depth deep -n 8 --db runs.db hello", folder / "work", env)
        report(not wrong, "a run to query", wrong)
        with sqlite3.connect(folder / "work/runs.db") as database:
            for query in filter(str.strip, ";".join(blocks).split(";")):
                try:
                    rows, wrong = database.execute(query).fetchall(), ""
                except sqlite3.Error as error:
                    rows, wrong = [], str(error)
                report(len(rows) > 0, f"{name_of(path)}: {query.strip()}", wrong or "no rows")


def main():
    known = read_help()
    for path in ALL:
        check_links(path)
        check_options(path, known)
        check_targets(path)
        check_queries(path)
    check_help(known)
    check_mentions(known)
    check_sources()
    check_quotes(ROOT / "docs/troubleshooting.md")
    with multiprocessing.pool.ThreadPool(len(RUN)) as pool:  # beside each other: commands wait for most of their time
        pool.map(check_runs, RUN, chunksize=1)
    print(f"{counts[True]} passed, {counts[False]} failed")
    return 1 if counts[False] or not counts[True] else 0


sys.exit(main())
