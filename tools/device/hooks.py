"""The Python package on a card: hooks of PyTorch and their device times against known truths. Prints a JSON line for each check.
Run by tools/device/run.py with the Python that has torch; with --cpu on the processor, where checks of CUDA are skipped.
"""
import argparse
import contextlib
import gc
import inspect
import json
import os
import pathlib
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import unittest.mock
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Skip(Exception):
    """Why a check cannot be made here."""


def say(check, holds, text, **figures):
    result = holds if isinstance(holds, str) else "ok" if holds else "bad"
    print(json.dumps({"check": check, "result": result, "text": text, "figures": figures}), flush=True)


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--cpu", action="store_true", help="without a card")
    return parser.parse_args()


OPTIONS = read_arguments()
END = time.monotonic() + OPTIONS.seconds
os.environ["PERJOULE_LIBRARY"] = str(next(f for f in sorted(OPTIONS.build.resolve().glob("libperjoule.*")) if f.is_file() and f.suffix != ".a"))
sys.path.insert(0, str(ROOT / "python"))
warnings.simplefilter("ignore")
try:
    import torch
    import transformers
except ImportError as error:
    say("hooks", "skipped", f"no PyTorch with transformers here: {error}")
    sys.exit()
if not OPTIONS.cpu and not torch.cuda.is_available():
    say("hooks", "skipped", "this PyTorch finds no CUDA device")
    sys.exit()

import perjoule  # noqa: E402
from perjoule import InferencePipelineProfiler as Profiler  # noqa: E402

CUDA = not OPTIONS.cpu
WHERE = "cuda" if CUDA else "cpu"
TIMES = 11 if CUDA else 2


def wait():
    if CUDA:
        torch.cuda.synchronize()


def needs_cuda():
    if not CUDA:
        raise Skip("needs CUDA")


def event():
    return torch.cuda.Event(enable_timing=True)


def make_llama(width, layers, words, inner, heads, groups):
    shape = transformers.LlamaConfig(hidden_size=width, num_hidden_layers=layers, vocab_size=words, intermediate_size=inner,
                                     num_attention_heads=heads, num_key_value_heads=groups, max_position_embeddings=4096)
    with torch.device(WHERE):
        return transformers.LlamaForCausalLM(shape).to(torch.bfloat16).eval()


class Models:
    """Made when first asked for."""

    def __init__(self):
        torch.manual_seed(0)
        self.made = {}

    def get(self, name):
        sizes = {"small": (512, 12, 4000, 1536, 16, 8), "large": (2048, 16, 32000, 8192, 16, 8)} if CUDA else {
            "small": (64, 2, 400, 128, 4, 2), "large": (96, 2, 400, 192, 4, 2)}
        if name not in self.made:
            self.made[name] = make_llama(*sizes[name])
        return self.made[name]


MODELS = Models()


def generate(model, tokens, rows=1, **more):
    ids = torch.arange(3, 35, device=WHERE).expand(rows, -1).contiguous()
    return model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False,
                          pad_token_id=0, **more)


def profiled(model, work, **how):
    """What the work returns, and its stored run."""
    profiler = Profiler(model, **{"statistics_every": 0, **how})
    with profiler.run():
        result = work()
    return result, perjoule.open(os.environ["PERJOULE_DB"]).run(profiler.result.run_id)


def sums(run, figure="time_ms"):
    by_name = {}
    for row in run.rows("energy_by_component"):
        by_name[row["component_name"]] = by_name.get(row["component_name"], 0) + (row[figure] or 0)
    return by_name


class Busy(torch.nn.Module):
    """A module with a known time on the device."""
    cycles_per_ms = None

    def __init__(self, ms):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1, device=WHERE))
        self.ms = ms

    def forward(self, x):
        if CUDA:
            torch.cuda._sleep(int(self.ms * self.measure()))
        else:
            time.sleep(self.ms * 1e-3)
        return x * self.weight

    @classmethod
    def measure(cls):
        if not cls.cycles_per_ms:
            first, last = event(), event()
            torch.cuda._sleep(1 << 20)
            wait()
            first.record()
            torch.cuda._sleep(1 << 27)
            last.record()
            wait()
            cls.cycles_per_ms = (1 << 27) / first.elapsed_time(last)
        return cls.cycles_per_ms


def busy_pair():
    return torch.nn.Sequential(Busy(1), Busy(3)), torch.ones(4, device=WHERE)


# ---- clocks ----

def clock():
    needs_cuda()

    def pair():
        mark, before = event(), time.monotonic_ns()
        mark.record()
        mark.synchronize()
        return (before + time.monotonic_ns()) / 2, mark
    origin, *others = [pair() for _ in range(200)]
    time.sleep(5)
    late = pair()
    def off(p):
        return (origin[0] + origin[1].elapsed_time(p[1]) * 1e6 - p[0]) * 1e-3
    errors = [off(p) for p in others]
    middle = statistics.median(errors)
    jitter = sorted(abs(e - middle) for e in errors)[int(.95 * len(errors))]
    say("clock of the card", jitter < 15, f"jitter {jitter:.1f} µs (p95), {off(late) - middle:+.1f} µs after 5 s", jitter_us=jitter)


def events():
    needs_cuda()
    marks = [event() for _ in range(1000)]
    began = time.perf_counter()
    for mark in marks:
        mark.record()
    host = (time.perf_counter() - began) * 1e3
    wait()
    x = torch.ones(1, device=WHERE)

    def chain(with_marks):
        first, last = event(), event()
        torch.cuda._sleep(int(30 * Busy.measure()))
        first.record()
        for mark in marks:
            x.add_(1)
            if with_marks:
                mark.record()
        last.record()
        wait()
        return first.elapsed_time(last)
    chain(True)
    device = statistics.median(chain(True) - chain(False) for _ in range(5))
    say("cost of an event", host < 5 and device < 2, f"{host:.2f} µs on the host, {device:.2f} µs on the card")


def planted(name, each):
    model, x = busy_pair()

    def work():
        for _ in range(40):
            model(x)
            each()
        wait()
    times = sums(profiled(model, work)[1])
    first, second = times.get("0", 0) / 40, times.get("1", 0) / 40
    held = abs(first - 1) < .03 and abs(second / 3 - 1) < .03
    say(f"planted times, {name}", held if CUDA else "info", f"{first:.3f} of 1 ms, {second:.3f} of 3 ms")


def planted_ahead():
    planted("host ahead", lambda: None)


def planted_synchronised():
    planted("synchronised", wait)


# ---- nothing changes ----

def unchanged():
    for name in ("small", "large"):
        model = MODELS.get(name)
        generate(model, 16)
        plain, held = with_peak(lambda: generate(model, 16))
        (seen, _), peak = with_peak(lambda: profiled(model, lambda: generate(model, 16)))
        left = [n for n, part in model.named_modules() if part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part)]
        say(f"same ids, {name}", torch.equal(plain, seen) and not left and peak - held < 1 << 20,
            f"{'equal' if torch.equal(plain, seen) else 'other'} ids, {len(left)} hooks left, "
            f"{peak - held:+d} bytes at the peak")


def with_peak(work):
    """What it returns, and the most memory of the card that tensors took meanwhile."""
    if not CUDA:
        return work(), 0
    torch.cuda.reset_peak_memory_stats()
    return work(), torch.cuda.max_memory_allocated()


def timed(work):
    wait()
    began = time.perf_counter()
    work()
    wait()
    return (time.perf_counter() - began) * 1e3


def cost(name, model, rows, tokens):
    kinds = {"plain": lambda: timed(lambda: generate(model, tokens, rows)),
             "module": lambda: profiled(model, lambda: timed(lambda: generate(model, tokens, rows)))[0],
             "statistics": lambda: profiled(model, lambda: timed(lambda: generate(model, tokens, rows)), statistics_every=16)[0]}
    took = {kind: [] for kind in kinds}
    for turn in range(TIMES + 1):
        for kind, go in kinds.items():
            if turn:
                took[kind].append(go())
            else:
                go()
    base = statistics.median(took["plain"])
    shares = {kind: 100 * statistics.median(a / b - 1 for a, b in zip(took[kind], took["plain"])) for kind in ("module", "statistics")}
    say(f"cost, {name}", "info", f"{base / tokens:.2f} ms a token; " + ", ".join(f"{k} {v:+.1f} %" for k, v in shares.items()), **shares)
    return shares


def cost_of_launches():
    cost("bound by launches", MODELS.get("small"), 1, 16)


def cost_on_the_card():
    shares = cost("bound by the card", MODELS.get("large"), 64 if CUDA else 1, 8)
    if CUDA:
        say("cost, bound by the card, below 3 %", shares["module"] < 3, f"{shares['module']:+.2f} %")


def loop(model, steps):
    x, cache = torch.arange(3, 35, device=WHERE).unsqueeze(0), None
    name = "cache" if "cache" in inspect.signature(type(model).forward).parameters else "past_key_values"  # of newer transformers
    with torch.no_grad():
        for _ in range(steps):
            out = model(input_ids=x, use_cache=True, **{name: cache})
            cache, x = out[name], out.logits[:, -1:].argmax(-1)
    return x


def own_loop():
    model, steps = MODELS.get("small"), 24
    pairs = [(timed(lambda: loop(model, steps)), profiled(model, lambda: timed(lambda: loop(model, steps)))) for _ in range(TIMES)]
    plain, seen = (statistics.median(column) for column in ([p for p, _ in pairs], [t for _, (t, _) in pairs]))
    tokens = pairs[-1][1][1]["output_tokens"]
    say("a loop without waiting", tokens == steps and (not CUDA or seen < 1.05 * plain), f"{plain / steps:.2f} ms a step, seen {seen / steps:.2f} ms, {tokens} tokens")


def gaps():
    needs_cuda()
    model = MODELS.get("small")
    modules = sum(sums(profiled(model, lambda: generate(model, 16))[1]).values())
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as kernels:
        generate(model, 16)
    busy = sum(entry.self_device_time_total for entry in kernels.key_averages()) / 1e3
    say("gaps between launches", "info", f"modules {modules:.1f} ms, kernels {busy:.1f} ms", ratio=modules / busy)


def captured():
    needs_cuda()
    model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(4)]).to(WHERE)
    x, side = torch.ones(8, 256, device=WHERE), torch.cuda.Stream()
    with torch.cuda.stream(side), torch.no_grad():
        model(x)
    wait()
    earlier = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(earlier):
        model(x)

    def work():
        model(x)
        earlier.replay()
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):
            model(x)
        graph.replay()
        wait()
    _, run = profiled(model, work)
    say("a graph captured while recording", True, f"level {run['settings'].get('level')}")


def compiler():
    """What Triton compiles its launchers with."""
    return shutil.which(os.environ.get("CC", "")) or shutil.which("gcc") or shutil.which("clang")


def static_cache():
    if CUDA and not compiler():
        raise Skip("a static cache is compiled, and there is no C compiler")
    model = MODELS.get("small")
    plain = generate(model, 12, cache_implementation="static")
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    seen, run = profiled(model, lambda: generate(model, 12, cache_implementation="static"))
    more = torch._dynamo.utils.counters["stats"]["unique_graphs"] - graphs
    # one: the first profiled pass has other modules than what was compiled before
    say("a static cache", torch.equal(plain, seen) and run["output_tokens"] == 12 and more <= 1,
        f"{run['output_tokens']} tokens, {more} graphs compiled anew")


def elsewhere():
    for where in ("cpu", "meta"):
        model = torch.nn.Sequential(*(torch.nn.Linear(8, 8, device=d) for d in (WHERE, where, WHERE)))
        model[1].forward = lambda x: x
        profiled(model, lambda: model(torch.ones(2, 8, device=WHERE)))
        say(f"a module on {where}", True, "recorded")


def streams():
    needs_cuda()
    model, x = busy_pair()

    def work():
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(20):
                model(x)
        wait()
    times = sums(profiled(model, work)[1])
    say("a side stream", abs(times.get("0", 0) / 20 - 1) < .05, f"{times.get('0', 0) / 20:.3f} of 1 ms")


def two_threads():
    found = []

    def one():
        model, x = busy_pair()
        stream = torch.cuda.stream(torch.cuda.Stream()) if CUDA else contextlib.nullcontext()
        with stream:
            found.append(profiled(model, lambda: [model(x) for _ in range(10)])[1])
    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    say("two threads", len(found) == 2 and all(sums(run) for run in found), f"{len(found)} runs with components")


# ---- energy ----

def matrix():
    x = torch.randn(8192, 8192, device=WHERE, dtype=torch.bfloat16)
    return lambda: x @ x


def measured():
    needs_cuda()
    multiply = matrix()

    def work():
        for _ in range(300):
            multiply()
    work()
    wait()
    with perjoule.measure() as unwaited:
        work()
    wait()
    with perjoule.measure() as waited:
        work()
        wait()
    if not unwaited.joules or not waited.joules:
        raise Skip("no energy of the card")
    ratio = unwaited.joules / waited.joules
    say("measure() waits for the card", .95 < ratio < 1.05, f"{unwaited.joules:.1f} and {waited.joules:.1f} J", ratio=ratio)


def against_counter():
    needs_cuda()
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    import check
    card, multiply = check.Card(), matrix()
    first = card.counter()
    if first is None:
        raise Skip("the card has no energy counter")
    with perjoule.measure() as window:
        end = time.monotonic() + 6
        while time.monotonic() < end:
            multiply()
            wait()
    plain = (card.counter() - first) / 1e3
    ours = {name: value.joules for name, value in window.rails.items() if value and name.startswith("gpu")}
    say("energy against the counter", abs(ours.get("gpu0", 0) / plain - 1) < .03, f"{ours.get('gpu0', 0):.1f} J, counter {plain:.1f} J")


class Repeated(torch.nn.Module):
    def __init__(self, work, times):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1, device=WHERE))
        self.work, self.times = work, times

    def forward(self, x):
        for _ in range(self.times):
            self.work()
        return x * self.weight


def split():
    needs_cuda()
    memory = torch.randn(1 << 28, device=WHERE)
    model = torch.nn.Sequential(Repeated(matrix(), 30), Repeated(lambda: memory.mul_(1.0), 30))
    x, alone = torch.ones(1, device=WHERE), []
    for part in model:
        with perjoule.measure() as window:
            timed(lambda: [part(x) for _ in range(60)])
        if not window.joules:
            raise Skip("no energy of the card")
        alone.append(window.joules / window.seconds)
    _, run = profiled(model, lambda: timed(lambda: [model(x) for _ in range(80)]))
    energy, times = sums(run, "energy_mj"), sums(run)
    together = [energy[name] / times[name] for name in ("0", "1")]
    say("power of two parts", abs(together[0] / together[1] / (alone[0] / alone[1]) - 1) < .15,
        f"alone {alone[0]:.0f} and {alone[1]:.0f} W, in one run {together[0]:.0f} and {together[1]:.0f} W")


# ---- the rest ----

def cost_of_statistics():
    model = MODELS.get("large")
    _, run = profiled(model, lambda: generate(model, 16), statistics_every=1)
    say("statistics of every token", "info", f"{run['statistics_ms']} ms in {run['decode_duration_ms']:.0f} ms of decode")


def many_steps():
    model, steps = MODELS.get("small"), 400 if CUDA else 40
    held = torch.cuda.memory_allocated() if CUDA else 0
    with unittest.mock.patch("torch.cuda.Event", wraps=torch.cuda.Event) as made:
        _, run = profiled(model, lambda: loop(model, steps))
    gc.collect()
    grown = (torch.cuda.memory_allocated() if CUDA else 0) - held
    # a few steps' worth, and pairs of clocks
    used_again = made.call_count < 2000 + 20 * sum(1 for _ in model.modules())
    say("many steps", run["output_tokens"] == steps and grown < 1 << 20 and used_again,
        f"{run['output_tokens']} tokens, memory {grown:+d} bytes, {made.call_count} events made")


def moved():
    """To the processor, within the block."""
    needs_cuda()
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)).to(WHERE)

    def work():
        model(torch.ones(2, 8, device=WHERE))
        model.to("cpu")(torch.ones(2, 8))
    _, run = profiled(model, work)
    say("a model moved while recording", run["status"] == "completed", f"level {run['settings'].get('level')}")


LARGE, TINY = 50, 4000
LAUNCHES = f"""
import time, torch
x, y = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16), torch.ones(1, device="cuda")
for _ in range(3):
    x @ x; y.add_(1)
first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
torch.cuda.synchronize()
first.record()
for _ in range({LARGE}):
    x @ x
last.record()
torch.cuda.synchronize()
began = time.perf_counter()
for _ in range({TINY}):
    y.add_(1)
torch.cuda.synchronize()
print(first.elapsed_time(last), (time.perf_counter() - began) * 1e6 / {TINY})
"""


def kernels_of_a_program():
    """`perjoule exec` on a program that is not ours: every kernel, and the time that the program's own events tell."""
    needs_cuda()
    python, folder = [sys.executable, "-c", LAUNCHES], tempfile.TemporaryDirectory()
    with folder:
        database = os.path.join(folder.name, "exec.db")
        plain = subprocess.run(python, capture_output=True, text=True, check=True).stdout
        done = subprocess.run([OPTIONS.build / "perjoule", "exec", "--baseline", "0", "--db", database, "--", *python],
                              capture_output=True, text=True, check=True)
        run = perjoule.open(database).run("last")
        rows = [r for r in run.rows("components") if not r["component_name"].startswith(("memcpy", "memset"))]
        with contextlib.closing(sqlite3.connect(database)) as stored:
            said = "; ".join(text for text, in stored.execute("SELECT text FROM run_warnings WHERE code LIKE 'cuda%'"))
    alone, each = (float(word) for word in plain.split()[-2:])
    own, slowed = (float(word) for word in done.stdout.split()[-2:])
    products = sorted(rows, key=lambda r: r["time_ms"])[-LARGE - 3:]
    ms = sum(r["time_ms"] for r in products) * LARGE / (LARGE + 3) if products else 0
    whole = 0 <= len(rows) - LARGE - TINY - 6 <= 20  # the two tensors take a few more
    say("kernels of a program", whole and abs(ms / own - 1) < .03 and not said,
        f"{len(rows)} kernels of {LARGE + TINY + 6} and a few; products {ms:.2f} ms, by events {own:.2f} ms "
        f"(alone {alone:.2f}); a launch takes {each:.2f} µs, recorded {slowed:.2f} µs{'; ' if said else ''}{said}",
        launch_us=each, recorded_launch_us=slowed)


MARKED = """
import time
try:
    from nvtx import pop_range as pop, push_range as push
except ImportError:
    from torch.cuda.nvtx import range_pop as pop, range_push as push
began = time.perf_counter()
for _ in range(5):
    push("marked")
    time.sleep(.02)
    pop()
print((time.perf_counter() - began) * 1e3)
"""


def ranges_of_a_program():
    """`perjoule exec` on a program with ranges of NVTX."""
    with tempfile.TemporaryDirectory() as folder:
        database = os.path.join(folder, "exec.db")
        done = subprocess.run([OPTIONS.build / "perjoule", "exec", "--baseline", "0", "--power", "none", "--db", database, "--",
                               sys.executable, "-c", MARKED], capture_output=True, text=True)
        if done.returncode:
            raise Skip("neither the package nvtx nor PyTorch's ranges work here")
        ms = [s["duration_ms"] for s in perjoule.open(database).run("last").rows("sections") if s["section_name"] == "marked"]
    own = float(done.stdout.split()[-1])
    say("NVTX ranges of a program", len(ms) == 5 and 100 <= sum(ms) <= own, f"{len(ms)} of 5 ranges, {sum(ms):.1f} of {own:.1f} ms")


def library():
    """What a copy and products of the vendor's library reach: the yardstick of the device's own kernels."""
    size, words = (8192, 1 << 28) if CUDA else (128, 1 << 16)
    x, memory = torch.randn(size, size, device=WHERE, dtype=torch.bfloat16), torch.empty(words, device=WHERE)
    there = torch.empty_like(memory)

    def fastest(work):
        work()
        return min(timed(work) for _ in range(TIMES)) * 1e-3
    flops, copied = 2 * size ** 3 / fastest(lambda: x @ x), 8 * words / fastest(lambda: there.copy_(memory))
    say("PyTorch's products and copies", "info", f"{flops / 1e12:.3g} TFLOP/s in BF16, {copied / 1e9:.4g} GB/s copied",
        flops_per_second=flops, copy_bytes_per_second=copied)


def failing():
    model, profiler = MODELS.get("small"), None
    try:
        profiler = Profiler(model, statistics_every=0)
        with profiler.run():
            generate(model, 2)
            raise KeyError("mine")
    except KeyError:
        status = perjoule.open(os.environ["PERJOULE_DB"]).run(profiler.result.run_id)["status"]
        say("an exception of the program", status == "failed", f"the run is kept as {status}")


CHECKS = [library, clock, events, planted_ahead, planted_synchronised, unchanged, cost_of_launches, cost_on_the_card, gaps, own_loop, captured,
          static_cache, elsewhere, moved, streams, two_threads, measured, against_counter, split, cost_of_statistics, many_steps, failing,
          kernels_of_a_program, ranges_of_a_program]

for run_check in CHECKS:
    title = run_check.__name__.replace("_", " ")
    if time.monotonic() > END:
        say(title, "skipped", "no time left")
        continue
    try:
        run_check()
    except Skip as why:
        say(title, "skipped", str(why))
    except Exception as error:  # a check that breaks is a finding, not the end
        say(title, "bad", f"{type(error).__name__}: {str(error)[:200]}")
