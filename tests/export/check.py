#!/usr/bin/env python3
"""Validates exports against their formats. Records runs of the demo model with a simulated sensor (one
prompt, a batch, and one without any sensor), exports each in every format, and checks

  json        against docs/schema/run-export.schema.json, and that importing and re-exporting it gives the same file
  csv         line by line against the tables of the database
  trace       by the rules of the trace event format as Perfetto reads it
  speedscope  by the rules of its file format

Usage: check.py PERJOULE PROJECT. Every check is also run on broken input, so that none of them
passes unconditionally. Ends with `N passed, N failed`.
"""
import base64
import copy
import csv
import io
import json
import math
import os
import pathlib
import re
import sqlite3
import struct
import subprocess
import sys
import tempfile
import zipfile

PROGRAM, PROJECT = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
RUNS = {
    "one prompt": ["-n", "16", "--depth", "deep", "--power", "sim:period_ms=5"],
    "batch": ["-n", "8", "--batch", "3", "--depth", "module", "--power", "sim:period_ms=5"],
    "no sensor": ["-n", "6", "--depth", "deep", "--power", "none"],
}
# Not exported: columns that locate rows in the database, and readings as a blob.
DATABASE_ONLY = {"component_metrics": {"first_operation_id", "operation_count"},
                 "run_rails": {"power_mw"}}
NANOSECOND_US = 1e-3
LONG = 16384  # rows of a table that is still exported as rows


class Wrong(Exception):
    """A violation and its location."""


def claim(holds, text):
    if not holds:
        raise Wrong(text)


# ---- JSON Schema: the keywords that the schema uses; any other is an error ----------------------

TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None),
         "number": (int, float), "integer": int}
ANNOTATIONS = {"$schema", "$defs", "title", "description"}


def has_type(value, name):
    if isinstance(value, bool) and name != "boolean":
        return False
    return isinstance(value, TYPES[name])


def check_object(schema, value, root, where):
    known = schema.get("properties", {})
    for name in schema.get("required", ()):
        claim(name in value, f"{where} lacks {name}")
    for name, member in value.items():
        if name in known:
            validate(known[name], member, root, f"{where}.{name}")
        else:
            rest = schema.get("additionalProperties", True)
            claim(rest is not False, f"{where} has {name}, which the schema does not know")
            if isinstance(rest, dict):
                validate(rest, member, root, f"{where}.{name}")


def is_valid(schema, value, root):
    try:
        validate(schema, value, root)
    except Wrong:
        return False
    return True


def validate(schema, value, root, where="run"):
    for keyword, rule in schema.items():
        if keyword == "type":
            names = rule if isinstance(rule, list) else [rule]
            claim(any(has_type(value, n) for n in names), f"{where} is {value!r}, not {names}")
        elif keyword == "enum":
            claim(value in rule, f"{where} is {value!r}, not one of {rule}")
        elif keyword == "const":
            claim(value == rule, f"{where} is {value!r}, not {rule!r}")
        elif keyword == "$ref":
            validate(root["$defs"][rule.removeprefix("#/$defs/")], value, root, where)
        elif keyword == "anyOf":
            claim(any(is_valid(s, value, root) for s in rule), f"{where} fits none of {len(rule)} schemas")
        elif keyword == "minimum":
            claim(not isinstance(value, (int, float)) or value >= rule, f"{where} is below {rule}")
        elif keyword == "pattern":
            claim(not isinstance(value, str) or re.search(rule, value), f"{where} is {value!r}")
        elif keyword == "items":
            for i, item in enumerate(value if isinstance(value, list) else ()):
                validate(rule, item, root, f"{where}[{i}]")
        elif keyword in ("properties", "required", "additionalProperties"):
            if isinstance(value, dict) and keyword == next(
                    k for k in schema if k in ("properties", "required", "additionalProperties")):
                check_object(schema, value, root, where)
        else:
            claim(keyword in ANNOTATIONS, f"the schema's keyword {keyword} is not known here")


def documented_reader():
    """`rows` of docs/formats.md, as it stands there."""
    found = {"base64": base64, "struct": struct}
    text = (PROJECT / "docs/formats.md").read_text()
    exec(re.search(r"```python\n(def rows\(table\):.*?)```", text, re.S)[1], found)
    return found["rows"]


ROWS = documented_reader()


def check_blocks(run, context):
    """Replaces the blocks of a long run by rows, each of them as it is stored; one in 64 as the schema wants it."""
    claim(run["version"] == 2, "blocks are of version 2")
    in_blocks = {name: list(ROWS(table)) for name, table in run.items() if isinstance(table, list) and table and "rows" in table[0]}
    claim({"layer_metrics", "component_metrics"} <= in_blocks.keys() and "tokens" not in in_blocks, f"in blocks are {list(in_blocks)}")
    for name, rows in in_blocks.items():
        wanted = [c for c in (rows[0] if rows else ()) if not c.endswith("_id")]
        for row, stored in zip(rows, context.select(name, wanted) if rows else ()):
            claim(all(map(same_exported, (row[c] for c in wanted), stored)), f"{name}: {row} is not {stored}")
        run[name] = [{"id": i} | row for i, row in enumerate(rows)]
        for row in run[name][::64]:
            validate(context.schema["properties"][name]["items"]["anyOf"][0], row, context.schema, name)


def check_json(data, context):
    def constant(word):
        raise Wrong(f"{word} is not JSON")
    run = json.loads(data, parse_constant=constant)
    validate(context.schema, run, context.schema)
    if max(context.rows.values()) > LONG:
        check_blocks(run, context)
    else:
        claim(run["version"] == 1, "short runs are of version 1")
    for table, count in context.rows.items():
        claim(len(run.get(table, ())) == count, f"{table} has {len(run[table])} rows, not {count}")
    for table, reference, to in (("deep_operation_metrics", "component_metric_id",
                                  "component_metrics"),
                                 ("component_metrics", "layer_metric_id", "layer_metrics"),
                                 ("layer_metrics", "token_id", "tokens")):
        for row in run[table]:
            claim(row[reference] is None or 0 <= row[reference] < len(run[to]),
                  f"{table} {row['id']} belongs to no row of {to}")


def broken_json(data):
    run = json.loads(data)
    if run["version"] == 2:
        changes = (lambda r: r.update(version=1), lambda r: r["layer_metrics"][0].update(rows=7), lambda r: r["tokens"][0].update(rows=1),
                   lambda r: r["layer_metrics"][0]["energy_mj"].__setitem__(0, 1e6),
                   lambda r: r["layer_metrics"][0]["energy_sd_mj"].update(
                       float32=r["layer_metrics"][0]["net_energy_sd_mj"]["float32"]),
                   lambda r: r["layer_metrics"].pop())
    else:
        changes = broken_rows
    for change in changes:
        other = json.loads(data)
        change(other)
        yield json.dumps(other).encode()


broken_rows = (lambda r: r.pop("tokens"), lambda r: r.update(version=2),
               lambda r: r["tokens"][0].update(duration_ms="1"),
               lambda r: r["tokens"][0].update(surprise=1),
               lambda r: r["run_phases"][0].update(phase="lunch"),
               lambda r: r["profiling_run"].update(id="01"),
               lambda r: r["component_metrics"].pop(),
               lambda r: r["layer_metrics"][0].update(token_id=10**6))


def as_floats(value):
    """extra_metrics with the float32 that its numbers stand for: the view may write other digits."""
    if isinstance(value, dict):
        return {name: as_floats(each) for name, each in value.items()}
    if isinstance(value, list):
        return [as_floats(each) for each in value]
    return struct.pack("f", value) if is_number(value) else value


def same_exported(exported, stored):
    """Floats are exported in the shortest form that is the same float; bytes that are no UTF-8 are replaced."""
    if isinstance(exported, dict):  # extra_metrics
        return as_floats(exported) == as_floats(json.loads(stored))
    if isinstance(stored, str):
        return exported == stored.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return exported == stored or None not in (exported, stored) and struct.pack("f", exported) == struct.pack("f", stored)


# ---- CSV --------------------------------------------------------------------------------------

def same_value(text, value):
    if value is None:
        return text == ""
    if isinstance(value, (str, bytes)):
        raw = value if isinstance(value, bytes) else value.encode()
        return text.encode("utf-8", "surrogateescape") == raw
    if isinstance(value, int):
        return text == str(value)
    number = float(text)
    as_float = struct.unpack("f", struct.pack("f", value))[0] if abs(value) < 3e38 else value
    return number == value or (as_float == value and
                               struct.unpack("f", struct.pack("f", number))[0] == value)


def check_csv(data, context):
    files = zipfile.ZipFile(io.BytesIO(data))
    claim(files.testzip() is None, "a file of the zip is damaged")
    tables = {"profiling_runs", *context.tables}
    claim(set(files.namelist()) == {t + ".csv" for t in tables}, f"files: {files.namelist()}")
    for table in tables:
        text = files.read(table + ".csv").decode("utf-8", "surrogateescape")
        lines = list(csv.reader(io.StringIO(text, newline=""), strict=True))
        header, lines = lines[0], lines[1:]
        columns = {row[1] for row in context.db.execute(f"PRAGMA table_info({table})")}
        claim(len(set(header)) == len(header), f"{table}: a column is there twice")
        columns -= DATABASE_ONLY.get(table, set())
        claim(set(header) == columns, f"{table}: columns {set(header) ^ columns}")
        wanted = context.select(table, header)
        claim(len(lines) == len(wanted), f"{table}: {len(lines)} lines, {len(wanted)} rows")
        for line, row in zip(lines, wanted):
            claim(len(line) == len(header), f"{table}: a line of {len(line)} fields")
            for name, text, value in zip(header, line, row):
                if name == "extra_metrics" and text and value:
                    same = as_floats(json.loads(text)) == as_floats(json.loads(value))
                else:
                    same = same_value(text, value)
                claim(same, f"{table}.{name}: {text!r} is not {value!r}")


def broken_csv(data):
    files = zipfile.ZipFile(io.BytesIO(data))
    for table, change in (("tokens", lambda t: t[:t.rindex(b"\r\n", 0, -2) + 2]),
                          ("tokens", lambda t: t.replace(b"decode", b"decoda", 1)),
                          ("run_phases", lambda t: t.replace(b"duration_ms", b"duration", 1)),
                          ("run_phases", None)):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as other:
            for name in files.namelist():
                if name != table + ".csv":
                    other.writestr(name, files.read(name))
                elif change:
                    other.writestr(name, change(files.read(name)))
        yield out.getvalue()


# ---- trace ------------------------------------------------------------------------------------

def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def check_slice(event, ends):
    claim(isinstance(event.get("name"), str) and is_number(event.get("ts")) and
          is_number(event.get("dur")) and event["dur"] >= 0, f"not a complete event: {event}")
    key = event["pid"], event["tid"]
    before = ends.get(key, (-math.inf, -math.inf))
    claim(event["ts"] >= before[0], f"times on {key} go back at {event}")
    claim(event["ts"] >= before[1] - NANOSECOND_US, f"overlap on {key} at {event}")
    ends[key] = event["ts"], event["ts"] + event["dur"]


def check_trace(data, context):
    trace = json.loads(data)
    ends, named, last, counts = {}, set(), -math.inf, {"power": 0, "total power": 0}
    for event in trace["traceEvents"]:
        claim(isinstance(event.get("pid"), int), f"no process: {event}")
        kind = event.get("ph")
        if kind == "X":
            check_slice(event, ends)
            counts[event["cat"]] = counts.get(event["cat"], 0) + 1
        elif kind == "C":
            claim(event["args"] and all(is_number(v) for v in event["args"].values()),
                  f"a counter needs numbers: {event}")
            claim(is_number(event["ts"]) and event["ts"] >= last, f"counters go back: {event}")
            last = event["ts"]
            claim((event["name"] == "total power") == ("total_w" in event["args"]) and
                  (event["name"] == "power" or len(event["args"]) == 1),
                  f"viewers stack the values of a counter, so the total is apart: {event}")
            counts[event["name"]] += 1
        elif kind == "M":
            claim(event["name"] in ("process_name", "thread_name", "thread_sort_index"),
                  f"unknown metadata: {event}")
            if event["name"] == "thread_name":
                claim(isinstance(event["args"]["name"], str), f"a thread without a name: {event}")
                named.add((event["pid"], event["tid"]))
        elif kind == "i":
            claim(event["s"] in ("g", "p", "t") and is_number(event["ts"]), f"instant: {event}")
        else:
            raise Wrong(f"events of phase {kind!r} are not ours")
    claim(set(ends) == named, f"lanes without names or names without lanes: {set(ends) ^ named}")
    for category, table in (("phases", "run_phases"), ("sections", "pipeline_sections"),
                            ("tokens", "tokens"), ("layers", "layer_metrics"),
                            ("components", "component_metrics"),
                            ("operations", "deep_operation_metrics")):
        claim(counts.get(category, 0) == context.rows[table],
              f"{counts.get(category, 0)} {category} of {context.rows[table]}")
    claim((counts["power"], counts["total power"]) == context.powered_samples,
          f"{counts['power']} and {counts['total power']} counters of {context.powered_samples}")
    claim(trace["baseTimeNanoseconds"] == context.created_ns and
          trace["otherData"]["monotonic_ms"] == context.monotonic_ms, "the origin is not that of the run")


def broken_trace(data):
    trace = json.loads(data)
    slices = [i for i, e in enumerate(trace["traceEvents"]) if e["ph"] == "X"
              and e["cat"] == "components"]
    for change in (lambda e: e[slices[1]].update(ts=e[slices[2]]["ts"] + 1),
                   lambda e: e[slices[0]].update(dur=1e9), lambda e: e[slices[0]].update(dur=-1),
                   lambda e: e[slices[0]].update(ph="Z"), lambda e: e[slices[0]].update(tid=7),
                   lambda e: e[slices[0]].pop("ts"), lambda e: e.pop(slices[0])):
        other = copy.deepcopy(trace)
        change(other["traceEvents"])
        yield json.dumps(other).encode()


# ---- speedscope ---------------------------------------------------------------------------------

def check_speedscope(data, context):
    file = json.loads(data)
    claim(file["$schema"] == "https://www.speedscope.app/file-format-schema.json", "schema's name")
    frames = file["shared"]["frames"]
    claim(all(isinstance(f.get("name"), str) for f in frames), "a frame without a name")
    claim(0 <= file.get("activeProfileIndex", 0) < len(file["profiles"]), "active profile")
    for profile in file["profiles"]:
        samples, weights = profile["samples"], profile["weights"]
        claim(profile["type"] == "sampled" and isinstance(profile["name"], str), "profile's type")
        unit = "microseconds" if context.total_mj is None else "none"
        claim(profile["unit"] == unit, f"unit {profile['unit']}, not {unit}")
        claim(len(samples) == len(weights) and samples, "samples and weights differ in number")
        for stack in samples:
            claim(stack and all(isinstance(f, int) and 0 <= f < len(frames) for f in stack),
                  f"a stack of frames that are not there: {stack}")
        claim(all(is_number(w) and w >= 0 for w in weights), "a weight is no number, or negative")
        total = profile["endValue"] - profile["startValue"]
        claim(math.isclose(math.fsum(weights), total, rel_tol=1e-9), "weights miss their total")
        if context.total_mj is not None:
            claim(math.isclose(total, context.total_mj * 1e3, rel_tol=1e-6),
                  f"{total} uJ of {context.total_mj} mJ")


def broken_speedscope(data):
    file = json.loads(data)
    for change in (lambda p: p["weights"].pop(), lambda p: p["samples"][0].append(10**6),
                   lambda p: p.update(endValue=p["endValue"] * 2), lambda p: p.update(unit="joules"),
                   lambda p: p["weights"].__setitem__(0, -1)):
        other = copy.deepcopy(file)
        change(other["profiles"][0])
        yield json.dumps(other).encode()


# ---- runs ---------------------------------------------------------------------------------------

class Context:
    """A stored run: its id, its number of rows per table, and access to them."""

    def __init__(self, database, schema):
        self.schema = schema
        self.db = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
        self.db.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
        self.id, self.total_mj = self.db.execute(
            "SELECT id, total_energy_mj FROM profiling_runs ORDER BY created_ns DESC").fetchone()
        self.ranges = {row[0]: row[1:] for row in self.db.execute(
            "SELECT table_name, first_id, row_count FROM run_rows WHERE run_id = ?", (self.id,))}
        self.tables = ("run_rails", "power_samples", "run_rail_energy", "run_phases", "run_classes",
                       "tokens", "pipeline_sections", "layer_metrics", "component_metrics",
                       "deep_operation_metrics", "run_warnings", "run_conditions")
        self.rows = {t: self.ranges.get(t, (0, 0))[1] for t in self.tables}
        self.powered_samples = self.db.execute(
            "SELECT count(coalesce(cpu_power_mw, gpu_power_mw, ane_power_mw, dram_power_mw)),"
            " count(total_power_mw) FROM power_samples WHERE run_id = ?", (self.id,)).fetchone()
        self.created_ns, self.monotonic_ms = self.db.execute(
            "SELECT created_ns, monotonic_ms FROM profiling_runs WHERE id = ?", (self.id,)).fetchone()

    def select(self, table, columns):
        names = ", ".join(columns)
        if table == "profiling_runs":
            return self.db.execute(f"SELECT {names} FROM {table} WHERE id = ?",
                                   (self.id,)).fetchall()
        first, count = self.ranges.get(table, (0, 0))
        return self.db.execute(f"SELECT {names} FROM {table} WHERE id >= ? AND id < ? ORDER BY id",
                               (first, first + count)).fetchall()


def perjoule(*arguments):
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, timeout=120,
                          stdin=subprocess.DEVNULL)
    claim(done.returncode == 0, f"perjoule {' '.join(arguments[:2])}: "
          + done.stderr.decode("utf-8", "replace")[-300:])
    return done.stdout


def comes_back(exported, context):
    pathlib.Path("run.json").write_bytes(exported)
    perjoule("import", "--db", "second.db", "--replace", "run.json")
    again = perjoule("export", "--db", "second.db", context.id, "--format", "json", "-o", "-")
    claim(again == exported, "an imported run is exported differently")


CHECKS = {"json": (check_json, broken_json), "csv": (check_csv, broken_csv),
          "trace": (check_trace, broken_trace),
          "speedscope": (check_speedscope, broken_speedscope)}


def refused(check, data, context):
    try:
        check(data, context)
    except (Wrong, KeyError, ValueError, TypeError, struct.error):
        return
    raise Wrong("something broken passed the check")


class Tally:
    passed = failed = 0

    def attempt(self, name, work):
        try:
            work()
        except (Wrong, KeyError, ValueError, TypeError, csv.Error, zipfile.BadZipFile) as wrong:
            self.failed += 1
            print(f"FAIL {name}: {type(wrong).__name__}: {wrong}")
        else:
            self.passed += 1
            print(f"ok   {name}")


def lengthened(data):
    """An exported run with more samples than a short one has."""
    run = json.loads(data)
    samples = run["power_samples"]
    run["power_samples"] = [samples[i % len(samples)] | {"id": i, "timestamp_ms": i / 8} for i in range(LONG + 1)]
    run["run_rails"] = [rail | {"power_mw": None} for rail in run["run_rails"]]
    pathlib.Path("long.json").write_text(json.dumps(run))
    perjoule("import", "--db", "long.db", "long.json")
    return "long.db"


def check_formats(tally, name, database, schema, formats):
    context = Context(database, schema)
    for form in formats:
        check, broken = CHECKS[form]
        data = perjoule("export", "--db", database, context.id, "--format", form, "-o", "-")
        tally.attempt(f"{name}: {form}", lambda: check(data, context))
        for i, other in enumerate(broken(data)):
            tally.attempt(f"{name}: {form}, broken {i + 1}",
                          lambda: refused(check, other, context))
        if form == "json":
            tally.attempt(f"{name}: json comes back", lambda: comes_back(data, context))
            json_data = data
    return json_data


def check_run(tally, name, options, schema):
    perjoule("run", "-m", str(PROJECT / "models/demo"), "--db", "runs.db", "--tag", 'a,"b"',
             *options, "Once upon a time")
    data = check_formats(tally, name, "runs.db", schema, CHECKS)
    if name == "one prompt":
        check_formats(tally, "long run", lengthened(data), schema, ["json"])


def main():
    tally = Tally()
    schema = json.loads((PROJECT / "docs/schema/run-export.schema.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ.update(XDG_DATA_HOME=folder, XDG_CACHE_HOME=folder, HOME=folder, LC_ALL="C.UTF-8")
        for name, options in RUNS.items():
            tally.attempt(f"{name}: recorded and exported",
                          lambda: check_run(tally, name, options, schema))
        os.chdir("/")
    print(f"{tally.passed} passed, {tally.failed} failed")
    return 1 if tally.failed or not tally.passed else 0


sys.exit(main())
