"""The program and its library are hardened: position-independent, bounds of C library calls checked, stack protected,
relocations read-only after loading, every object of the archive marked for control-flow protection (CET). Skipped where
there is no readelf, on other systems, and in builds that check by other means (sanitizers) or not at all (without
optimisation).

    check_hardening.py yes|no COMPILER ARCHIVE FILE...

The linker marks a file for CET only if everything linked into it is marked; some distributions' C libraries (Debian
12) come with start files that are not. The files have to be marked where the start files are. The library for NVTX
makes no call whose bounds could be checked."""
import platform
import re
import subprocess
import sys

optimised, compiler, archive, *files = sys.argv[1:]
if sys.platform != "linux" or optimised != "yes":
    print("skipped: no hardened build")
    raise SystemExit(77)


def readelf(option, file):
    try:
        return subprocess.run(["readelf", "-W", option, file], capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        print("skipped: no readelf")
        raise SystemExit(77)


def marked(notes):
    return "IBT, SHSTK" in notes


def unmarked_objects():
    """Names of the archive's objects without the mark, and their number."""
    objects = re.split(r"^File: ", readelf("-n", archive), flags=re.M)[1:]
    return [o.splitlines()[0] for o in objects if not marked(o)], len(objects)


def start_files_marked():
    paths = (subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
             .stdout.strip() for name in ("Scrt1.o", "crti.o", "crtn.o"))
    return all(marked(readelf("-n", path)) for path in paths)


failed = []
for file in files:
    symbols = readelf("--dyn-syms", file)
    for what, found in (("position-independent", "DYN" in readelf("-h", file)),
                        ("checked C library calls", re.search(r"_chk[@ ]", symbols) or "libperjoule-nvtx" in file),
                        ("stack protector", "__stack_chk_fail" in symbols),
                        ("read-only relocations", "GNU_RELRO" in readelf("-l", file) and "NOW" in readelf("-d", file)),
                        ("stack without code", any("GNU_STACK" in line and "RWE" not in line
                                                   for line in readelf("-l", file).splitlines()))):
        if not found:
            failed.append(f"{file}: no {what}")
if platform.machine() == "x86_64":
    objects, count = unmarked_objects()
    failed += [f"{name}: not marked for CET" for name in objects]
    if count < 100:
        failed.append(f"{archive}: only {count} objects are read")
    if not start_files_marked():
        print(f"the {count} objects are marked for CET, but not the C library's start files, so the program isn't either")
    elif not objects:
        failed += [f"{file}: not marked for CET" for file in files if not marked(readelf("-n", file))]
print("\n".join(failed) or f"{len(files)} files are hardened")
raise SystemExit(1 if failed else 0)
