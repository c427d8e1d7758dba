#!/usr/bin/env python3
"""A program linked against libperjoule.a with only the flags of its pkg-config file, which must not expose those of
other libraries.

Usage: with_static.py PKGCONFIG ARCHIVE ROOT COMPILER...
"""
import pathlib
import re
import subprocess
import sys
import tempfile

description, archive, root, compiler = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]
fields = dict(re.findall(r"^([\w.]+): *(.*)$", description.read_text(), re.M))
assert fields["Cflags"] == "-I${includedir}", fields["Cflags"]
assert not fields.get("Requires") and not fields.get("Requires.private"), fields
private = fields["Libs.private"].split()
assert not re.search("microhttpd|gnutls|ssl|curl|pcre|wslay|plist|utf8proc", " ".join(private)), private
with tempfile.TemporaryDirectory() as folder:
    program = str(pathlib.Path(folder, "record"))
    subprocess.run([*compiler, "-I", f"{root}/include", f"{root}/examples/record.c", archive, *private, "-o", program],
                   check=True)
    done = subprocess.run([program, "4", "sim", "none"], capture_output=True, text=True)
    assert done.returncode == 0 and " J" in done.stdout, done
print("static:", " ".join(private))
