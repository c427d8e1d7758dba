#!/usr/bin/env python3
"""A PostgreSQL server of the tests' own: a cluster in a temporary folder, on a Unix socket.

As a program it runs a command with PERJOULE_TEST_POSTGRES set to the socket's folder and returns its exit code; 77
(skipped), with the reason, if no server can be started. PostgreSQL refuses to run as root, so for root it is started as
an unprivileged user.
"""
import glob
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SKIPPED = 77


def programs():
    """The folder of initdb and postgres, or None."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"),
                   key=lambda path: float(path.split("/")[4]), reverse=True)
    found += [path for path in [shutil.which("initdb"), *glob.glob("/opt/homebrew/opt/postgresql*/bin/initdb")]
              if path]
    for path in found:
        folder = pathlib.Path(path).resolve().parent
        if (folder / "postgres").exists():
            return folder
    return None


def unprivileged():
    """Command prefix that drops privileges; [] if we are not root."""
    if os.geteuid() != 0:
        return [], None
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        if shutil.which("setpriv"):
            return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"], user
    return None, None


class Server:
    def __init__(self, settings=(), folder=None):
        self.bin = programs()
        self.become, self.user = unprivileged()
        if not self.bin:
            raise LookupError("there is no PostgreSQL server here (Debian: apt install postgresql)")
        if self.become is None:
            raise LookupError("PostgreSQL does not run as root, and there is no setpriv to become another user")
        self.folder = pathlib.Path(folder or tempfile.mkdtemp(prefix="pj-pg-"))
        self.folder.chmod(0o755)
        self.data = self.folder / "data"
        if self.user:
            os.chown(self.folder, self.user.pw_uid, self.user.pw_gid)
        self.log = self.folder / "log"
        self.settings = list(settings)
        self.process = None
        self._as_user([self.bin / "initdb", "-D", self.data, "-U", "owner", "-A", "trust", "-E", "UTF8",
                       "--locale=C", "--no-sync", "--no-instructions"])

    def _as_user(self, command):
        done = subprocess.run([*self.become, *map(str, command)], cwd="/", text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            raise LookupError(f"{command[0]}: {done.stdout.strip().splitlines()[-1:]}")

    def start(self):
        command = [self.bin / "postgres", "-D", self.data, "-k", self.folder, "-c", "listen_addresses=",
                   "-c", "shared_buffers=64MB", "-c", "max_connections=60"]
        for setting in self.settings:
            command += ["-c", setting]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([*self.become, *map(str, command)], cwd="/", stdout=log, stderr=log,
                                            stdin=subprocess.DEVNULL, start_new_session=True)
        for _ in range(450):
            if self.psql("SELECT 1", check=False) is not None:
                return self
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise LookupError(f"the server did not start: {self.log.read_text()[-500:]}")

    def stop(self, how=signal.SIGINT):
        """SIGINT: fast shutdown. SIGQUIT: immediate, as a crash."""
        if self.process and self.process.poll() is None:
            pid = int((self.data / "postmaster.pid").read_text().split()[0])
            os.kill(pid, how)
            self.process.wait(timeout=60)
        self.process = None

    def close(self):
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database="postgres", user="owner", **more):
        rest = "".join(f"&{key}={value}" for key, value in more.items())
        return f"postgresql:///{database}?host={self.folder}&user={user}{rest}"

    def psql(self, statement, database="postgres", user="owner", check=True):
        done = subprocess.run([self.bin / "psql", "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1",
                               "-d", self.url(database, user, connect_timeout=5), "-f", "-"], text=True, input=statement,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode == 0:
            return done.stdout.strip()
        if check:
            raise AssertionError(f"psql: {done.stderr}")
        return None


def started(**options):
    """Starts a server; exits as skipped if that is not possible."""
    try:
        server = Server(**options)
    except LookupError as reason:
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    return server.start()


def main():
    server = started(settings=["fsync=off"])
    try:
        environment = dict(os.environ, PERJOULE_TEST_POSTGRES=str(server.folder))
        code = subprocess.run(sys.argv[1:], env=environment).returncode
        if code:
            print("".join(line for line in open(server.log) if "ERROR" in line or "FATAL" in line)[-3000:])
        return code
    finally:
        server.close()


if __name__ == "__main__":
    sys.exit(main())
