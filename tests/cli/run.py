#!/usr/bin/env python3
"""Golden tests of the command line: run.py PROGRAM CASE...; without cases, all of them.

Each folder tests/cli/case-NAME holds `cmd` (a shell script run in a fresh folder with $PERJOULE set
to the program and $CASE to the case's folder), and the expected output: `stdout` and `stderr`
(absent: not checked), `exit` (absent: 0). Before comparing, volatile words are replaced: UUIDs by
<id>, ISO times by <time>, and every line is stripped of trailing blanks. A line of the golden file
that is `...` stands for any number of lines; `<any>` inside a line for any text. A `skip` script
that exits 0 skips the case, its output being the reason. PJ_REFRESH=1 rewrites the golden files.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

PROGRAM = pathlib.Path(sys.argv[1])
CASES = [pathlib.Path(case) for case in sys.argv[2:]] or sorted(pathlib.Path(__file__).parent.glob("case-*"))
SECONDS = 900  # timeout of a case; under sanitizers on a busy machine a case may take minutes
SCRUB = [(re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"), "<id>"),
         (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)?"), "<time>")]


def scrub(text):
    for pattern, word in SCRUB:
        text = pattern.sub(word, text)
    return [line.rstrip() for line in text.splitlines()]


def line_matches(want, got):
    pattern = ".*".join(re.escape(part) for part in want.split("<any>"))
    return re.fullmatch(pattern, got) is not None


def matches(want, got):
    if not want:
        return not got
    if want[0] == "...":
        return any(matches(want[1:], got[i:]) for i in range(len(got) + 1))
    return bool(got) and line_matches(want[0], got[0]) and matches(want[1:], got[1:])


def run(case):
    # isolated from the user's own database and models
    others = ("COLUMNS", "PERJOULE_", "HF_", "HUGGINGFACE_", "OLLAMA_", "LLAMA_")
    own = {k: v for k, v in os.environ.items() if not k.startswith(others)}
    env = {**own, "PERJOULE": str(PROGRAM.resolve()), "CASE": str(case.resolve()),
           "PERJOULE_BASELINE": "0.2", "NO_COLOR": "1", "TZ": "UTC", "LC_ALL": "C.UTF-8"}
    with tempfile.TemporaryDirectory() as folder:
        env["XDG_DATA_HOME"] = env["HOME"] = env["XDG_CACHE_HOME"] = folder
        env["OLLAMA_MODELS"] = folder + "/.ollama/models"
        done = subprocess.run(["sh", str((case / "cmd").resolve())], cwd=folder, env=env,
                              capture_output=True, timeout=SECONDS, stdin=subprocess.DEVNULL)
    wrong = []
    for name, data in (("stdout", done.stdout), ("stderr", done.stderr)):
        golden, got = case / name, scrub(data.decode("utf-8", "replace"))
        if os.environ.get("PJ_REFRESH") and (golden.exists() or data):
            golden.write_text("".join(line + "\n" for line in got))
        elif golden.exists() and not matches(scrub(golden.read_text()), got):
            wrong.append(f"{name} is\n" + "\n".join("    " + line for line in got))
    want = int((case / "exit").read_text()) if (case / "exit").exists() else 0
    if done.returncode != want:
        tail = done.stderr.decode("utf-8", "replace")[-400:]
        wrong.append(f"exit code is {done.returncode}, not {want}: {tail}")
    return wrong


def main():
    passed = failed = skipped = 0
    for case in CASES:
        skip = case / "skip"
        if skip.exists():
            reason = subprocess.run(["sh", str(skip)], capture_output=True, text=True)
            if reason.returncode == 0:
                print(f"skip {case.name}: {reason.stdout.strip()}")
                skipped += 1
                continue
        wrong = run(case)
        print(("ok   " if not wrong else "FAIL ") + case.name)
        for text in wrong:
            print("  " + text)
        passed += not wrong
        failed += bool(wrong)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed + skipped else 0


sys.exit(main())
