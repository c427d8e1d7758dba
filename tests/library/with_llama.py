#!/usr/bin/env python3
"""Programs linked with a shared libllama under `perjoule exec`: a client of stand-in libraries, and llama.cpp
itself where PERJOULE_PEER names a folder with its programs and PERJOULE_PEER_MODEL a GGUF file.

Usage: with_llama.py PROGRAM CLIENT STATIC_CLIENT OLD_CLIENT LOADER PLUGIN
"""
import json
import multiprocessing.pool
import os
import pathlib
import sqlite3
import subprocess
import sys
import tempfile

program, client, static, old, loader, plugin = (str(pathlib.Path(p).resolve()) for p in sys.argv[1:7])
own = ("PERJOULE_", "NVTX_", "LD_PRELOAD", "FAKE_")
environment = {k: v for k, v in os.environ.items() if not k.startswith(own)} | {"PERJOULE_BASELINE": "0.2"}
LAYERS = 3


class Run:
    """One execution and its stored run."""

    def __init__(self, folder, *words, depth=None, options=(), env=None):
        self.database = str(pathlib.Path(folder, "runs.db"))
        depth = ["--depth", depth] if depth else []
        self.done = subprocess.run([program, "exec", "--power", "sim", "--baseline", "0.1", "--db", self.database,
                                    *depth, *options, "--", *words], capture_output=True, stdin=subprocess.DEVNULL,
                                   env={**environment, **(env or {})})
        exported = subprocess.run([program, "export", "last", "--db", self.database, "--format", "json"],
                                  capture_output=True, env=environment, check=True)
        self.tables = json.loads(exported.stdout)
        self.info = self.tables["profiling_run"]
        self.phases = [p["phase"] for p in self.tables["run_phases"]]
        self.sections = [s["section_name"] for s in self.tables["pipeline_sections"]]
        self.tokens = [t for t in self.tables["tokens"] if t["phase"] == "decode"]
        self.warnings = [w["code"] for w in self.tables.get("run_warnings", [])]

    def rows(self, query):
        with sqlite3.connect(self.database) as db:
            return db.execute(query, (self.info["id"],)).fetchall()

    def components(self):
        return {name for name, in self.rows("select distinct component_name from components_of_runs where run_id = ?")}

    def check_conservation(self):
        total = self.info["total_energy_mj"]
        assert abs(sum(p["energy_mj"] for p in self.tables["run_phases"]) - total) <= 1e-9 * total
        checked = subprocess.run([program, "check", "--db", self.database], capture_output=True, text=True,
                                 env=environment)
        assert "conservation  ok" in checked.stdout, checked.stdout


def check_steps(run, alone):
    assert (run.done.returncode, run.done.stdout) == (alone.returncode, alone.stdout), run.done
    info = run.info
    assert (info["engine"], info["model_name"], info["scope"]) == ("llama.cpp", "Fake Model", "machine"), info
    # 7 tokens in two batches, then 4 of another sequence along with a generated one
    assert (info["input_tokens"], info["output_tokens"]) == (11, 2 + 5 + 2 + 2), info
    assert {"prefill", "decode"} <= set(run.phases), run.phases
    assert run.sections.count("warmup") == 1 and run.sections.count("prompt_batch") == 2, run.sections
    assert run.sections.count("mixed_batch") == 1, run.sections
    # the prompt's batches are tokens too, as the passes of other engines are
    assert [t["position"] for t in run.tokens] == [2, 3, 4, 5, 6, 8], run.tokens
    prompts = [t["position"] for t in run.tables["tokens"] if t["phase"] == "prefill"]
    assert prompts == [0, 1, 7], prompts
    assert run.tokens[4]["duration_ms"] < 900, "the pause belongs to no token"
    assert not {"markers_ignored", "markers_lost", "llama_unseen"} & set(run.warnings), run.warnings
    run.check_conservation()


def check_layers(run, steps):
    layers = run.rows("select layer_index, count(*) from components_of_runs where run_id = ? and layer_index"
                      " is not null and component_name = 'o_proj' group by 1 order by 1")
    assert layers == [(i, steps) for i in range(LAYERS)], layers
    assert run.info["level"] == "fine", run.info


def check_operations(run, steps):
    found = dict(run.rows("select operation_name, count(*) from operations_of_runs where run_id = ? and layer_index"
                          " is not null group by 1"))
    per_layer = {"matmul": 7, "norm": 2, "rope": 2, "kv_append": 2, "flash_attention": 1, "activation": 1, "add": 2}
    for name, count in per_layer.items():
        assert found[name] == steps * count * LAYERS, (name, found)


def with_stand_ins(folder):
    alone = subprocess.run([client], capture_output=True, env=environment)
    assert alone.returncode == 3 and len(alone.stdout.splitlines()) == 1 + 2 + 5 + 2, alone

    steps_only = Run(folder, client, depth="off")
    check_steps(steps_only, alone)
    assert steps_only.info["level"] == "coarse" and not steps_only.components()

    boundaries = Run(folder, client)
    check_steps(boundaries, alone)
    check_layers(boundaries, 9)
    parts = {"attention", "o_proj", "mlp", "norm", "logits"}
    assert boundaries.components() == parts, boundaries.components()

    deep = Run(folder, client, depth="deep")
    check_steps(deep, alone)
    check_layers(deep, 9)
    check_operations(deep, 9)
    parts = {"embed_tokens", "input_layernorm", "q_proj", "k_proj", "v_proj", "attention", "o_proj",
             "post_attention_layernorm", "gate_proj", "up_proj", "act", "down_proj", "mlp", "norm", "logits"}
    assert deep.components() == parts, deep.components() ^ parts
    # the prompts' embedding, norm and head are in the tables of components, too
    outside = dict(deep.rows("select component_name, count(*) from components_of_runs where run_id = ? and layer_index is null"
                             " group by 1"))
    assert outside["embed_tokens"] == outside["logits"] == 9, outside
    softmax = Run(folder, client, depth="deep", env={"FAKE_SOFTMAX": "1"})
    assert softmax.done.returncode == 3 and softmax.components() == parts, softmax.components() ^ parts

    # more nodes than the pipe holds: steps stay whole, and lost ones are counted
    flood = Run(folder, client, "400", depth="deep")
    assert len(flood.tokens) == 401 and "markers_ignored" not in flood.warnings, (len(flood.tokens), flood.warnings)


def alone_and(folder, *words, env=None, **how):
    """The program alone, and recorded."""
    alone = subprocess.run(words, capture_output=True, env={**environment, **(env or {})})
    return Run(folder, *words, env=env, **how), alone


def with_interface(*words):
    """The interposed functions that this program uses, in its signatures."""
    def check(folder):
        for depth in ("off", "deep"):
            run, alone = alone_and(folder, *words, depth=depth)
            check_steps(run, alone)
        check_layers(run, 9)
    return check


def with_freed_batches(folder):
    run, alone = alone_and(folder, client, "5", "process", env={"FAKE_BATCHES": "1"}, depth="off")
    check_steps(run, alone)  # they take up no space


def with_plugin(folder):
    nothing = Run(folder, sys.executable, "-c", "", options=["--llama"])
    assert "llama_unseen" in nothing.warnings, nothing.warnings
    run, alone = alone_and(folder, loader, plugin, "5", "process", options=["--llama"])
    check_steps(run, alone)
    check_layers(run, 9)


# What a binding does: it loads the library and looks its functions up.
BINDING = """
import ctypes as c, sys
class Batch(c.Structure):
    _fields_ = [("n_tokens", c.c_int32), ("token", c.POINTER(c.c_int32)), ("embd", c.c_void_p), ("pos", c.c_void_p),
                ("n_seq_id", c.c_void_p), ("seq_id", c.c_void_p), ("logits", c.c_void_p)]
llama = c.CDLL(sys.argv[1])
llama.llama_init.restype = c.c_void_p
llama.llama_get_logits.restype = c.POINTER(c.c_float)
llama.llama_decode.argtypes = [c.c_void_p, Batch]
context = c.c_void_p(llama.llama_init())
def decode(*ids):
    tokens = (c.c_int32 * len(ids))(*ids)
    assert llama.llama_decode(context, Batch(len(ids), tokens)) == 0
    print(llama.llama_get_logits(context)[0])
decode(5, 6, 7, 8)
for i in range(3):
    decode(20 + i)
llama.llama_free(context)
sys.exit(3)
"""


def with_binding(folder):
    """Steps of a program that loads libllama itself are seen where libllama calls ggml."""
    words = [sys.executable, "-c", BINDING, str(pathlib.Path(client).parent / "libllama.so")]
    for depth in ("off", "deep"):
        run, alone = alone_and(folder, *words, depth=depth, options=["--llama"])
        assert (run.done.returncode, run.done.stdout) == (alone.returncode, alone.stdout) == (3, alone.stdout), run.done
        assert run.info["engine"] == "llama.cpp" and run.sections.count("prompt_batch") == 1, run.info
        assert (run.info["input_tokens"], run.info["output_tokens"]) == (4, 4), run.info
        assert [(t["position"], t["phase"]) for t in run.tables["tokens"]] == [
            (0, "prefill"), (1, "decode"), (2, "decode"), (3, "decode")], run.tables["tokens"]
        assert "llama_unseen" not in run.warnings, run.warnings
        run.check_conservation()
    check_layers(run, 4)
    check_operations(run, 4)
    late = Run(folder, *words, depth="off", options=["--llama"], env={"FAKE_LAG": "1"})
    assert min(t["duration_ms"] for t in late.tokens) >= 20, late.tokens


def with_late_results(folder):
    """A token ends when its result is available, whichever function waited for it."""
    for how in ("ith", "logits", "synchronize"):
        run, alone = alone_and(folder, client, env={"FAKE_LAG": "1", "FAKE_RESULT": how}, depth="off")
        check_steps(run, alone)
        assert run.tokens[4]["duration_ms"] >= 20, (how, run.tokens[4])


def with_contexts(folder):
    run, alone = alone_and(folder, client, "5", "process", env={"FAKE_CONTEXTS": "1"})
    assert (run.done.returncode, run.done.stdout) == (alone.returncode, alone.stdout), run.done
    assert run.sections.count("another_context") == 1 and run.sections.count("prompt_batch") == 3, run.sections
    assert (run.info["input_tokens"], run.info["output_tokens"]) == (13, 13), run.info
    assert len(run.tokens) == 7, run.tokens
    # a program's own eval callback keeps working
    run, alone = alone_and(folder, client, env={"FAKE_CALLBACK": "1"})
    assert b"nodes seen" in alone.stdout
    check_steps(run, alone)
    assert run.info["level"] == "coarse" and not run.components(), run.info


def with_full_pipe():
    """Nobody reads while the program works: dropped steps are counted, the others stay whole."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    library = pathlib.Path(program).parent / "libperjoule-llama.so"
    child = subprocess.Popen([client, "100000"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, pass_fds=[write],
                             env={**environment, "FAKE_QUICK": "1", "PERJOULE_MARKERS": str(write), "PERJOULE_LLAMA": "off",
                                  "LD_PRELOAD": str(library)})
    os.close(write)
    assert child.stderr.readline() == b"generated\n"
    got = b"".join(iter(lambda: os.read(read, 65536), b""))
    child.communicate()
    os.close(read)
    depth, steps, lost, tokens = 0, 0, 0, None
    for line in got.decode().splitlines():
        words = line.split()
        verb = words[2] if words[0].startswith("@") else words[1]
        if verb == "begin":
            depth += 1
            steps += words[3] == "token"
        elif verb == "end":
            depth -= 1
            assert depth >= 0
        elif verb == "lost":
            lost += int(words[-1])
        elif verb == "tokens":
            tokens = words[-2:]
    assert depth == 0 and lost > 1000 and steps + lost == 2 + 100000 + 2, (depth, lost, steps)
    assert tokens == ["11", str(2 + 100000 + 4)], tokens


def with_settings(folder):
    # settings of the user take precedence; another preloaded library is kept
    named = Run(folder, client, options=["--engine", "mine", "--model", "toy"], env={"LD_PRELOAD": "libm.so.6"})
    assert (named.info["engine"], named.info["model_name"]) == ("mine", "toy") and named.tokens, named.info
    # a script that starts the program: only on request
    script = ["sh", "-c", f"{client}; exit 4"]
    assert not Run(folder, *script).tokens
    through = Run(folder, *script, options=["--llama"])
    assert through.done.returncode == 4 and len(through.tokens) == 6, through.done
    # a statically linked llama.cpp cannot be interposed, which one line reports; other programs get no such line
    outside = Run(folder, static)
    lines = [x for x in outside.done.stderr.decode().splitlines() if "statically" in x]
    assert len(lines) == 1 and outside.done.returncode == 3 and not outside.tokens, outside.done.stderr
    other = Run(folder, "true")
    assert b"llama" not in other.done.stderr, other.done.stderr


def with_peer(folder, peer, model):
    environment.pop("LD_LIBRARY_PATH", None)  # where the stand-ins are, which have the same names
    programs = [pathlib.Path(peer, name) for name in ("llama-completion", "llama-cli")]  # the name until 2025
    words = [str(next(p for p in programs if p.exists())), "-m", model, "-p", "Once upon a time", "-n", "24", "--seed", "1",
             "--temp", "0", "-no-cnv", "--no-perf", "-t", "2"]
    alone = subprocess.run(words, capture_output=True, env=environment, stdin=subprocess.DEVNULL)
    assert alone.returncode == 0 and alone.stdout, alone.stderr[-2000:]
    for depth in ("off", None, "deep"):
        run = Run(folder, *words, depth=depth)
        assert (run.done.returncode, run.done.stdout) == (0, alone.stdout), run.done.stderr[-2000:]
        assert run.info["output_tokens"] == 24 and len(run.tokens) == 23, (run.info, len(run.tokens))
        assert "warmup" in run.sections and run.info["input_tokens"] >= 4, run.info
        assert not {"markers_ignored", "markers_lost"} & set(run.warnings), run.warnings
        run.check_conservation()
        assert bool(run.components()) == (depth != "off"), run.components()
        print(f"llama.cpp at depth {depth or 'module'}: {run.info['total_duration_ms']:.0f} ms,"
              f" {', '.join(sorted(run.components()))}")


def in_a_folder(check):
    with tempfile.TemporaryDirectory() as folder:
        check(folder)


checks = [with_stand_ins, with_settings, with_late_results, with_contexts, with_freed_batches, with_plugin, with_binding,
          lambda folder: with_full_pipe(), *(with_interface(*words) for words in
                                             ([client, "5", "encode"], [client, "5", "reset"], [client, "5", "process"], [old]))]
with multiprocessing.pool.ThreadPool(2 * (os.cpu_count() or 2)) as pool:  # beside each other: the stand-ins mostly sleep
    pool.map(in_a_folder, checks, chunksize=1)
peer, model = os.environ.get("PERJOULE_PEER"), os.environ.get("PERJOULE_PEER_MODEL")
if peer and model:
    in_a_folder(lambda folder: with_peer(folder, peer, model))
else:
    print("skipped: PERJOULE_PEER and PERJOULE_PEER_MODEL name no llama.cpp and no model")
