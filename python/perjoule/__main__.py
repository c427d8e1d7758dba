"""python -m perjoule run SCRIPT [ARGUMENTS]: profiles an unchanged script."""
from __future__ import annotations

import argparse
import os
import runpy
import sys
from typing import Optional, Sequence

from .session import Result


def _arguments(words: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m perjoule", description="Profiles unchanged Python programs.")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="record every call of a transformers model's generate as a run")
    run.add_argument("--depth", choices=("off", "module"), default="module")
    run.add_argument("--power", help="sources, as in `perjoule run --power`")
    run.add_argument("--db", help="database file; none: store nothing")
    run.add_argument("--tag", action="append", default=[], help="may be given several times")
    run.add_argument("--experiment")
    run.add_argument("script")
    run.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser.parse_args(words)


def _say(results: Sequence[Result]) -> None:
    if not results:
        print("perjoule: the script called no model's generate; nothing was recorded", file=sys.stderr)
    for r in results:
        per_token = "" if r.joules_per_token is None else f", {r.joules_per_token:.4g} J per token"
        energy = "energy unavailable" if r.energy is None else f"{r.energy} {r.energy_source}"
        print(f"perjoule: run {r.run_id}: {r.output_tokens} tokens, {energy}{per_token}", file=sys.stderr)


def main(words: Optional[Sequence[str]] = None) -> int:
    options = _arguments(words)
    for name, value in (("PERJOULE_POWER", options.power), ("PERJOULE_DB", options.db)):
        if value:
            os.environ[name] = value
    from .unchanged import Recorder

    recorder = Recorder(options.depth, options.tag, options.experiment)
    recorder.install()
    sys.argv = [options.script, *options.arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(options.script)))
    try:
        runpy.run_path(options.script, run_name="__main__")
    finally:
        _say(recorder.results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
