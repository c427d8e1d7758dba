#!/usr/bin/env python3
"""Checks that a wheel's library runs where the wheel's tag says: check_wheel.py WHEEL...

ELF: the machine, no needed library besides the C library, no symbol version newer than the tag's. Mach-O: the machine,
no needed library besides the system library, minimum macOS not newer than the tag's, a code signature (required on
arm64). Both: only pj_ functions are exported; licence, notices and bill of materials of what is linked statically are
beside them, those of the program where it is inside.
"""
import re
import struct
import sys
import zipfile

INSIDE = (".dist-info/THIRD-PARTY-NOTICES", ".dist-info/sboms/perjoule.cdx.json", ".dist-info/LICENSE")
OF_THE_PROGRAM = (b"libmicrohttpd", b"preact")  # some of what only the program contains: a library, the page's packages
C_LIBRARY = re.compile(r"(lib(c|m|dl|pthread|rt)|ld-linux[a-z0-9-]*)\.so\.\d$")
MACHINES = {62: "x86_64", 183: "aarch64"}
DT_NEEDED, SHT_DYNAMIC, SHT_VERNEED, SHT_DYNSYM = 1, 6, 0x6FFFFFFE, 11


def text_at(data, at):
    return data[at:data.index(b"\0", at)].decode()


class Elf:
    """Needed libraries and exported symbols of a 64-bit little-endian ELF shared object."""

    def __init__(self, data):
        self.machine = MACHINES.get(struct.unpack_from("<H", data, 18)[0], "unknown")
        self.needed, self.versions, self.exports = [], [], []
        offset, size, count = struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<HH", data, 58)
        sections = [struct.unpack_from("<IIQQQQIIQQ", data, offset + i * size) for i in range(count)]
        for _, kind, _, _, at, length, link, entries, _, _ in sections:
            strings = sections[link][4] if link < count else 0
            if kind == SHT_DYNAMIC:
                tags = (struct.unpack_from("<qQ", data, at + i) for i in range(0, length, 16))
                self.needed += [text_at(data, strings + value) for tag, value in tags if tag == DT_NEEDED]
            elif kind == SHT_DYNSYM:
                for i in range(24, length, 24):
                    name, info, _, section = struct.unpack_from("<IBBH", data, at + i)
                    if section not in (0, 0xFFF1) and info >> 4:
                        self.exports.append(text_at(data, strings + name))
            elif kind == SHT_VERNEED:
                self.versions += self._versions(data, at, entries, strings)

    @staticmethod
    def _versions(data, at, entries, strings):
        for _ in range(entries):
            _, count, _, aux, following = struct.unpack_from("<HHIII", data, at)
            here = at + aux
            for _ in range(count):
                _, _, _, name, step = struct.unpack_from("<IHHII", data, here)
                yield text_at(data, strings + name)
                here += step
            at += following

    def problems(self, tag):
        found = re.fullmatch(r"(?:manylinux_(\d+)_(\d+)|linux)_(.*)", tag)
        if not found or found[3] != self.machine:
            return [f"the library is for {self.machine}"]
        said = [f"needs {name}" for name in self.needed if not C_LIBRARY.match(name) and found[1]]
        for version in self.versions:
            number = [int(n) for n in re.findall(r"\d+", version)]
            if found[1] and version.startswith("GLIBC_") and number > [int(found[1]), int(found[2])]:
                said.append(f"needs {version}")
        return said + [f"exports {name}" for name in self.exports if not name.startswith("pj_")]


class MachO:
    """Needed libraries and exported symbols of a 64-bit dylib."""

    def __init__(self, data):
        _, cpu, _, _, count = struct.unpack_from("<IIIII", data)
        self.machine = {0x100000C: "arm64", 0x1000007: "x86_64"}.get(cpu, "unknown")
        self.needed, self.exports, self.oldest, self.signed, self.name = [], [], (0, 0), False, None
        at = 32
        for _ in range(count):
            command, size = struct.unpack_from("<II", data, at)
            command &= 0x7FFFFFFF
            if command in (0xC, 0xD):  # LC_LOAD_DYLIB, LC_ID_DYLIB
                name = text_at(data, at + struct.unpack_from("<I", data, at + 8)[0])
                if command == 0xC:
                    self.needed.append(name)
                else:
                    self.name = name
            elif command == 0x32:  # LC_BUILD_VERSION
                version = struct.unpack_from("<I", data, at + 12)[0]
                self.oldest = (version >> 16, version >> 8 & 255)
            elif command == 0x1D:
                self.signed = True
            elif command == 2:  # LC_SYMTAB
                symbols, number, strings = struct.unpack_from("<III", data, at + 8)
                for i in range(number):
                    name, kind = struct.unpack_from("<IB", data, symbols + 16 * i)
                    if kind & 1 and kind & 0xE and not kind & 0xE0 and not kind & 0x10:  # external, defined, not private
                        self.exports.append(text_at(data, strings + name))
            at += size

    def problems(self, tag):
        found = re.fullmatch(r"macosx_(\d+)_(\d+)_(.*)", tag)
        if not found or found[3] != self.machine:
            return [f"the library is for macOS on {self.machine}"]
        said = [f"needs {name}" for name in self.needed if name != "/usr/lib/libSystem.B.dylib"]
        if self.oldest > (int(found[1]), int(found[2])):
            said.append(f"needs macOS {self.oldest[0]}.{self.oldest[1]}")
        if not self.signed and self.machine == "arm64":
            said.append("has no code signature")
        own = ("__mh_dylib_header", "___dso_handle")  # the linker puts them into every library
        return said + [f"exports {name}" for name in self.exports if not name.startswith("_pj_") and name not in own]


def library_of(data):
    if data[:5] == b"\x7fELF\x02":
        return Elf(data)
    if data[:4] == b"\xcf\xfa\xed\xfe":
        return MachO(data)
    return None


def problems_of(path):
    tag = re.search(r"-py3-none-(.+)\.whl$", path)
    if not tag:
        return ["its name has no tag py3-none-PLATFORM"]
    with zipfile.ZipFile(path) as wheel:
        names = [n for n in wheel.namelist() if n.startswith("perjoule/lib/")]
        if len(names) != 1:
            return [f"{len(names)} libraries are inside"]
        library = library_of(wheel.read(names[0]))
        has_program = any(n.endswith(".data/scripts/perjoule") for n in wheel.namelist())
        lacking = [f"has no {wanted}" for wanted in INSIDE if not any(n.endswith(wanted) for n in wheel.namelist())
                   if has_program or not tag[1].startswith("linux_")]  # whose libraries are the system's
        if has_program and not lacking and not tag[1].startswith("linux_"):
            lacking = [f"{name}: no {part.decode()}, which the program contains" for name in wheel.namelist()
                       if name.endswith(INSIDE[:2]) for part in OF_THE_PROGRAM if part not in wheel.read(name)]
    return lacking + (["its library is no ELF or Mach-O file"] if library is None else library.problems(tag[1]))


def main(paths):
    failed = False
    for path in paths:
        for problem in problems_of(path):
            failed = True
            print(f"check_wheel: {path}: {problem}", file=sys.stderr)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
