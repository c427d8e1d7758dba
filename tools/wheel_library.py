#!/usr/bin/env python3
"""Cross-compiles libperjoule for the Python package's wheels.

    wheel_library.py BUILD LIBS COMPILER SYSTEM OUT

BUILD is a configured native build, which determines the sources and flags. LIBS holds
the static libraries of the target (dist-bin-libs.sh), COMPILER compiles and links for it, SYSTEM is linux or macos.
Leaves the stripped library in the file OUT. The PostgreSQL driver, which needs a client library's header, is left out.
"""
import concurrent.futures
import functools
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
WHOLE = ("pj_base", "pj_trace", "pj_record")  # linked whole, as in meson.build; the others only as needed
PARTS = ("pj_http", "pj_attribution", "pj_store", "pj_analysis", "pj_power", "pj_energy")
MACHINE = ("-I/usr", "-fdiagnostics", "-Winvalid-pch", "-g", "-Werror", "-DPJ_HAS_POSTGRES", "-O")  # not for the target


def targets_of(build):
    said = subprocess.run(["meson", "introspect", build, "--targets"], check=True, capture_output=True, text=True).stdout
    named = {target["name"]: target["target_sources"][0] for target in json.loads(said)
             if target["name"] in WHOLE + PARTS and target["type"] == "static library"}
    missing = set(WHOLE + PARTS) - set(named)
    if missing:
        raise SystemExit(f"wheel_library: {build} has no {', '.join(sorted(missing))}")
    return named


@functools.lru_cache
def knows(compiler, flag):
    return subprocess.run([compiler, flag, "-c", "-x", "c", os.devnull, "-o", os.devnull], capture_output=True).returncode == 0


def flags_of(parameters, libs, compiler):
    """Without those of the build's own processor that the target's does not know (-fcf-protection)."""
    kept = [p for p in parameters if not p.startswith(MACHINE)]
    kept = [p for p in kept if "-protection" not in p or knows(compiler, p)]
    return [*kept, "-Wno-unknown-warning-option", "-Wno-unused-command-line-argument", "-w", "-O2", "-g0",
            "-ffunction-sections", "-fdata-sections", "-isystem", f"{libs}/include"]


def compile_all(compiler, named, libs, folder):
    """The objects of each static library."""
    jobs = []
    for name, sources in named.items():
        flags = flags_of(sources["parameters"], libs, compiler)
        for source in sources["sources"]:
            if os.path.basename(source).startswith("postgres"):
                continue
            made = folder / name / (os.path.basename(source)[:-2] + ".o")
            made.parent.mkdir(parents=True, exist_ok=True)
            jobs.append((name, made, [compiler, *flags, "-c", source, "-o", str(made)]))
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("PERJOULE_JOBS", os.cpu_count() or 1))) as pool:
        for done in pool.map(lambda job: subprocess.run(job[2], capture_output=True, text=True), jobs):
            if done.returncode != 0:
                raise SystemExit(done.stderr)
    objects = {}
    for name, made, _ in jobs:
        objects.setdefault(name, []).append(str(made))
    return objects


def link(compiler, ar, objects, libs, system, out):
    whole = [each for name in WHOLE for each in objects[name]]
    archives = []
    for name in PARTS:
        archives.append(f"{os.path.dirname(objects[name][0])}.a")
        subprocess.run([ar, "rcs", archives[-1], *objects[name]], check=True)
    needs = [f"{libs}/lib/libjansson.a", f"{libs}/lib/libsqlite3.a", f"{libs}/lib/libz.a"]
    if system == "macos":
        options = ["-dynamiclib", "-Wl,-dead_strip", "-install_name", "@rpath/libperjoule.0.dylib"]
    else:
        options = ["-shared", "-Wl,--gc-sections", "-Wl,-z,relro", "-Wl,-z,now", "-Wl,-z,noexecstack", "-Wl,-soname,libperjoule.so.0", "-ldl",
                   f"-Wl,--version-script={ROOT}/src/libperjoule.map"]
        archives, needs = ["-Wl,--start-group", *archives], [*needs, "-Wl,--end-group"]
    subprocess.run([compiler, *whole, *archives, *needs, *options, "-s", "-lm", "-lpthread", "-o", out], check=True)


def main():
    build, libs, compiler, system, out = sys.argv[1:]
    folder = pathlib.Path(out).resolve().parent / f"objects-{os.path.basename(out)}"
    objects = compile_all(compiler, targets_of(build), libs, folder)
    ar = os.path.join(os.path.dirname(compiler), "ar")
    pathlib.Path(out).unlink(missing_ok=True)
    link(compiler, ar, objects, libs, system, out)


if __name__ == "__main__":
    main()
