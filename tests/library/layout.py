#!/usr/bin/env python3
"""Checks that libperjoule's binary interface (ABI) is unchanged.

Usage: layout.py LIBRARY ROOT COMPILER... [--write]

Compares with tests/library/libperjoule.abi (64-bit Linux): exported symbols with their version and type,
size of every public struct with the offsets and types of its members, and values of every enumeration. Types are
compared by the compiler, so that another name for the same type is no change. Also checks the needed libraries: at
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


def split(declarator):
    """`const char *const *tags`, `char text[8]` -> ("const char", "*const *", "tags", "[8]")"""
    found = re.fullmatch(r"(.*?)((?:\*\s*(?:const\b\s*)?)*)\b(\w+)\s*((?:\[[^\]]*\])*)", declarator.strip(), re.S)
    return found[1].strip(), found[2].strip(), found[3], found[4]


def members(body):
    """Names and types of a struct's members; handles several declarators per line and arrays."""
    for declaration in filter(str.strip, body.split(";")):
        base = None
        for declarator in " ".join(declaration.split()).split(","):
            first, stars, name, array = split(declarator)
            base = base or first
            yield name, " ".join(filter(None, (base, stars, array)))


def functions(text):
    """Names and types of the functions declared with PJ_API."""
    for result, name, parameters in re.findall(r"PJ_API\s+([^;()]*?)(\w+)\(([^;]*)\);", text):
        types = []
        for parameter in " ".join(parameters.split()).split(", "):
            base, stars, name_of, array = split(parameter)
            types.append(" ".join(filter(None, (base, stars or ("*" if array else "")))) if base else name_of)
        yield name, f"{' '.join(result.split())} ({', '.join(types)})"


def structs(text):
    return [(name, list(members(body))) for body, name in re.findall(r"typedef struct \w+ \{(.*?)\}\s*(\w+);", text, re.S)]


def run_c(source):
    with tempfile.TemporaryDirectory() as folder:
        path, program = pathlib.Path(folder, "probe.c"), pathlib.Path(folder, "probe")
        path.write_text("#include <perjoule.h>\n#include <stdio.h>\n" + source)
        made = subprocess.run([*compiler, "-I", str(root / "include"), str(path), "-o", str(program)],
                              stderr=subprocess.PIPE, text=True)
        if made.returncode:
            return None, made.stderr
        return subprocess.run([program], capture_output=True, text=True, check=True).stdout, ""


def layout():
    text, lines = header_text(), []
    for name, parts in structs(text):
        lines.append(f'printf("struct {name} %zu\\n", sizeof({name}));')
        lines += [f'printf("  {m} %zu {kind}\\n", offsetof({name}, {m}));' for m, kind in parts]
    for body, name in re.findall(r"typedef enum \w+ \{(.*?)\}\s*(\w+);", text, re.S):
        for constant in re.findall(r"\b(PJ_\w+)\s*(?:=[^,]*)?(?:,|$)", body.strip()):
            lines.append(f'printf("enum {constant} %d\\n", (int){constant});')
    out, complaint = run_c("int main(void) {\n" + "\n".join(lines) + "\nreturn 0; }\n")
    if out is None:
        sys.exit(complaint)
    return out


def symbols():
    listing = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True,
                             check=True).stdout
    names = sorted(line.split()[-1] for line in listing.splitlines() if line.split()[-2] != "A")
    types = dict(functions(header_text()))
    return "".join(f"symbol {name} {types.get(name.split('@')[0], 'undeclared')}\n" for name in names)


def pointer_to(kind):
    """`char [8]` -> `char (*)[8]`, `int (char)` -> `int (*)(char)`"""
    base, brackets = re.fullmatch(r"([^\[(]*)(.*)", kind).groups()
    return f"{base}(*){brackets}" if brackets else f"{kind} *"


def changed_types(recorded):
    """What the header declares must have the recorded types."""
    claims, struct = [], None
    for line in recorded.splitlines():
        word, name, *rest = line.split(maxsplit=2)
        if line.startswith("struct "):
            struct = name
        elif line.startswith("symbol "):
            name = name.split("@")[0]
            claims.append((f"&{name}", rest[0] if rest else "untyped", name))
        elif line.startswith("  "):
            claims.append((f"&(({struct} *)0)->{word}", rest[0] if rest else "untyped", f"{struct}.{word}"))
    source = "".join(f'_Static_assert(_Generic({what}, {pointer_to(kind)}: 1, default: 0), "{name} is no {kind}");\n'
                     for what, kind, name in claims)
    return run_c(source + "int main(void) { return 0; }\n")[1]


def needed():
    dynamic = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    names = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
    soname = re.findall(r"\(SONAME\).*\[(.*)\]", dynamic)
    bad = [n for n in names if any(f in n for f in FORBIDDEN)]
    print(f"{soname} needs {len(names)} libraries: {', '.join(names)}")
    return len(names) <= 5 and not bad and soname == ["libperjoule.so.0"]


def without_types(text):
    return [re.sub(r"^(symbol \S+|  \w+ \d+).*", r"\1", line) for line in text.splitlines()]


now = symbols() + layout()
if "--write" in sys.argv:
    abi.write_text(now)
recorded = abi.read_text()
good = needed()
before, after = without_types(recorded), without_types(now)
for line in sorted(set(before) ^ set(after)):
    print(("gone: " if line in before else "new:  ") + line)
complaint = changed_types(recorded) if before == after else ""
print(complaint, end="")
if before == after and not changed_types(recorded.replace("uint64_t)", "double)")):
    sys.exit("a changed parameter goes unnoticed")
if before != after or complaint:
    print("the binary interface changed: additions go into tests/library/libperjoule.abi by --write")
sys.exit(not good or before != after or bool(complaint))
