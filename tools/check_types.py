#!/usr/bin/env python3
"""Fails when two source files define a type of the same name: a reader should find one answer.

Usage: check_types.py ROOT
"""
import collections
import pathlib
import re
import sys

# Matches only definitions with a body: an opaque typedef in a public header is no second definition.
TYPE = re.compile(r"^(?:\} (pj_\w+);|typedef (?:enum|struct|union)[^;{]*\{[^{}]*\} (pj_\w+);"
                  r"|(?:struct|enum|union) (pj_\w+) \{)", re.M)


def main():
    homes = collections.defaultdict(set)
    root = pathlib.Path(sys.argv[1])
    for path in [*(root / "src").rglob("*.[ch]"), *(root / "include").rglob("*.h")]:
        for found in TYPE.finditer(path.read_text()):
            homes[next(filter(None, found.groups()))].add(path.relative_to(root).as_posix())
    twice = {name for name, files in homes.items() if len(files) > 1}
    for name in sorted(twice):
        print(f"{name} is defined in {', '.join(sorted(homes[name]))}")
    if twice:
        return 1
    print(f"types: {len(homes)} names")
    return 0


sys.exit(main())
