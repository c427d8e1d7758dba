#!/usr/bin/env python3
"""Checks that files, functions, types and routes named in the developer documents exist. Usage: check_names.py ROOT. A
name is code between backticks. `src/` may be left out of a
path, and the folder of a file whose name occurs once; * stands for anything, <name> for a choice.
"""
import json
import pathlib
import re
import sys

DOCUMENTS = ["docs/design.md", "docs/engine.md", "docs/formats.md", "docs/library.md", "docs/python.md",
             "docs/performance.md", "CONTRIBUTING.md"]
CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
FILE = re.compile(r"[\w./*<>-]+\.(?:c|h|py|sh|ts|tsx|build|abi|map|txt)$")
FOLDER = re.compile(r"(?:src|tests|tools|docs|ui|python|include|packaging|models|bench)(?:/[\w<>-]+)*/$")
NAME = re.compile(r"\bpj_\w+")
ROUTE = re.compile(r"(?:GET|POST|PATCH|DELETE) (/[\w/{}…]*)")
# Created by the examples of a document, or by a build.
ELSEWHERE = {"program.c"}


class Tree:
    def __init__(self, root):
        skip = {"node_modules", ".git", "dist", "__pycache__"}
        files = [p for p in (q.relative_to(root) for q in root.rglob("*"))
                 if not skip & set(p.parts) and not any(part.startswith("build") for part in p.parts[:1])]
        self.paths = {p.as_posix() for p in files}
        sources = [p for p in files if p.suffix in {".c", ".h", ".py", ".abi"}]
        self.words = {w for p in sources if (root / p).is_file()
                      for w in NAME.findall((root / p).read_text(errors="replace"))}
        self.routes = set(json.loads((root / "src/net/openapi.json").read_text())["paths"])

    def has_path(self, name):
        pattern = re.sub(r"<\w+>|\*", "*", name.rstrip("/"))
        pattern = re.escape(pattern).replace(r"\*", "[^/]*")
        return any(re.search(rf"(?:^|/){pattern}$", path) for path in self.paths)

    def has_route(self, route):
        ending = re.sub(r"^/?…", "", route)
        return any(known == route or (ending != route and known.endswith(ending)) for known in self.routes)


def unknown(tree, code):
    word = code.split("?")[0]
    if (FILE.fullmatch(word) or FOLDER.fullmatch(word)) and word not in ELSEWHERE and not tree.has_path(word):
        yield f"there is no file {word}"
    for name in NAME.findall(code):
        if name not in tree.words and not any(w.startswith(name) for w in tree.words if name.endswith("_")):
            yield f"nothing is called {name}"
    for route in ROUTE.findall(code):
        if not tree.has_route(route):
            yield f"there is no route {route}"


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    tree = Tree(root)
    checked, failed = 0, 0
    for document in DOCUMENTS:
        for number, line in enumerate((root / document).read_text().splitlines(), 1):
            for code in CODE.findall(line):
                checked += 1
                for what in unknown(tree, code):
                    failed += 1
                    print(f"{document}:{number}: {what}")
    print(f"names: {checked} checked, {failed} unknown")
    return 1 if failed else 0


sys.exit(main())
