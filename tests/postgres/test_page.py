#!/usr/bin/env python3
"""The page in a browser: it names runs that the database's server has not taken yet, until the server has them."""
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request

import server as servers
from common import ENVIRONMENT, HOME, PROGRAM, ROOT, record

names = (os.environ.get("CHROMIUM", "chromium-headless-shell"), "chromium", "chromium-browser", "google-chrome")
browser = next((path for path in map(shutil.which, names) if path), None)
if not browser:
    print("skipped: no Chromium is installed")
    sys.exit(servers.SKIPPED)
with_server = servers.started(settings=["fsync=off"])
url = with_server.url()
record(url)
serve = subprocess.Popen([PROGRAM, "serve", "--db", url, "--port", "0", "--power", "sim:seed=1", "--models",
                          str(ROOT / "models")], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
address = serve.stdout.readline().split()[-1].rstrip("/")


def get(path, body=None):
    request = urllib.request.Request(address + path, json.dumps(body).encode() if body else None,
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return answer.read().decode()


def until(holds, seconds=90):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, holds
        time.sleep(0.5)


def page():
    """The document after its scripts have run."""
    return subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={HOME}/browser",
                           "--virtual-time-budget=10000", "--dump-dom", address + "/"],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=180).stdout


def waiting():
    return json.loads(get("/healthz"))["waiting"]


try:
    until(lambda: address and waiting() == 0)
    if "<script" not in get("/"):
        print("skipped: the program was built without the page")
        sys.exit(servers.SKIPPED)
    until(lambda: "<main" in page())
    assert "not handed over" not in page()
    with_server.stop()
    run = json.loads(get("/api/profiling/generate", {"model_name": "demo", "prompt": "hello", "max_length": 3}))
    assert run["status"] == "completed" and waiting() == 1, run
    until(lambda: "1 run not handed over" in page())
    with_server.start()
    until(lambda: waiting() == 0)
    until(lambda: "<main" in (now := page()) and "not handed over" not in now)
    assert run["run_id"] in get("/api/profiling/runs")
    print("the page names the run until the server has it")
finally:
    serve.send_signal(signal.SIGTERM)
    serve.wait()
    with_server.close()
