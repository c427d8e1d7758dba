#!/usr/bin/env python3
"""Sums up Meson's test logs: one closing line, exit 1 when anything failed or nothing ran.

Programs that count their own cases (cmocka, the command line's goldens, the page's tests) are
counted case by case; others count as one.
"""
import json
import re
import sys


def cases(entry):
    text = (entry.get("stdout") or "") + (entry.get("stderr") or "")
    found = re.findall(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?", text, re.M)
    if found:
        return [sum(int(line[i] or 0) for line in found) for i in range(3)]
    ok = len(re.findall(r"^\[       OK \]|^ok \d+(?!.*# SKIP)", text, re.M))
    bad = len(re.findall(r"^\[  FAILED  \] \S+$|^not ok \d+", text, re.M))
    skip = len(re.findall(r"^\[  SKIPPED \] \S+$|^ok \d+.*# SKIP", text, re.M))
    if ok or bad or skip:
        return [ok, bad, skip]
    return {"OK": [1, 0, 0], "SKIP": [0, 0, 1]}.get(entry["result"], [0, 1, 0])


def complaints(entry, most=8):
    """The lines of a failed program's output that name the failure, to be repeated at the end of the log."""
    text = (entry.get("stdout") or "") + (entry.get("stderr") or "")
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip() for line in text.splitlines()]
    lines = [line for line in lines if line]
    said = [line for line in lines if re.search(
        r"^(not ok|FAIL|failed:)|\[  FAILED  \] \w|Error: |ERROR: |^error|assert", line)]
    return list(dict.fromkeys(said))[:most] or lines[-most:]


def main():
    passed = failed = skipped = 0
    broken = []
    for line in (line for path in sys.argv[1:] for line in open(path, encoding="utf-8")):
        entry = json.loads(line)
        p, f, s = cases(entry)
        if entry["result"] not in ("OK", "SKIP", "EXPECTEDFAIL"):
            f = max(f, 1)  # a crash after good cases is a failure too
            broken.append(entry)
        passed, failed, skipped = passed + p, failed + f, skipped + s
    for entry in broken:
        print(f"failed: {entry['name']} ({entry['result'].lower()})")
        for line in complaints(entry):
            print(f"    {line[:300]}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


sys.exit(main())
