#!/usr/bin/env python3
"""Runs one vitest project of the page: run.py NODE PROJECT. Exit 77, which meson counts as skipped,
when the development tools are not installed."""
import os
import pathlib
import re
import subprocess
import sys

ui = pathlib.Path(__file__).resolve().parent.parent
node, project = sys.argv[1:3]
vitest = ui / "node_modules" / "vitest" / "vitest.mjs"
if not vitest.exists():
    print(f"skipped: the page's development tools are not installed; run npm ci in {ui.name}/")
    sys.exit(77)
browsers = [os.environ.get("CHROMIUM", "")] + [
    f"/usr/bin/{name}" for name in ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")]
if project == "e2e" and not any(pathlib.Path(p).exists() for p in browsers if p):
    print("skipped: no Chromium is installed")
    sys.exit(77)
if project == "e2e" and "PERJOULE_PAGE" not in os.environ and not (ui / "dist" / "PREBUILT").exists():
    # The scenarios with generated runs need the built page: the one embedded in the program, or ui/dist.
    built = subprocess.run([node, str(ui / "node_modules/vite/bin/vite.js"), "build", "--logLevel", "warn"],
                           cwd=ui)
    if built.returncode:
        sys.exit(1)
ran = subprocess.run([node, str(vitest), "run", "--project", project], cwd=ui, text=True,
                     stdout=subprocess.PIPE, env={**os.environ, "NO_COLOR": "1"})
print(ran.stdout, end="")
summary = re.search(r"^ *Tests +(.*) \(\d+\)$", ran.stdout, re.M)
counts = dict((word, int(n)) for n, word in re.findall(r"(\d+) (\w+)", summary[1] if summary else ""))
passed, failed, skipped = (counts.get(word, 0) for word in ("passed", "failed", "skipped"))
print(f"{passed} passed, {failed} failed, {skipped} skipped")
sys.exit(77 if ran.returncode == 0 and not passed else ran.returncode)
