#!/usr/bin/env python3
"""NVTX ranges under `perjoule exec`: from a C program that loads the injection library as NVTX does, and from the
Python package nvtx, if it is installed in this Python, that of the torch tests, or (CI=true) a virtual environment
created for it.

Usage: with_nvtx.py PROGRAM CLIENT
"""
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading

program, client = (str(pathlib.Path(p).resolve()) for p in sys.argv[1:3])
environment = {k: v for k, v in os.environ.items() if not k.startswith(("PERJOULE_", "NVTX_"))}


def run(database, *words, **extra):
    done = subprocess.run([program, "exec", "--power", "none", "--db", database, "--", *words],
                          capture_output=True, text=True, env={**environment, **extra})
    with sqlite3.connect(database) as db:
        rows = db.execute("select section_name, duration_ms from pipeline_sections join profiling_runs on"
                          " run_id = profiling_runs.id where created_ns = (select max(created_ns) from"
                          " profiling_runs)").fetchall()
        warnings = [w for w, in db.execute("select text from run_warnings")]
    return done, dict(rows), len(rows), warnings


def flood(count):
    """More ranges than the pipe and the buffer hold: written begins and ends must match, and the rest must be
    counted."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    library = pathlib.Path(program).parent / "libperjoule-nvtx.so"
    child = subprocess.Popen([client, "flood", str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                             pass_fds=[write], env={**environment, "PERJOULE_MARKERS": str(write),
                                                    "NVTX_INJECTION64_PATH": str(library)})
    os.close(write)
    assert child.stdout.readline() == "go\n"
    got = []
    reader = threading.Thread(target=lambda: [got.append(part) for part in iter(lambda: os.read(read, 65536), b"")])
    reader.start()
    child.communicate("go on\n")
    reader.join()
    os.close(read)
    assert child.returncode == 0, child
    open_ranges, begun, ended, finished, lost, late = {}, 0, 0, 0, 0, False
    for line in b"".join(got).decode().splitlines():
        words = line.split()
        if words[0] == "lost":
            lost += int(words[1])
            continue
        stack = open_ranges.setdefault(words[1], [])
        if words[2] == "begin":
            stack.append(words[4])
            begun += 1
            late |= words[4] == "late"
        elif words[2] == "end":
            stack.pop()  # an end without a begin would fail here
            ended += 1
        else:
            finished += 1
    assert not any(open_ranges.values()), open_ranges
    assert late and ended == begun, (begun, ended)
    assert begun + finished + lost == 4 * count + 2, (begun, finished, lost, count)
    return lost


def python_with_nvtx():
    """A Python that has the package nvtx, or None and the reason."""
    cache = pathlib.Path.home() / ".cache" / "perjoule"
    venv = cache / "nvtx"
    torch = pathlib.Path(os.environ.get("PERJOULE_TORCH", cache / "torch"))
    if os.environ.get("CI") == "true" and not venv.exists():
        install = f'"{sys.executable}" -m venv "{venv}" && timeout 100 "{venv}/bin/pip" install --quiet --retries 1 nvtx'
        if subprocess.run(["sh", "-c", install], capture_output=True).returncode:
            shutil.rmtree(venv, ignore_errors=True)
    for python in (sys.executable, str(torch / "bin" / "python"), str(venv / "bin" / "python")):
        found = shutil.which(python) and subprocess.run([python, "-c", "import nvtx"], capture_output=True)
        if found and found.returncode == 0:
            return python
    return None


with tempfile.TemporaryDirectory() as folder:
    assert flood(10) == 0
    assert flood(100000) > 300000
    database = str(pathlib.Path(folder, "runs.db"))
    done, sections, count, _ = run(database, client)
    assert done.returncode == 0 and done.stdout == "0 1 0 -1\n", done
    assert set(sections) == {"outer", "wïde", "thread", "torch/registered?name", "started", "unnamed"}, sections
    assert sections["thread"] >= 19 and sections["wïde"] >= 9 and sections["started"] >= 9, sections
    assert sections["outer"] >= sections["wïde"] + sections["started"], sections
    done, _, count, _ = run(database, client, "20000")
    assert done.returncode == 0 and "ns per range" in done.stdout, done
    print(f"nvtx from C: {done.stdout.strip()}, {count} of 20000 ranges recorded")
    assert count > 0
    # what a program had not written when it was killed or left by _exit is read from shared memory
    for how, code in (("kill", 128 + 9), ("_exit", 5)):
        done, sections, count, warnings = run(database, client, how, "40")
        assert done.returncode == code and count == 40 and set(sections) == {"range"}, (how, done, count)
        assert not any("number is unknown" in w for w in warnings), warnings
        done, _, count, warnings = run(str(pathlib.Path(folder, f"{how}.db")), client, how, "20000")
        lost = sum(int(w.split()[0]) for w in warnings if "were lost" in w)
        assert done.returncode == code and count + lost == 20000, (how, count, warnings)
    # a file of the program's own that has the number of the markers' descriptor is left alone
    own = pathlib.Path(folder, "own.txt")
    script = f'eval "exec \'{client}\' 100 $PERJOULE_MARKERS>\'{own}\'"'
    done, _, _, _ = run(database, "sh", "-c", script)
    assert done.returncode == 3 and "refused" in done.stdout and own.read_bytes() == b"", (done, own.read_bytes())
    done, _, _, _ = run(database, "sh", "-c", 'echo begin section s >&"$PERJOULE_MARKERS"; kill -9 $$')
    assert done.returncode == 128 + 9 and "not known" not in done.stderr, done
    # another injection library is left in place, which is reported
    done, _, _, warnings = run(database, client, NVTX_INJECTION64_PATH="/nowhere/other.so")
    assert done.returncode == 3 and "/nowhere/other.so" in done.stdout, done
    assert any("NVTX_INJECTION64_PATH" in w for w in warnings), warnings
    python = python_with_nvtx()
    if python:
        script = "import nvtx, time\nfor i in range(100):\n with nvtx.annotate('step', domain='py'):\n  time.sleep(.001)"
        done, sections, count, _ = run(database, python, "-c", script)
        assert done.returncode == 0 and count == 100 and list(sections) == ["py/step"], (done, sections)
        print(f"nvtx from Python: 100 ranges ({python})")
    else:
        print("skipped: no Python here has PyPI's nvtx (pip install nvtx)")
