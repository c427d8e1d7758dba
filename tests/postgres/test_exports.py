#!/usr/bin/env python3
"""A run's exports from both storage engines are byte-identical in every format; lists, views and checks agree."""
import io
import json
import pathlib
import zipfile

import server as servers
from common import HOME, call, record

with_server = servers.started(settings=["fsync=off"])
try:
    url, file = with_server.url(), HOME / "file.db"
    run, _ = record(file, "--depth", "deep", "--tag", "it's \"quoted\"; --", "--experiment", "o'brien")
    call("export", "--db", file, run, "-o", HOME / "run.json")
    call("import", "--db", url, HOME / "run.json")
    for form in ("json", "csv", "trace"):
        names = [HOME / f"{engine}.{form}" for engine in ("sqlite", "postgres")]
        for name, db in zip(names, (file, url)):
            call("export", "--db", db, "--format", form, run, "-o", name)
        one, other = (name.read_bytes() for name in names)
        if form == "csv":
            one, other = ([(e, zipfile.ZipFile(io.BytesIO(b)).read(e)) for e in zipfile.ZipFile(io.BytesIO(b)).namelist()]
                          for b in (one, other))
        assert one == other, f"{form} differs"
    for words in (["ls", "--json"], ["show", "--json", run], ["show", "--advice", run]):
        assert call(*words, "--db", file)[0] == call(*words, "--db", url)[0], words
    assert json.loads(call("check", "--json", "--db", url)[0])["sound"]
    assert json.loads(call("check", "--json", "--db", url, run)[0])["sound"]
    second, _ = record(url, "--depth", "deep")
    call("compare", "--db", url, run, second)
    call("report", "--db", url, run, "-o", HOME / "report.html")
    assert len(json.loads(call("ls", "--json", "--db", url)[0])) == 2
    # Every row names its run and machine and is in the partition of its month.
    for table in ("tokens", "layer_metrics", "component_metrics", "deep_operation_metrics", "run_charts"):
        found = with_server.psql(f"SELECT count(*), count(*) FILTER (WHERE machine_id = 0), "
                                 f"min(tableoid::regclass::text) FROM {table} WHERE run_id = '{run}'")
        rows, nameless, partition = found.split("|")
        assert int(rows) and nameless == "0" and partition.startswith(table + "_2"), found
    call("rm", "--db", url, "--yes", run, code=None)
    left = with_server.psql(f"SELECT count(*) FROM profiling_runs WHERE id = '{run}'")
    assert left == "0" and with_server.psql(
        f"SELECT count(*) FROM deep_operation_metrics WHERE run_id = '{run}'") == "0"
    print("exports are equal")
finally:
    with_server.close()
