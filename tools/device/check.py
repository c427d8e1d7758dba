#!/usr/bin/env python3
"""The measurements of tools/device-check.sh: sensors of a card against a load of known schedule, then perjoule's own figures.

Every sensor value is compared with the mean of the load over a window that ended a delay before: the window and delay with the
best fit are the sensor's. A stand-in for the driver has a load of its own, a square wave of which --wave tells the times.
"""
import argparse
import atexit
import bisect
import ctypes
import json
import os
import pathlib
import random
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

LACKING = 77  # exit status: the machine lacks what the check needs
EXPLAINED = .3  # R² below which a load does not tell what a sensor saw
ROOT = pathlib.Path(__file__).resolve().parents[2]
MS = 1e-3
BURN = """
import sys, time, random, torch
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
end, chance = time.monotonic() + float(sys.argv[1]), random.Random(1)
print("ready", flush=True)
while time.monotonic() < end:
    stop, begin = time.monotonic() + chance.uniform(.02, .4), time.monotonic()
    while time.monotonic() < stop:
        a @ a
        torch.cuda.synchronize()
    print(begin, time.monotonic(), flush=True)
    time.sleep(chance.uniform(.02, .4))
"""


def fail(text):
    sys.exit(f"device-check: {text}")


def lack(text):
    print(f"device-check: {text}", file=sys.stderr)
    sys.exit(LACKING)


def end_when_told():
    """Loads are ended then, too."""
    signal.signal(signal.SIGTERM, lambda *_: fail("it was ended"))


# ---- the card ----

class Field(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint), ("scope", ctypes.c_uint), ("timestamp", ctypes.c_longlong),
                ("latency", ctypes.c_longlong), ("type", ctypes.c_int), ("status", ctypes.c_int), ("value", ctypes.c_ulonglong)]


class Sample(ctypes.Structure):
    _fields_ = [("stamp_us", ctypes.c_ulonglong), ("value", ctypes.c_ulonglong)]


def digits_of(uuid):
    return uuid.lower().removeprefix("gpu-").replace("-", "")


def choose(uuids, wanted, visible):
    """Number of the card with the wanted UUID, else of the first that CUDA_VISIBLE_DEVICES shows; None: there is none. Numbers are NVML's, as
    perjoule takes them; CUDA accepts the first digits of a UUID."""
    if wanted:
        return next((i for i, uuid in enumerate(uuids) if digits_of(uuid) == digits_of(wanted)), None)
    word = "0" if visible is None else visible.split(",")[0].strip()
    if word.isdigit():
        return int(word) if int(word) < len(uuids) else None
    return next((i for i, uuid in enumerate(uuids) if len(word) >= 8 and uuid.lower().startswith(word.lower())), None)


class Card:
    def __init__(self, wanted=None):
        name = os.environ.get("PERJOULE_NVML", "libnvidia-ml.so.1")
        try:
            self.lib = ctypes.CDLL(name)
        except OSError as error:
            lack(f"no NVIDIA driver: {error}")
        status = self.lib.nvmlInit_v2()
        uuids = [] if status else self.uuids()
        if not uuids:
            lack(f"{name} finds no card (status {status})")
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        number = choose(uuids, wanted, visible)
        if number is None:
            lack(f"{name} has no card {wanted}" if wanted else f"CUDA_VISIBLE_DEVICES={visible} shows no card of {name}")
        self.handle, self.uuid = self.handle_of(number), uuids[number]
        text = ctypes.create_string_buffer(96)
        self.name = self.driver = "unknown"
        if self.lib.nvmlDeviceGetName(self.handle, text, 96) == 0:
            self.name = text.value.decode()
        if self.has("nvmlSystemGetDriverVersion") and self.lib.nvmlSystemGetDriverVersion(text, 96) == 0:
            self.driver = text.value.decode()
        self.samples_buffer = (Sample * 256)()

    def handle_of(self, number):
        handle = ctypes.c_void_p()
        return None if self.lib.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(handle)) else handle

    def uuids(self):
        """By number; "" where a card does not say."""
        count, text, found = ctypes.c_uint(), ctypes.create_string_buffer(96), []
        self.lib.nvmlDeviceGetCount_v2(ctypes.byref(count))
        for number in range(count.value):
            handle = self.handle_of(number)
            found.append(text.value.decode() if handle and self.lib.nvmlDeviceGetUUID(handle, text, 96) == 0 else "")
        return found

    def has(self, name):
        return hasattr(self.lib, name)

    def counter(self):
        value = ctypes.c_ulonglong()
        status = self.lib.nvmlDeviceGetTotalEnergyConsumption(self.handle, ctypes.byref(value))
        return None if status else value.value

    def usage(self):
        value = ctypes.c_uint()
        return None if self.lib.nvmlDeviceGetPowerUsage(self.handle, ctypes.byref(value)) else value.value

    def field(self, number, scope):
        entry = Field(id=number, scope=scope)
        if not self.has("nvmlDeviceGetFieldValues") or self.lib.nvmlDeviceGetFieldValues(self.handle, 1, ctypes.byref(entry)):
            return None
        return None if entry.status else entry.value & 0xffffffff

    def samples(self, seen_us):
        kind, count = ctypes.c_int(), ctypes.c_uint(256)
        if not self.has("nvmlDeviceGetSamples"):
            return None
        status = self.lib.nvmlDeviceGetSamples(self.handle, 0, ctypes.c_ulonglong(seen_us), ctypes.byref(kind),
                                               ctypes.byref(count), self.samples_buffer)
        if status == 6:
            return []
        return None if status else [(s.stamp_us, s.value & 0xffffffff) for s in self.samples_buffer[:count.value]]


READINGS = {"usage call": lambda card: card.usage(), "field 186": lambda card: card.field(186, 0),
            "field 185": lambda card: card.field(185, 0), "field 185, memory": lambda card: card.field(185, 2),
            "field 186, memory": lambda card: card.field(186, 2), "field 185, module": lambda card: card.field(185, 1)}


# ---- the load ----

class Schedule:
    """Bursts of load, as begins and ends in seconds of CLOCK_MONOTONIC."""

    def __init__(self, bursts):
        self.begins = [b for b, _ in bursts]
        self.ends = [e for _, e in bursts]
        self.sums = [0.0]
        for begin, end in bursts:
            self.sums.append(self.sums[-1] + end - begin)

    def busy(self, at):
        """Seconds of load before `at`."""
        i = bisect.bisect_right(self.begins, at)
        return self.sums[i] - max(0, self.ends[i - 1] - at) if i else 0.0

    def share(self, begin, end):
        return (self.busy(end) - self.busy(begin)) / (end - begin)


def square_wave(wave, begin, end):
    period, on = (float(word) * MS for word in wave.split(","))
    first = int(begin / period) - 4
    return [(k * period, k * period + on) for k in range(first, int(end / period) + 2)]


class Load:
    def __init__(self, options, seconds):
        self.bursts, self.child, self.seconds = [], None, seconds
        self.wave = options.wave
        self.command = options.load
        atexit.register(self.end)
        if self.wave or self.command:
            return
        if subprocess.run([sys.executable, "-c", "import torch; assert torch.cuda.is_available()"], stderr=subprocess.DEVNULL).returncode:
            lack("PyTorch with CUDA is not here to make a load; name a program that keeps the card busy with --load 'COMMAND'")
        self.file = tempfile.TemporaryFile("w+")
        self.child = subprocess.Popen([sys.executable, "-c", BURN, str(seconds)], stdout=self.file)
        for _ in range(600):
            if os.fstat(self.file.fileno()).st_size:
                return
            time.sleep(.1)
        fail("PyTorch's load did not start within a minute")

    def tick(self, now, chance=random.Random(1)):
        """Starts and stops the program of --load in turn."""
        if not self.command or now < getattr(self, "turn", 0):
            return
        self.turn = now + chance.uniform(.5, 2)
        if self.child:
            self.stop()
        else:
            self.begun = time.monotonic()
            self.child = subprocess.Popen(self.command, shell=True, start_new_session=True, stdout=subprocess.DEVNULL)

    def end(self):
        """Whatever still runs; the program of --load is in a session of its own, which no signal to this one reaches."""
        if self.child and self.command:
            os.killpg(self.child.pid, signal.SIGKILL)
        elif self.child:
            self.child.kill()
        if self.child:
            self.child.wait()
        self.child = None

    def stop(self):
        if self.child and self.command:
            self.end()
            self.bursts.append((self.begun, time.monotonic()))
        elif self.child:
            self.child.wait()
            self.file.seek(0)
            self.bursts = [tuple(map(float, line.split())) for line in self.file if line[0] != "r"]
        self.child = None

    def schedule(self, begin, end):
        self.stop()
        return Schedule(square_wave(self.wave, begin, end) if self.wave else self.bursts)


# ---- watching ----

class Watch:
    def __init__(self):
        self.values = []  # (begin of the last read of the old value, end of the first of this one, value)
        self.costs, self.old, self.begin = [], None, 0.0

    def take(self, read):
        begin = time.monotonic()
        value = read()
        end = time.monotonic()
        self.costs.append(end - begin)
        if value is not None and value != self.old:
            if self.old is not None:
                self.values.append((self.begin, end, value))
            self.old = value
        self.begin = begin
        return value

    def ticks(self):
        return [((begin + end) / 2, value) for begin, end, value in self.values]


def watch(card, load, seconds):
    watches = {"counter": Watch(), "samples": Watch()} | {name: Watch() for name in READINGS}
    missing = {name for name, read in READINGS.items() if read(card) is None}
    missing |= {"counter"} if card.counter() is None else set()
    missing |= {"samples"} if card.samples(0) is None else set()
    seen, log, fetch = 0, [], 0.0
    begin = time.monotonic()
    while (now := time.monotonic()) < begin + seconds:
        load.tick(now)
        for name, read in READINGS.items():
            if name not in missing:
                watches[name].take(lambda: read(card))
        if "counter" not in missing:
            watches["counter"].take(card.counter)
        if "samples" not in missing and now >= fetch:
            fetch = now + .5
            offset = time.time() - time.monotonic()
            got = []
            watches["samples"].take(lambda: got.extend(card.samples(seen)) or None)
            log += [(stamp * 1e-6 - offset, value) for stamp, value in got if stamp > seen]
            seen = max([seen] + [stamp for stamp, _ in got])
        time.sleep(MS)
    return watches, [entry for entry in log if entry[0] > begin], missing, begin, time.monotonic()


# ---- fitting ----

def determination(x, y):
    if len(x) < 4 or statistics.pstdev(x) == 0 or statistics.pstdev(y) == 0:
        return 0.0
    return statistics.correlation(x, y) ** 2


def fit(schedule, values, windows, delays):
    """The window and delay, in s, whose share of load explains the values best, and how well."""
    best = (0.0, None, None)
    for window in windows:
        for delay in delays:
            shares = [schedule.share(at - delay - window, at - delay) for at, _ in values]
            best = max(best, (determination(shares, [v for _, v in values]), window, delay), key=lambda f: f[0])
    return best if best[0] >= EXPLAINED else (best[0], None, None)


WINDOWS = [w * MS for w in (5, 10, 15, 20, 25, 35, 50, 75, 100, 200, 500, 1000, 1500)]
DELAYS = [d * MS for d in (0, 2.5, 5, 7.5, 10, 15, 20, 30, 50)]


def counter_power(ticks):
    return [(b, (y - x) / (b - a)) for (a, x), (b, y) in zip(ticks, ticks[1:])]


def counter_fit(schedule, ticks):
    """Whether each step follows the load of its whole period, or of a part before its end."""
    steps = counter_power(ticks)
    period = statistics.median(b - a for (a, _), (b, _) in zip(ticks, ticks[1:]))
    whole = fit(schedule, steps, [period], DELAYS)
    part = fit(schedule, steps, [w for w in WINDOWS if w < .7 * period], DELAYS)
    return period, whole, part


def added_up(period, whole, part):
    """A part of each period explains the steps only if it leaves half as much open: dates of ticks scatter on a busy machine."""
    if whole[1] is part[1] is None:
        return "what this load does not tell"
    if 1 - part[0] < (1 - whole[0]) / 2:
        return f"{milliseconds(part[1])} of {milliseconds(period)} ms"
    return "all of the time"


def log_energy(log, begin, end):
    total = 0.0
    for (a, _), (b, value) in zip(log, log[1:]):
        total += value * max(0.0, min(b, end) - max(a, begin))
    return total


def compare_log(ticks, log):
    """Energy of the log in terms of the counter's, over the ticks that the log covers."""
    inside = [tick for tick in ticks if len(log) > 1 and log[0][0] < tick[0] < log[-1][0]]
    if len(inside) < 2:
        return None
    return log_energy(log, inside[0][0], inside[-1][0]) / (inside[-1][1] - inside[0][1])


# ---- perjoule ----

def perjoule(options, *words):
    return subprocess.run([options.build / "perjoule", *words], capture_output=True, text=True)


def sensors(options):
    out = perjoule(options, "sensors", "--power", "nvml", "--json")
    if out.returncode:
        fail(f"perjoule sensors: {out.stderr.strip()}")
    return next(s for s in json.loads(out.stdout)["sources"] if s["name"] == "nvml")


def windows(options, card, lengths):
    """perjoule.measure() beside two plain reads of the counter: rows of length, both energies in J, and the interval."""
    os.environ |= {"PERJOULE_LIBRARY": str(next(options.build.glob("libperjoule.*"))), "PERJOULE_POWER": "nvml"}
    sys.path.insert(0, str(ROOT / "python"))
    warnings.simplefilter("ignore")
    import perjoule as pj
    rows = []
    for length in lengths:
        with pj.measure() as measured:
            first = card.counter()
            time.sleep(length)
            last = card.counter()
        energy = measured.energy
        rows.append((length, None if first is None else (last - first) * MS,
                     energy and (energy.joules, energy.lo_mj * MS, energy.hi_mj * MS)))
    return rows


def sampler_share(options, seconds):
    """Share of a core that sampling costs: processor time of a long `exec` less that of a short one."""
    folder = tempfile.TemporaryDirectory()
    database = f"{folder.name}/runs.db"

    def cost(power, length):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        out = perjoule(options, "exec", "--db", database, "--power", power, "--baseline", "0", "--", "sleep", str(length))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if out.returncode:
            fail(f"perjoule exec: {out.stderr.strip()}")
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # what starting costs is the same in both
    return (cost("nvml", seconds + 1) - cost("nvml", 1)) / seconds


# ---- the report ----

def milliseconds(seconds):
    return f"{seconds / MS:.3g}" if seconds < 1 else f"{seconds / MS:.0f}"


def cost_text(watch):
    costs = sorted(watch.costs)
    return f"{milliseconds(costs[len(costs) // 2])} ({milliseconds(costs[len(costs) * 95 // 100])})" if costs else "-"


def print_fits(watches, log, missing, schedule):
    print("reading             one each   window   delay   R²     call, ms (p95)")
    found = {}
    for name in list(READINGS) + ["samples"]:
        values = log if name == "samples" else watches[name].ticks()
        if name in missing or len(values) < 8:
            print(f"{name:19} {'not supported' if name in missing else 'too few values'}")
            continue
        period = statistics.median(b - a for (a, _), (b, _) in zip(values, values[1:]))
        found[name] = (period, *fit(schedule, values, WINDOWS, DELAYS))
        _, r2, window, delay = found[name]
        fitted = f"{milliseconds(window):>5} ms {milliseconds(delay):>4} ms  {r2:.3f}" if window else f"  does not follow  {r2:.3f}"
        print(f"{name:19} {milliseconds(period):>6} ms {fitted}  {cost_text(watches[name])}")
    return found


def main():
    parser = argparse.ArgumentParser(prog="device-check", description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="build folder (build)")
    parser.add_argument("--seconds", type=float, default=30, help="of watching the sensors (30)")
    parser.add_argument("--windows", default="0.1,0.3,0.64,1,1.5,2.5,4", help="lengths in seconds")
    parser.add_argument("--load", help="a shell command that keeps the card busy")
    parser.add_argument("--card", metavar="UUID", help="of several the one to check (the first that CUDA_VISIBLE_DEVICES shows)")
    parser.add_argument("--wave", metavar="PERIOD,ON", help="no load is made: it is on for the first ON ms of each PERIOD ms of "
                        "CLOCK_MONOTONIC, as in a stand-in for the driver")
    options = parser.parse_args()
    options.build = options.build.resolve()
    lengths = [float(word) for word in options.windows.split(",")]
    if not (options.build / "perjoule").exists():
        fail(f"no program in {options.build}; name the build folder with --build")
    if not 2 <= options.seconds <= 200:
        fail(f"--seconds {options.seconds:g}: from 2 to 200")
    end_when_told()
    card = Card(options.card)
    if card.uuid:
        os.environ["CUDA_VISIBLE_DEVICES"] = card.uuid  # the load runs on this card, and perjoule reads no other
    print(f"{card.name}, driver {card.driver}", flush=True)
    load = Load(options, options.seconds)
    watches, log, missing, begin, end = watch(card, load, options.seconds)
    schedule = load.schedule(begin, end)
    found = print_fits(watches, log, missing, schedule)
    ticks, adds_up, period, agreement = watches["counter"].ticks(), "no counter", None, None
    if len(ticks) > 8:
        period, whole, part = counter_fit(schedule, ticks)
        adds_up = added_up(period, whole, part)
        print(f"{'counter':19} {milliseconds(period):>6} ms adds up {adds_up}: R² {whole[0]:.3f}, of a part {part[0]:.3f}; "
              f"delay {milliseconds(whole[2] or 0)} ms; {cost_text(watches['counter'])}")
        agreement = compare_log(ticks, log)
        if agreement:
            print(f"log / counter       {agreement:.4f}")
    source = sensors(options)
    for rail in source["rails"]:
        print(f"{rail['name']}: {rail['made_of']}")
    load = Load(options, 60)
    print("window       counter's reads      perjoule (95 %)")
    bad = 0
    for length, plain, said in windows(options, card, lengths):
        # two plain reads are off by a tick at each end, at the power of either figure; only clear contradictions count
        tick = max(plain or 0, said[0] if said else 0) / length * 2 * (period or 0)
        bad += said is None or (plain is not None and not said[1] - tick <= plain <= said[2] + tick)
        print(f"{length:4.2f} s  {plain if plain is None else round(plain, 1):>12} J     ",
              "unavailable" if said is None else f"{said[0]:.1f} J ({said[1]:.1f} to {said[2]:.1f})", flush=True)
    load.end()
    share = sampler_share(options, 4)
    print(f"sampler             {100 * share:.2f} % of a core")
    grid = next((r["grid_ms"] for r in source["rails"] if r["grid_ms"]), None)
    cells = [card.name, "measured by us", card.driver,
             adds_up if period is None else f"{f'{grid:.3f} ms grid' if grid else milliseconds(period) + ' ms'}, {adds_up}",
             *(f"{milliseconds(found[n][0])} / {milliseconds(found[n][2])} / {milliseconds(found[n][3])}" if n in found and found[n][2] else "-"
               for n in ("samples", "field 186", "field 185")), cost_text(watches["counter"])]
    print("row for docs/power-sources.md:\n| " + " | ".join(cells) + " |")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
