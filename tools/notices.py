#!/usr/bin/env python3
"""Lists the third-party software inside what we distribute: its notices, and a bill of materials (CycloneDX 1.5).

    notices.py [--ui UI] [--sources FOLDER LIBRARY...] [--sbom FILE]

UI is the page's folder, whose installed packages (node_modules) the built page contains; LIBRARY is linked
statically, and FOLDER holds its source archives, of which the notice is taken. Prints the notices. Libraries that are
linked dynamically are not inside, and their packages carry their own notices.
"""
import argparse
import base64
import json
import pathlib
import re
import sys
import tarfile
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD_TOOLS = {"vite"}  # among the page's dependencies, which a release needs to build it, but not inside it
SPDX = {"zlib": "Zlib", "utf8proc": "MIT", "jansson": "MIT", "pcre2": "BSD-3-Clause", "wslay": "MIT",
        "libmicrohttpd": "LGPL-2.1-or-later", "sqlite3": "blessing"}
TEXTS = re.compile(r"(licen[cs]e|copying|notice)[^/]*$", re.I)
LINE = "=" * 79
RELINKING = """\
The program is linked with this library statically. Its source is beside the program's archive, and so is perjoule's:
to use a changed library, put its source archive into build-dist-bin/sources of perjoule's source and run
`make dist-bin`. The library may be changed, and the program debugged for that, without further permission.
"""


def component(name, version, licence, purl, text, digest=None):
    return {"name": name, "version": version, "license": licence, "purl": purl, "text": text.strip(), "sha512": digest}


# ---- the page ----

def texts_of_release(ui):
    """A release has the page built, and no packages: their terms are in the page's file, by "NAME VERSION"."""
    built = ui / "dist/licenses.txt"
    parts = re.split(rf"^{LINE}\n(.+) \(.+\)\n{LINE}\n", built.read_text() if built.exists() else "", flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def packages(ui):
    """Those in the page: its dependencies, and theirs."""
    lock = json.loads((ui / "package-lock.json").read_text())["packages"]
    kept = texts_of_release(ui)
    waiting, found = sorted(set(lock[""]["dependencies"]) - BUILD_TOOLS), {}
    while waiting:
        name = waiting.pop()
        entry = lock[f"node_modules/{name}"]
        if name not in found:
            found[name] = entry
            waiting += entry.get("dependencies", {})
    for name, entry in sorted(found.items()):
        folder = ui / "node_modules" / name
        texts = [path for path in sorted(folder.iterdir()) if TEXTS.match(path.name)] if folder.is_dir() else []
        text = texts[0].read_text() if texts else kept.get(f"{name} {entry['version']}")
        if not text:
            raise SystemExit(f"notices: {folder} has no licence: run npm ci in {ui}")
        digest = base64.b64decode(entry["integrity"].removeprefix("sha512-")).hex()
        yield component(name, entry["version"], entry["license"],
                        f"pkg:npm/{name.replace('@', '%40')}@{entry['version']}", text, digest)


# ---- libraries ----

def notice_in(archive):
    """Debian's collection of all notices, or the library's own file."""
    with tarfile.open(archive) as tar:
        names = [m.name for m in tar.getmembers() if m.isfile()]
        best = [n for n in names if n.endswith("debian/copyright")] or \
            sorted((n for n in names if n.count("/") <= 1 and TEXTS.match(n.rsplit("/", 1)[-1])), key=len)
        return tar.extractfile(best[0]).read().decode("utf-8", "replace") if best else ""


def libraries(folder, names):
    for name in names:
        own = sorted(folder.glob(f"{name}_*.orig.tar.*"))
        own = [path for path in own if path.suffix != ".asc"]
        if not own:
            raise SystemExit(f"notices: {folder} has no source of {name}")
        version = re.match(rf"{name}_(.+?)\.orig\.tar", own[-1].name)[1]
        packed = sorted(folder.glob(f"{name}_{version}*.debian.tar.*")) + [own[-1]]
        text = next(filter(None, map(notice_in, packed)), "")
        if not text:
            raise SystemExit(f"notices: {own[-1]} has no licence")
        licence = SPDX[name]
        if licence.startswith("LGPL"):
            text = RELINKING + "\n" + text
        yield component(name, version, licence, f"pkg:generic/{name}@{version}", text)


# ---- output ----

def notices(components):
    out = ["perjoule contains the following third-party software. Its own licence is Apache-2.0 (LICENSE)."]
    for c in components:
        out += ["", LINE, f"{c['name']} {c['version']} ({c['license']})", LINE, "", c["text"]]
    return "\n".join(out) + "\n"


def licences(expression):
    return [{"expression": expression}] if " " in expression else [{"license": {"id": expression}}]


def bill(components):
    version = re.search(r"version: '([^']+)'", (ROOT / "meson.build").read_text())[1]
    listed = [{"type": "library", "bom-ref": c["purl"], "name": c["name"], "version": c["version"],
               "licenses": licences(c["license"]), "purl": c["purl"],
               **({"hashes": [{"alg": "SHA-512", "content": c["sha512"]}]} if c["sha512"] else {})} for c in components]
    own = f"pkg:generic/perjoule@{version}"
    names = own + "".join(sorted(c["purl"] for c in components))  # the same contents have the same number
    return {"bomFormat": "CycloneDX", "specVersion": "1.5", "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, names)}",
            "version": 1,
            "metadata": {"component": {"type": "application", "bom-ref": own, "name": "perjoule", "version": version,
                                       "licenses": licences("Apache-2.0"), "purl": own}},
            "components": listed,
            "dependencies": [{"ref": own, "dependsOn": [c["purl"] for c in components]}]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ui", type=pathlib.Path)
    parser.add_argument("--sources", nargs="+", default=[])
    parser.add_argument("--sbom", type=pathlib.Path)
    args = parser.parse_args()
    components = list(packages(args.ui)) if args.ui else []
    if args.sources:
        components += libraries(pathlib.Path(args.sources[0]), args.sources[1:])
    if args.sbom:
        args.sbom.write_text(json.dumps(bill(components), indent=2) + "\n")
    sys.stdout.write(notices(components))


if __name__ == "__main__":
    main()
