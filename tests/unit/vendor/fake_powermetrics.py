#!/usr/bin/env python3
"""A stand-in for powermetrics: writes property lists as it does, separated by NUL bytes.

Usage: fake_powermetrics.py MODE [COUNT [INTERVAL_MS]]
  apple      macOS 13+ on Apple Silicon       old      macOS 12: DRAM and package as well
  gpu        only the gpu_power sampler       intel    package_joules
  battery    no power at all                  password refuses, as sudo -n does
  dies       two samples, then exit           cut      dies in the middle of the second
  zero       elapsed_ns 0 in every other      negative a cpu_energy below 0 in the second
  crlf       CRLF line ends                   bomb     entities that would expand
  timed      apple, at 0.77 W over the time that really passed: a busy machine wakes it late; a byte of the file
             FAKE_POWERMETRICS_SAMPLES says that a sample was written
Values: cpu 54 mJ, gpu 20 mJ, ane 3 mJ, dram 11 mJ per sample of 100 ms.
"""
import os
import sys
import time

HEAD = ('<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" '
        '"http://www.apple.com/DTDs/PropertyList-1.0.dtd">\n<plist version="1.0">\n<dict>\n')
TAIL = "</dict>\n</plist>\n"


def entries(pairs):
    return "".join(f"<key>{key}</key>\n<integer>{value}</integer>\n" for key, value in pairs)


def document(mode, number, begin, end):
    elapsed = 0 if mode == "zero" and number % 2 else 100_000_000
    cpu = -5 if mode == "negative" and number == 1 else 54
    if mode == "timed":
        elapsed, cpu = end - begin, int(end * 0.77e-6) - int(begin * 0.77e-6) - 23
    body = f"<key>is_delta</key>\n<true/>\n<key>elapsed_ns</key>\n<integer>{elapsed}</integer>\n"
    energies = [("cpu_energy", cpu), ("gpu_energy", 20), ("ane_energy", 3)]
    if mode == "old":
        energies += [("dram_energy", 11), ("package_energy", 95)]
    if mode == "gpu":
        return HEAD + body + "<key>gpu</key>\n<dict>\n" + entries([("gpu_energy", 20)]) + "</dict>\n" + TAIL
    if mode == "battery":
        return HEAD + body + TAIL
    if mode == "intel":
        joules = "<key>package_joules</key>\n<real>1.25</real>\n<key>package_watts</key>\n<real>12.5</real>\n"
        return HEAD + body + "<key>processor</key>\n<dict>\n" + joules + "</dict>\n" + TAIL
    if mode == "bomb":
        dtd = "<!DOCTYPE plist [" + "".join(
            f'<!ENTITY a{i} "' + f"&a{i - 1};" * 10 + '">' for i in range(1, 9)) + "]>"
        return f'<?xml version="1.0"?>{dtd}<plist version="1.0"><dict><key>x</key><string>&a8;</string></dict></plist>'
    return HEAD + body + "<key>processor</key>\n<dict>\n" + entries(energies) + "</dict>\n" + TAIL


def main():
    mode = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    interval = float(sys.argv[3]) / 1000 if len(sys.argv) > 3 else 0.02
    if mode == "password":
        sys.exit("sudo: a password is required")
    if mode == "dies":
        count = 2
    begin = time.monotonic_ns()
    if mode == "timed":
        time.sleep(interval)
    for number in range(count):
        end = time.monotonic_ns()
        text = document(mode, number, begin, end)
        begin = end
        if mode == "crlf":
            text = text.replace("\n", "\r\n")
        data = text.encode()
        if mode == "cut" and number == 1:
            sys.stdout.buffer.write(data[: len(data) // 2])
            sys.stdout.buffer.flush()
            return
        sys.stdout.buffer.write(data + b"\0")
        sys.stdout.buffer.flush()
        if samples := os.environ.get("FAKE_POWERMETRICS_SAMPLES"):
            with open(samples, "ab") as file:
                file.write(b".")
        time.sleep(interval)


main()
