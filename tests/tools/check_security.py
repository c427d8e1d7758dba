#!/usr/bin/env python3
"""Every promise in the table of SECURITY.md names tests, and they exist; every variable of the environment that the
sources read is checked, or any value is good: check_security.py SOURCE_ROOT."""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
bad = []
# Nothing in these could be refused: secrets; switches for tests, which any text turns on; files that are named where they
# cannot be opened; what the program tells its own children.
ANY_VALUE = set("""PERJOULE_TOKEN PERJOULE_JOIN_TOKEN
    PERJOULE_VULKAN_MATRIX PERJOULE_VULKAN_VALIDATE PERJOULE_VULKAN_PACKED
    PERJOULE_VULKAN PERJOULE_NVML PERJOULE_IOREPORT PERJOULE_POWERMETRICS PERJOULE_CUPTI
    PERJOULE_MARKERS PERJOULE_LLAMA PERJOULE_NVTX_BUFFERS PERJOULE_CUDA_BUFFERS""".split())


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
sources = "".join(f.read_text() for f in (root / "src").rglob("*.c"))
read = set(re.findall(r'\w+\("((?:PERJOULE|OTEL)_\w+)"', sources))
checked = set(re.findall(r'\{"(PERJOULE_\w+)",\s*\w+_rule_|\{"(PERJOULE_\w+)",\s*pj_\w+|environment\'s (OTEL_\w+)', sources))
checked = {name for names in checked for name in names if name}
bad += [f"{name} is read from the environment, and nothing refuses a value that cannot be" for name in sorted(read - checked - ANY_VALUE)]
bad += [f"{name} is not read from the environment any more" for name in sorted(ANY_VALUE - read)]
if len(read) < 20:
    bad.append(f"the sources read {len(read)} variables of the environment: is that recognised?")
print("\n".join(bad) or f"{len(rows)} promises, each with its tests")
sys.exit(bool(bad))
