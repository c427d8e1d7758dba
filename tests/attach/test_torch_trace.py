#!/usr/bin/env python3
"""`perjoule import --torch-trace`: traces in the format of PyTorch's profiler, with a recorded power trace of known
values."""
import json
import os
import pathlib
import random
import subprocess
import tempfile

PERJOULE = os.environ["PERJOULE"]
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("PERJOULE_") or k == "PERJOULE"}
BEGIN_MS = 1_780_000_000_000.0  # wall-clock time of the first power sample
random.seed(7)


def run(folder, *words):
    return subprocess.run([PERJOULE, *words, "--db", str(folder / "runs.db")], capture_output=True, text=True, timeout=120,
                          env={**ENVIRONMENT, "TZ": "UTC"})


def write_power(path, watts, rows=400, period_ms=10, **names):
    """Constant power per rail, so that the energy of a range is its duration times that."""
    rails = list(watts)
    lines = [",".join(["timestamp_ms", *(f"{r}_mw" for r in rails), "phase", "unix_ms", "monotonic_ms"])]
    for i in range(1, rows + 1):
        t = i * period_ms
        values = (f"{watts[r] * 1e3:g}" for r in rails)
        lines.append(",".join([f"{t:.3f}", *values, "idle", f"{BEGIN_MS + t:.3f}", f"{5e6 + t:.3f}"]))
    path.write_text("\n".join(lines) + "\n")


def event(cat, name, at_ms, ms, tid=1, pid=10, **extra):
    """`at_ms` is relative to the first power sample."""
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": at_ms * 1e3, "dur": ms * 1e3, **extra}


def gpu_trace():
    events = [{"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}},
              event("user_annotation", "decode", 100, 50), event("cpu_op", "aten::mm", 101, 1),
              event("cuda_runtime", "cudaLaunchKernel", 101, 0.01),
              event("gpu_user_annotation", "decode", 500, 1000, tid=7, pid=0)]
    events += [event("kernel", "gemm", 500 + 100 * i, 60, tid=7, pid=0, args={"stream": 7}) for i in range(10)]
    events += [event("kernel", "softmax", 560 + 100 * i, 40, tid=7, pid=0) for i in range(10)]
    events += [event("gpu_memcpy", "Memcpy HtoD", 1600, 100, tid="stream 13", pid=0)]
    return events


def write_trace(path, events, base_ms=BEGIN_MS, **members):
    base = {} if base_ms is None else {"baseTimeNanoseconds": int(base_ms * 1e6)}
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events, **base, **members}))


def imported(folder, trace, power):
    done = run(folder, "import", "--torch-trace", str(trace), "--power", str(power))
    assert done.returncode == 0, done.stderr
    return json.loads(run(folder, "export", done.stdout.strip(), "--format", "json").stdout)


def components(run_json):
    sums = {}
    for c in run_json["component_metrics"]:
        ms, mj = sums.get(c["component_name"], (0, 0))
        sums[c["component_name"]] = (ms + c["time_ms"], mj + c["energy_mj"])
    return sums


def near(a, b, tolerance=0.02):
    return abs(a - b) <= tolerance * abs(b)


def joins(folder):
    trace, power = folder / "trace.json", folder / "power.csv"
    write_power(power, {"cpu": 20, "gpu0": 100})
    write_trace(trace, gpu_trace())
    got = imported(folder, trace, power)
    info = got["profiling_run"]
    assert (info["engine"], info["scope"], info["level"], info["energy_source"]) == ("torch", "machine", "coarse", "measured")
    assert near(info["total_duration_ms"], 1200) and near(info["total_energy_mj"], 1200 * 120), info
    found = components(got)
    # the work of the GPU is charged to its rail, and what the host drew meanwhile to the phase
    assert near(found["gemm"][0], 600) and near(found["gemm"][1], 600 * 100), found
    assert near(found["softmax"][1], 400 * 100) and near(found["Memcpy HtoD"][1], 100 * 100), found
    sections = [s for s in got["pipeline_sections"] if s["section_name"] == "decode"]
    assert len(sections) == 1 and near(sections[0]["energy_mj"], 1000 * 100), sections
    assert near(info["request_energy_mj"], 1200 * 120), info
    assert {c["device"] for c in got["component_metrics"]} == {1}, got["component_metrics"]
    devices = info["devices"]
    assert devices["0"]["rails"] == "cpu" and near(devices["0"]["energy_mj"], 1200 * 20), devices
    assert devices["1"]["rails"] == "gpu0" and near(devices["1"]["energy_mj"], 1200 * 100), devices
    assert near(devices["1"]["busy_ms"], 1100), devices
    assert info["created_ns"] // 10**6 == int(BEGIN_MS) + 500, info["created_ns"]
    assert {w["code"] for w in got["run_warnings"]} >= {"host_ranges_left_out"}, got["run_warnings"]
    assert "conservation  ok" in run(folder, "check").stdout
    shown = run(folder, "show", "last", "--components")
    assert shown.returncode == 0 and "gemm" in shown.stdout, shown.stderr
    # our own trace export has the time origin too, and aligns like PyTorch's
    ours = json.loads(run(folder, "export", "last", "--format", "trace", "--output", "-").stdout)
    assert ours["baseTimeNanoseconds"] == info["created_ns"] and ours["traceEvents"], ours.keys()


def several_gpus(folder):
    """Kernels of two GPUs at the same time; then a recording that lacks one of them."""
    trace, power = folder / "two.json", folder / "two.csv"
    write_power(power, {"cpu": 20, "gpu0": 100, "gpu1": 300})
    write_trace(trace, [event("kernel", "gemm", 500, 1000, tid=7, pid=0), event("kernel", "softmax", 700, 500, tid=7, pid=1)])
    got = imported(folder, trace, power)
    found = components(got)
    assert near(found["gemm"][1], 1000 * 100) and near(found["softmax"][1], 500 * 300), found
    assert near(got["profiling_run"]["total_energy_mj"], 1000 * 420), got["profiling_run"]
    write_power(power, {"cpu": 20, "gpu0": 100})
    got = imported(folder, trace, power)
    energies = {c["component_name"]: c["energy_mj"] for c in got["component_metrics"]}
    info = got["profiling_run"]
    assert near(energies["gemm"], 1000 * 100) and energies["softmax"] is None, energies
    assert info["total_is_partial"] and info["partial_rails"] == "gpu1", info
    assert info["request_energy_mj"] is None, info
    assert "device_without_sensor" in {w["code"] for w in got["run_warnings"]}, got["run_warnings"]
    assert "conservation  ok" in run(folder, "check").stdout


def older_and_cpu_only(folder):
    """Unix times without a base time, and a CPU trace: operations nest in ranges and in each other."""
    trace, power = folder / "cpu.json", folder / "cpu.csv"
    write_power(power, {"cpu": 50})
    at = BEGIN_MS
    events = [event("user_annotation", "prefill", at + 200, 800, tid=3), event("cpu_op", "aten::linear", at + 200, 600, tid=3),
              event("cpu_op", "aten::addmm", at + 300, 400, tid=3), event("cpu_op", "aten::relu", at + 800, 200, tid=3),
              event("user_annotation", "inner", at + 800, 200, tid=3),
              event("python_function", "forward", at + 200, 800, tid=3)]
    random.shuffle(events)
    write_trace(trace, events, base_ms=None)
    got = imported(folder, trace, power)
    found = components(got)
    assert near(found["aten::linear"][1], 600 * 50) and "aten::addmm" not in found, found
    operations = {o["operation_name"]: o["energy_mj"] for o in got["deep_operation_metrics"]}
    assert near(operations["aten::addmm"], 400 * 50), operations
    sections = {s["section_name"]: s["energy_mj"] for s in got["pipeline_sections"]}
    assert near(sections["prefill"], 800 * 50) and near(sections["inner"], 200 * 50), sections
    assert near(found["aten::relu"][1], 200 * 50), found
    assert near(got["profiling_run"]["total_energy_mj"], 800 * 50), got["profiling_run"]


def outside_the_record(folder):
    trace, power = folder / "out.json", folder / "out.csv"
    write_power(power, {"cpu": 50}, rows=100)  # one second
    write_trace(trace, [event("kernel", "k", 5000, 100)])
    got = imported(folder, trace, power)
    assert got["profiling_run"]["total_energy_mj"] is None, "no power was recorded then"
    assert "power_partial" in {w["code"] for w in got["run_warnings"]}, got["run_warnings"]


def refused(folder, trace_text, says, power=None):
    trace, own = folder / "bad.json", folder / "good.csv"
    write_power(own, {"cpu": 50})
    trace.write_bytes(trace_text if isinstance(trace_text, bytes) else trace_text.encode())
    done = run(folder, "import", "--torch-trace", str(trace), "--power", str(power or own))
    assert done.returncode not in (0, 134, 139) and done.returncode > 0, (trace_text[:80], done)
    assert says in done.stderr and done.stderr.count("\n") == 1, (trace_text[:80], done.stderr)


def hostile(folder):
    whole = json.dumps({"traceEvents": gpu_trace(), "baseTimeNanoseconds": int(BEGIN_MS * 1e6)})
    for text in ("", "[]", "{}", "null", "{\"traceEvents\": {}}", "{\"traceEvents\": [1, 2]}", "[" * 100000,
                 "{\"traceEvents\": " + "[" * 100000, "\0" * 100, whole[:-1]):
        refused(folder, text, "not a trace of PyTorch's profiler")
    for _ in range(40):
        refused(folder, whole[:random.randrange(1, len(whole) - 1)], "not a trace of PyTorch's profiler")
    refused(folder, json.dumps({"traceEvents": [event("kernel", "k", 5, 5)]}), "baseTimeNanoseconds is missing")
    refused(folder, whole, "unix_ms", power=folder / "no-origin.csv")
    far = [event("kernel", "k", 5, 5), event("kernel", "k", 8 * 86400e3, 5)]
    refused(folder, json.dumps({"traceEvents": far, "baseTimeNanoseconds": 1}), "more than 7 days")
    # events with wrong types are skipped individually
    odd = [event("kernel", "good", 500, 100), {"ph": "X", "cat": "kernel"}, event("kernel", 5, 1, 1), "text", None,
           {**event("kernel", "k", 1, 1), "ts": "1"}, {**event("kernel", "k", 1, 1), "dur": -5}, [[]],
           {**event("kernel", "k", 1, 1), "ts": 1e300}, {**event("kernel", "k", 1, 1), "dur": 1e300}]
    trace, power = folder / "odd.json", folder / "odd.csv"
    write_power(power, {"cpu": 50})
    write_trace(trace, odd)
    got = imported(folder, trace, power)
    assert {c["component_name"] for c in got["component_metrics"]} == {"good"}, got["component_metrics"]
    assert "trace_events_skipped" in {w["code"] for w in got["run_warnings"]}


def overlapping_and_many(folder):
    """Overlapping kernels on one stream, names without a number, deep nesting: no crash, and energy is conserved."""
    events = [event("kernel", f"k{i}", 500 + random.random() * 1000, random.random() * 50, tid=1) for i in range(3000)]
    events += [event("cpu_op", f"name {i}", i, 1) for i in range(1000)]
    trace, power = folder / "many.json", folder / "many.csv"
    write_power(power, {"gpu0": 50})
    write_trace(trace, events)
    got = imported(folder, trace, power)
    total = got["profiling_run"]["total_energy_mj"]
    assert near(total, got["profiling_run"]["total_duration_ms"] * 50), total
    assert "conservation  ok" in run(folder, "check").stdout


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    (folder / "no-origin.csv").write_text("timestamp_ms,cpu_mw,phase\n0,5,idle\n10,5,idle\n")
    joins(folder)
    several_gpus(folder)
    older_and_cpu_only(folder)
    outside_the_record(folder)
    hostile(folder)
    overlapping_and_many(folder)
    for words in (["--torch-trace", "x"], ["--power", "x"]):
        assert run(folder, "import", *words).returncode == 2
    print("ok")
