"""ctypes bindings of libperjoule: search paths, structs and functions.

The declarations repeat include/perjoule.h; tests/test_native.py compares the two. Structs carry their
size, so a newer library works with this package and an older one is recognised by its version.
"""
from __future__ import annotations

import ctypes as c
import ctypes.util
import os
import pathlib
import shutil
import sys
import threading
from typing import Any, Iterator

from .errors import LibraryNotFound, PerjouleError

ABI = 0  # the number in libperjoule.so.0

PHASES = ("idle", "pre_inference", "prefill", "decode", "post_inference")
PHASE, SECTION, TOKEN, LAYER, COMPONENT, OPERATION = range(6)
DEPTHS = {"off": 0, "module": 1, "deep": 2}
COMPLETED, FAILED, CANCELLED = 1, 2, 3
STATUSES = ("running", "completed", "failed", "cancelled", "interrupted")
QUALITIES = ("unavailable", "modelled", "measured")
NO_SENSOR = -2  # PJ_E_UNAVAILABLE


class Error(c.Structure):
    _fields_ = [("status", c.c_int), ("text", c.c_char * 512)]


class Sized(c.Structure):
    """A struct whose first member is its own size."""

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        self.size = c.sizeof(self)


class SessionOptions(Sized):
    _fields_ = [
        ("size", c.c_size_t),
        ("power", c.c_char_p),
        ("interval_ns", c.c_int64),
        ("database", c.c_char_p),
        ("spool_dir", c.c_char_p),
        ("baseline_seconds", c.c_double),
        ("share_rule", c.c_char_p),
    ]


class RunOptions(Sized):
    _fields_ = [
        ("size", c.c_size_t),
        ("prompt", c.c_char_p),
        ("model_name", c.c_char_p),
        ("model_path", c.c_char_p),
        ("engine", c.c_char_p),
        ("experiment_name", c.c_char_p),
        ("tags", c.POINTER(c.c_char_p)),
        ("depth", c.c_int),
        ("batch_size", c.c_uint32),
        ("settings_json", c.c_char_p),
        ("weight", c.c_double),
    ]


class RunFacts(Sized):
    _fields_ = [
        ("size", c.c_size_t),
        ("model_name", c.c_char_p),
        ("model_path", c.c_char_p),
        ("dtype", c.c_char_p),
        ("isa", c.c_char_p),
        ("model_json", c.c_char_p),
        ("settings_json", c.c_char_p),
        ("threads", c.c_uint32),
        ("layer_count", c.c_uint32),
        ("repeat_group", c.c_char_p),
        ("repeat_index", c.c_uint32),
        ("batch_rule", c.c_char_p),
        ("scope", c.c_char_p),
        ("level", c.c_char_p),
        ("batch_size", c.c_uint32),
    ]


NO_TOKENS = 2 ** 64 - 1  # output tokens of a run whose passes yield none


class Joules(c.Structure):
    _fields_ = [("mj", c.c_double), ("lo_mj", c.c_double), ("hi_mj", c.c_double)]


class PhaseResult(c.Structure):
    _fields_ = [("phase", c.c_int), ("duration_ms", c.c_double), ("gross", Joules), ("net", Joules)]


class RunResult(Sized):
    _fields_ = [
        ("size", c.c_size_t),
        ("run_id", c.c_char * 40),
        ("status", c.c_int),
        ("duration_ms", c.c_double),
        ("energy_source", c.c_int),
        ("is_partial", c.c_bool),
        ("is_stored", c.c_bool),
        ("total", Joules),
        ("net", Joules),
        ("total_upper_mj", c.c_double),
        ("joules_per_token", c.c_double),
        ("input_tokens", c.c_uint64),
        ("output_tokens", c.c_uint64),
        ("phase_count", c.c_uint32),
        ("phases", PhaseResult * 8),
        ("json", c.c_void_p),
        ("typical_token", Joules),
    ]


class WindowRail(c.Structure):
    _fields_ = [("name", c.c_char * 32), ("gross", Joules)]


class WindowResult(Sized):
    _fields_ = [
        ("size", c.c_size_t),
        ("duration_ms", c.c_double),
        ("energy_source", c.c_int),
        ("is_partial", c.c_bool),
        ("total", Joules),
        ("net", Joules),
        ("total_upper_mj", c.c_double),
        ("rail_count", c.c_uint32),
        ("rails", WindowRail * 64),
        ("total_random_mj", c.c_double),
        ("total_gain_mj", c.c_double),
        ("warning_code", c.c_char_p),
        ("warning", c.c_char * 256),
    ]


class Stats(c.Structure):
    _fields_ = [
        ("mean_abs", c.c_float),
        ("mean", c.c_float),
        ("std", c.c_float),
        ("max_abs", c.c_float),
        ("sparsity", c.c_float),
        ("nan_count", c.c_uint32),
        ("inf_count", c.c_uint32),
    ]


class Work(c.Structure):
    _fields_ = [
        ("flops", c.c_double),
        ("bytes", c.c_double),
        ("stats", c.POINTER(Stats)),
        ("extras", c.c_void_p),
        ("extra_count", c.c_uint32),
    ]


class Text(c.Structure):
    """pj_packed_text"""

    _fields_ = [
        ("span", c.c_uint32),
        ("sequence", c.c_uint32),
        ("token_id", c.c_int32),
        ("bytes", c.c_uint32),
        ("text", c.c_char_p),
    ]


class PackedDevice(c.Structure):
    """pj_packed_device"""

    _fields_ = [("device", c.c_uint32), ("reserved", c.c_uint32), ("clock_error_ns", c.c_int64)]


class SpanBatch(Sized):
    _fields_ = [
        ("size", c.c_size_t),
        ("spans", c.c_void_p),
        ("span_count", c.c_size_t),
        ("details", c.c_void_p),
        ("detail_count", c.c_size_t),
        ("texts", c.POINTER(Text)),
        ("text_count", c.c_size_t),
        ("devices", c.POINTER(PackedDevice)),
        ("device_count", c.c_size_t),
    ]


class DeviceInfo(Sized):
    _fields_ = [
        ("size", c.c_size_t),
        ("name", c.c_char_p),
        ("kind", c.c_char_p),
        ("uuid", c.c_char_p),
        ("pci", c.c_char_p),
        ("driver", c.c_char_p),
        ("memory_bytes", c.c_uint64),
        ("clock_mhz", c.c_double),
        ("rail", c.c_char_p),
    ]


SPAN_BYTES, DETAIL_BYTES = 32, 48

_P, _E = c.c_void_p, c.POINTER(Error)
FUNCTIONS = {
    # name: (result, arguments); a result of c.c_int is a pj_status
    "pj_version": (c.c_char_p, []),
    "pj_clock_ns": (c.c_int64, []),
    "pj_session_open": (c.c_int, [c.POINTER(SessionOptions), c.POINTER(_P), _E]),
    "pj_session_close": (None, [_P]),
    "pj_run_begin": (c.c_int, [_P, c.POINTER(RunOptions), c.POINTER(_P), _E]),
    "pj_run_set_weight": (c.c_int, [_P, c.c_double, _E]),
    "pj_run_describe": (c.c_int, [_P, c.POINTER(RunFacts), _E]),
    "pj_run_end": (c.c_int, [_P, c.c_int, c.POINTER(RunResult), _E]),
    "pj_run_fail": (c.c_int, [_P, c.c_char_p, c.POINTER(RunResult), _E]),
    "pj_result_fini": (None, [c.POINTER(RunResult)]),
    "pj_window_begin": (c.c_int, [_P, c.POINTER(_P), _E]),
    "pj_window_end": (c.c_int, [_P, c.POINTER(WindowResult), _E]),
    "pj_run_id": (c.c_char_p, [_P]),
    "pj_run_name": (c.c_uint32, [_P, c.c_char_p]),
    "pj_run_lane": (_P, [_P]),
    "pj_run_set_prompts": (None, [_P, c.POINTER(c.c_uint32), c.c_uint32]),
    "pj_run_set_tokens": (None, [_P, c.c_uint64, c.c_uint64]),
    "pj_span_begin": (None, [_P, c.c_int, c.c_uint32]),
    "pj_span_end": (None, [_P, c.POINTER(Work)]),
    "pj_span_begin_at": (None, [_P, c.c_int, c.c_uint32, c.c_int64]),
    "pj_span_end_at": (None, [_P, c.POINTER(Work), c.c_int64]),
    "pj_device_declare": (c.c_int, [_P, c.POINTER(DeviceInfo), c.POINTER(c.c_uint32), _E]),
    "pj_token_text": (None, [_P, c.c_uint32, c.c_int32, c.c_char_p, c.c_size_t]),
    "pj_statistics_time": (None, [_P, c.c_int64]),
    "pj_spans_add": (c.c_int, [_P, c.POINTER(SpanBatch), _E]),
}


# ---- locating the library --------------------------------------------------------------------


def _file_names() -> tuple[str, ...]:
    if sys.platform == "darwin":
        return (f"libperjoule.{ABI}.dylib", "libperjoule.dylib")
    return (f"libperjoule.so.{ABI}", "libperjoule.so")


def _folders() -> Iterator[pathlib.Path]:
    """Candidate paths: beside the package, then below the usual prefixes of `make install`."""
    yield pathlib.Path(__file__).parent / "lib"
    prefixes = [pathlib.Path(sys.prefix)]
    program = shutil.which("perjoule")
    if program:
        prefixes.append(pathlib.Path(program).resolve().parent.parent)
    prefixes += [pathlib.Path.home() / ".local", pathlib.Path("/usr/local"), pathlib.Path("/opt/homebrew"),
                 pathlib.Path("/usr")]
    for prefix in prefixes:
        yield from sorted((prefix / "lib").glob("*-linux-gnu"))
        yield prefix / "lib64"
        yield prefix / "lib"


def find_library() -> str:
    """The path of libperjoule: PERJOULE_LIBRARY, beside the package, or where perjoule is installed."""
    named = os.environ.get("PERJOULE_LIBRARY")
    if named:
        if not os.path.exists(named):
            raise LibraryNotFound(f"PERJOULE_LIBRARY is {named}, which does not exist")
        return named
    for folder in _folders():
        for name in _file_names():
            if (folder / name).exists():
                return str(folder / name)
    known = ctypes.util.find_library("perjoule")
    if known:
        return known
    raise LibraryNotFound(
        "libperjoule was found neither beside the package nor in an installation of perjoule: install a "
        "wheel that carries it, install perjoule (make install), or set PERJOULE_LIBRARY to its path"
    )


def _declare(library: c.CDLL) -> c.CDLL:
    for name, (result, arguments) in FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            version = library.pj_version
            version.restype = c.c_char_p
            raise LibraryNotFound(
                f"libperjoule {version().decode()} ({library._name}) lacks {name}: it is older than this package"
            ) from None
        function.restype, function.argtypes = result, arguments
    return library


_loaded: c.CDLL | None = None
_loading = threading.Lock()


def library() -> c.CDLL:
    """The library, loaded on first use."""
    global _loaded
    with _loading:
        if _loaded is None:
            path = find_library()
            try:
                _loaded = _declare(c.CDLL(path))
            except OSError as e:
                raise LibraryNotFound(f"{path} cannot be loaded: {e}") from None
    return _loaded


def check(status: int, error: Error) -> None:
    """Raises PerjouleError unless the call succeeded."""
    if status != 0:
        raise PerjouleError(error.text.decode("utf-8", "replace") or f"libperjoule answered {status}", status)


def text(value: object) -> bytes | None:
    """Encodes a C string; embedded NULs, which would end it, are replaced."""
    return None if value is None else str(value).replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace")
