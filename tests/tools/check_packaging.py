#!/usr/bin/env python3
"""Checks installation, packaging and completions against the program: check_packaging.py PROGRAM SOURCE_ROOT BUILD_ROOT MESON...

1. tools/version.sh, the formula and `perjoule --version` name one version.
2. An installation into an empty folder has the program, library, header, pkg-config file, demo model, service,
   completions and a manual page for every command; uninstalling leaves no files.
3. Each completion is accepted by its shell, where that shell is installed, and completes options, their values, models,
   runs, tags and experiments in an interactive terminal.
4. From a git checkout, the source archive has the tracked files and the dashboard as it was built.
5. If npm fails, the dashboard's build fails with npm's message and leaves no output.
6. The targets of the Makefile install what they use; what is fetched from elsewhere is pinned by its hash.
7. The notices of third-party software and the bill of materials list what is inside, each with its licence.
8. A build without cmocka, such as that of every package, uses no variable that only the tests with it define.
"""
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

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
    for wanted in ("bin/perjoule", "bin/perjoule-bench", "include/perjoule.h", "include/perjoule/base.h", "pkgconfig/perjoule.pc", "libperjoule.a",
                   *(["/perjoule/libperjoule-nvtx.so", "/perjoule/libperjoule-cuda.so", "/perjoule/libperjoule-llama.so"] if sys.platform == "linux" else []),
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
    complete(folder)
    removal(folder)


# Typed input and the expected completion: a single word, or a list of candidates. None of the expected words is
# contained in the input.
COMPLETIONS = (("run --dep", "--depth"), ("run --depth mod", "module"), ("run -d mod", "module"),
               ("run --depth=mod", "module"), ("run --dtype q8", "q8_0"), ("ls --sort en", "energy"),
               ("expor", "export"), ("bench mem", "memory"), ("run --model de", "demo"), ("run -m de", "demo"),
               ("calibrate de", "demo"), ("help rep", "report"), ("show la", "last"), ("show {start}", "{run}"),
               ("check {start}", "{run}"), ("ls --tag ov", "overnight"), ("run --tag ov", "overnight"),
               ("ls --experiment cold", "cold.{1,2}start"), ("compare --model de", "demo"))


def a_run(home):
    """A database with one run, and the environment in which shells find it."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PERJOULE")} | {
        "HOME": str(home), "PERJOULE_DB": str(home / "runs.db"), "PERJOULE_POWER": "none",
        "PERJOULE_MODELS": str(root / "models"), "PATH": f"{program.parent}:{os.environ['PATH']}", "TERM": "dumb",
        "PS1": "$ ", "COLUMNS": "200", "LC_ALL": "C.UTF-8"}
    output(program, "run", "-n", "2", "--tag", "overnight", "--experiment", "cold start", "Hello", env=environment)
    (run,) = json.loads(output(program, "ls", "--json", env=environment))
    return environment, run["id"]


class Terminal:
    """A shell in a pseudo-terminal."""

    def __init__(self, command, environment):
        self.seen = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(command[0], command, environment)

    def read_until(self, pattern, seconds=45):
        end = time.monotonic() + seconds
        while time.monotonic() < end and not re.search(pattern, self.seen):
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self.fd, 65536)
                except OSError:
                    break
        return re.search(pattern, self.seen) is not None

    def type(self, text):
        self.seen = b""
        os.write(self.fd, text.encode())

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


def complete_at_terminal(shell, command, setting_up, environment, cases):
    """Types input and Tab; Ctrl-U clears the line for the next."""
    terminal = Terminal(command, environment)
    try:
        terminal.type(setting_up + "\necho set-'up'\n")
        expect(terminal.read_until(rb"set-up\r?\n"), f"{shell} starts")
        for line, wanted in cases:
            terminal.type(f"\x15perjoule {line}\t")
            expect(terminal.read_until(wanted.encode()),
                   f"{shell} completes perjoule {line} to {wanted}: {terminal.seen[-200:]!r}")
    finally:
        terminal.close()


def complete(folder):
    found = {name: next(folder.rglob(name), None)
             for name in ("completions/perjoule", "_perjoule", "perjoule.fish")}
    with tempfile.TemporaryDirectory() as home:
        environment, run = a_run(pathlib.Path(home))
        cases = [(line.format(start=run[:9]), wanted if "," in wanted else wanted.format(run=run))
                 for line, wanted in COMPLETIONS]
        complete_at_terminal("bash", ["bash", "--norc", "--noprofile", "-i"], f"source '{found['completions/perjoule']}'",
                             environment, cases)
        if shutil.which("zsh"):
            complete_at_terminal("zsh", ["zsh", "-f", "-i"], f"fpath=('{found['_perjoule'].parent}' $fpath); "
                                 f"autoload -U compinit; compinit -u -d '{home}/dump'", environment, cases)
        for line, wanted in cases if shutil.which("fish") else ():
            done = subprocess.run(["fish", "-N", "-c", f"source '{found['perjoule.fish']}'; complete -C 'perjoule {line}'"],
                                  capture_output=True, text=True, env=environment)
            expect(re.search(wanted, done.stdout), f"fish completes perjoule {line} to {wanted}: {done.stdout} {done.stderr}")


def removal(folder):
    uninstall = (sys.executable, root / "tools/uninstall.py", build)
    there = {p for p in folder.rglob("*") if not p.is_dir()}
    said = output(*uninstall, "/opt/elsewhere", folder)
    expect(there == {p for p in folder.rglob("*") if not p.is_dir()} and "/opt/elsewhere" in said,
           f"uninstall from another prefix touches nothing: {said}")
    [own] = [p.relative_to(folder).parent.parent for p in there if p.parts[-2:] == ("bin", "perjoule")]
    output(*uninstall, f"/{own}", folder)
    left = [str(p) for p in folder.rglob("*") if not p.is_dir()]
    expect(not left, f"uninstall leaves nothing {left}")


def archive(version):
    if not shutil.which("git") or subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"],
                                                 capture_output=True).returncode:
        print("skipped: the source archive (not a git checkout)")
        return
    with tempfile.TemporaryDirectory() as folder:
        # compressed as fast as possible: as released, xz takes most of the time of this whole test
        made = output(root / "tools/dist.sh", build, folder, cwd=root, env=os.environ | {"XZ_OPT": "-0"}).split()[-1]
        with tarfile.open(made) as tar:
            names = tar.getnames()
        top = f"perjoule-{version}"
        expect(all(n == top or n.startswith(top + "/") for n in names), f"everything is in {top}/")
        for wanted in ("meson.build", "Makefile", "models/demo/model.safetensors"):
            expect(f"{top}/{wanted}" in names, f"the archive has {wanted}")
        if (build / "ui/page/index.html").exists():
            expect(f"{top}/ui/dist/PREBUILT" in names, "the archive has the page built")
            expect(f"{top}/ui/dist/licenses.txt" in names, "with the notices of what it contains")
        if f"{top}/THIRD-PARTY-NOTICES" in names:
            materials(pathlib.Path(made.replace(".tar.xz", ".cdx.json")), {"preact", "uplot", "d3-array"})


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
        npm.write_text(f"#!/bin/sh\necho \"$@\" >>{there}/calls\nmkdir -p node_modules/typescript\n")
        for what in (["--tools"], ["--tools"], ["--out", str(there / "out"), "--node", "false"]):
            subprocess.run([sys.executable, str(root / "tools/embed.py"), "--ui", str(there / "ui"), "--npm", str(npm), *what],
                           capture_output=True)
        calls = (there / "calls").read_text().splitlines()
        expect(len(calls) == 1 and "--omit=dev" not in calls[0], "the page's packages are installed once for build and tests")
    options = (root / "meson_options.txt").read_text()
    expect("option('dashboard', type: 'feature', value: 'enabled'" in options, "the dashboard is not optional")


LICENCES = {"MIT", "ISC", "BSD-3-Clause", "Apache-2.0", "Zlib", "LGPL-2.1-or-later", "blessing"}


def materials(path, wanted):
    """A bill of materials by the rules of CycloneDX 1.5 (the part that we use)."""
    bill = json.loads(path.read_text())
    own, parts = bill["metadata"]["component"], bill["components"]
    expect(bill["bomFormat"] == "CycloneDX" and bill["specVersion"] == "1.5" and bill["version"] == 1
           and re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bill["serialNumber"]),
           f"{path.name} is a CycloneDX bill of materials")
    references = [c["bom-ref"] for c in (own, *parts)]
    expect(len(set(references)) == len(references), "its references are unique")
    expect([d["ref"] for d in bill["dependencies"]] == [own["bom-ref"]]
           and set(bill["dependencies"][0]["dependsOn"]) == set(references[1:]), "and its dependencies known")
    for c in parts:
        licence = c["licenses"][0]["license"]["id"]
        expect(c["type"] == "library" and c["version"] and licence in LICENCES and re.match(r"pkg:(npm|generic)/\S+@", c["purl"]),
               f"{c['name']} has version, licence and address: {c['version']}, {licence}, {c['purl']}")
        expect(all(h["alg"] == "SHA-512" and len(h["content"]) == 128 for h in c.get("hashes", [])), "and a sound hash")
    expect(wanted <= {c["name"] for c in parts}, f"it lists {wanted}")


def third_parties():
    with tempfile.TemporaryDirectory() as folder:
        there = pathlib.Path(folder)
        lock = {"": {"dependencies": {"vite": "1", "@a/chart": "2"}}, "node_modules/vite": {"version": "1.0.0", "license": "MIT"},
                "node_modules/@a/chart": {"version": "2.0.0", "license": "MIT", "dependencies": {"deep": "3"}},
                "node_modules/deep": {"version": "3.0.0", "license": "ISC"}}
        for entry in lock.values():
            entry["integrity"] = "sha512-" + "A" * 86 + "=="
        for name in ("@a/chart", "deep"):
            (there / "node_modules" / name).mkdir(parents=True)
            (there / "node_modules" / name / "LICENSE").write_text(f"terms of {name}")
        (there / "package-lock.json").write_text(json.dumps({"packages": lock}))
        for library, file in (("libmicrohttpd", "COPYING"), ("zlib", "debian/copyright")):
            (there / "text").write_text(f"terms of {library}")
            with tarfile.open(there / f"{library}_1.2.orig.tar.gz", "w:gz") as tar:
                tar.add(there / "text", f"{library}-1.2/{file}")
        command = [sys.executable, root / "tools/notices.py", "--ui", there, "--sources", there, "libmicrohttpd", "zlib",
                   "--sbom", there / "made.cdx.json"]
        text = output(*command)
        for name in ("@a/chart", "deep", "libmicrohttpd", "zlib"):
            expect(f"terms of {name}" in text, f"the notices have the terms of {name}")
        expect("vite" not in text, "but not those of a build tool")
        expect("to use a changed library" in text, "and say how to link a changed libmicrohttpd")
        materials(there / "made.cdx.json", {"@a/chart", "deep", "libmicrohttpd", "zlib"})
        shutil.rmtree(there / "node_modules/deep")
        (there / "dist").mkdir()
        (there / "dist/licenses.txt").write_text(text)
        expect(output(*command) == text, "a release, which has no packages, keeps their terms")
        (there / "dist/licenses.txt").unlink()
        done = subprocess.run(command, capture_output=True, text=True)
        expect(done.returncode == 1 and "has no licence" in done.stderr, "a package without its terms is an error")


def packages():
    """What is distributed carries notices and a bill of materials; each of these scripts has them made, or stops."""
    with tempfile.TemporaryDirectory() as folder:
        there = pathlib.Path(folder)
        for name, text in (("libperjoule.so.0", "no library"), ("THIRD-PARTY-NOTICES", "terms of zlib"), ("cdx.json", "{}")):
            (there / name).write_text(text)
        environment = os.environ | {"PERJOULE_WHEEL_LIBRARY": str(there / "libperjoule.so.0"),
                                    "PERJOULE_WHEEL_PLATFORM": "manylinux_2_28_x86_64"}
        wheel = there / pathlib.Path(output(sys.executable, root / "python/backend.py", "wheel", folder, env=environment).strip()).name
        check = [sys.executable, root / "tools/check_wheel.py", wheel]
        with zipfile.ZipFile(wheel) as files:
            info = next(n for n in files.namelist() if n.endswith("/METADATA")).rpartition("/")[0]
            expect(files.read(f"{info}/THIRD-PARTY-NOTICES") == b"terms of zlib", "a wheel has the notices of its libraries")
            expect(files.read(f"{info}/sboms/perjoule.cdx.json") == b"{}", "and their bill of materials")
        expect("has no" not in subprocess.run(check, capture_output=True, text=True).stderr, "which its check finds")
        program = there / "program/bin/perjoule"
        program.parent.mkdir(parents=True)
        program.write_text("no program")
        environment["PERJOULE_WHEEL_PROGRAM"] = str(there / "program")
        output(sys.executable, root / "python/backend.py", "wheel", folder, env=environment)
        said = subprocess.run(check, capture_output=True, text=True).stderr
        expect("THIRD-PARTY-NOTICES: no libmicrohttpd" in said and "cdx.json: no preact" in said,
               "a wheel with the program needs the program's notices")
        for name, variable in (("notices", "NOTICES"), ("bill", "BILL")):
            (there / name).write_text("libmicrohttpd, preact")
            environment[f"PERJOULE_WHEEL_{variable}"] = str(there / name)
        output(sys.executable, root / "python/backend.py", "wheel", folder, env=environment)
        expect("contains" not in subprocess.run(check, capture_output=True, text=True).stderr, "which are those that are named")
        for variable in ("PROGRAM", "NOTICES", "BILL"):
            del environment[f"PERJOULE_WHEEL_{variable}"]
        for name in ("THIRD-PARTY-NOTICES", "cdx.json"):
            (there / name).unlink()
        output(sys.executable, root / "python/backend.py", "wheel", folder, env=environment)
        said = subprocess.run(check, capture_output=True, text=True).stderr
        expect("has no .dist-info/THIRD-PARTY-NOTICES" in said and "has no .dist-info/sboms/perjoule.cdx.json" in said,
               "and misses where they are not")
    for script, notices, bill in (
            ("tools/dist.sh", '"$tree/$name/THIRD-PARTY-NOTICES"', '"$out/$name.cdx.json"'),
            ("tools/dist-bin.sh", '"$tree/THIRD-PARTY-NOTICES"', '"dist/$name.cdx.json"'),
            ("tools/wheel.sh", '"$tree/THIRD-PARTY-NOTICES"', '"$tree/cdx.json"'),
            ("tools/deb.sh", '"$doc/THIRD-PARTY-NOTICES"', '"dist/perjoule_${version}_${arch}.cdx.json"'),
            ("packaging/Containerfile", "/out/usr/share/doc/perjoule/THIRD-PARTY-NOTICES", "/out/usr/share/doc/perjoule/perjoule.cdx.json")):
        text = (root / script).read_text().replace("\\\n", "")
        made = re.search(rf"python3 tools/notices\.py --ui ui [^\n]*--sbom {re.escape(bill)} *>{re.escape(notices)}", text)
        expect(made and ("set -e" in text or "&&" in text), f"{script} has notices and a bill of materials made")


def libraries_of_wheels():
    """A wheel's library is hardened as the build is, but for what the target's compiler does not know."""
    with tempfile.TemporaryDirectory() as folder:
        for arch, refused in (("x86_64", "no flag"), ("aarch64", "-fcf-protection")):
            compiler = pathlib.Path(folder, f"cc-{arch}")
            compiler.write_text(f'#!/bin/sh\n[ "$1" != "{refused}" ]\n')
            compiler.chmod(0o755)
            asked = "import sys, wheel_library; print(*wheel_library.flags_of(sys.argv[2:], 'libs', sys.argv[1]))"
            flags = output(sys.executable, "-c", asked, compiler, "-D_FORTIFY_SOURCE=3", "-fstack-protector-strong", "-fcf-protection",
                           env=os.environ | {"PYTHONPATH": str(root / "tools"), "PYTHONDONTWRITEBYTECODE": "1"}).split()
            expect({"-D_FORTIFY_SOURCE=3", "-fstack-protector-strong"} <= set(flags)
                   and ("-fcf-protection" in flags) == (arch == "x86_64"), f"flags of the library of a wheel for {arch}: {flags}")


def pins():
    script = (root / "tools/install-deps.sh").read_text()
    expect("--require-hashes" in script and len(re.findall(r"--hash=sha256:[0-9a-f]{64}", script)) == 2,
           "node is installed by version and hash")
    container = (root / "packaging/Containerfile").read_text()
    expect("VOLUME /data" in container and "HEALTHCHECK" in container and "/healthz" in container,
           "the container keeps its runs in a volume and tells its health")
    base = re.search(r"^ARG BASE=debian:\S+@sha256:[0-9a-f]{64}$", container, re.M)
    stages = re.findall(r"^FROM (\S+)", container, re.M)
    expect(base and set(stages) == {"$BASE"}, f"every stage of the container begins with the pinned base: {stages}")
    ignored = (root / ".dockerignore").read_text().split()
    expect({"build*", "ui/node_modules", ".git"} <= set(ignored), "what was built on the host stays out of the container's build")
    for unit in ("perjoule.service.in", "perjoule-meter.service.in"):
        text = (root / "packaging" / unit).read_text()
        expect(all(f"\n{key}=" in text for key in ("ProtectSystem", "ProtectHome", "SystemCallFilter", "TasksMax", "LimitNOFILE")),
               f"{unit} is sandboxed and has limits")


def without_cmocka():
    def read(path):
        text = re.sub(r"^if .*cmocka\.found\(\)(?s:.*?)^endif|'[^'\n]*'|#.*", "", path.read_text(), flags=re.M)
        return text, set(re.findall(r"^ *(\w+) \+?= ", text, re.M))

    tests = (root / "tests/meson.build").read_text()
    skipped = re.findall(r"^  subdir\('(\w+)'\)", tests.partition("if cmocka.found()")[2].partition("endif")[0], re.M)
    expect("unit" in skipped, f"without cmocka, these tests are left out: {skipped}")
    left_out = {file for folder in skipped for file in (root / "tests" / folder).rglob("meson.build")}
    files = [root / "meson.build"] + [f for top in ("tests", "fuzz", "python", "packaging", "examples", "src", "bench")
                                      for f in (root / top).rglob("meson.build")]
    others = [read(f) for f in files + [root / "ui/tests/meson.build"] if f not in left_out]
    theirs = set().union(*(read(f)[1] for f in left_out)) - set().union(*(names for _, names in others))
    used = sorted(n for n in theirs if any(re.search(rf"\b{n}\b(?! *:)", text) for text, _ in others))
    expect(not used, f"nothing else uses their variables {used}")


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
    without_cmocka()
    pins()
    third_parties()
    packages()
    libraries_of_wheels()
    busy_port()
    version = versions()
    installation(pathlib.Path(destination))
    archive(version)
sys.exit(1 if bad else 0)
