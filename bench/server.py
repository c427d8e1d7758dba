"""The server under load: REST latency with and without a run in progress, time and memory of an export of a large
run, and two servers and a command-line run writing to one database concurrently.

    PERJOULE=build/perjoule python3 bench/server.py rest
    PERJOULE=build/perjoule python3 bench/server.py export DATABASE   # of `perjoule bench store --keep`
    PERJOULE=build/perjoule python3 bench/server.py share
"""
import collections
import http.client
import json
import pathlib
import re
import sqlite3
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/api"))
import harness  # noqa: E402

MODEL = "synthetic:smollm2-135m"


def together(*work):
    threads = [threading.Thread(target=f, args=args) for f, *args in work]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


# ---- REST latency -------------------------------------------------------------------------

def ask_for(server, paths, seconds, clients):
    took = {name: [] for name in paths}
    wrong = []
    end = time.monotonic() + seconds

    def ask(turn):
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        names = list(paths)
        while time.monotonic() < end:
            name = names[turn % len(names)]
            turn += 1
            begin = time.monotonic()
            connection.request("GET", paths[name])
            answer = connection.getresponse()
            answer.read()
            took[name].append((time.monotonic() - begin) * 1e3)
            if answer.status != 200:
                wrong.append((name, answer.status))
            time.sleep(.01)
    together(*((ask, 3 * i) for i in range(clients)))
    for name, ms in took.items():
        ms.sort()
        print(f"  {name:11} {len(ms):6}   p50 {ms[len(ms) // 2]:7.2f}   p99 {ms[int(len(ms) * .99)]:7.2f} ms")
    if wrong:
        sys.exit(f"wrong answers: {wrong[:5]}")


def rest():
    with harness.Server() as server:
        large = server.generate(model_name=MODEL, max_length=200, profiling_depth="deep").json()["id"]
        for i in range(40):
            server.generate(max_length=8, prompt=f"run {i}")
        run = f"/api/profiling/run/{large}"
        paths = {"list": "/api/profiling/runs?limit=100", "run": run + "?include=none",
                 "summary": run + "/summary", "tree": run + "/tree", "power": run + "/power?points=1000",
                 "tokens": run + "/tokens", "heatmap": run + "/heatmap",
                 "operations": run + "/operations?layer=3", "metrics": "/metrics"}
        for clients in (1, 4):
            print(f"{clients} clients, no run")
            ask_for(server, paths, 8, clients)
            live = server.generate(wait=False, model_name=MODEL, max_length=6000).json()["run_id"]
            server.wait_until(lambda: any(m["type"] == "token_complete" for m in server.get(
                f"/api/profiling/run/{live}/live").json()), "first token")
            print(f"{clients} clients during a run")
            ask_for(server, paths, 12, clients)
            server.ask("POST", f"/api/profiling/run/{live}/cancel")
            server.wait_until(lambda: server.get("/healthz").json()["running"] is None, "the run's end")


# ---- a large export ------------------------------------------------------------------------

def memory_mb(server, name):
    text = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(name + r":\s+(\d+)", text)[1]) / 1024


def export(database):
    with harness.Server(db=database, power="none") as server:
        run = server.get("/api/profiling/runs?limit=1&sort=duration").json()[0]["id"]
        print(f"{memory_mb(server, 'VmRSS'):.0f} MB resident before")
        for kind in ("json", "csv", "trace"):
            connection = http.client.HTTPConnection("127.0.0.1", server.port)
            begin, size = time.monotonic(), 0
            connection.request("GET", f"/api/profiling/export/{run}?format={kind}")
            answer = connection.getresponse()
            while piece := answer.read(1 << 20):
                size += len(piece)
            seconds = time.monotonic() - begin
            print(f"  {kind:6} {size / 1e6:6.0f} MB in {seconds:5.1f} s, "
                  f"peak {memory_mb(server, 'VmHWM'):.0f} MB resident so far")


# ---- one database, three processes ----------------------------------------------------------------

def share():
    with harness.Server("--queue", "64") as a, harness.Server("--queue", "64", db=a.db) as b:
        kept, said = set(), collections.Counter()

        def serve(server, other, name):
            for i in range(40):
                answer = server.generate(prompt=f"{name} {i}", max_length=6,
                                         profiling_depth=("module", "deep")[i % 2])
                said[f"run {answer.status}"] += 1
                run = answer.json()["id"]
                if i % 5 < 4:
                    kept.add(run)
                else:
                    said[f"delete {other.ask('DELETE', '/api/profiling/run/' + run).status}"] += 1

        def command():
            for _ in range(25):
                done = subprocess.run(
                    [harness.PROGRAM, "run", "-m", str(harness.MODELS / "demo"), "--db", a.db, "--power",
                     "sim", "-n", "6", "--json", "Hello"], capture_output=True)
                said[f"command {done.returncode}"] += 1
                kept.add(json.loads(done.stdout)["id"])
        together((serve, a, b, "a1"), (serve, a, b, "a2"), (serve, b, a, "b1"), (serve, b, a, "b2"), (command,))
        print(dict(said))
        for server in (a, b):
            listed = {r["id"] for r in server.get("/api/profiling/runs?limit=10000").json()}
            print(f"{len(listed)} runs, {'all there' if listed == kept else 'NOT THE SAME'}")
        check = sqlite3.connect(a.db)
        print("integrity:", check.execute("PRAGMA integrity_check").fetchone()[0],
              check.execute("PRAGMA foreign_key_check").fetchall())
        check.close()


if len(sys.argv) < 2 or sys.argv[1] not in ("rest", "export", "share"):
    sys.exit(__doc__)
{"rest": rest, "export": export, "share": share}[sys.argv[1]](*sys.argv[2:])
