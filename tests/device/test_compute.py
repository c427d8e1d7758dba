"""tools/device-check.sh from beginning to end on the software driver, in its small form: test_compute.py BUILD PROJECT."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

BUILD, PROJECT = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
SKIPPED = 77
JUDGED = {("devices", "usable"), ("logits", "demo f32"), ("depths", "equal logits"), ("depths", "operations"), ("depths", "named"),
          ("depths", "nothing lost"), ("coverage", "without a rail"), ("interruption", "cancelled"), ("interruption", "interrupted")}


def main():
    with tempfile.TemporaryDirectory() as folder:
        out = subprocess.run([PROJECT / "tools" / "device-check.sh", "--build", BUILD, "--device", "llvmpipe", "--small", "--out", folder],
                             env=os.environ | {"XDG_CACHE_HOME": os.environ.get("PJ_VULKAN_CACHE", folder)}, capture_output=True, text=True)
        print(out.stdout, out.stderr, sep="\n")
        found = json.loads((pathlib.Path(folder) / "device-check.json").read_text())
        table = (pathlib.Path(folder) / "device-check.md").read_text()
    rows = {(row["part"], row["check"]): row for row in found["rows"]}
    if ("devices", "a device") in rows:
        print("skipped:", rows["devices", "a device"]["text"])
        sys.exit(SKIPPED)
    assert out.returncode == 0 and found["failed"] == 0, "a check failed"
    # A check that ran out of time on a slow machine is skipped, not passed.
    late = {key for key, row in rows.items() if row["text"].startswith("no time left")}
    for key in JUDGED - late:
        assert key in rows or late, f"{key} is missing"
        assert key not in rows or rows[key]["result"] == "ok", rows[key]
    assert ("speed", "demo") in rows and ("overhead", "by depth") in rows or late
    assert table.count("\n| ") == len(rows) + 1, "the table has a line for each row"


main()
