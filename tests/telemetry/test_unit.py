#!/usr/bin/env python3
"""The systemd unit of the always-on meter is valid, and systemd-analyze security gives a low exposure."""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

MOST_EXPOSURE = 3.0  # exposure level: systemd rates up to 4.9 as "OK", above that "MEDIUM"

unit = pathlib.Path(sys.argv[1])
if not shutil.which("systemd-analyze"):
    print("skipped: there is no systemd-analyze here")
    sys.exit(77)
with tempfile.TemporaryDirectory() as folder:
    # systemd-analyze verify needs the program to exist, but the unit names the installed path.
    copy = pathlib.Path(folder) / "perjoule-meter.service"
    text = unit.read_text()
    command = re.search(r"^ExecStart=(\S+)", text, re.M)[1]
    copy.write_text(text.replace(command, "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True)
    complaints = [line for line in done.stderr.splitlines() if "perjoule-meter" in line]
    assert not complaints, complaints
    done = subprocess.run(["systemd-analyze", "security", "--offline=yes", "--no-pager", copy],
                          capture_output=True, text=True)
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    if not found:
        print(f"skipped: this systemd rates no files ({done.stderr.strip()[:100]})")
        sys.exit(77)
    assert float(found[1]) <= MOST_EXPOSURE, done.stdout
    print(f"exposure {found[1]} of 10")
# The unit would not start if its groups did not exist.
groups = re.search(r"^SupplementaryGroups=(.*)", text, re.M)[1].split()
created = (pathlib.Path(__file__).parents[2] / "packaging" / "perjoule.sysusers.conf").read_text()
assert all(re.search(rf"^g {group} -$", created, re.M) for group in groups), groups
if shutil.which("systemd-sysusers"):
    with tempfile.TemporaryDirectory() as root:
        (pathlib.Path(root) / "etc").mkdir()
        subprocess.run(["systemd-sysusers", f"--root={root}", "--inline", created.strip().splitlines()[-1]], check=True)
        assert "perjoule:" in (pathlib.Path(root) / "etc" / "group").read_text()
assert "DynamicUser=yes" in text and "CapabilityBoundingSet=\n" in text
