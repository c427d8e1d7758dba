#!/usr/bin/env python3
"""A server with a really full file system: one message, nothing lost, runs transferred once there is space. Needs
mount."""
import json
import os
import subprocess
import sys
import tempfile

import server as servers
from common import call, record, waiting

MOST_RUNS = 60


def mounted(folder, megabytes, again=False):
    size = f"size={megabytes}m" + (",remount" if again else "")
    return subprocess.run(["mount", "-t", "tmpfs", "-o", size, "perjoule-test", folder], capture_output=True).returncode == 0


small = tempfile.mkdtemp(prefix="pj-full-")
if os.geteuid() != 0 or not mounted(small, 14):
    os.rmdir(small)
    print("skipped: a small file system cannot be mounted here (it needs root)")
    sys.exit(servers.SKIPPED)
with_server = None
try:
    with_server = servers.started(settings=["fsync=off"])
    os.chown(small, with_server.user.pw_uid, with_server.user.pw_gid)
    with_server.psql(f"CREATE TABLESPACE small LOCATION '{small}'")
    with_server.psql("CREATE DATABASE fleet TABLESPACE small")
    url = with_server.url("fleet")
    runs, kept = [], ""
    while not kept and len(runs) < MOST_RUNS:
        run, kept = record(url, "--depth", "deep", "-n", 24)
        runs.append(run)
    assert "kept" in kept, f"{len(runs)} runs did not fill the disk: {kept}"
    runs.append(record(url, "--depth", "deep")[0])
    assert 1 <= waiting(url) <= 2, waiting(url)
    code, _, err = call("push", "--db", url, code=None)
    if waiting(url):
        assert code and "disk is full" in err and len(err.strip().splitlines()) == 1, (code, err)
    # Reading still works, and everything stored before is intact.
    assert len(json.loads(call("ls", "--json", "--db", url)[0])) + waiting(url) == len(runs)
    assert mounted(small, 200, again=True)
    call("push", "--db", url)
    assert waiting(url) == 0
    found = with_server.psql("SELECT id FROM profiling_runs", "fleet").split()
    assert sorted(found) == sorted(runs), (len(found), len(runs))
    assert json.loads(call("check", "--json", "--db", url)[0])["sound"]
    print(f"full after {len(runs) - 2} runs, all {len(runs)} there afterwards")
finally:
    if with_server:
        with_server.close()
    subprocess.run(["umount", "-l", small], check=False)
    os.rmdir(small)
