#!/usr/bin/env python3
"""How soon the soak finds planted faults: usage: faults.py BUILD [FAULT...]

Runs each soak_FAULT of BUILD/tests/soak on real time, and if that does not find it, the
year. Prints a table. Exit status 1 if one was not found.
"""
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent

# Real time finds a leak of bytes by its slope only, which takes five minutes at least.
REAL = ["--calm", "--patience=20"]
WAYS = [
    ("real time, a minute", ["--seconds=60", *REAL]),
    ("30 days of the year", ["--year=30", "--patience=864000"]),
    ("real time, 5 minutes", ["--seconds=300", *REAL]),
]


def find(program):
    """Returns the way, the seconds that it took, and its first complaint."""
    for way, arguments in WAYS:
        start = time.monotonic()
        done = subprocess.run([program, *arguments], text=True, errors="replace", check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        taken = time.monotonic() - start
        if done.returncode != 0:
            said = [line for line in done.stdout.splitlines()
                    if line.startswith("soak: FAILED: ") and "too few samples" not in line]
            if not said and "too few samples" in done.stdout:
                continue  # the machine was too slow for this way, whatever the fault
            first = said[0].removeprefix("soak: FAILED: ") if said else f"exit {done.returncode}"
            return way, taken, first
    return None


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1]) / "tests" / "soak"
    names = sys.argv[2:] or sorted(p.stem for p in (ROOT / "faults").glob("*.patch"))
    missed = 0
    for name in names:
        found = find(folder / f"soak_{name}")
        if found is None:
            missed += 1
            print(f"{name}: NOT FOUND", flush=True)
        else:
            way, taken, first = found
            print(f"{name}: {way}, after {taken:.0f} s: {first[:160]}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
