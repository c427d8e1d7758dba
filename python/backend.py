"""Builds perjoule's wheel and source archive with Python's standard library alone (PEP 517).

PERJOULE_WHEEL_LIBRARY: a libperjoule to bundle; PERJOULE_WHEEL_PROGRAM: the folder of an installation (bin/perjoule,
lib/perjoule, share/perjoule) to bring along; PERJOULE_WHEEL_PLATFORM: the wheel's platform tag. Without them the wheel is
`py3-none-any` and finds the library of an installed perjoule.
"""
import base64
import hashlib
import io
import os
import pathlib
import re
import tarfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
PACKAGES = ("perjoule", "profiling")
DATE = (1980, 1, 1, 0, 0, 0)  # reproducible builds: equal inputs give equal archives
SUMMARY = "Joules of transformer inference, per phase, token, layer and component"


def version():
    return re.search(r'^__version__ = "([^"]+)"', (HERE / "perjoule/__init__.py").read_text(), re.M)[1]


def metadata():
    return (f"Metadata-Version: 2.1\nName: perjoule\nVersion: {version()}\nSummary: {SUMMARY}\n"
            "License: Apache-2.0\nRequires-Python: >=3.9\nDescription-Content-Type: text/markdown\n\n"
            + (HERE / "README.md").read_text())


def sources():
    for package in PACKAGES:
        for path in sorted((HERE / package).rglob("*")):
            if path.suffix == ".py" or path.name == "py.typed":
                yield path.relative_to(HERE).as_posix(), path.read_bytes()


def platform_of(library):
    if not library:
        return "any"
    named = os.environ.get("PERJOULE_WHEEL_PLATFORM")
    if not named:
        raise SystemExit("PERJOULE_WHEEL_LIBRARY needs PERJOULE_WHEEL_PLATFORM, for instance linux_x86_64")
    return named


def license_file():
    for path in (HERE / "LICENSE", HERE.parent / "LICENSE"):
        if path.exists():
            return path.read_bytes()
    raise SystemExit("the LICENSE is missing")


def program_files():
    """(place in the wheel, bytes, mode) of the program and of what it looks for beside its folder."""
    tree = os.environ.get("PERJOULE_WHEEL_PROGRAM")
    if not tree:
        return
    tree = pathlib.Path(tree)
    yield "scripts/perjoule", (tree / "bin/perjoule").read_bytes(), 0o755
    for path in sorted(tree.glob("lib*/**/perjoule/*.so")):  # the folder of libraries has another name on some systems
        yield f"data/lib/perjoule/{path.name}", path.read_bytes(), 0o755
    for folder in ("share/perjoule", "share/man"):
        for path in sorted(path for path in (tree / folder).rglob("*") if path.is_file()):
            yield f"data/{path.relative_to(tree).as_posix()}", path.read_bytes(), 0o644


class Wheel:
    """Writes a zip with its RECORD, the list of files and hashes."""

    def __init__(self, path, info):
        self.zip, self.info, self.record = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED), info, []

    def add(self, name, data, mode=0o644):
        entry = zipfile.ZipInfo(name, DATE)
        entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, (0o100000 | mode) << 16
        self.zip.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(data)}")

    def close(self):
        name = f"{self.info}/RECORD"
        entry = zipfile.ZipInfo(name, DATE)
        entry.external_attr = 0o100644 << 16
        self.zip.writestr(entry, "\n".join([*self.record, f"{name},,"]) + "\n")
        self.zip.close()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    library = os.environ.get("PERJOULE_WHEEL_LIBRARY")
    platform = platform_of(library)
    name = f"perjoule-{version()}-py3-none-{platform}.whl"
    info = f"perjoule-{version()}.dist-info"
    wheel = Wheel(pathlib.Path(wheel_directory, name), info)
    for path, data in sources():
        wheel.add(path, data)
    if library:
        inside = "libperjoule.0.dylib" if platform.startswith("macosx") else "libperjoule.so.0"
        wheel.add(f"perjoule/lib/{inside}", pathlib.Path(library).read_bytes(), 0o755)
        for place, data, mode in program_files():
            wheel.add(f"perjoule-{version()}.data/{place}", data, mode)
        made = pathlib.Path(library).parent  # of what is linked into the library; the program has more inside
        for path, inside in ((os.environ.get("PERJOULE_WHEEL_NOTICES") or made / "THIRD-PARTY-NOTICES", "THIRD-PARTY-NOTICES"),
                             (os.environ.get("PERJOULE_WHEEL_BILL") or made / "cdx.json", "sboms/perjoule.cdx.json")):
            path = pathlib.Path(path)
            if path.exists():
                wheel.add(f"{info}/{inside}", path.read_bytes())
    wheel.add(f"{info}/METADATA", metadata().encode())
    wheel.add(f"{info}/LICENSE", license_file())
    wheel.add(f"{info}/entry_points.txt", b"[pytest11]\nperjoule = perjoule.testing\n")
    pure = "false" if library else "true"
    wheel.add(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: perjoule\nRoot-Is-Purelib: {pure}\n"
              f"Tag: py3-none-{platform}\n".encode())
    wheel.close()
    return name


def build_vllm(wheel_directory):
    """perjoule-vllm: no code, only the entry points by which vLLM finds perjoule.vllm. Installing it turns recording
    on."""
    name, info = f"perjoule_vllm-{version()}-py3-none-any.whl", f"perjoule_vllm-{version()}.dist-info"
    wheel = Wheel(pathlib.Path(wheel_directory, name), info)
    wheel.add(f"{info}/METADATA", (
        f"Metadata-Version: 2.1\nName: perjoule-vllm\nVersion: {version()}\nSummary: vLLM plugin of perjoule: joules of "
        f"steps and requests\nLicense: Apache-2.0\nRequires-Python: >=3.9\nRequires-Dist: perjoule (>={version()})\n").encode())
    wheel.add(f"{info}/LICENSE", license_file())
    wheel.add(f"{info}/WHEEL", b"Wheel-Version: 1.0\nGenerator: perjoule\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.add(f"{info}/entry_points.txt", b"[vllm.stat_logger_plugins]\nperjoule = perjoule.vllm:EnergyLogger\n\n"
              b"[vllm.general_plugins]\nperjoule = perjoule.vllm:register\n")
    wheel.close()
    return name


def build_sdist(sdist_directory, config_settings=None):
    root = f"perjoule-{version()}"
    name = f"{root}.tar.gz"
    files = dict(sources())
    for each in ("pyproject.toml", "backend.py", "README.md"):
        files[each] = (HERE / each).read_bytes()
    files["LICENSE"], files["PKG-INFO"] = license_file(), metadata().encode()
    with tarfile.open(pathlib.Path(sdist_directory, name), "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(files):
            entry = tarfile.TarInfo(f"{root}/{path}")
            entry.size, entry.mode = len(files[path]), 0o644
            archive.addfile(entry, io.BytesIO(files[path]))
    return name


if __name__ == "__main__":
    import sys

    kind, folder = sys.argv[1:3]
    print(os.path.join(folder, {"wheel": build_wheel, "sdist": build_sdist, "vllm": build_vllm}[kind](folder)))
