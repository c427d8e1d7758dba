"""What a device computes, through the program alone: logits, depths, speeds, overhead, coverage, interruption."""
import array
import base64
import json
import math
import os
import pathlib
import select
import signal
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO = str(ROOT / "models" / "demo")
IDS = [3 + (i * 37 + i * i * 11) % 190 for i in range(24)]
LONG = [3 + i % 190 for i in range(512)]
# Root mean square of the difference over that of the logits: F32 weights, 16 bits, and quantised ones, for which the CPU rounds activations
# to 8 bits: its own logits are 2 to 3 % from exact ones
EXACT, ROUNDED, QUANTISED = 1e-3, 1e-2, 4e-2
LEAST_SECONDS = 3
SHAPES = {"llama-3.2-1b,bf16": 2.5e9, "llama-3.2-1b,q8_0": 1.4e9, "llama-3.2-1b,q4_0": .8e9}  # and bytes of their weights
BF16 = "llama-3.2-1b,bf16"


class Refused(Exception):
    """The program said why not."""


def rows_of(table):
    """Rows of an exported table, in blocks or not (docs/formats.md)."""
    for item in table:
        if "rows" not in item:
            yield item
            continue
        columns = {name: values for name, values in item.items() if name != "rows"}
        for name, values in columns.items():
            if isinstance(values, dict) and "float32" in values:
                floats = array.array("f", base64.b64decode(values["float32"]))
                columns[name] = [None if f != f else f for f in floats]
            elif isinstance(values, dict) and "as" in values:
                columns[name] = columns[values["as"]]
        for i in range(item["rows"]):
            yield {name: v[i] if isinstance(v, list) else v for name, v in columns.items()}


class Device:
    def __init__(self, options, report):
        self.program, self.name, self.report = str(options.build / "perjoule"), options.device, report
        self.small, self.golden = options.small, options.golden
        self.scratch = tempfile.TemporaryDirectory()
        self.database = os.path.join(self.scratch.name, "runs.db")
        self.environment = os.environ | {"XDG_DATA_HOME": self.scratch.name}  # calibrations of this check are of no use later
        self.kept = {}

    def fits(self, shape):
        return SHAPES[shape] < .8 * (self.report.facts["entry"]["memory_bytes"] or math.inf)

    def large(self):
        """What takes a while: the first of the shapes that fits."""
        fitting = [f"synthetic:{shape}" for shape in SHAPES if self.fits(shape)]
        return DEMO if self.small or not fitting or self.report.facts["entry"]["kind"] == "software" else fitting[0]

    def call(self, *words):
        out = subprocess.run([self.program, *map(str, words)], capture_output=True, text=True, timeout=max(1, self.report.left()),
                             env=self.environment)
        if out.returncode:
            raise Refused(" ".join((out.stderr.strip() or f"exit {out.returncode}").splitlines()[-1:]))
        return out.stdout

    def run(self, *words, ids=IDS[:8]):
        """One run as JSON, greedy unless told otherwise."""
        return json.loads(self.call("run", "--device", self.name, "--db", self.database, "--json", "--ids", ",".join(map(str, ids)),
                                    "--ignore-eos", *words).splitlines()[-1])

    def unmeasured(self, model, tokens, depth, *words):
        """A run for its speed. In the small form one serves several checks."""
        key = (model, depth)
        if key not in self.kept or not self.small:
            self.kept[key] = self.run("-m", model, "-n", tokens, "--depth", depth, "--power", "none", *words)
        return self.kept[key]

    def logits(self, device, model, *words):
        file = os.path.join(self.scratch.name, "logits")
        self.call("eval", "-m", model, "--ids", ",".join(map(str, IDS)), "--device", device, "--logits", file, *words)
        values = array.array("f")
        values.frombytes(pathlib.Path(file).read_bytes())
        return values

    def exported(self, run):
        whole = json.loads(self.call("export", "--db", self.database, run["run_id"], "--format", "json", "-o", "-"))
        return {name: list(rows_of(value)) if isinstance(value, list) else value for name, value in whole.items()}


# ---- what it computes ----

def only(report, environment=os.environ):
    """The environment in which an NVIDIA card is CUDA's only one: its rail is there, is gpu0, and is the only one of a GPU."""
    card = report.facts.get("card")
    return dict(environment) | ({"CUDA_VISIBLE_DEVICES": card} if card else {})


def look_up(device):
    """What the program lists, and which of these are meant: with --device it takes one alone."""
    entries = json.loads(device.call("devices", "--json"))
    wanted = (device.name or "gpu").lower()
    entry_id = "gpu:0" if wanted == "gpu" else wanted.removeprefix("gpu-")  # as --device takes it, a UUID of nvidia-smi too
    whole = [e for e in entries["devices"] if entry_id in (e["id"].lower(), e["uuid"]) or e["name"].lower() == wanted]
    return entries, whole or [e for e in entries["devices"] if e["name"].lower().startswith(wanted + " ")]


def listed(device):
    """Finds the device; the report's facts are those that `perjoule devices` tells."""
    entries, fits = look_up(device)
    wanted = device.name or "gpu"
    if len(fits) > 1:
        device.report.add("devices", "a device", "bad", f"several are called {wanted}: name one of {', '.join(e['id'] for e in fits)}")
        return False
    if not fits:
        reason = entries["no_vulkan"] or "only " + ", ".join(e["name"] for e in entries["devices"])
        device.report.add("devices", "a device", "skipped", f"there is no {wanted}: {reason}")
        return False
    entry = fits[0]
    if entry["vendor"] == "NVIDIA":
        device.report.facts["card"] = f"GPU-{entry['uuid']}"
        device.environment |= only(device.report, device.environment)
        entry = look_up(device)[1][0]
    device.report.facts |= {"device": entry["name"], "driver": entry["driver"], "entry": entry}
    device.report.judge("devices", "usable", entry["usable"], entry["reason"] or f"memory {(entry['memory_bytes'] or 0) / 1e9:.1f} GB")
    device.report.add("devices", "fast paths", "info", entry["fast_paths"] or "none")
    device.report.add("devices", "rail", "info", entry["rail"] or f"not measured: {entry['rail_reason']}")
    return entry["usable"]


def difference(ours, theirs):
    square = sum((a - b) ** 2 for a, b in zip(ours, theirs))
    whole = sum(b * b for b in theirs)
    return math.sqrt(square / whole) if len(ours) == len(theirs) and whole else math.inf


def models(device):
    """Model, further words, and how far logits may be from the CPU's."""
    yield DEMO, ["--dtype", "f32"], EXACT
    if device.small:
        return
    yield DEMO, [], ROUNDED
    for shape in SHAPES:
        yield f"synthetic:{shape},layers=2", [], ROUNDED if shape == BF16 else QUANTISED
    for folder in sorted(pathlib.Path(device.golden).iterdir()) if device.golden else []:
        if (folder / "config.json").exists():
            yield str(folder), ["--dtype", "f32"], EXACT


def same_logits(device):
    for model, words, room in models(device):
        name = f"{pathlib.Path(model).name} {' '.join(words[1:])}".strip()
        if device.report.left() < LEAST_SECONDS:
            device.report.add("logits", name, "skipped", "no time left")
            continue
        try:
            theirs = device.logits("cpu", model, *words)
        except Refused as why:
            device.report.add("logits", name, "skipped", f"the CPU refuses it: {why}")
            continue
        off = difference(device.logits(device.name, model, *words), theirs)
        device.report.judge("logits", name, off <= room, f"{off:.2g} from the CPU's, of {room:g}", difference=off)


def depths(device):
    """The same logits at every depth, and nothing lost."""
    runs = {depth: device.unmeasured(DEMO, 3 if device.small else 16, depth, "--temp", "1", "--seed", "3") for depth in ("off", "module", "deep")}
    hashes = {run["logits_hash"] for run in runs.values()}
    device.report.judge("depths", "equal logits", len(hashes) == 1 and None not in hashes, f"off, module, deep: {', '.join(sorted(map(str, hashes)))}")
    whole = device.exported(runs["deep"])
    components = [c for c in whole["component_metrics"] if c["device"]]
    operations = [o for o in whole["deep_operation_metrics"] if o["device"]]
    bare = [o for o in operations if o["operation_name"] == "matmul" and o["tensor_mean"] is None]
    device.report.judge("depths", "operations", bool(components and operations) and not bare,
                        f"{len(components)} components and {len(operations)} operations on the device", components=len(components),
                        operations=len(operations))
    trace = json.loads(device.call("export", "--db", device.database, runs["deep"]["run_id"], "--format", "trace", "-o", "-"))
    names = [event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "process_name"]
    document = device.call("report", "--db", device.database, runs["deep"]["run_id"], "--format", "md")
    named = device.report.facts["device"]
    device.report.judge("depths", "named", named in names and f"Computed on {named}" in document, f"trace of {', '.join(names)}; the report says so")
    lost = sum(run["overhead"]["spans_lost"] for run in runs.values())
    device.report.judge("depths", "nothing lost", not lost, f"{lost} spans lost")


# ---- how fast ----

def bandwidth(device):
    """Bytes per second that the device copies, by the program's benchmark; None where it does not measure that."""
    try:
        # of any model: this one fits into every memory
        out = json.loads(device.call("bench", "kernels", "--device", device.name, "-m", DEMO, "--json"))
    except (Refused, ValueError) as why:
        device.report.add("speed", "copy bandwidth", "skipped", str(why))
        return None
    found = out.get("copy_bytes_per_second")
    device.report.add("speed", "copy bandwidth", "info" if found else "skipped", f"{found / 1e9:.3g} GB/s" if found else "too little memory, or no clock")
    return found


def speeds(device):
    copied = None if device.small else bandwidth(device)
    for model in [DEMO] if device.small else [f"synthetic:{shape}" for shape in SHAPES]:
        name = model.split(":")[-1] if ":" in model else "demo"
        if name in SHAPES and not device.fits(name):
            device.report.add("speed", name, "skipped", "its weights are larger than the device's memory")
            continue
        run = device.unmeasured(model, 64, "off")
        steps = max(1, run["output_tokens"] - 1)
        read = run["model"]["decode_weight_bytes"]
        rate = read * steps / (run["decode_duration_ms"] * 1e-3)
        share = f", {100 * rate / copied:.0f} % of the copy bandwidth" if copied else ""
        once = ["-n", 1, "--depth", "off", "--warmup", 1, "--power", "none"]
        prompt = run if device.small else device.run("-m", model, *once, ids=LONG)
        flops = run["model"]["flops_per_token"] * prompt["prefill_tokens_per_second"]
        device.report.add("speed", name, "info", f"prefill {prompt['prefill_tokens_per_second']:.4g}, decode {run['tokens_per_second']:.4g} tokens/s, "
                          f"{rate / 1e9:.3g} GB/s of weights{share}, {flops / 1e12:.3g} TFLOP/s of prefill", decode=run["tokens_per_second"],
                          prefill=prompt["prefill_tokens_per_second"], flops_per_second=flops, bytes_per_second=rate,
                          share=rate / copied if copied else None)


def overhead(device):
    """What recording costs: runs at every depth in turn."""
    model, rounds = device.large(), 1 if device.small else 5
    took = {"off": [], "module": [], "deep": []}
    for _ in range(rounds):
        began = time.monotonic()
        for depth, list_ in took.items():
            list_.append(device.unmeasured(model, 64, depth)["decode_duration_ms"])
        if device.report.left() < 1.5 * (time.monotonic() - began):
            break
    if len(took["deep"]) < 3:
        device.report.add("overhead", "by depth", "info", ", ".join(f"{depth} {list_[0]:.4g} ms" for depth, list_ in took.items()) +
                          " of decode, once each, which tells no cost")
        return
    base = statistics.median(took["off"])
    costs = {depth: 100 * (statistics.median(list_) / base - 1) for depth, list_ in took.items() if depth != "off"}
    device.report.add("overhead", "by depth", "info", ", ".join(f"{depth} {cost:+.1f} %" for depth, cost in costs.items()) +
                      f", {len(took['deep'])} rounds", **costs)


# ---- where the energy goes ----

def coverage(device):
    """Simulated sensors with a rail for the device: how often the intervals of components hold the planted energy."""
    run = device.run("-m", DEMO, "-n", 3 if device.small else 64, "--depth", "module", "--power", "sim:rails=cpu+gpu,period_ms=2")
    rows = [c for c in device.exported(run)["component_metrics"] if c["device"] and c["planted_mj"] is not None]
    if not rows:
        entry = device.report.facts["entry"]
        device.report.add("coverage", "planted energy", "skipped", f"{entry['name']} shares its rail with the host" if entry["kind"] == "software"
                          else "the simulated energy of its parts is not known")
        return
    sums = {}
    for row in rows:
        of = sums.setdefault(row["component_name"], [0.0, 0.0, 0.0])
        for i, name in enumerate(("energy_mj", "planted_mj", "energy_sd_mj")):
            of[i] += row[name] or 0
    held = sum(abs(mj - planted) <= 1.96 * sd for mj, planted, sd in sums.values())
    device.report.judge("coverage", "planted energy", held >= .8 * len(sums), f"{held} of {len(sums)} components within their interval", held=held,
                        components=len(sums))


def compare_alone(device, alone, rows):
    """Power of components in a run beside that of the same ones alone, whose caches are warm: no more than a figure."""
    ratios, held = [], 0
    for name in alone.keys() & {row["component_name"] for row in rows}:
        ms, mj, sd = (sum(row[figure] or 0 for row in rows if row["component_name"] == name)
                      for figure in ("time_ms", "net_energy_mj", "net_energy_sd_mj"))
        within, power = 1e3 * mj / ms, alone[name]["power_mw"]
        held += abs(within - power) <= 1.96 * math.hypot(1e3 * sd / ms, alone[name]["power_sd_mw"])
        ratios.append(within / power)
    device.report.add("coverage", "components alone", "info" if ratios else "skipped", f"power in a run over power alone: {min(ratios):.2f} to "
                      f"{max(ratios):.2f}, median {statistics.median(ratios):.2f}; {held} of {len(ratios)} within their intervals" if ratios
                      else "no component has a figure in both", held=held, components=len(ratios))


def replayed(device, model=f"synthetic:{BF16},layers=4", tokens=256, seconds=.6):
    """Components repeated alone, in random order and so at any time of a sensor's period, against what attribution gives them within a
    run; and a later run, which goes by what they took alone."""
    entry = device.report.facts["entry"]
    software = entry["kind"] == "software"
    if device.small:
        device.report.add("coverage", "components alone", "skipped", "the small form has no time for it")
        return
    if not entry["rail"] and not software:
        device.report.add("coverage", "components alone", "skipped", f"not measured: {entry['rail_reason']}")
        return
    rail, power = ("cpu", ["--power", "sim:rails=cpu,period_ms=2"]) if software else (entry["rail"], [])
    words = ["-m", model, "-n", tokens, "--depth", "deep", *power]
    within = device.run(*words)
    found = json.loads(device.call("calibrate", model, "--device", device.name, "--json", "--seconds", seconds, "--passes", 1, *power))
    alone = {c["name"]: c for c in found["classes"] if c["phase"] == "decode" and c["rail"] == rail}
    rows = [c for c in device.exported(within)["component_metrics"] if c["device"] and c["token_id"] is not None and c["net_energy_mj"] is not None]
    if software:
        device.report.add("coverage", "components alone", "skipped", f"{entry['name']} shares its rail with the host")
    else:
        compare_alone(device, alone, rows)
    later = [c["method"] for c in device.exported(device.run(*words))["component_metrics"] if c["device"] and c["component_name"] in alone]
    device.report.judge("coverage", "calibrated", bool(later) and set(later) == {"replay"},
                        f"methods of a later run: {', '.join(sorted(set(later)))}")


def partial(device):
    """A device that no rail measures: the run is partial, and its parts have no energy of others."""
    rails = "gpu" if device.report.facts["entry"]["kind"] == "software" else "cpu"
    run = device.run("-m", DEMO, "-n", 3, "--depth", "module", "--power", f"sim:rails={rails}")
    parts = [c for c in device.exported(run)["component_metrics"] if c["device"] and c["energy_mj"] is not None]
    advice = run["advice"]["findings"]
    device.report.judge("coverage", "without a rail", run["total_is_partial"] and run["request_energy_mj"] is None and not parts and not advice,
                        f"partial: {run['total_is_partial']}, {len(parts)} components with energy, {len(advice)} pieces of advice")


# ---- what may happen ----

def interrupted(device, how, expected):
    """A signal in the middle of a long run, which is kept."""
    database = os.path.join(device.scratch.name, f"{expected}.db")
    model = device.large()
    tokens = 400 if model == DEMO else 4000  # longer than it takes to interrupt it
    words = ["run", "-m", model, "-n", str(tokens), "--ignore-eos", "--device", device.name, "--power", "none", "--db", database, "hello"]
    child = subprocess.Popen([device.program, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        left = max(1, device.report.left())
        if not select.select([child.stdout], [], [], left)[0]:  # the first token
            raise subprocess.TimeoutExpired(words, left)
        child.stdout.read(1)
        child.send_signal(how)
        child.wait(timeout=max(1, device.report.left()))
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    device.call("check", "--db", database)  # takes in what a killed run left
    run = json.loads(device.call("show", "--db", database, "last", "--json"))
    # a kill costs what the collector had not fetched, so there may be no token
    device.report.judge("interruption", expected, run["status"] == expected, f"{run['status']}, {run['output_tokens']} tokens kept")


def cancelled(device):
    interrupted(device, signal.SIGINT, "cancelled")


def killed(device):
    interrupted(device, signal.SIGKILL, "interrupted")


# Shares of the time. What a check leaves over goes to those after it; on a slow device, too, every check is tried.
CHECKS = {same_logits: 4, depths: 2, coverage: 1, partial: 1, cancelled: 1, killed: 1, speeds: 5, overhead: 4, replayed: 3}


def check(options, report, kept=0):
    """Leaves `kept` seconds of the report's time to what follows."""
    device = Device(options, report)
    if not listed(device):
        return
    shares = sum(CHECKS.values())
    for one, share in CHECKS.items():
        with report.allow((report.left() - kept) * share / shares):
            try_one(device, one)
        shares -= share


def try_one(device, one):
    report = device.report
    if report.left() < LEAST_SECONDS:
        report.add("device", one.__name__, "skipped", "no time left")
        return
    try:
        one(device)
    except subprocess.TimeoutExpired:
        report.add("device", one.__name__, "skipped", "no time left for the rest of it")
    except Exception as error:  # a check that breaks is a finding, not the end
        report.add("device", one.__name__, "bad", f"{type(error).__name__}: {error}")
