#!/usr/bin/env python3
"""Judges what the leak gate (tests/support/leak_gate.cpp) has written:

    leak_gate.py LOG

Ends with 1 if a fiber that was called stuck for certain has gone on, or if one is certain in a
file that is not in allowed/stuck_for_ever.txt: there it is a leak of a test or example, or a
mistake of the search.
"""
import re
import sys
from collections import Counter
from pathlib import Path

ALLOWED = Path(__file__).resolve().parent / "allowed" / "stuck_for_ever.txt"
CERTAIN = re.compile(r"certain: fiber \d+ \(.*\) of (.*):\d+ waits for (.*)$")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    lines = [line for line in ALLOWED.read_text().splitlines() if line and line[0] != "#"]
    allowed = {line.split()[0] for line in lines}
    certain, faults, looks, in_vain = Counter(), [], 0, 0
    for line in Path(sys.argv[1]).read_text(errors="replace").splitlines():
        if match := CERTAIN.search(line):
            certain[re.sub(r"^.*?((?:tests|examples|bench)/)", r"\1", match[1])] += 1
        elif line.endswith(": begins"):
            looks += 1
        elif ": no look: " in line:
            in_vain += 1
        else:
            faults.append(line)
    for file, number in sorted(certain.items()):
        known = file in allowed
        print(f"{number:6} certain in {file}" + ("" if known else "  NOT ALLOWED"))
        if not known:
            faults.append(file)
    print(f"{looks} processes looked at, {in_vain} looks in vain, {sum(certain.values())} fibers "
          f"certain, {len(faults)} faults")
    for line in faults:
        print("fault:", line)
    if looks == 0:
        print("fault: nothing was looked at")
    return 1 if faults or looks == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
