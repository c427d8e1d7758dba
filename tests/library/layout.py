#!/usr/bin/env python3
"""Checks that libperjoule's binary interface (ABI) is unchanged.

Usage: layout.py LIBRARY ROOT COMPILER... [--write]

Compares with tests/library/libperjoule.abi (64-bit Linux): exported symbols with their version,
size and member offsets of every public struct, and values of every enumeration. Also checks the needed libraries: at
most five, none for HTTP, TLS or the engine. After a deliberate
addition `--write` rewrites the file; existing entries must not change while the ABI's version
stays.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

arguments = [a for a in sys.argv[1:] if a != "--write"]
library, root, compiler = arguments[0], pathlib.Path(arguments[1]), arguments[2:]
abi = root / "tests/library/libperjoule.abi"
FORBIDDEN = ("microhttpd", "gnutls", "ssl", "crypto", "curl", "pcre", "utf8proc", "wslay", "plist", "pq")


def header_text():
    text = "".join((root / "include" / name).read_text() for name in ("perjoule/base.h", "perjoule.h"))
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S)


def members(body):
    """Names of a struct's members; handles several declarators per line and arrays."""
    for declaration in body.split(";"):
        for declarator in declaration.split(","):
            name = re.search(r"(\w+)\s*(\[[^\]]*\])?\s*$", declarator.strip())
            if name:
                yield name[1]


def probe(text):
    lines = []
    for body, name in re.findall(r"typedef struct \w+ \{(.*?)\}\s*(\w+);", text, re.S):
        lines.append(f'printf("struct {name} %zu\\n", sizeof({name}));')
        lines += [f'printf("  {m} %zu\\n", offsetof({name}, {m}));' for m in members(body)]
    for body, name in re.findall(r"typedef enum \w+ \{(.*?)\}\s*(\w+);", text, re.S):
        for constant in re.findall(r"\b(PJ_\w+)\s*(?:=[^,]*)?(?:,|$)", body.strip()):
            lines.append(f'printf("enum {constant} %d\\n", (int){constant});')
    return "#include <perjoule.h>\n#include <stdio.h>\nint main(void) {\n" + "\n".join(lines) + "\nreturn 0; }\n"


def layout():
    with tempfile.TemporaryDirectory() as folder:
        source, program = pathlib.Path(folder, "probe.c"), pathlib.Path(folder, "probe")
        source.write_text(probe(header_text()))
        subprocess.run([*compiler, "-I", str(root / "include"), str(source), "-o", str(program)], check=True)
        return subprocess.run([program], capture_output=True, text=True, check=True).stdout


def symbols():
    listing = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True,
                             check=True).stdout
    names = sorted(line.split()[-1] for line in listing.splitlines() if line.split()[-2] != "A")
    return "".join(f"symbol {name}\n" for name in names)


def needed():
    dynamic = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    names = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
    soname = re.findall(r"\(SONAME\).*\[(.*)\]", dynamic)
    bad = [n for n in names if any(f in n for f in FORBIDDEN)]
    print(f"{soname} needs {len(names)} libraries: {', '.join(names)}")
    return len(names) <= 5 and not bad and soname == ["libperjoule.so.0"]


now = symbols() + layout()
if "--write" in sys.argv:
    abi.write_text(now)
wanted = abi.read_text()
good = needed()
for line in sorted(set(wanted.splitlines()) ^ set(now.splitlines())):
    print(("gone: " if line in wanted.splitlines() else "new:  ") + line)
if now != wanted:
    print("the binary interface changed: additions go into tests/library/libperjoule.abi by --write")
sys.exit(not good or now != wanted)
