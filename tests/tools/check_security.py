#!/usr/bin/env python3
"""Every promise in the table of SECURITY.md names tests, and they exist: check_security.py SOURCE_ROOT."""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
bad = []


def exists(path, name):
    """A function, a test, or a name that is set; names that end in _ are the beginning of one."""
    if not (root / path).is_file():
        return False
    end = "" if name.endswith("_") else r"\b"
    defined = rf"(?m)^(?:\s*def |static void |\s*test\('){re.escape(name)}{end}|^{re.escape(name)} = "
    return re.search(defined, (root / path).read_text()) is not None


rows = re.findall(r"(?m)^\| ([^|]+) \| (`[^|]+) \|$", (root / "SECURITY.md").read_text())
for promise, tests in rows:
    for test in tests.split("; "):
        found = re.fullmatch(r"`([^`]+)`(?:: (.+))?", test)
        path, names = found.groups() if found else (test, None)
        if not (root / path).exists():
            bad.append(f"{promise}: there is no {path}")
        bad += [f"{promise}: {path} has no {name}" for name in (names.split(", ") if names else ())
                if not exists(path, name)]
if len(rows) < 15:
    bad.append(f"SECURITY.md has a table of {len(rows)} promises: is it still read?")
print("\n".join(bad) or f"{len(rows)} promises, each with its tests")
sys.exit(bool(bad))
