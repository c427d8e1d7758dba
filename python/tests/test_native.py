"""The package's declarations match the public header, and the library is found as documented."""
import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from perjoule import _native as native
from perjoule.errors import LibraryNotFound, PerjouleError

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADERS = [ROOT / "include/perjoule/base.h", ROOT / "include/perjoule.h"]
STRUCTS = {
    "pj_error": native.Error, "pj_session_options": native.SessionOptions, "pj_run_options": native.RunOptions,
    "pj_run_facts": native.RunFacts, "pj_joules_mj": native.Joules, "pj_phase_result": native.PhaseResult,
    "pj_result": native.RunResult, "pj_stats": native.Stats, "pj_work": native.Work,
    "pj_packed_text": native.Text, "pj_span_batch": native.SpanBatch,
    "pj_device_info": native.DeviceInfo, "pj_packed_device": native.PackedDevice,
}
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


@unittest.skipUnless(HEADERS[1].exists() and COMPILER, "needs the source tree and a C compiler")
class Declarations(unittest.TestCase):
    def test_structs_are_laid_out_as_in_the_header(self):
        lines, ours = [], []
        for name, struct in STRUCTS.items():
            if not issubclass(struct, native.Sized):  # structs that carry their size may grow
                lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
                ours.append(f"{name} {ctypes.sizeof(struct)}")
            for field in struct._fields_:
                lines.append(f'printf("{name}.{field[0]} %zu\\n", offsetof({name}, {field[0]}));')
                ours.append(f"{name}.{field[0]} {getattr(struct, field[0]).offset}")
        lines.append('printf("%zu %zu\\n", sizeof(pj_packed_span), sizeof(pj_span_detail));')
        ours.append(f"{native.SPAN_BYTES} {native.DETAIL_BYTES}")
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder, "probe.c")
            source.write_text("#include <perjoule.h>\n#include <stdio.h>\nint main(void) {\n"
                              + "\n".join(lines) + "\nreturn 0; }\n")
            program = str(source.with_suffix(""))
            subprocess.run([COMPILER, "-I", str(ROOT / "include"), str(source), "-o", program], check=True)
            printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout
        self.assertEqual(printed.splitlines(), ours)

    def test_every_function_is_in_the_header(self):
        text = "".join(header.read_text() for header in HEADERS)
        for name in native.FUNCTIONS:
            self.assertTrue(re.search(rf"PJ_API [^;]*\b{name}\(", text), name)

    def test_enumerations_count_as_the_header_does(self):
        text = re.sub(r"/\*.*?\*/", "", HEADERS[1].read_text(), flags=re.S)
        for first, names in (("PJ_PHASE_IDLE", native.PHASES), ("PJ_RUN_RUNNING", native.STATUSES),
                             ("PJ_UNAVAILABLE", native.QUALITIES)):
            body = re.search(r"\{\s*" + first + r".*?\}", text, re.S)[0]
            constants = [w for w in re.findall(r"PJ_\w+", body) if not w.endswith("_COUNT")]
            self.assertEqual(len(constants), len(names), first)
            for constant, name in zip(constants, names):
                self.assertTrue(constant.endswith(name.upper()), (constant, name))


class Finding(unittest.TestCase):
    def test_a_named_library_must_exist(self):
        with mock.patch.dict(os.environ, {"PERJOULE_LIBRARY": "/nowhere/libperjoule.so"}):
            with self.assertRaisesRegex(LibraryNotFound, "/nowhere/libperjoule.so"):
                native.find_library()

    def test_beside_the_package_comes_before_the_prefixes(self):
        with tempfile.TemporaryDirectory() as folder:
            beside, prefix = pathlib.Path(folder, "a"), pathlib.Path(folder, "b")
            for each in (beside, prefix):
                each.mkdir()
                (each / native._file_names()[0]).touch()
            environment = {k: v for k, v in os.environ.items() if k != "PERJOULE_LIBRARY"}
            with mock.patch.dict(os.environ, environment, clear=True), \
                    mock.patch.object(native, "_folders", lambda: iter([beside, prefix])):
                self.assertEqual(native.find_library(), str(beside / native._file_names()[0]))

    def test_where_it_is_missing_the_sentence_says_what_to_do(self):
        environment = {k: v for k, v in os.environ.items() if k != "PERJOULE_LIBRARY"}
        with mock.patch.dict(os.environ, environment, clear=True), \
                mock.patch.object(native, "_folders", lambda: iter([])), \
                mock.patch("ctypes.util.find_library", lambda name: None):
            with self.assertRaisesRegex(LibraryNotFound, "PERJOULE_LIBRARY"):
                native.find_library()

    def test_importing_needs_the_standard_library_alone(self):
        program = ("import sys, perjoule; loaded = {m.split('.')[0] for m in sys.modules}\n"
                   "bad = loaded & {'torch', 'numpy', 'pandas', 'polars', 'transformers'}\n"
                   "sys.exit(str(bad) if bad else 0)")
        environment = dict(os.environ, PERJOULE_LIBRARY="/nowhere")  # nor does importing load the C library
        subprocess.run([sys.executable, "-c", program], check=True, env=environment)

    def test_an_answer_becomes_an_exception_with_its_words(self):
        error = native.Error(status=-3, text=b"no")
        with self.assertRaisesRegex(PerjouleError, "^no$") as raised:
            native.check(-3, error)
        self.assertEqual(raised.exception.status, -3)
