"""The program and its library are hardened: position-independent, bounds of C library calls checked, stack protected,
relocations read-only after loading. Skipped where there is no readelf, on other systems, and in builds that check by
other means (sanitizers) or not at all (without optimisation)."""
import subprocess
import sys

optimised, *files = sys.argv[1:]
if sys.platform != "linux" or optimised != "yes":
    print("skipped: no hardened build")
    raise SystemExit(77)


def readelf(option, file):
    try:
        return subprocess.run(["readelf", "-W", option, file], capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        print("skipped: no readelf")
        raise SystemExit(77)


failed = []
for file in files:
    symbols = readelf("--dyn-syms", file)
    for what, found in (("position-independent", "DYN" in readelf("-h", file)),
                        ("checked C library calls", "_chk@" in symbols or "_chk " in symbols),
                        ("stack protector", "__stack_chk_fail" in symbols),
                        ("read-only relocations", "GNU_RELRO" in readelf("-l", file) and "NOW" in readelf("-d", file)),
                        ("stack without code", any("GNU_STACK" in line and "RWE" not in line
                                                   for line in readelf("-l", file).splitlines()))):
        if not found:
            failed.append(f"{file}: no {what}")
print("\n".join(failed) or f"{len(files)} files are hardened")
raise SystemExit(1 if failed else 0)
