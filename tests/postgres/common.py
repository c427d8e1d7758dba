"""Shared by the tests with a PostgreSQL server: the program, a database for each test, runs."""
import atexit
import contextlib
import json
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile

import server as servers

PROGRAM, ROOT = sys.argv[1], pathlib.Path(sys.argv[2])
HOME = pathlib.Path(tempfile.mkdtemp(prefix="pj-fleet-"))
atexit.register(shutil.rmtree, HOME, ignore_errors=True)
ENVIRONMENT = dict(os.environ, HOME=str(HOME), XDG_DATA_HOME=str(HOME / "data"), PERJOULE_POWER="none")
ENVIRONMENT.pop("PERJOULE_DB", None)


def call(*words, code=0, wait=True, **more):
    process = subprocess.Popen([PROGRAM, *map(str, words)], env={**ENVIRONMENT, **more}, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if not wait:
        return process
    out, err = process.communicate(timeout=300)
    assert code is None or process.returncode == code, (words, process.returncode, out[-1000:], err[-1000:])
    return (out, err) if code is not None else (process.returncode, out, err)


def record(db, *words, **more):
    """The id of one small run of the demonstration model, from the command line to the database."""
    out, err = call("run", "--db", db, "-m", ROOT / "models" / "demo", "-n", 3, "--json", "--power", "sim:seed=1",
                    *words, "hello", **more)
    return json.loads(out)["run_id"], err


def waiting(db):
    """Runs in the outbox, which has a local database per server."""
    count = 0
    for box in (HOME / "data" / "perjoule").glob("outbox-*.db"):
        with contextlib.closing(sqlite3.connect(box)) as kept:
            count += kept.execute("SELECT count(*) FROM profiling_runs").fetchone()[0]
    return count
