#!/usr/bin/env python3
"""Fails when a source file includes a header that its room may not use.

include <- base <- trace <- {power, llm, energy, store, analysis, net, attach} <- attribution
<- profile <- serve <- cli; the rooms in the middle never include each other, attribution knows
power and energy alone, and every foreign header has one home. Reads the #include lines; runs
nothing. check_circles.py finds cycles inside a room.
"""
import pathlib
import re
import sys

MIDDLE = ["power", "llm", "energy", "store", "analysis", "net", "attach"]
MAY = {"base": {"base"}, "trace": {"base", "trace"}}
for room in MIDDLE:
    MAY[room] = {"base", "trace", room}
MAY["attribution"] = {"base", "trace", "power", "energy", "attribution"}
MAY["profile"] = {"base", "trace", "attribution", "profile", *MIDDLE}
MAY["serve"] = MAY["profile"] | {"serve"}
MAY["cli"] = MAY["serve"] | {"cli", "inject"}  # of inject: what exec shares with it
MAY["inject"] = {"inject"}  # loaded into foreign programs: uses no other room

# Header -> the only files (or folders) of src/ that may include it.
HOMES = {
    "sqlite3.h": ["store/sqlite"],
    "libpq-fe.h": ["store/postgres"],
    "microhttpd.h": ["net/"],
    "wslay/wslay.h": ["net/"],
    "pcre2.h": ["llm/tokenizer/"],
    "utf8proc.h": ["llm/tokenizer/"],
    "curl/curl.h": ["attach/"],
    "zlib.h": ["store/"],
}

INCLUDE = re.compile(r'\s*#\s*include\s*[<"]([^>"]+)[>"]')


def sources(root):
    src = root / "src"
    for path in sorted(src.rglob("*.[chS]")):
        lines = path.read_text().splitlines()
        headers = [(number, found[1]) for number, line in enumerate(lines, 1)
                   if (found := INCLUDE.match(line))]
        yield path.relative_to(src), headers


def wrong_rooms(files):
    for path, headers in files:
        name, room = path.as_posix(), path.parts[0]
        if room not in MAY:
            yield f"src/{name}: {room} is not a known room"
            continue
        for number, header in headers:
            other = header.split("/")[0]
            if other in MAY and other not in MAY[room]:
                yield f"src/{name}:{number}: {room} may not include {header}"
            homes = HOMES.get(header)
            if homes and not any(name.startswith(home) for home in homes):
                yield f"src/{name}:{number}: {header} belongs to {', '.join(homes)}"


def main():
    files = list(sources(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
    found = list(wrong_rooms(files))
    print("\n".join(found) or "layers: clean")
    return 1 if found else 0


sys.exit(main())
