#!/usr/bin/env python3
"""Copies the table of statistics (src/trace/statistics.h) into files that are not C. A statistic that a file lacks is
inserted after its predecessor in the table wherever that occurs: in objects with properties and in lists of names. For
the page a module is generated. Usage: statistics.py ROOT [--write]; without --write it only reports stale files.
"""
import pathlib
import re
import sys

LINE = re.compile(r'^ {4}X\((\w+), (\w+), (FLOAT|U32), "(\w+)", (\w+), "([^"]*)", "([^"]*)", __VA', re.M)
JSON_FILES = ["src/net/openapi.json"]
PAGE_FILE = "ui/src/api/statistics.ts"


def table(root):
    """(prefixed, name, label, unit, shown) per statistic, in order."""
    text = (root / "src/trace/statistics.h").read_text()
    split = text.index("#define PJ_ROW_STATISTICS")
    return [(m[3] == "FLOAT", m[4], m[7], m[6], m.start() < split) for m in LINE.finditer(text)]


NEAR = 800  # maximum distance to the other statistics of the same object, in characters


def insert(text, before, name):
    """Inserts `name` after `before` in every list and object that has `before` but not `name`."""
    def into_list(m):
        if f'"{name}"' in m[0]:
            return m[0]
        return re.sub(r'"%s"' % before, f'"{before}", "{name}"', m[0])

    def into_object(m):
        if f'"{name}": ' in m.string[max(0, m.start() - NEAR):m.end() + NEAR]:
            return m[0]
        return f'{m[0]},{m[1]}"{name}": {m[2]}'

    text = re.sub(r'(\s*)"%s": (\{(?:[^{}]|\{[^{}]*\})*\})' % before, into_object, text)
    return re.sub(r'\[[^\[\]{}]*"%s"[^\[\]{}]*\]' % before, into_list, text)


def spread(text, statistics):
    for group in (True, False):
        rows = [s for s in statistics if s[4] == group]
        for before, after in zip(rows, rows[1:]):
            for prefix in ("activation_", "tensor_"):
                old, new = ((prefix if s[0] else "") + s[1] for s in (before, after))
                text = insert(text, old, new)
    return text


def page(statistics):
    lines = ["// Made by tools/statistics.py from src/trace/statistics.h: change it there.", "",
             "/** Statistics of outputs that charts show, in the table's order. */",
             "export const STATISTICS = ["]
    for prefixed, name, label, unit, shown in statistics:
        if shown:
            full = ("activation_" if prefixed else "") + name
            lines.append(f"  {{ name: '{full}', label: '{label}', unit: '{unit}' }},")
    lines += ["] as const;", "", "export type Statistic = (typeof STATISTICS)[number];",
              "export type StatisticName = Statistic['name'];", "",
              "export const STATISTIC_NAMES: readonly StatisticName[] = STATISTICS.map((s) => s.name);"]
    return "\n".join(lines) + "\n"


def main():
    root, write = pathlib.Path(sys.argv[1]), "--write" in sys.argv[2:]
    statistics = table(root)
    if len(statistics) < 7:
        sys.exit("src/trace/statistics.h: the table was not understood")
    wanted = {name: spread((root / name).read_text(), statistics) for name in JSON_FILES}
    wanted[PAGE_FILE] = page(statistics)
    stale = [name for name, text in wanted.items()
             if not (root / name).exists() or (root / name).read_text() != text]
    for name in stale:
        if write:
            (root / name).write_text(wanted[name])
        print(f"{name}: {'written' if write else 'stale, run tools/statistics.py . --write'}")
    if not stale:
        print("statistics: spread everywhere")
    return 0 if write or not stale else 1


sys.exit(main())
