"""The archives: a wheel's contents and RECORD, and reproducible builds."""
import base64
import hashlib
import os
import pathlib
import re
import struct
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile

PYTHON = pathlib.Path(__file__).resolve().parents[1]
ROOT = PYTHON.parent


def build(kind, folder, **environment):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PERJOULE_WHEEL")}
    printed = subprocess.run([sys.executable, PYTHON / "backend.py", kind, folder], env=dict(clean, **environment),
                             check=True, capture_output=True, text=True).stdout
    return pathlib.Path(printed.strip())


@unittest.skipUnless((PYTHON / "backend.py").exists(), "needs the source tree")
class Archives(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_a_wheel_carries_the_library_and_a_true_record(self):
        library = pathlib.Path(self.folder, "some.so")
        library.write_bytes(b"machine code")
        path = build("wheel", self.folder, PERJOULE_WHEEL_LIBRARY=str(library),
                     PERJOULE_WHEEL_PLATFORM="manylinux_2_28_x86_64")
        self.assertRegex(path.name, r"^perjoule-[\d.]+-py3-none-manylinux_2_28_x86_64\.whl$")
        with zipfile.ZipFile(path) as wheel:
            names = wheel.namelist()
            self.assertEqual(wheel.read("perjoule/lib/libperjoule.so.0"), b"machine code")
            for name in ("perjoule/py.typed", "perjoule/profiler.py", "profiling/pipeline_profiler.py"):
                self.assertIn(name, names)
            record = wheel.read(next(n for n in names if n.endswith("/RECORD"))).decode().splitlines()
            self.assertEqual(sorted(line.split(",")[0] for line in record), sorted(names))
            for line in record:
                name, digest, size = line.split(",")
                if digest:
                    data = wheel.read(name)
                    ours = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                    self.assertEqual((digest, int(size)), ("sha256=" + ours, len(data)))

    def test_a_wheel_brings_the_program(self):
        tree = pathlib.Path(self.folder, "installed")
        for name in ("bin/perjoule", "lib/any-linux-gnu/perjoule/libperjoule-nvtx.so", "lib/libperjoule.so.0",
                     "share/perjoule/models/demo/config.json", "share/bash-completion/completions/perjoule"):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_bytes(name.encode())
        path = build("wheel", self.folder, PERJOULE_WHEEL_LIBRARY=__file__, PERJOULE_WHEEL_PROGRAM=str(tree),
                     PERJOULE_WHEEL_PLATFORM="linux_x86_64")
        with zipfile.ZipFile(path) as wheel:
            inside = {n.split(".data/")[1]: wheel.getinfo(n) for n in wheel.namelist() if ".data/" in n}
            self.assertEqual(sorted(inside), ["data/lib/perjoule/libperjoule-nvtx.so",
                                              "data/share/perjoule/models/demo/config.json", "scripts/perjoule"])
            self.assertEqual(inside["scripts/perjoule"].external_attr >> 16 & 0o777, 0o755)
            points = wheel.read(next(n for n in wheel.namelist() if n.endswith("/entry_points.txt")))
            self.assertIn(b"[pytest11]\nperjoule = perjoule.testing\n", points)

    def test_macos_has_its_name_of_the_library(self):
        path = build("wheel", self.folder, PERJOULE_WHEEL_LIBRARY=__file__, PERJOULE_WHEEL_PLATFORM="macosx_11_0_arm64")
        self.assertIn("perjoule/lib/libperjoule.0.dylib", zipfile.ZipFile(path).namelist())

    def test_the_source_archive_builds_the_same_wheel(self):
        first = build("wheel", self.folder)
        self.assertTrue(first.name.endswith("-py3-none-any.whl"))
        archive = build("sdist", self.folder)
        unpacked = pathlib.Path(self.folder, "unpacked")
        with tarfile.open(archive) as tar:
            tar.extractall(unpacked, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
        tree, = unpacked.iterdir()
        second = pathlib.Path(self.folder, "second")
        second.mkdir()
        subprocess.run([sys.executable, "backend.py", "wheel", str(second)], cwd=tree, check=True, capture_output=True)
        self.assertEqual((second / first.name).read_bytes(), first.read_bytes())

    def test_versions_agree(self):
        meson = re.search(r"version: '([\d.]+)'", (ROOT / "meson.build").read_text())[1]
        import perjoule
        self.assertEqual(perjoule.__version__, meson)


def mach_o(cpu=0x100000C, needed="/usr/lib/libSystem.B.dylib", oldest=11, signed=True):
    """A Mach-O header and load commands of a dylib."""
    name = needed.encode() + b"\0" * (8 - len(needed) % 8)
    commands = [struct.pack("<IIIIII", 0xC, 24 + len(name), 24, 0, 0, 0) + name,
                struct.pack("<IIIIII", 0x32, 24, 1, oldest << 16, 0, 0)]
    if signed:
        commands.append(struct.pack("<IIII", 0x1D, 16, 0, 0))
    body = b"".join(commands)
    return struct.pack("<IIIIIIII", 0xFEEDFACF, cpu, 0, 6, len(commands), len(body), 0, 0) + body


@unittest.skipUnless((ROOT / "tools/check_wheel.py").exists(), "needs the source tree")
class Checks(unittest.TestCase):
    """check_wheel.py accepts libraries that run on the tag's platform and rejects others."""

    def setUp(self):
        sys.path.insert(0, str(ROOT / "tools"))
        self.addCleanup(sys.path.remove, str(ROOT / "tools"))
        import check_wheel
        self.check = check_wheel

    def test_macos(self):
        def problems(tag="macosx_11_0_arm64", **shape):
            return self.check.library_of(mach_o(**shape)).problems(tag)
        self.assertEqual(problems(), [])
        self.assertEqual(problems(needed="/opt/x.dylib"), ["needs /opt/x.dylib"])
        self.assertEqual(problems(oldest=12), ["needs macOS 12.0"])
        self.assertEqual(problems(signed=False), ["has no code signature"])
        self.assertEqual(problems(cpu=0x1000007), ["the library is for macOS on x86_64"])
        self.assertEqual(problems("manylinux_2_28_aarch64"), ["the library is for macOS on arm64"])

    @unittest.skipUnless(".so" in os.environ.get("PERJOULE_LIBRARY", "") and sys.platform == "linux",
                         "needs a Linux library of this build")
    def test_linux(self):
        library = self.check.library_of(pathlib.Path(os.environ["PERJOULE_LIBRARY"]).read_bytes())
        machine = os.uname().machine
        self.assertEqual(library.problems(f"linux_{machine}"), [])
        self.assertIn("pj_run_begin", library.exports)
        self.assertTrue([p for p in library.problems(f"manylinux_2_2_{machine}") if p.startswith("needs GLIBC_2")])
        self.assertIn("needs libfoo.so.1", self.with_need(library, "libfoo.so.1").problems(f"manylinux_2_99_{machine}"))
        self.assertTrue(library.problems("linux_riscv64"))

    @staticmethod
    def with_need(library, name):
        library.needed.append(name)
        return library

    def test_a_wheel_with_something_else_inside(self):
        with tempfile.TemporaryDirectory() as folder:
            path = build("wheel", folder, PERJOULE_WHEEL_LIBRARY=__file__, PERJOULE_WHEEL_PLATFORM="linux_x86_64")
            self.assertEqual(self.check.problems_of(str(path)), ["its library is no ELF or Mach-O file"])
            self.assertEqual(self.check.problems_of(str(build("wheel", folder))), ["0 libraries are inside"])


if __name__ == "__main__":
    unittest.main()
