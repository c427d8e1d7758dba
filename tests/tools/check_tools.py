#!/usr/bin/env python3
"""Checks that the scripts in tools/ fail when what they check fails: check_tools.py SOURCE_ROOT

Each script runs in its own folder with fake compilers and fuzz targets, which fail on demand.
"""
import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile

root = pathlib.Path(sys.argv[1]).resolve()
bad = []


def expect(good, text):
    print(("ok: " if good else "FAIL ") + text)
    if not good:
        bad.append(text)


def write(path, content, mode=0o644):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    path.chmod(mode)


def run(script, folder, **more):
    shutil.copy(root / "tools" / script, folder / "tools" / script)
    return subprocess.run(["sh", f"tools/{script}"], cwd=folder, capture_output=True, text=True,
                          env=os.environ | more)


# A fake compiler that rejects sources containing "broken", and whose programs succeed or fail on demand.
ZIG = """#!/bin/sh
for word; do
    case $word in *.c) ! grep -q broken "$word" || { echo "$word: error: broken" >&2; exit 1; } ;; esac
done
while [ $# -gt 1 ]; do
    [ "$1" = -o ] && { printf '#!/bin/sh\\nexit %s\\n' "${PROGRAM_STATUS:-0}" >"$2"; chmod +x "$2"; }
    shift
done
"""


def cross():
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        write(folder / "meson.build", "project('x', version: '1.2.3')\n")
        write(folder / "tools/zig.sh", f"#!/bin/sh\necho {folder}/zig-home\n", 0o755)
        write(folder / "zig-home/zig", ZIG, 0o755)
        write(folder / "bin/uname", "#!/bin/sh\necho aarch64\n", 0o755)  # so that no emulator is needed
        for i in range(101):
            write(folder / f"src/base/unit{i}.c", "\n")
        for each in ("src/engine/files/dtype.c", "src/engine/kernels/stats_timer.c", "src/engine/kernels/team.c", "src/engine/kernels/neon.c",
                     "tests/unit/engine/test_kernels.c"):
            write(folder / each, "\n")
        path = {"PATH": f"{folder}/bin:{os.environ['PATH']}"}
        done = run("cross.sh", folder, **path)
        expect(done.returncode == 0, f"make cross passes when everything compiles: {done.stderr}")
        done = run("cross.sh", folder, PROGRAM_STATUS="1", **path)
        expect(done.returncode != 0, "make cross fails when the emulated test fails")
        write(folder / "src/base/unit7.c", "broken\n")
        done = run("cross.sh", folder, **path)
        expect(done.returncode != 0 and "unit7.c does not compile" in done.stdout,
               f"make cross fails when one source does not compile, and names it: {done.stdout}")
        shutil.rmtree(folder / "src/base")
        done = run("cross.sh", folder, **path)
        expect(done.returncode != 0, "make cross fails when it finds no sources")


def fuzz():
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        (folder / "tools").mkdir()
        write(folder / "bin/ninja", "#!/bin/sh\n", 0o755)
        write(folder / "build-fuzz/build.ninja", "")
        for name in "abc":
            write(folder / f"build-fuzz/fuzz/fuzz_{name}", f'#!/bin/sh\necho "{name}: $UBSAN_OPTIONS"\n', 0o755)
        path = {"PATH": f"{folder}/bin:{os.environ['PATH']}"}
        done = run("fuzz.sh", folder, **path)
        expect(done.returncode == 0 and "3 targets, no finding" in done.stdout, "make fuzz passes without a finding")
        expect("halt_on_error=1" in done.stdout, "undefined behaviour ends a fuzz target")
        write(folder / "build-fuzz/fuzz/fuzz_b", "#!/bin/sh\nexit 77\n", 0o755)
        done = run("fuzz.sh", folder, **path)
        expect(done.returncode != 0 and "no finding" not in done.stdout and "== c" not in done.stdout,
               "make fuzz ends at the first finding")
        (folder / "build-fuzz/build.ninja").unlink()
        write(folder / "bin/meson", "#!/bin/sh\necho 'meson.build:3:0: ERROR: unknown'\nexit 1\n", 0o755)
        done = run("fuzz.sh", folder, **path)
        expect(done.returncode != 0 and "meson.build:3:0: ERROR" in done.stdout, "make fuzz says why it cannot be configured")
    script = (root / "tools/fuzz.sh").read_text()
    expect("-fno-sanitize-recover=all" in script and "-Db_sanitize=address,undefined" in script,
           "fuzz targets are built so that undefined behaviour is fatal")


def columns():
    """A figure of a run is one line of rows.c; the tool carries it to the files that are not C."""
    made = ["src/net/openapi.json", "docs/schema/run-export.schema.json", "ui/src/api/columns.ts"]
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        for name in [*made, "docs/api.md", "src/store/rows.c", "src/trace/statistics.h", "src/trace/names.c", "src/trace/phases.h"]:
            write(folder / name, (root / name).read_text())

        def tool(*words):
            return subprocess.run([sys.executable, str(root / "tools/columns.py"), place, *words],
                                  capture_output=True, text=True)
        rows = (folder / "src/store/rows.c").read_text()
        write(folder / "src/store/rows.c", rows.replace(
            'COLUMN("engine",', 'COLUMN("made_up_mj", DOUBLE, pj_run_info, made_up),\n    COLUMN("engine",', 1))
        done = tool()
        expect(done.returncode == 1 and all(f"{name}: stale" in done.stdout for name in made),
               f"a column that files lack is reported: {done.stdout}")
        done = tool("--write")
        expect(done.returncode == 1 and "docs/api.md: the run summary lacks `made_up_mj`" in done.stdout,
               f"so is one that the document lacks: {done.stdout}")
        document = (folder / "docs/api.md").read_text()
        write(folder / "docs/api.md", document.replace("### Run summary\n", "### Run summary\n\n`made_up_mj`\n"))
        expect(tool().returncode == 0, "all are up to date once written")
        for name in made:
            expect("made_up_mj" in (folder / name).read_text(), f"{name} has the new column")
        write(folder / "src/store/rows.c", "")
        expect(tool().returncode != 0, "rows.c that the tool does not understand is an error")


def layers():
    document = (root / "docs/design.md").read_text()
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        for name in ("src", "bench", "meson.build"):
            (folder / name).symlink_to(root / name)

        def check(text):
            write(folder / "docs/design.md", text)
            return subprocess.run([sys.executable, root / "tools/check_layers.py", folder], capture_output=True, text=True)
        done = check(document)
        expect(done.returncode == 0 and "clean" in done.stdout, f"layers: the document names every room: {done.stdout}")
        done = check(document.replace("\n- `net`:", "\n- `nets`:"))
        expect(done.returncode == 1 and "the list of rooms lacks net\n" in done.stdout and "nets is not a known room" in done.stdout,
               f"layers: a room that the list lacks is found: {done.stdout}")
        done = check(document.replace("{cpu, vulkan}", "cpu"))
        expect(done.returncode == 1 and "the order of rooms lacks engine/vulkan" in done.stdout,
               f"layers: one that the order lacks is found: {done.stdout}")


def libdir():
    """The library folder that Debian's loader searches, also without dpkg-dev, which meson would ask."""
    done = subprocess.run(["sh", str(root / "tools/libdir.sh")], capture_output=True, text=True)
    if pathlib.Path("/etc/debian_version").exists() and done.stdout:
        folder = pathlib.Path("/usr") / done.stdout.split()[1]
        expect(folder.is_dir() and "lib64" not in done.stdout, f"libraries are installed where the loader looks: {folder}")
    expect(done.returncode == 0, "libdir.sh ends well")


def run_demo():
    """The messages of `make run` on a local terminal and over ssh."""
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        write(folder / "build/perjoule", "#!/bin/sh\necho \"$@\" >>calls\n", 0o755)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        done = subprocess.run(["sh", str(root / "tools/run-demo.sh"), "build/perjoule", port], cwd=folder, text=True,
                              capture_output=True, env=os.environ | {"CI": "1", "SSH_CONNECTION": "1 2 3 4"})
        calls = (folder / "calls").read_text()
        expect(done.returncode == 0 and f"serve --port {port}" in calls and "run -m models/demo" in calls,
               f"make run profiles the demo model and serves the dashboard: {calls}{done.stderr}")
        expect(f"ssh -L {port}:127.0.0.1:{port}" in done.stdout, "make run says how to reach the page over ssh")
        line = f'export PATH="{folder.resolve()}/build:$PATH"'
        expect(shutil.which("perjoule") or line in done.stdout, "make run prints the line that puts perjoule on the PATH")


def only(folder, **programs):
    """A PATH of one folder: common tools, and the scripts given."""
    for name in ("sh", "awk", "cat", "dirname", "env", "grep", "head", "id", "ls", "rm", "sed", "tr", "wc"):
        (folder / name).symlink_to(shutil.which(name))
    for name, text in programs.items():
        write(folder / name.replace("_", "-"), "#!/bin/sh\n" + text, 0o755)
    return {"PATH": str(folder), "HOME": str(folder), "PERJOULE_NODE": str(folder / "node")}


def dependencies():
    """What install-deps.sh says where it cannot install: a Mac without Homebrew, and too old a meson."""
    with tempfile.TemporaryDirectory() as place:
        variables = only(pathlib.Path(place), uname="echo Darwin\n")
        done = subprocess.run(["sh", str(root / "tools/install-deps.sh")], env=variables, capture_output=True, text=True)
        expect(done.returncode == 3 and "https://brew.sh" in done.stderr, f"without Homebrew it says where to get it: {done.stderr}")
    with tempfile.TemporaryDirectory() as place:
        variables = only(pathlib.Path(place), uname="echo Linux\n", meson="echo 0.61.2\n", apt_get="exit 0\n",
                         sudo='exec "$@"\n')
        done = subprocess.run(["sh", str(root / "tools/install-deps.sh")], env=variables, capture_output=True, text=True)
        expect(done.returncode == 3 and "needs meson 1.0 or newer" in done.stderr,
               f"where only an old meson is packaged, it says so: {done.stdout}{done.stderr}")


def install():
    """`make install PREFIX=` after a build for another prefix."""
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        meson = f'''echo "meson $*" >>{folder}/calls
[ "$1" != introspect ] || echo '[{{"name": "prefix", "value": "/usr/local"}}]'
mkdir -p {folder}/build/meson-logs && : >{folder}/build/meson-logs/install-log.txt
'''
        write(folder / "bin/meson", "#!/bin/sh\n" + meson, 0o755)
        write(folder / "bin/ninja", f'#!/bin/sh\necho "ninja $*" >>{folder}/calls\n', 0o755)
        path = {"PATH": f"{folder}/bin:{os.environ['PATH']}"}
        done = subprocess.run(["sh", str(root / "tools/install.sh"), f"{folder}/build", f"{folder}/there", ""],
                              env=os.environ | path, capture_output=True, text=True)
        calls = (folder / "calls").read_text().splitlines()
        expect(done.returncode == 0 and f"meson configure {folder}/build --prefix {folder}/there" in calls
               and any(c.startswith("ninja") for c in calls) and any(c.startswith("meson install") for c in calls),
               f"another PREFIX reconfigures the build before installing: {calls} {done.stderr}")
        expect(f'export PATH="{folder}/there/bin:$PATH"' in done.stdout, "and says how the shell finds the program")


def bare_root():
    """Only one script may work in a folder: a second would replace the root under the first."""
    if not shutil.which("flock"):
        return
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        write(folder / "bin/id", "#!/bin/sh\necho 0\n", 0o755)
        write(folder / "bin/apt-get", "#!/bin/sh\n", 0o755)  # without the lock it ends here, with no mirror
        with open(folder / "lock", "w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            done = subprocess.run(["bash", str(root / "tools/bare-root.sh"), "--work", place, "run"], text=True, capture_output=True,
                                  env=os.environ | {"PATH": f"{folder}/bin:{os.environ['PATH']}", "PJ_BARE_ROOT": "1"})
        expect(done.returncode == 3 and f"{place} is in use" in done.stderr, f"a bare root's folder in use is left alone: {done.stderr}")


def other_packages():
    formula = (root / "packaging/perjoule.rb").read_text()
    expect("brew tap-new" in formula and "$USER/local/perjoule" in formula,
           "the formula says how to put it into a tap, from which alone Homebrew installs")
    expect("homepage " not in re.sub(r"^ *#.*", "", formula, flags=re.M), "the formula has no homepage that is a placeholder")
    container = (root / "packaging/Containerfile").read_text()
    expect('"--host", "0.0.0.0"' in container and "PERJOULE_TOKEN" in container,
           "the container's server can be reached from outside, with a token")
    # Opened at run time, so that the image starts without them, but a feature is missing. Certificates come only with what apt recommends.
    installed = re.search(r"apt-get install -y --no-install-recommends (.*?) && rm", container.replace("\\\n", " "))[1].split()
    opened = re.search(r"^Recommends: (.*)$", (root / "tools/deb.sh").read_text(), re.M)[1].split(", ")
    missing = {*opened, "ca-certificates"} - set(installed)
    expect(not missing, f"the container has the libraries that the program opens at run time, and certificates; missing: {sorted(missing)}")


def release_sources():
    """Every library of a release has a hash, and another place than the mirrors: an earlier release's sources."""
    script = (root / "tools/dist-bin.sh").read_text()
    libraries = re.search(r'^packages="(.*)"$', script, re.M)[1].split()
    pinned = dict(re.findall(r"^[0-9a-f]{64}  (([a-z0-9]+)_\S+\.orig\.tar\.\S+)$", (root / "tools/release-sources.sha256").read_text(), re.M))
    expect(sorted(pinned.values()) == sorted(libraries), f"each library of a release has one archive with its hash: {pinned}")
    if not shutil.which("curl") or not shutil.which("sha256sum"):
        print("skipped: fetching them (there is no curl or sha256sum)")
        return
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        for name in ("dist-bin.sh", "version.sh"):
            write(folder / "tools" / name, (root / "tools" / name).read_text(), 0o755)
        write(folder / "meson.build", "project('x', version: '1.2.3')\n")
        for file in pinned:
            write(folder / "former" / file, f"source of {file}\n")
        sums = "".join(f"{hashlib.sha256((folder / 'former' / file).read_bytes()).hexdigest()}  {file}\n" for file in pinned)
        write(folder / "tools/release-sources.sha256", sums)
        write(folder / "bin/apt-get", "#!/bin/sh\ncase $* in *indextargets*) echo http://none.invalid stable main Debian ;;"
              " *source*) echo 404 >&2; exit 100 ;; esac\n", 0o755)
        write(folder / "bin/apt-cache", "#!/bin/sh\n", 0o755)

        def fetch(**more):
            return subprocess.run(["bash", "tools/dist-bin.sh", "--sources"], cwd=folder, capture_output=True, text=True,
                                  env=os.environ | {"PATH": f"{folder}/bin:{os.environ['PATH']}"} | more)
        former = {"PERJOULE_SOURCE_MIRRORS": (folder / "former").as_uri()}
        done = fetch()
        expect(done.returncode == 3 and f"no mirror has the source of {libraries[0]}" in done.stderr,
               f"a source that is nowhere is named: {done.stderr}")
        done = fetch(**former)
        expect(done.returncode == 0 and all(file in done.stdout for file in pinned),
               f"an earlier release's sources do: {done.stderr}")
        victim = next(file for file in pinned if file.startswith("wslay"))
        write(folder / "build-dist-bin/sources" / victim, "changed\n")
        done = fetch(**former)
        expect(done.returncode == 3 and f"{victim} is not the archive of" in done.stderr, f"a changed one is refused: {done.stderr}")
        (folder / "build-dist-bin/sources" / victim).unlink()
        write(folder / "former" / victim, "changed\n")
        done = fetch(**former)
        expect(done.returncode == 3 and "no mirror has the source of wslay" in done.stderr, "also where it comes from a mirror")


cross()
fuzz()
columns()
layers()
libdir()
run_demo()
dependencies()
install()
bare_root()
other_packages()
release_sources()
sys.exit(f"{len(bad)} checks failed" if bad else 0)
