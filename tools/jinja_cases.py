#!/usr/bin/env python3
"""Compares the expected texts in tests/unit/engine/jinja_cases.json with those of the reference implementation (Python's
jinja2 with the settings used for chat templates), or replaces them with --write. Needs jinja2; the tests themselves do
not."""
import argparse
import json
import sys
from datetime import datetime
from pathlib import Path

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = 1750000000  # as in test_jinja.c


class Generation(Extension):
    """{% generation %} marks the assistant's part; its content is rendered unchanged."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda pattern: datetime.fromtimestamp(NOW).strftime(pattern)
    return env


def rendered(env, case):
    """The rendered text, or None if the reference raises an error; a case without text is one that perjoule refuses."""
    try:
        return env.from_string(case["template"]).render(**case["input"])
    except (jinja2.exceptions.TemplateError, TypeError, ValueError, KeyError, IndexError, ZeroDivisionError):
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    cases = json.loads(options.file.read_text())
    env, differ = environment(), 0
    for case in cases:
        if case.get("want") is None:
            continue
        text = rendered(env, case)
        if text == case.get("want"):
            continue
        differ += 1
        print(f"{case['name']}: {text!r}, the file has {case.get('want')!r}")
        case["want"] = text
    if options.write:
        lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
        options.file.write_text(f"[\n{lines}\n]\n")
    return int(differ > 0 and not options.write)


if __name__ == "__main__":
    sys.exit(main())
