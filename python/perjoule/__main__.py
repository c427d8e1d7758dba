"""python -m perjoule run SCRIPT [ARGUMENTS], or -m MODULE: profiles an unchanged program."""
from __future__ import annotations

import argparse
import atexit
import builtins
import importlib.util
import io
import os
import runpy
import sys
import types
from typing import Optional, Sequence

from .errors import PerjouleError
from .session import Result, default_session


def _arguments(words: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m perjoule", description="Profiles unchanged Python programs.")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="record every call of a transformers model's generate as a run")
    run.add_argument("--depth", choices=("off", "module", "deep"), default="module")
    run.add_argument("--power", help="sources, as in `perjoule run --power`")
    run.add_argument("--db", help="database file; none: store nothing")
    run.add_argument("--tag", action="append", default=[], help="may be given several times")
    run.add_argument("--experiment")
    run.add_argument("-m", dest="is_module", action="store_true", help="SCRIPT is a module's name, as in python -m")
    run.add_argument("script", help="a file, a folder or archive with __main__.py, or with -m a module")
    run.add_argument("arguments", nargs=argparse.REMAINDER, help="passed on to the script")
    return parser.parse_args(words)


def _say(results: Sequence[Result], process: int) -> None:
    if os.getpid() != process:
        return  # a forked child
    if not results:
        print("perjoule: this process called no model's generate, so it has no run", file=sys.stderr)
    for r in results:
        per_token = "" if r.joules_per_token is None else f", {r.joules_per_token:.4g} J per token on average"
        if r.typical_token is not None:
            per_token = f", {r.typical_token} per typical token"
        energy = "energy unavailable" if r.energy is None else f"{r.energy} {r.energy_source}"
        print(f"perjoule: run {r.run_id}: {r.output_tokens} tokens, {energy}{per_token}", file=sys.stderr)


def _reason_against(script: str, is_module: bool) -> Optional[str]:
    """Why the program cannot be profiled, found before it starts: its models may take minutes to load."""
    if is_module:
        if importlib.util.find_spec(script.partition(".")[0]) is None:
            return f"no module named {script}"
    elif not os.path.exists(script):
        return f"{script}: there is no such file"
    try:
        default_session()
    except (PerjouleError, OSError) as e:
        return str(e)
    return None


def _run_file(path: str) -> None:
    """Runs a script as `python FILE` does. Its module stays __main__, as its threads and exit handlers may need."""
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec")
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=path, __builtins__=builtins)
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


def _run(script: str, is_module: bool) -> None:
    if is_module:
        runpy.run_module(script, run_name="__main__", alter_sys=True)
    elif os.path.isfile(script) and script.endswith(".py"):
        if sys.path and sys.path[0] in ("", os.getcwd()):  # of `python -m perjoule`
            del sys.path[0]
        sys.path.insert(0, os.path.dirname(os.path.realpath(script)))
        _run_file(script)
    else:
        runpy.run_path(script, run_name="__main__")


def main(words: Optional[Sequence[str]] = None) -> int:
    options = _arguments(words)
    for name, value in (("PERJOULE_POWER", options.power), ("PERJOULE_DB", options.db)):
        if value:
            os.environ[name] = value
    wrong = _reason_against(options.script, options.is_module)
    if wrong:
        print(f"perjoule: {wrong}", file=sys.stderr)
        return 2
    from .unchanged import Recorder

    recorder = Recorder(options.depth, options.tag, options.experiment)
    recorder.install()
    # not before the end of the script's threads and exit handlers, which may generate too
    atexit.register(_say, recorder.results, os.getpid())
    sys.argv = [options.script, *options.arguments]
    _run(options.script, options.is_module)
    return 0


if __name__ == "__main__":
    sys.exit(main())
