#!/usr/bin/env python3
"""What a run leaves behind when its process is killed, its disk fills up, or the power fails; and too little memory.

    test_disasters.py PROGRAM FAULTS_LIBRARY

PJ_DISASTERS sets the number of attempts, by default "kill=3,full=4,power=12,lock=36"; a release is tested with
"kill=300,full=50,power=1000,lock=50" (lock: seconds for which another process locks the database; power=every: after
each write, in the worst states, without chance). PJ_DISASTER_SEED sets the random seed. Each prints a line of counts.
faults.c, preloaded into the program, simulates the full disk and logs what was written.
"""
import collections
import concurrent.futures
import contextlib
import glob
import itertools
import json
import os
import random
import re
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

PROGRAM, FAULTS = sys.argv[1:3]
SLOW = int(os.environ.get("PJ_TEST_SLOWNESS", "1"))
TIMES = dict(part.split("=") for part in os.environ.get("PJ_DISASTERS", "kill=3,full=4,power=12,lock=36").split(","))
SEED = int(os.environ.get("PJ_DISASTER_SEED", time.time_ns() % 1_000_000))
KEEP = os.environ.get("PJ_DISASTER_KEEP")  # a folder for what the last power failure left
MODELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models")
TOKENS = 400
HEADER_BYTES, TOKEN_TEXT, READINGS, INFO = 64, 3, 5, 7
ENOUGH = 4  # records of readings, from which energy follows
chance = random.Random(SEED)


def environment(home, **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith("PERJOULE")}
    return env | {"HOME": home, "XDG_DATA_HOME": home, "PERJOULE_POWER": "none"} | more


def run_command(db, depth="deep"):
    return [PROGRAM, "run", "-m", f"{MODELS}/demo", "--db", db, "--depth", depth, "-n", str(TOKENS),
            "--ignore-eos", "--json", "Once upon a time"]


def ask(*arguments, home):
    return subprocess.run([PROGRAM, *arguments], env=environment(home), capture_output=True, text=True, timeout=120 * SLOW)


# ---- state on disk ------------------------------------------------------------------------------


def spools(*folders):
    return [f for folder in folders for f in glob.glob(f"{folder}/**/*.spool", recursive=True)]


def records(path):
    """Counts the complete records of each type in a spool, up to the first truncated one."""
    counts = collections.Counter()
    with open(path, "rb") as f:
        content = f.read()
    at = HEADER_BYTES
    while at + 8 <= len(content):
        word = struct.unpack_from("<I", content, at + 4)[0]
        kind, size = word & 0xFF, 8 + ((word >> 8) + 7) // 8 * 8
        if not kind or at + size > len(content):
            break
        counts[kind] += 1
        at += size
    return counts


def recover(db, home, *folders):
    """Opens the database until recovery is complete; returns its runs as {id: (status, tokens)}."""
    end = time.time() + 30 * SLOW
    while True:
        answer = ask("ls", "--db", db, "--json", home=home)
        assert answer.returncode == 0, answer.stderr
        if not spools(*folders) or "in its spool" in answer.stderr or time.time() > end:
            break  # nothing is left, or the rest was reported as unreadable
    checked = ask("check", "--db", db, home=home).stdout.splitlines()
    assert all(" ok: " in line for line in checked if not line.startswith(("spool ", db))), checked
    connection = sqlite3.connect(db)
    with connection:
        found = connection.execute(
            "SELECT r.id, r.status, count(t.id) FROM profiling_runs r LEFT JOIN tokens t ON t.run_id = r.id"
            " AND t.phase = 'decode' GROUP BY r.id").fetchall()
    connection.close()
    return {run: (status, tokens) for run, status, tokens in found}


def losses(db):
    """What the runs themselves say about records that are missing, for the message of a failure."""
    with contextlib.closing(sqlite3.connect(db)) as connection:
        return connection.execute("SELECT r.id, r.profiling_depth, r.output_tokens, r.spans_lost, group_concat(w.code) FROM"
                                  " profiling_runs r LEFT JOIN run_warnings w ON w.run_id = r.id GROUP BY r.id").fetchall()


# ---- kill -9 ------------------------------------------------------------------------------------


def check_recovered(db, home, inside):
    """The spool in use when a process was killed becomes one run, and no other run appears."""
    left = {os.path.basename(path)[:-6]: records(path) for path in spools(f"{db}-spool")}
    runs = recover(db, home, f"{db}-spool")
    begun = {run: counts for run, counts in left.items() if counts[INFO]}  # others had no id yet
    assert not inside or left or runs, "killed inside a run, and neither spool nor run is there"
    assert begun.keys() <= runs.keys(), (db, left, runs)
    for run, counts in begun.items():
        status, tokens = runs[run]
        assert tokens >= counts[TOKEN_TEXT] - 1, (status, tokens, counts)  # including the prompt's
    return runs, begun


def wait_for_spool(process, db):
    end = time.time() + 60 * SLOW
    while not spools(f"{db}-spool") and process.poll() is None and time.time() < end:
        time.sleep(0.001)


def kill_runs(folder, home):
    """Two processes with a database each in one folder are killed; each database must recover its own run."""
    dbs = [os.path.join(folder, name) for name in ("a.db", "b.db")]
    processes = [subprocess.Popen(run_command(db), env=environment(home), stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL) for db in dbs]
    for db, process in zip(dbs, processes):
        wait_for_spool(process, db)
    time.sleep(chance.uniform(0, 0.7))
    inside = [bool(spools(f"{db}-spool")) and p.poll() is None for db, p in zip(dbs, processes)]
    for process in processes:
        process.kill()
        process.wait()
    for db, truly in zip(reversed(dbs), reversed(inside)):
        runs, _ = check_recovered(db, home, truly)
        assert len(runs) <= 1, runs
    return all(inside)


def readings_left(db):
    return sum(records(path)[READINGS] for path in spools(f"{db}-spool"))


def kill_recording(folder, home):
    """A program that reports nothing is recorded: the energy of the readings that its spool holds must be there. The
    kill comes at a random moment, or when there are enough readings, which a busy machine may take long for."""
    db = os.path.join(folder, "a.db")
    process = subprocess.Popen([PROGRAM, "exec", "--db", db, "--baseline", "0", "--power", "sim:period_ms=1", "--", "cat"],
                               env=environment(home), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    wait_for_spool(process, db)
    if chance.random() < 0.5:
        time.sleep(chance.uniform(0, 1.5))
    else:
        end = time.monotonic() + 60 * SLOW
        while readings_left(db) < ENOUGH:
            assert process.poll() is None and time.monotonic() < end, "no readings are written"
            time.sleep(0.01)
    inside = bool(spools(f"{db}-spool")) and process.poll() is None
    process.kill()
    process.wait()
    process.stdin.close()  # and the recorded program ends
    held = readings_left(db)
    runs, begun = check_recovered(db, home, inside)
    assert len(runs) <= 1, runs
    if held >= ENOUGH and begun:
        with contextlib.closing(sqlite3.connect(db)) as connection:
            found = connection.execute("SELECT total_duration_ms, total_energy_mj FROM profiling_runs").fetchone()
        assert found[0] > 0 and found[1] > 0, (held, found)
    return inside


def start_server(db, home):
    process = subprocess.Popen([PROGRAM, "serve", "--port", "0", "--db", db, "--models", MODELS], text=True,
                               env=environment(home), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return process, re.search(r"http://\S+:(\d+)/", process.stdout.readline())[1]


def kill_server(folder, home):
    """A server with a queue is killed and started again: every accepted request becomes one run."""
    db, accepted = os.path.join(folder, "a.db"), []
    process, port = start_server(db, home)
    moment = time.monotonic() + chance.uniform(0, 1)
    for _ in range(4):
        body = json.dumps({"prompt": "Once", "max_length": chance.choice((2, TOKENS)), "profiling_depth": "deep",
                           "wait": False}).encode()
        with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/api/profiling/generate", body,
                                                           {"Content-Type": "application/json"})) as answer:
            accepted.append(json.load(answer)["run_id"])
    time.sleep(max(0, moment - time.monotonic()))
    inside = bool(spools(f"{db}-spool"))
    process.kill()
    process.wait()
    process.stdout.close()
    _, begun = check_recovered(db, home, inside)
    process, _ = start_server(db, home)
    end = time.time() + 60 * SLOW
    while True:
        with contextlib.closing(sqlite3.connect(db, timeout=60)) as connection:
            runs = dict(connection.execute("SELECT id, status FROM profiling_runs"))
        if runs.keys() >= set(accepted) or time.time() > end:
            break
        time.sleep(0.01)
    process.terminate()
    assert process.wait(60 * SLOW) in (0, 143), process.returncode
    process.stdout.close()
    assert runs.keys() == set(accepted), (runs, accepted)
    other = {run: status for run, status in runs.items() if status != "completed"}
    assert other.keys() <= begun.keys() and set(other.values()) <= {"interrupted"}, (runs, begun)
    return inside


def kill_once(folder):
    home = os.path.join(folder, "home")
    os.makedirs(home)
    once = chance.choice((kill_runs, kill_runs, kill_recording, kill_server))
    return f"{once.__name__[5:]} {'inside' if once(folder, home) else 'around'}"


# ---- a full disk --------------------------------------------------------------------------------


def used_below(folder):
    sizes = (os.lstat(os.path.join(place, name)).st_size for place, _, names in os.walk(folder) for name in names)
    return sum((size + 4095) // 4096 * 4096 for size in sizes)


def full_once(folder, capacity):
    """A run on a disk of `capacity` bytes; compares its messages with the files; returns the outcome."""
    disk, home = os.path.join(folder, "disk"), os.path.join(folder, "home")
    os.makedirs(disk)
    if chance.random() < 0.5:  # no fallback folder on another disk
        home = os.path.join(disk, "home")
    os.makedirs(home)
    db = os.path.join(disk, "runs.db")
    first = subprocess.run(run_command(db, chance.choice(("module", "deep"))), capture_output=True, text=True,
                           timeout=120 * SLOW, env=environment(home, LD_PRELOAD=FAULTS, PJ_FAULT_DIR=disk,
                                                               PJ_FAULT_CAPACITY=str(capacity)))
    said = first.stderr
    assert first.returncode in (0, 1), (first.returncode, said)
    used, left = used_below(disk), spools(folder)
    reserve = glob.glob(f"{disk}/**/reserve", recursive=True)
    counts = records(left[0])[TOKEN_TEXT] if left else None
    size = os.path.getsize(left[0]) if left else 0
    runs = recover(db, home, folder)
    assert not spools(folder), said
    if first.returncode == 0:
        assert list(runs.values()) == [("completed", TOKENS - 1)], (runs, said, losses(db))
        return "stored"
    if "all of it is in its spool" in said:
        assert left and left[0] in said, (left, said)
        assert list(runs.values()) == [("completed", TOKENS - 1)], (runs, said, losses(db))
        return "kept whole in its spool"
    kept = re.search(r"of its (\d+) bytes of events only the first (\d+) are kept, in (\S+),", said)
    if kept:
        total, first_bytes = int(kept[1]), int(kept[2])
        assert left == [kept[3]] and size == first_bytes, (left, size, said)
        assert not reserve, "the reserve was not given up"
        assert capacity - used < total - first_bytes, f"{capacity - used} bytes are free, and {said}"
        status, tokens = next(iter(runs.values()))
        assert status == "interrupted" and tokens >= counts - 1, (runs, counts, said)
        return "kept as far as there was room"
    if "it could not be written anywhere" in said:
        assert not runs and capacity - used < 8192, (runs, capacity - used, said)
        return "no room even for a beginning"
    assert not runs and not left and "Once" not in first.stdout, (first, runs)
    return "refused before it began"


def read_when_full(folder):
    """With no byte free, every command reads, and rm frees what the reserve held and what it deletes, again and again."""
    disk, home = os.path.join(folder, "disk"), os.path.join(folder, "home")
    os.makedirs(disk)
    os.makedirs(home)
    db = os.path.join(disk, "runs.db")
    ids = [json.loads(subprocess.run(run_command(db), capture_output=True, text=True, env=environment(home),
                                     check=True).stdout)["id"] for _ in range(3)]
    assert glob.glob(f"{disk}/**/reserve", recursive=True)
    full = None

    def fill():
        nonlocal full
        full = environment(home, LD_PRELOAD=FAULTS, PJ_FAULT_DIR=disk, PJ_FAULT_CAPACITY=str(used_below(disk)))

    def command(*arguments):
        done = subprocess.run([PROGRAM, *arguments, "--db", db], capture_output=True, text=True, env=full,
                              timeout=120 * SLOW)
        return done.returncode, done.stdout, done.stderr

    fill()
    for arguments in (["ls", "--json"], ["show", "last"], ["compare", ids[0], ids[1]], ["report", "last", "--format", "md"],
                      ["export", "last"], ["check"]):
        code, said, errors = command(*arguments)
        assert code == 0 and said, (arguments, errors)
    code, _, errors = command("run", "-m", f"{MODELS}/demo", "-n", "2", "Once")
    assert code == 1 and "the disk is full" in errors, (code, errors)
    code, _, errors = command("name", "last", "a name")
    assert code == 1 and "the disk is full" in errors, (code, errors)
    code, said, errors = command("compact", "--yes", "--keep", "2")
    assert code == 0 and "compacted 1 run" in said, (said, errors)
    code, said, errors = command("check")
    assert code == 0 and "ok" in said, (said, errors)
    for run in ids[:2]:
        fill()  # what is free now is another's
        code, said, errors = command("rm", "--yes", run)
        assert code == 0 and "deleted 1 run" in said, (said, errors)
    assert [r["id"] for r in json.loads(command("ls", "--json")[1])] == [ids[2]]
    return "read and made room"


def without_locks(folder):
    """A file system without locks is named, after a second instead of two minutes of waiting."""
    disk, home = os.path.join(folder, "disk"), os.path.join(folder, "home")
    os.makedirs(disk)
    os.makedirs(home)
    done = subprocess.run(run_command(os.path.join(disk, "runs.db")), capture_output=True, text=True, timeout=60 * SLOW,
                          env=environment(home, LD_PRELOAD=FAULTS, PJ_FAULT_DIR=disk, PJ_FAULT_LOCKS="none"))
    assert done.returncode == 1 and "file system without locks" in done.stderr, done
    assert "another process" not in done.stderr, done
    return "named"


# ---- a power failure ----------------------------------------------------------------------------


class File:
    def __init__(self):
        self.safe, self.pending = bytearray(), []  # durable content; pending writes as (offset, bytes) or (size, None)

    @staticmethod
    def change(content, offset, data):
        if data is None:
            del content[offset:]
            content.extend(bytes(offset - len(content)))
        else:
            content.extend(bytes(max(0, offset - len(content))))
            content[offset:offset + len(data)] = data

    def sync(self):
        for offset, data in self.pending:
            self.change(self.safe, offset, data)
        self.pending.clear()

    def after_crash(self, is_kept):
        """The synced content, plus those of the changes not synced that is_kept() chooses, page by page."""
        content = bytearray(self.safe)
        for offset, data in self.pending:
            if data is None:
                if is_kept():
                    self.change(content, offset, None)
                continue
            at = 0
            while at < len(data):
                end = min(len(data), (offset + at) // 4096 * 4096 + 4096 - offset)
                if is_kept():
                    self.change(content, offset + at, data[at:end])
                at = end
        return content


def some_pages():
    share = chance.choice((0, 0.5, 0.9, 1))
    return lambda: chance.random() < share


def every_second_page():
    return itertools.cycle((True, False)).__next__


def no_page():
    return lambda: False


def read_log(path):
    with open(path, "rb") as f:
        content = f.read()
    at, events = 0, []
    while at < len(content):
        kind, path_bytes, offset, size = struct.unpack_from("<cIqQ", content, at)
        at += 21
        name = content[at:at + path_bytes].decode()
        at += path_bytes
        events.append((kind.decode(), name, offset, content[at:at + size]))
        at += size
    return events


def crash(events, disk, target, pages=None):
    """Writes into `target` a possible state after a power failure following these events; returns the files deleted
    there. Creations and deletions reach the disk in order, but at any time until a file they concern is synced: with
    `pages`, which chooses what else reached it, the deletions did not."""
    names, changes, settled = {}, [], 0
    for kind, name, offset, data in events:
        if kind == "C":
            names[name] = File()
            changes.append((name, names[name]))
        elif kind == "U":
            names.pop(name, None)
            changes.append((name, None))
        elif kind == "S" and name == disk:
            settled = len(changes)
        elif name in names and kind == "W":
            names[name].pending.append((offset, data))
        elif name in names and kind == "T":
            names[name].pending.append((offset, None))
        elif name in names:
            names[name].sync()
            settled = max([settled] + [i + 1 for i, (_, f) in enumerate(changes) if f is names[name]])
    # a power failure takes longer than the minute for which an empty spool may be one about to be written
    begin = time.time() - 120
    entries = {}
    reached = chance.randint(settled, len(changes)) if pages is None else settled
    while pages and reached < len(changes) and changes[reached][1]:
        reached += 1
    for name, file in changes[:reached]:
        entries[name] = file
    for name, file in entries.items():
        path = target + name[len(disk):]
        if file is None or name.endswith("-shm"):
            continue
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(path, "wb") as f:
            f.write(file.after_crash((pages or some_pages)()))
        os.chmod(path, 0o600)
        os.utime(path, (begin, begin))
    return {os.path.basename(name) for name, file in entries.items() if file is None}


def power_failures(folder, times):
    disk, log = os.path.join(folder, "disk"), os.path.join(folder, "log")
    os.makedirs(disk)
    db, ends, ids = os.path.join(disk, "runs.db"), [], []
    for depth in ("deep", "module"):
        done = subprocess.run(run_command(db, depth), capture_output=True, text=True, timeout=120 * SLOW,
                              env=environment(os.path.join(folder, "home"), LD_PRELOAD=FAULTS, PJ_FAULT_DIR=disk,
                                              PJ_FAULT_LOG=log))
        assert done.returncode == 0, done.stderr
        ids.append(json.loads(done.stdout)["id"])
        ends.append(len(read_log(log)))
    events, counts = read_log(log), collections.Counter()
    first = next(i for i, event in enumerate(events) if event[1].endswith(".spool"))
    removed = [i for i, event in enumerate(events) if event[0] == "U" and event[1].endswith(".spool")]
    assert len(removed) == 2, removed
    # first, for certain: stored, but the deletion of the spool is undone and pages of it are missing
    cuts = [(at + 1, pages) for at in removed for pages in (every_second_page, no_page)]
    if times == "every":
        cuts += [(at, pages) for at in range(first, len(events) + 1) for pages in (every_second_page, no_page)]
    for number in range(int(times) if times != "every" else 0):
        # half of the failures near the time at which a run is stored and its spool removed
        at = chance.randint(first, len(events))
        if number % 2:
            near = chance.choice((1, 1, chance.randint(-40, 40)))  # nothing may be written after the last one
            at = min(removed[number // 2 % 2] + near, len(events))
        cuts.append((at, None))
    for number, (at, pages) in enumerate(cuts):
        target = os.path.join(folder, f"after-{number}")
        os.makedirs(target, mode=0o700)
        deleted = crash(events[:at], disk, target, pages)
        if KEEP:
            shutil.rmtree(KEEP, ignore_errors=True)
            shutil.copytree(target, KEEP)
        left = {os.path.basename(p)[:-6]: records(p) for p in spools(target)}
        runs = recover(os.path.join(target, "runs.db"), folder, target)
        for run, end, stored in zip(ids, ends, removed):
            if at >= min(end, stored) or f"{run}.spool" in deleted:
                assert runs.get(run) == ("completed", TOKENS - 1), \
                    f"event {at}: {run} was stored, now {runs} {losses(os.path.join(target, 'runs.db'))}"
            elif run in left and left[run][INFO]:
                assert run in runs or spools(target), f"event {at}: the spool of {run} is gone, runs {runs}"
        counts["in all"] += 1
        counts["with a spool"] += bool(left)
        counts["with a run stored"] += at >= ends[0]
        shutil.rmtree(target)
    return counts


# ---- a database locked by another process ------------------------------------------------------


def locked(folder, seconds):
    """A run waits for a lock held longer than the usual busy timeout, and is then stored."""
    db, home = os.path.join(folder, "runs.db"), os.path.join(folder, "home")
    first = subprocess.run(run_command(db, "module"), env=environment(home), capture_output=True, text=True)
    assert first.returncode == 0, first.stderr
    holder = sqlite3.connect(db, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    process = subprocess.Popen(run_command(db), env=environment(home), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    try:
        process.wait(seconds)
        raise AssertionError(f"the run did not wait: {process.communicate()}")
    except subprocess.TimeoutExpired:
        holder.execute("COMMIT")
    output, said = process.communicate(timeout=120 * SLOW)
    assert process.returncode == 0, said
    assert recover(db, home, folder)[json.loads(output)["id"]] == ("completed", TOKENS - 1)


def lock_in_background(seconds):
    """Runs concurrently with the other attempts; the caller collects the result at the end."""
    with tempfile.TemporaryDirectory(prefix="perjoule-lock-") as folder:
        locked(folder, seconds)
    return f"lock: a run was stored after {seconds} s of waiting"


# ---- too little memory ----------------------------------------------------------------------


def memory_group(name, limit):
    """The folder of a new control group with a limit of memory; None where none can be made."""
    for place, file in ((f"/sys/fs/cgroup/memory/{name}", "memory.limit_in_bytes"), (f"/sys/fs/cgroup/{name}", "memory.max")):
        try:
            os.mkdir(place)
        except OSError:
            continue
        if os.path.exists(f"{place}/{file}"):
            with contextlib.suppress(OSError):
                with open(f"{place}/{file}", "w") as f:
                    f.write(str(limit))
                for swap, most in (("memory.memsw.limit_in_bytes", limit), ("memory.swap.max", 0)):
                    if os.path.exists(f"{place}/{swap}"):
                        with open(f"{place}/{swap}", "w") as f:
                            f.write(str(most))
                if subprocess.run(["sh", "-c", 'echo $$ > "$0/cgroup.procs"', place], capture_output=True).returncode == 0:
                    return place
        os.rmdir(place)
    return None


def too_little_memory(folder):
    """Weights that a container has no memory for are refused before the kernel kills the process."""
    group = memory_group(os.path.basename(folder), 300 << 20)
    if not group:
        return "skipped, since no control group can be made"
    try:
        inside = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', group, PROGRAM, "run", "--depth", "off",
                  "--no-store", "--ids", "1,2,3", "-n", "2", "--ignore-eos", "-m"]
        for model, fits in (("synthetic:smollm2-135m,layers=2,q8_0", True), ("synthetic:smollm2-135m,f32", False)):
            run = subprocess.run(inside + [model], env=environment(folder), capture_output=True, text=True, timeout=120 * SLOW)
            assert (run.returncode == 0) == fits, (model, run.returncode, run.stderr)
        assert re.fullmatch(r".*the weights take some 0\.\d GB of memory, and 0\.\d GB are available\n", run.stderr), run.stderr
    finally:
        os.rmdir(group)
    return "refused weights that do not fit"


# ---- main ----------------------------------------------------------------------------------


def attempts(name, count, once):
    counts = collections.Counter()
    for _ in range(count):
        with tempfile.TemporaryDirectory(prefix=f"perjoule-{name}-") as folder:
            counts[once(folder)] += 1
    print(f"{name}: {count} times: " + ", ".join(f"{n} {what}" for what, n in counts.most_common()), flush=True)


print(f"PJ_DISASTER_SEED={SEED}", flush=True)
pool = concurrent.futures.ThreadPoolExecutor(1)
waiting = pool.submit(lock_in_background, int(TIMES["lock"])) if int(TIMES.get("lock", 0)) else None
attempts("kill", int(TIMES.get("kill", 0)), kill_once)
attempts("full", int(TIMES.get("full", 0)), lambda folder: full_once(folder, chance.randint(1 << 20, 60 << 20)))
attempts("no space", min(1, int(TIMES.get("full", 0))), read_when_full)
attempts("no memory", min(1, int(TIMES.get("full", 0))), too_little_memory)
attempts("no locks", min(1, int(TIMES.get("full", 0))), without_locks)
with tempfile.TemporaryDirectory(prefix="perjoule-power-") as place:
    if TIMES.get("power", "0") != "0":
        print("power:", dict(power_failures(place, TIMES["power"])), flush=True)
if waiting:
    print(waiting.result(), flush=True)
