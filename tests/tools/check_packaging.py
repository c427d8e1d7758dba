#!/usr/bin/env python3
"""Holds what packagers take to the program: check_packaging.py PROGRAM SOURCE_ROOT BUILD_ROOT MESON...

1. tools/version.sh, the formula and `perjoule --version` name one version.
2. An installation into an empty folder has the program, library, header, pkg-config file, demo model,
   service, completions and a manual page for every command.
3. Each completion is accepted by its shell, where that shell is installed.
4. From a git checkout, the source archive carries the tracked files and the page as it was built.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

program, root, build = (pathlib.Path(p).resolve() for p in sys.argv[1:4])
meson = sys.argv[4:]
bad = []


def expect(good, text):
    print(("ok: " if good else "FAIL ") + text)
    if not good:
        bad.append(text)


def output(*command, **how):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=True,
                          **how).stdout


def versions():
    wanted = output(root / "tools/version.sh").strip()
    expect(re.fullmatch(r"\d+\.\d+\.\d+", wanted), f"meson.build names a version: {wanted}")
    expect(wanted in output(program, "--version"), "the program names it")
    expect(f'version "{wanted}"' in (root / "packaging/perjoule.rb").read_text(), "the formula names it")
    return wanted


def installation(folder):
    output(*meson, "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", folder)
    files = [p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir()]
    for wanted in ("bin/perjoule", "include/perjoule.h", "pkgconfig/perjoule.pc", "libperjoule.a",
                   "models/demo/config.json", "models/demo/tokenizer.json",
                   "models/demo/model.safetensors", "systemd/user/perjoule.service"):
        expect(any(f.endswith(wanted) for f in files), f"{wanted} is installed")
    commands = re.findall(r"^  ([a-z]+)  +\S", output(program, "--help"), re.M)
    expect(len(commands) > 10, f"the help lists {len(commands)} commands")
    for command in commands:
        expect(any(f.endswith(f"man1/perjoule-{command}.1") for f in files), f"perjoule-{command}(1)")
    for shell, name in (("bash", "completions/perjoule"), ("zsh", "_perjoule"), ("fish", "perjoule.fish")):
        found = [f for f in files if f.endswith(name)]
        expect(found, f"completion for {shell}")
        if found and shutil.which(shell):
            checked = subprocess.run([shell, "-n", str(folder / found[0])], capture_output=True, text=True)
            expect(checked.returncode == 0, f"{shell} accepts its completion {checked.stderr}")


def archive(version):
    if not shutil.which("git") or subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"],
                                                 capture_output=True).returncode:
        print("skipped: the source archive (not a git checkout)")
        return
    with tempfile.TemporaryDirectory() as folder:
        made = output(root / "tools/dist.sh", build, folder, cwd=root).split()[-1]
        with tarfile.open(made) as tar:
            names = tar.getnames()
        top = f"perjoule-{version}"
        expect(all(n == top or n.startswith(top + "/") for n in names), f"everything is in {top}/")
        for wanted in ("meson.build", "Makefile", "models/demo/model.safetensors"):
            expect(f"{top}/{wanted}" in names, f"the archive has {wanted}")
        if (build / "ui/page/index.html").exists():
            expect(f"{top}/ui/dist/PREBUILT" in names, "the archive has the page built")


with tempfile.TemporaryDirectory() as destination:
    version = versions()
    installation(pathlib.Path(destination))
    archive(version)
sys.exit(1 if bad else 0)
