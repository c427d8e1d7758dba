#!/usr/bin/env python3
"""The library from Python with only ctypes, and with cffi where it is installed.

Usage: with_ctypes.py LIBRARY ROOT

Records a run whose spans arrive packed, in the layouts that the header promises, stores it in a
database of its own and reads it back with sqlite3. PERJOULE_POWER and PERJOULE_DB must apply to the library as to the
program.
"""
import array
import ctypes as c
import json
import math
import os
import pathlib
import re
import sqlite3
import struct
import sys
import tempfile
import time

path, root = sys.argv[1], pathlib.Path(sys.argv[2])
SPAN, DETAIL = struct.Struct("=qqIHHiI"), struct.Struct("=ddfffffIII")
TOKEN, LAYER, COMPONENT, DECODE = 2, 3, 4, 3


class Error(c.Structure):
    _fields_ = [("status", c.c_int), ("text", c.c_char * 512)]


class SessionOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("power", c.c_char_p), ("interval_ns", c.c_int64),
                ("database", c.c_char_p), ("spool_dir", c.c_char_p), ("baseline_seconds", c.c_double)]


class RunOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("prompt", c.c_char_p), ("model_name", c.c_char_p),
                ("model_path", c.c_char_p), ("engine", c.c_char_p), ("experiment_name", c.c_char_p),
                ("tags", c.POINTER(c.c_char_p)), ("depth", c.c_int), ("batch_size", c.c_uint32),
                ("settings_json", c.c_char_p)]


class Text(c.Structure):
    _fields_ = [("span", c.c_uint32), ("sequence", c.c_uint32), ("token_id", c.c_int32),
                ("bytes", c.c_uint32), ("text", c.c_char_p)]


class Batch(c.Structure):
    _fields_ = [("size", c.c_size_t), ("spans", c.c_void_p), ("span_count", c.c_size_t),
                ("details", c.c_void_p), ("detail_count", c.c_size_t), ("texts", c.POINTER(Text)),
                ("text_count", c.c_size_t)]


class Joules(c.Structure):
    _fields_ = [("mj", c.c_double), ("lo_mj", c.c_double), ("hi_mj", c.c_double)]


class PhaseResult(c.Structure):
    _fields_ = [("phase", c.c_int), ("duration_ms", c.c_double), ("gross", Joules), ("net", Joules)]


class Result(c.Structure):
    _fields_ = [("size", c.c_size_t), ("run_id", c.c_char * 40), ("status", c.c_int),
                ("duration_ms", c.c_double), ("energy_source", c.c_int), ("is_partial", c.c_bool),
                ("is_stored", c.c_bool), ("total", Joules), ("net", Joules),
                ("total_upper_mj", c.c_double), ("joules_per_token", c.c_double),
                ("input_tokens", c.c_uint64), ("output_tokens", c.c_uint64),
                ("phase_count", c.c_uint32), ("phases", PhaseResult * 8), ("json", c.c_void_p)]


class WindowRail(c.Structure):
    _fields_ = [("name", c.c_char * 32), ("gross", Joules)]


class WindowResult(c.Structure):
    _fields_ = [("size", c.c_size_t), ("duration_ms", c.c_double), ("energy_source", c.c_int),
                ("is_partial", c.c_bool), ("total", Joules), ("net", Joules), ("total_upper_mj", c.c_double),
                ("rail_count", c.c_uint32), ("rails", WindowRail * 64)]


lib = c.CDLL(path)
for name in ("pj_session_open", "pj_run_begin", "pj_spans_add", "pj_run_end", "pj_window_begin", "pj_window_end"):
    getattr(lib, name).restype = c.c_int
lib.pj_run_lane.restype = c.c_void_p
lib.pj_run_lane.argtypes = [c.c_void_p]
lib.pj_run_name.argtypes = [c.c_void_p, c.c_char_p]
lib.pj_run_name.restype = c.c_uint32
lib.pj_clock_ns.restype = c.c_int64
lib.pj_run_set_tokens.argtypes = [c.c_void_p, c.c_uint64, c.c_uint64]
lib.pj_session_close.argtypes = [c.c_void_p]
error = Error()


def must(status):
    assert status == 0, error.text.decode()


def word(kind, id_, layer=-1, detail=0):
    """The third and fourth 64-bit integer of a record, computed once per module."""
    what = struct.unpack("=q", struct.pack("=IHH", id_, kind, 0))[0]
    return what, struct.unpack("=q", struct.pack("=iI", layer, detail))[0]


def one_token(run, lane, position, name):
    records = array.array("q")
    began = time.monotonic_ns()
    for layer in range(3):
        at = time.monotonic_ns()
        while time.monotonic_ns() < at + 2_000_000:
            pass
        records.extend((at, time.monotonic_ns(), *word(COMPONENT, name, layer, 1)))
    records.extend((began, time.monotonic_ns(), *word(TOKEN, position)))
    detail = DETAIL.pack(1e6, math.nan, .5, 0, 1, 2, .25, 0, 0, 1)
    text = f"t{position}".encode()
    texts = (Text * 1)(Text(3, 0, 100 + position, len(text), text))
    must(lib.pj_spans_add(c.c_void_p(lane), c.byref(Batch(c.sizeof(Batch), records.buffer_info()[0], 4,
                          c.cast(c.c_char_p(detail), c.c_void_p), 1, texts, 1)), c.byref(error)))


def record(session):
    run = c.c_void_p()
    options = RunOptions(size=c.sizeof(RunOptions), prompt=b"hello", model_name=b"made", engine=b"python",
                         depth=1)
    must(lib.pj_run_begin(session, c.byref(options), c.byref(run), c.byref(error)))
    name, lane = lib.pj_run_name(run, b"q_proj"), lib.pj_run_lane(run)
    began = time.monotonic_ns()
    for position in range(20):
        one_token(run, lane, position, name)
    phase = array.array("q", (began, time.monotonic_ns(), *word(0, DECODE)))
    must(lib.pj_spans_add(c.c_void_p(lane), c.byref(Batch(c.sizeof(Batch), phase.buffer_info()[0], 1)),
                          c.byref(error)))
    lib.pj_run_set_tokens(run, 3, 20)
    result = Result(size=c.sizeof(Result))
    must(lib.pj_run_end(run, 1, c.byref(result), c.byref(error)))
    return result


def window(session):
    """A window around two concurrent runs contains their energies."""
    open_window, runs, energies = c.c_void_p(), [c.c_void_p(), c.c_void_p()], []
    must(lib.pj_window_begin(session, c.byref(open_window), c.byref(error)))
    options = RunOptions(size=c.sizeof(RunOptions), model_name=b"shared", engine=b"python")
    for run in runs:
        must(lib.pj_run_begin(session, c.byref(options), c.byref(run), c.byref(error)))
    time.sleep(0.3)
    for run in runs:
        result = Result(size=c.sizeof(Result))
        must(lib.pj_run_end(run, 1, c.byref(result), c.byref(error)))
        assert json.loads(c.string_at(result.json))["allocation"] == "equal"
        energies.append(result.total.mj)
        lib.pj_result_fini(c.byref(result))
    measured = WindowResult(size=c.sizeof(WindowResult))
    must(lib.pj_window_end(open_window, c.byref(measured), c.byref(error)))
    assert measured.total.lo_mj < measured.total.mj < measured.total.hi_mj and measured.duration_ms >= 300
    assert 0 < sum(energies) < measured.total.mj * 1.05, (energies, measured.total.mj)
    assert measured.rail_count > 0 and measured.rails[0].name
    print(f"ctypes: two runs took {energies} mJ of a window's {measured.total.mj:.6g}")


def with_ctypes(folder):
    assert SPAN.size == 32 and DETAIL.size == 48
    assert abs(lib.pj_clock_ns() - time.monotonic_ns()) < 5_000_000_000
    os.environ["PERJOULE_POWER"] = "sim"
    os.environ["PERJOULE_DB"] = database = str(pathlib.Path(folder, "python.db"))
    session = c.c_void_p()
    how = SessionOptions(size=c.sizeof(SessionOptions), baseline_seconds=0.1)
    must(lib.pj_session_open(c.byref(how), c.byref(session), c.byref(error)))
    result = record(session)
    window(session)
    lib.pj_session_close(session)
    summary = json.loads(c.string_at(result.json))
    lib.pj_result_fini(c.byref(result))
    assert result.is_stored and result.total.mj > 0 and result.total.lo_mj < result.total.mj
    assert summary["engine"] == "python" and summary["output_tokens"] == 20, summary
    with sqlite3.connect(database) as db:
        assert db.execute("select count(*) from profiling_runs where allocation = 'equal'").fetchone()[0] == 2
        counts = [db.execute(f"select count(*) from {t}").fetchone()[0]
                  for t in ("tokens", "layer_metrics", "component_metrics")]
        assert counts == [20, 60, 60], counts
        assert db.execute("select text from tokens where position = 7").fetchone()[0] == "t7"
        total, parts = db.execute("select total_energy_mj, (select sum(energy_mj) from tokens) from"
                                  " profiling_runs where model_name = 'made'").fetchone()
        assert 0 < parts <= total * (1 + 1e-9)
    print("ctypes: a run of 20 tokens, 60 components")


def with_cffi():
    try:
        import cffi
    except ImportError:
        print("skipped: cffi is not installed")
        return
    text = (root / "include/perjoule/base.h").read_text() + (root / "include/perjoule.h").read_text()
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r"^#(?!define PJ_\w+ \d+$).*\n", "", text, flags=re.M)
    text = re.sub(r'extern "C" \{|^\}$|PJ_API', "", text, flags=re.M).replace("UINT32_MAX", "")
    ffi = cffi.FFI()
    ffi.cdef(text)
    there = ffi.dlopen(path)
    assert ffi.string(there.pj_version()).count(b".") == 2
    assert ffi.sizeof("pj_packed_span") == 32 and ffi.sizeof("pj_span_detail") == 48
    session, opened, error = ffi.new("pj_session **"), ffi.new("pj_open_window **"), ffi.new("pj_error *")
    how = ffi.new("pj_session_options *", {"size": ffi.sizeof("pj_session_options"), "baseline_seconds": -1})
    how.power, how.database = ffi.from_buffer(b"none\0"), ffi.from_buffer(b"none\0")
    assert there.pj_session_open(how, session, error) == 0, ffi.string(error.text)
    assert there.pj_window_begin(session[0], opened, error) == 0, ffi.string(error.text)
    result = ffi.new("pj_window_result *", {"size": ffi.sizeof("pj_window_result")})
    assert there.pj_window_end(opened[0], result, error) == 0, ffi.string(error.text)
    assert math.isnan(result.total.mj) and result.duration_ms > 0
    there.pj_session_close(session[0])
    print("cffi: the whole header, and a window")


with tempfile.TemporaryDirectory() as folder:
    with_ctypes(folder)
with_cffi()
