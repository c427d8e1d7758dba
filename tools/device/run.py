#!/usr/bin/env python3
"""tools/device-check.sh: everything that a machine with a card can show, in at most nine minutes. What the device computes
(compute.py), what its sensors say (check.py), and the Python package on it (hooks.py). Parts that the machine lacks something for are
skipped with the reason. Ends with 1 if a check failed.
"""
import argparse
import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading

import check
import compute
from report import Report

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SECONDS = 520
MOST_SENSORS, MOST_HOOKS = 150, 200
GRACE = 10  # seconds in which a check that is told to end does so


def read_options():
    parser = argparse.ArgumentParser(prog="device-check", description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="build folder (build)")
    parser.add_argument("--device", help="what computes: as --device of perjoule run (gpu)")
    parser.add_argument("--out", default="device-check", help="folder of the table and the JSON file (device-check)")
    parser.add_argument("--golden", help="a folder of checkpoints, whose logits are compared with the CPU's")
    parser.add_argument("--small", action="store_true", help="the demo model and a few tokens; no sensors, no hooks")
    parser.add_argument("--seconds", type=float, default=30, help="of watching the sensors (30)")
    parser.add_argument("--load", help="a shell command that keeps the card busy, for the sensors; without it PyTorch does")
    parser.add_argument("--wave", help="as of check.py: a stand-in for the driver has its own load")
    options = parser.parse_args()
    options.build, options.device = options.build.resolve(), options.device or "gpu"
    if not (options.build / "perjoule").exists():
        sys.exit(f"device-check: no program in {options.build}; name the build folder with --build")
    if not 2 <= options.seconds <= 200:
        sys.exit(f"device-check: --seconds {options.seconds:g}: from 2 to 200")
    return options


def finish(words, most):
    """What it said and how it ended; None: it was ended, as it took longer than `most` seconds."""
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            out, err = child.communicate(timeout=most)
            return subprocess.CompletedProcess(words, child.returncode, out, err)
        except subprocess.TimeoutExpired:
            child.terminate()  # it has a load to end
        try:
            child.communicate(timeout=GRACE)
        except subprocess.TimeoutExpired:
            child.kill()
    return None


def sensors(options, report):
    """Every field of the driver against a load of known schedule; its own report is kept as it is."""
    words = [sys.executable, HERE / "check.py", "--build", options.build, "--seconds", str(options.seconds)]
    words += ["--load", options.load] if options.load else []
    words += ["--wave", options.wave] if options.wave else []
    words += ["--card", report.facts["card"]] if report.facts.get("card") else []
    entry = report.facts.get("entry", {})
    if entry.get("vendor") not in (None, "NVIDIA", "Mesa"):  # Mesa's computes on the CPU
        report.add("sensors", "against a load", "skipped", f"the check is of NVIDIA's readings, the device is of {entry['vendor']}")
        return
    most = min(MOST_SENSORS, report.left() - 5)
    if most < compute.LEAST_SECONDS:
        report.add("sensors", "against a load", "skipped", "no time left")
        return
    out = finish(words, most)
    if not out:
        report.add("sensors", "against a load", "bad", f"not done after {most:.0f} s")
        return
    (report.folder / "sensors.txt").write_text(out.stdout + out.stderr)
    if out.returncode == check.LACKING:
        report.add("sensors", "against a load", "skipped", out.stderr.strip().removeprefix("device-check: "))
        return
    rows = [line for line in out.stdout.splitlines() if line.startswith("| ")]
    report.judge("sensors", "against a load", out.returncode == 0, rows[-1].strip("| ") if rows else out.stderr.strip()[-200:])


def hooks(options, report):
    with tempfile.TemporaryDirectory() as folder:
        out = subprocess.Popen([sys.executable, HERE / "hooks.py", "--build", options.build, "--seconds", str(min(MOST_HOOKS, report.left() - 40))],
                               stdout=subprocess.PIPE, text=True, env=compute.only(report) | {"PERJOULE_DB": os.path.join(folder, "hooks.db")})
        late = threading.Timer(max(1, report.left()), out.kill)
        late.start()
        with out:
            for line in out.stdout:
                if line.startswith('{"check"'):  # others are what libraries print
                    row = json.loads(line)
                    report.add("hooks", row["check"], row["result"], row["text"], **row["figures"])
        late.cancel()
    if out.returncode == -signal.SIGKILL and report.left() <= 0:
        report.add("hooks", "all", "skipped", "no time left for the rest")
    elif out.returncode:
        report.add("hooks", "all", "bad", f"ended with {out.returncode}")


def against_library(report):
    """Prefill in BF16 beside what the vendor's library reaches, where PyTorch said it."""
    figures = {(row["part"], row["check"]): row["figures"] for row in report.rows}
    theirs = figures.get(("hooks", "PyTorch's products and copies"), {}).get("flops_per_second")
    ours = figures.get(("speed", compute.BF16), {}).get("flops_per_second")
    if ours and theirs:
        report.add("speed", "prefill against PyTorch", "info", f"{100 * ours / theirs:.0f} % of a BF16 product of the vendor's library",
                   share=ours / theirs)


def kept(options):
    """Seconds for sensors and hooks, as far as they can run here."""
    has_torch = importlib.util.find_spec("torch") is not None
    has_load = has_torch or options.load or options.wave
    return 0 if options.small else (options.seconds + 40 if has_load else 5) + (140 if has_torch else 5)


def main():
    options = read_options()
    report = Report(options.out, SECONDS)
    compute.check(options, report, kept(options))
    for part in (sensors, hooks):
        if options.small:
            report.add(part.__name__, "all", "skipped", "the small form is of computing alone")
        else:
            part(options, report)
    against_library(report)
    print(report.markdown())
    sys.exit(report.failed() > 0)


if __name__ == "__main__":
    main()
