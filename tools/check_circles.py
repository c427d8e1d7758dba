#!/usr/bin/env python3
"""Fails when source files of one room depend on each other in a cycle.

Two files depend on each other when each uses a function or an object that the other defines, in
however many steps. Dependencies are read from the symbol tables of the room's static library; includes would not do,
because several files may share one header. Usage: check_circles.py ROOM.a...
"""
import collections
import pathlib
import re
import subprocess
import sys

LINE = re.compile(r"(?:.*:)?([^:]+)\.c\.o:\s*[0-9a-f]*\s+([A-Za-z])\s+(\S+)$")


def arrows(library):
    """File -> files whose symbols it uses, by the names that Meson gives objects."""
    listing = subprocess.run(["nm", "-A", library], capture_output=True, text=True, check=True).stdout
    defined, used = {}, collections.defaultdict(set)
    for line in listing.splitlines():
        found = LINE.match(line.replace("(", ":").replace("):", ":"))
        if not found:
            continue
        name, kind, symbol = found[1].rsplit("/", 1)[-1], found[2], found[3]
        if kind in "TDBRCVWS":
            defined[symbol] = name
        elif kind == "U":
            used[name].add(symbol)
    if not defined:
        sys.exit(f"{library}: no symbols were read")
    return {name: {defined[s] for s in symbols if s in defined} - {name}
            for name, symbols in used.items()}


def circles(graph):
    """Strongly connected components of more than one file (Tarjan)."""
    index, low, stack, found = {}, {}, [], []

    def visit(name):
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph.get(name, ())):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            part = set()
            while name not in part:
                part.add(stack.pop())
            if len(part) > 1:
                found.append(part)

    for name in sorted(graph):
        if name not in index:
            visit(name)
    return found


def main():
    found = set()
    for library in map(pathlib.Path, sys.argv[1:]):
        room = library.stem.removeprefix("libpj_")
        for part in circles(arrows(library)):
            files = sorted(name.removeprefix(f"src_{room}_") for name in part)
            found.add(f"{room}: {' '.join(files)}")
    for circle in sorted(found):
        print(f"a circle inside a room: {circle}")
    if found:
        return 1
    print("circles: none")
    return 0


sys.exit(main())
