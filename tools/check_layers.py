#!/usr/bin/env python3
"""Fails when a source file includes a header that its room may not use.

A room is a folder of src/, or of src/engine/. The law (docs/design.md, "Rooms"):

include <- base <- {trace, http} <- {power, engine, energy, store, analysis, net, attach} <- attribution <- record
<- {import, insight} <- generate <- {experiment, requests} <- report <- serve <- cli <- bench

The rooms in braces do not include each other, except that engine is a row of rooms of its own,
files <- {kernels, text} <- model <- forward <- DEVICES <- generation; attribution knows power and energy
alone; http is for power, net, attach, serve and the programs; every foreign header has one home, and its library is a
dependency of the rooms that include it. The document names every room, in the order and in the list.
Reads the #include lines; runs nothing. check_circles.py finds cycles inside a room.
"""
import pathlib
import re
import sys

# Room -> the rooms it may include besides itself.
LOW = ["base", "trace"]
BELOW_DEVICES = ["engine/files", "engine/kernels", "engine/text", "engine/model", "engine/forward"]
DEVICES = ["engine/cpu", "engine/vulkan"]
ENGINE = BELOW_DEVICES + DEVICES + ["engine/generation"]
MIDDLE = ["power", "energy", "store", "analysis", "net", "attach"]
RECORD = LOW + MIDDLE + ["attribution"]
MAY = {
    "base": [],
    "trace": ["base"],
    "http": ["base"],
    **{room: LOW for room in MIDDLE},
    **{room: LOW + ["http"] for room in ("power", "net", "attach")},
    "engine/files": LOW,
    "engine/kernels": LOW + BELOW_DEVICES[:1],
    "engine/text": LOW + BELOW_DEVICES[:1],
    "engine/model": LOW + BELOW_DEVICES[:3],
    "engine/forward": LOW + BELOW_DEVICES[:4],
    **{room: LOW + BELOW_DEVICES for room in DEVICES},
    "engine/generation": LOW + BELOW_DEVICES + DEVICES,
    "attribution": LOW + ["power", "energy"],
    "record": RECORD,
    "import": RECORD + ["record"],
    "insight": RECORD + ["record"],
}
MAY["generate"] = RECORD + ENGINE + ["record", "insight"]
MAY["experiment"] = MAY["requests"] = MAY["generate"] + ["generate"]
MAY["report"] = MAY["experiment"] + ["experiment"]
MAY["serve"] = MAY["report"] + ["report", "http"]
MAY["cli"] = MAY["serve"] + ["import", "requests", "serve", "inject"]  # of inject: what exec shares with it
MAY["bench"] = MAY["cli"] + ["cli"]
MAY["inject"] = []  # loaded into foreign programs

# Header -> the only files (or folders) of src/ that may include it.
HOMES = {
    "sqlite3.h": ["store/sqlite", "bench/sqlite_yardstick.c"],
    "libpq-fe.h": ["store/postgres"],
    "microhttpd.h": ["net/"],
    "wslay/wslay.h": ["net/"],
    "pcre2.h": ["engine/text/tokenizer/"],
    "utf8proc.h": ["engine/text/tokenizer/"],
    "zlib.h": ["http/gzip.c", "store/zip.c"],
    "vulkan/vulkan_core.h": ["engine/vulkan/"],
}

INCLUDE = re.compile(r'\s*#\s*include\s*[<"]([^>"]+)[>"]')


def room_of(path):
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] == "engine" else parts[0]


def sources(root):
    for folder, base in ((root / "src", root / "src"), (root / "bench", root)):
        for path in sorted(folder.rglob("*.[chS]")):
            lines = path.read_text().splitlines()
            headers = [(number, found[1]) for number, line in enumerate(lines, 1)
                       if (found := INCLUDE.match(line))]
            yield path.relative_to(base).as_posix(), headers


def wrong_rooms(files):
    for name, headers in files:
        room = room_of(name)
        if room not in MAY:
            yield f"{name}: {room} is not a known room"
            continue
        for number, header in headers:
            other = room_of(header)
            if other in MAY and other != room and other not in MAY[room]:
                yield f"{name}:{number}: {room} may not include {header}"
            homes = HOMES.get(header)
            if homes and not any(name.startswith(home) for home in homes):
                yield f"{name}:{number}: {header} belongs to {', '.join(homes)}"


# Rooms that docs/design.md does not name, or names though there are none.
def undescribed_rooms(root):
    text = (root / "docs/design.md").read_text()
    section = text[text.index("\n## Rooms"):text.index("\n## Words")]
    order = set(re.findall(r"[a-z]+", section[section.index("```"):section.rindex("```")]))
    listed = {name.rstrip("/") for line in re.findall(r"^- (`[^:]*):", section, re.M) for name in re.findall(r"`([^`]+)`", line)}
    for room in MAY:
        if room not in listed:
            yield f"docs/design.md: the list of rooms lacks {room}"
        if room.split("/")[-1] not in order and room != "inject":  # which includes nothing and is included by cli alone
            yield f"docs/design.md: the order of rooms lacks {room}"
    for room in sorted(listed - set(MAY)):
        yield f"docs/design.md: {room} is not a known room"


# Header -> the name of its library in meson.build. A room that does not list it builds only where the header lies in
# the compiler's own path, which is not so in an archive's build.
LIBRARIES = {"jansson.h": "jansson", "sqlite3.h": "sqlite", "microhttpd.h": "microhttpd", "wslay/wslay.h": "wslay",
             "pcre2.h": "pcre2", "utf8proc.h": "utf8proc", "zlib.h": "zlib"}


def undeclared_libraries(root, files):
    rooms = {room: re.findall(r"\w+", needs) for room, needs in
             re.findall(r"^  '([a-z/]+)': \[([\w, ]*)\],$", (root / "meson.build").read_text(), re.M)}
    for name, headers in files:
        needs = rooms.get(room_of(name))
        for number, header in headers:
            if needs is not None and LIBRARIES.get(header, needs[0]) not in needs:
                yield f"{name}:{number}: {room_of(name)} does not list {LIBRARIES[header]} in meson.build"


# What commands print may come from a stranger's run, model or server: src/cli prints by pj_print, which cleans it.
PRINTS = re.compile(r"(?<!\w)f?printf\(")
MAY_PRINT = {"src/cli/terminal.c", "src/cli/run_live.c", "src/cli/patience.c"}


def raw_prints(root):
    for path in sorted((root / "src/cli").glob("*.c")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if PRINTS.search(line) and path.relative_to(root).as_posix() not in MAY_PRINT:
                yield f"{path.relative_to(root)}:{number}: print by pj_print"


# Waits and intervals follow the monotonic clock: the wall clock can be set.
def wall_clocks(root):
    for path in sorted((root / "src").rglob("*.[ch]")):
        name = path.relative_to(root).as_posix()
        if name != "src/base/clock.c" and "CLOCK_REALTIME" in path.read_text():
            yield f"{name}: CLOCK_REALTIME belongs to src/base/clock.c"


# Functions that write a variable of the C library, which threads share: their _r forms do not.
SHARED = re.compile(r"(?<![\w.>])(lgamma|strtok|localtime|gmtime|ctime|asctime|rand|srand)\(")


def shared_variables(root):
    for path in sorted((root / "src").rglob("*.[ch]")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = SHARED.search(line)
            if found and not line.lstrip().startswith(("*", "/*")):
                yield f"{path.relative_to(root)}:{number}: {found[1]} is not for threads"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    files = list(sources(root))
    found = [*wrong_rooms(files), *undescribed_rooms(root), *undeclared_libraries(root, files), *raw_prints(root), *wall_clocks(root),
             *shared_variables(root)]
    print("\n".join(found) or "layers: clean")
    return 1 if found else 0


sys.exit(main())
