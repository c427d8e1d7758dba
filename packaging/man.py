#!/usr/bin/env python3
"""Generates the man pages: one per command from `perjoule COMMAND --man`, and the overview perjoule(1).

Usage: man.py PROGRAM FOLDER
"""
import os
import pathlib
import re
import subprocess
import sys

PROGRAM, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])


def output(*words):
    wide = {**os.environ, "COLUMNS": "100"}
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=True, env=wide).stdout


def escape(text):
    return text.replace("\\", "\\e").replace("-", "\\-")


def overview(commands, version):
    lines = [f'.TH PERJOULE 1 "" "perjoule {version}" "perjoule manual"', ".SH NAME",
             "perjoule \\- energy profiler for transformer inference", ".SH SYNOPSIS",
             ".B perjoule\n.I COMMAND\n[options]", ".SH DESCRIPTION",
             "perjoule runs language models (or watches programs that do), measures power where the "
             "machine has sensors, attributes the energy to phases, tokens, layers, components and "
             "operations with an interval on every figure, stores every run, and serves a dashboard.",
             ".SH COMMANDS"]
    for name, summary in commands:
        lines += [".TP", f".BR perjoule\\-{escape(name)} (1)", escape(summary)]
    lines += [".SH ENVIRONMENT"]
    for name, text in (("PERJOULE_DB", "the database, in place of the user's own"),
                       ("PERJOULE_MODELS", "folder of models, in place of ./models"),
                       ("PERJOULE_BASELINE", "seconds of idle power measured before the first run, in place of 1"),
                       ("PERJOULE_SYSFS, PERJOULE_PROCFS", "folders in front of /sys and /proc"),
                       ("PERJOULE_NVML", "path of NVIDIA's management library"),
                       ("PERJOULE_IOREPORT", "library to open instead of libIOReport and CoreFoundation"),
                       ("PERJOULE_POWERMETRICS", "command to run instead of powermetrics"),
                       ("PERJOULE_ISA", "kernel sets that may be used"),
                       ("PERJOULE_POWER", "power sources, in place of auto"),
                       ("COLUMNS", "width of what is printed, in place of the terminal's"),
                       ("NO_COLOR", "plain text on terminals too")):
        lines += [".TP", f".B {name}", text]
    lines += [".SH EXIT STATUS",
              "0 done, 1 it failed while working, 2 bad input or usage, 3 something it needs is "
              "unavailable, 130 interrupted (the run is kept)."]
    return "\n".join(lines) + "\n"


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    listing = output("help")
    commands = re.findall(r"^  (\w+) +(\S.*)$", listing, re.M)
    version = output("--version").split()[1]
    (FOLDER / "perjoule.1").write_text(overview(commands, version))
    for name, _ in commands:
        (FOLDER / f"perjoule-{name}.1").write_text(output(name, "--man"))


main()
