#!/usr/bin/env python3
"""Runs are transferred to the server exactly once: when it is down, after a crash, and with the transfer killed at any
time."""
import json
import os
import random
import signal
import time

import server as servers
from common import HOME, call, record, waiting

KILLS = int(os.environ.get("PERJOULE_TEST_KILLS", "5"))

# Without fsync what was committed still survives the death of the server, though not of the machine.
with_server = servers.started(settings=["fsync=off"])
try:
    url = with_server.url()
    first, err = record(url)
    assert not err.strip(), err
    assert waiting(url) == 0 and with_server.psql("SELECT count(*) FROM profiling_runs") == "1"

    # Server down: runs stay in the local outbox in order, and the next run transfers all of them.
    with_server.stop(signal.SIGQUIT)
    kept = []
    for _ in range(2):
        run, err = record(url)
        kept.append(run)
        assert "kept" in err and "push" in err, err
    code, out, err = call("push", "--db", url, "--json", code=None)
    assert code != 0 and json.loads(out)["waiting"] == 2, (out, err)
    assert len(err.strip().splitlines()) == 1, err
    code, out, err = call("ls", "--db", url, code=None)
    assert code == 3 and len(err.strip().splitlines()) == 1 and "cannot be reached" in err, (code, err)
    with_server.start()
    out, _ = call("push", "--db", url)
    assert out.split() == kept, (out, kept)
    assert waiting(url) == 0

    # Killed at random moments of a transfer, the server shut down in the middle of some.
    done = record(HOME / "source.db", "--depth", "deep", "-n", 40)[0]
    call("export", "--db", HOME / "source.db", done, "-o", HOME / "run.json")
    text = (HOME / "run.json").read_text()
    expected = {first, *kept}
    random.seed(7)
    began = time.monotonic()
    call("import", "--db", url, HOME / "run.json")
    usual = time.monotonic() - began
    expected.add(done)
    for kill in range(KILLS):
        run = f"{done[:24]}{kill:012x}"
        (HOME / "next.json").write_text(text.replace(done, run))
        process = call("import", "--db", url, HOME / "next.json", wait=False)
        time.sleep(random.uniform(0, 1.2 * usual))
        if kill % 5 == 4:
            with_server.stop(signal.SIGQUIT)
        process.kill()
        process.communicate()
        if kill % 5 == 4:
            with_server.start()
        # Runs that were durable locally are on the server after a push; the others must be repeated by the user.
        call("push", "--db", url)
        assert waiting(url) == 0
        present = with_server.psql(f"SELECT count(*) FROM profiling_runs WHERE id = '{run}'")
        assert present in ("0", "1")
        if present == "0":
            call("import", "--db", url, HOME / "next.json")
        expected.add(run)
    found = with_server.psql("SELECT id FROM profiling_runs").split()
    assert sorted(found) == sorted(expected), (len(found), len(expected))
    rows = with_server.psql("SELECT count(DISTINCT n), max(n) FROM (SELECT count(*) AS n FROM deep_operation_metrics"
                            " GROUP BY run_id HAVING count(*) > 1000) AS sizes")
    assert rows.startswith("1|"), rows
    assert json.loads(call("check", "--json", "--db", url)[0])["sound"]
    print(f"{KILLS} kills, every run once")
finally:
    with_server.close()
