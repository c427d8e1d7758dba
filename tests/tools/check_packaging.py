#!/usr/bin/env python3
"""Checks installation, packaging and completions against the program: check_packaging.py PROGRAM SOURCE_ROOT BUILD_ROOT MESON...

1. tools/version.sh, the formula and `perjoule --version` name one version.
2. An installation into an empty folder has the program, library, header, pkg-config file, demo model,
   service, completions and a manual page for every command; removing it leaves nothing.
3. Each completion is accepted by its shell, where that shell is installed; bash completes values.
4. From a git checkout, the source archive has the tracked files and the dashboard as it was built.
5. npm's failure fails the dashboard's build with npm's message and leaves nothing that looks built.
6. The targets of the Makefile install what they use.
"""
import pathlib
import re
import shutil
import socket
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
    for wanted in ("bin/perjoule", "include/perjoule.h", "include/perjoule/base.h", "pkgconfig/perjoule.pc", "libperjoule.a",
                   *(["/perjoule/libperjoule-nvtx.so", "/perjoule/libperjoule-llama.so"] if sys.platform == "linux" else []),
                   "models/demo/config.json", "models/demo/tokenizer.json",
                   "models/demo/model.safetensors", "prometheus/perjoule.rules.yml", "grafana/perjoule.json",
                   *(["systemd/user/perjoule.service", "systemd/system/perjoule-meter.service"]
                     if sys.platform == "linux" else [])):
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
    complete_in_bash(folder)
    removal(folder)


def complete_in_bash(folder):
    """Completes as a shell would: the words so far, and the words offered."""
    script = next(folder.rglob("completions/perjoule"))
    for words, wanted in ((["run", "--dep"], "--depth"), (["run", "--depth", ""], "deep"),
                          (["run", "--dtype", "q8"], "q8_0"), (["run", "--power", "nv"], "nvml"),
                          (["ls", "--sort", "en"], "energy"), (["exp"], "export"), (["bench", "mem"], "memory"),
                          (["run", "--model", "de"], "demo"), (["run", "-m", ""], "demo"), (["help", "rep"], "report"),
                          (["show", "la"], "last")):
        line = [str(program), *words]
        done = subprocess.run(["bash", "-c", 'source "$1"; shift; COMP_WORDS=("$@"); '
                               'COMP_CWORD=$(($# - 1)); compopt() { :; }; _perjoule; '
                               'printf "%s\\n" "${COMPREPLY[@]}"', "bash", script, *line],
                              capture_output=True, text=True, cwd=root)
        expect(wanted in done.stdout.split(), f"bash completes {' '.join(line)} to {wanted} {done.stderr}")


def removal(folder):
    output(sys.executable, root / "tools/uninstall.py", build, folder)
    left = [str(p) for p in folder.rglob("*") if not p.is_dir()]
    expect(not left, f"uninstall leaves nothing {left}")


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


def dashboard_without_npm():
    """A failing npm must fail the build, twice, and never leave an asset table without the dashboard."""
    with tempfile.TemporaryDirectory() as folder:
        there = pathlib.Path(folder)
        npm = there / "npm"
        npm.write_text("#!/bin/sh\necho 'npm error code EAI_AGAIN: no such host' >&2\nexit 1\n")
        npm.chmod(0o755)
        (there / "ui").mkdir()
        (there / "ui/package-lock.json").write_text("{}")
        for attempt in ("first", "second"):
            done = subprocess.run([sys.executable, str(root / "tools/embed.py"), "--ui", str(there / "ui"),
                                   "--npm", str(npm), "--out", str(there / "out")],
                                  capture_output=True, text=True)
            expect(done.returncode != 0 and "EAI_AGAIN" in done.stdout,
                   f"the {attempt} build without npm fails and says why")
        expect(not (there / "out/assets_table.c").exists(), "and leaves no table")
    options = (root / "meson_options.txt").read_text()
    expect("option('dashboard', type: 'feature', value: 'enabled'" in options, "the dashboard is not optional")


def busy_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = subprocess.run([root / "tools/run-demo.sh", program, str(taken.getsockname()[1])],
                              capture_output=True, text=True, cwd=root)
    expect(done.returncode == 3 and "make run PORT=" in done.stderr, "make run advises PORT= when one is taken")


def targets():
    makefile = (root / "Makefile").read_text()
    for target in ("test", "lint", "cross", "dist", "dist-bin", "deb"):
        recipe = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", makefile, re.M)
        expect(recipe and f"install-deps.sh --{target}" in recipe[1], f"make {target} installs what it uses")


with tempfile.TemporaryDirectory() as destination:
    dashboard_without_npm()
    targets()
    busy_port()
    version = versions()
    installation(pathlib.Path(destination))
    archive(version)
sys.exit(1 if bad else 0)
