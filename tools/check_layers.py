#!/usr/bin/env python3
"""Fails when a source file includes a header that its room may not know.

include <- base <- trace <- {power, llm, energy, store, analysis, net} <- profile <- cli, and every
foreign header has one home. Reads the #include lines; runs nothing.
"""
import pathlib
import re
import sys

MIDDLE = ["power", "llm", "energy", "store", "analysis", "net"]
MAY = {"base": {"base"}, "trace": {"base", "trace"}}
for room in MIDDLE:
    MAY[room] = {"base", "trace", room}
MAY["profile"] = {"base", "trace", "profile", *MIDDLE}
MAY["cli"] = MAY["profile"] | {"cli"}

# Header -> the only files (or folders) of src/ that may include it.
HOMES = {
    "sqlite3.h": ["store/sqlite"],
    "libpq-fe.h": ["store/postgres"],
    "microhttpd.h": ["net/"],
    "wslay/wslay.h": ["net/"],
    "pcre2.h": ["llm/tokenizer/"],
    "utf8proc.h": ["llm/tokenizer/"],
    "plist/plist.h": ["power/powermetrics"],
    "curl/curl.h": ["profile/attach", "cli/cmd_attach"],
    "zlib.h": ["store/"],
}


def problems(root):
    src = root / "src"
    for path in sorted(src.rglob("*.[chS]")):
        name = path.relative_to(src).as_posix()
        room = name.split("/")[0]
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line)
            if not found:
                continue
            header = found[1]
            other = header.split("/")[0]
            if other in MAY and other not in MAY[room]:
                yield f"src/{name}:{number}: {room} may not include {header}"
            homes = HOMES.get(header)
            if homes and not any(name.startswith(home) for home in homes):
                yield f"src/{name}:{number}: {header} belongs to {', '.join(homes)}"


def main():
    found = list(problems(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
    print("\n".join(found) or "layers: clean")
    return 1 if found else 0


sys.exit(main())
