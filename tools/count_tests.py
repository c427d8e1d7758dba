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


def main():
    passed = failed = skipped = 0
    broken = []
    for line in open(sys.argv[1], encoding="utf-8"):
        entry = json.loads(line)
        p, f, s = cases(entry)
        if entry["result"] not in ("OK", "SKIP", "EXPECTEDFAIL"):
            f = max(f, 1)  # a crash after good cases is a failure too
            broken.append(entry["name"])
        passed, failed, skipped = passed + p, failed + f, skipped + s
    for name in broken:
        print(f"failed: {name}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


sys.exit(main())
