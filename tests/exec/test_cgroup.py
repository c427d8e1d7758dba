"""The processor time of a program and of all that it started, by a control group where one may be used. Needs root,
for a mount of control groups (version 2) that nobody else sees.
"""
import json
import os
import shutil
import subprocess
import tempfile
import unittest

PERJOULE = os.environ["PERJOULE"]
WORK = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"
# A process that belongs to nobody any more and works while the program waits for it.
ORPHAN = f"rm -f done; (setsid sh -c '{WORK}; : >done' >/dev/null 2>&1 &); while [ ! -e done ]; do sleep 0.05; done"


def mounted(script, *words):
    return subprocess.run(["unshare", "-m", "sh", "-c", f"mount -t cgroup2 none /sys/fs/cgroup && {script}", "sh", *words],
                          capture_output=True, text=True, check=False, timeout=120)


class Cgroup(unittest.TestCase):
    def setUp(self):
        wanted = "grep -q ^0::/ /proc/self/cgroup && own=$(sed -n s/^0:://p /proc/self/cgroup) && " \
                 "mkdir /sys/fs/cgroup$own/perjoule-test && rmdir /sys/fs/cgroup$own/perjoule-test && setpriv --version"
        if os.geteuid() != 0 or not shutil.which("unshare") or mounted(wanted).returncode:
            self.skipTest("control groups cannot be mounted here")
        self.folder = tempfile.TemporaryDirectory()
        os.chmod(self.folder.name, 0o777)
        self.program = shutil.copy(PERJOULE, self.folder.name)
        os.chmod(self.program, 0o755)

    def tearDown(self):
        self.folder.cleanup()

    def time_of(self, script, before="", user=""):
        got = mounted(f'{before} cd "$1"; {user} env HOME="$1" "$2" exec --power none --no-store --json -- sh -c "$3"',
                      self.folder.name, self.program, script)
        self.assertEqual(got.returncode, 0, got.stderr)
        result = json.loads(got.stdout)
        return result["cpu_time_method"], result["cpu_time_ms"]

    def test_what_left_the_tree_counts(self):
        method, ms = self.time_of(ORPHAN)
        self.assertEqual(method, "cgroup")
        self.assertGreater(ms, 20)

    def test_what_a_killed_one_left_is_removed(self):
        left = '"/sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup)"/perjoule-4194999'  # no process has this number
        got = mounted(f'mkdir {left}; "$1" exec --power none --no-store -- true; ! rmdir {left}', self.program)
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertIn("exit code 0", got.stderr)

    def test_a_group_that_may_not_be_entered(self):
        """It may be made in a folder that is writable, but a process may not leave the group that it is in."""
        method, ms = self.time_of(WORK, 'chmod 777 "/sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup)";',
                                  "setpriv --reuid 65534 --regid 65534 --clear-groups")
        self.assertEqual(method, "processes")
        self.assertGreater(ms, 20)


if __name__ == "__main__":
    unittest.main()
