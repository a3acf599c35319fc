#!/usr/bin/env python3
"""Counts instructions with callgrind, which no load can change:

    count_instructions.py WITH WITHOUT

WITH and WITHOUT are the bench folders of two builds, the second with -Drecorder=false.

1. Each place that could record costs at most 3 instructions while nothing is recorded, and
   a build without the recorder has none of them.
2. A server executes no more instructions for a request if it has a live page, and if that
   page is asked.

Ends with 1 if one of these does not hold.
"""
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

FEW, MANY = 2_000, 12_000

# The places that could record in one round, counted low.
PLACES = {
    "yield": 2,  # two fibers run
    "question": 4,  # one fiber is readied and runs, there and back
    "start": 4,  # two fibers are readied, and run
    "timer": 2,  # arm, stop
    "region": 2,  # begin, end
}
MOST_FOR_EACH = 3
LEAST = 1 / 100  # less is a difference of the runs: where memory lies, how often a clock is read


def instructions(command):
    """Of the program's first thread."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        run = subprocess.run(
            ["valgrind", "--tool=callgrind", "--separate-threads=yes",
             f"--callgrind-out-file={out}", *map(str, command)],
            capture_output=True, text=True)
        if run.returncode != 0:
            sys.exit(f"{command[0]} has failed:\n{run.stderr}")
        text = Path(f"{out}-01").read_text()
        return int(re.search(r"^(?:totals|summary): (\d+)", text, re.M)[1])


def for_each_round(program, *arguments, few=FEW, many=MANY):
    counts = [instructions([program, *arguments, n]) for n in (few, many)]
    return (counts[1] - counts[0]) / (many - few)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    recorded, unrecorded = map(Path, sys.argv[1:])
    good = True

    def verdict(holds, text):
        nonlocal good
        good = good and holds
        print(f"{'ok    ' if holds else 'FAILED'}  {text}", flush=True)

    for work, places in PLACES.items():
        off = for_each_round(recorded / "recorder_program", work)
        none = for_each_round(unrecorded / "recorder_program", work)
        each = (off - none) / places
        verdict(each <= MOST_FOR_EACH + LEAST,
                f"{work}: {off:.1f} instructions with the recorder off, {none:.1f} in a build "
                f"without it: {each:.2f} for each of {places} places")
        if work == "region":
            verdict(none <= LEAST, f"region: {none:.2f} in a build without the recorder")

    program = recorded / "observed_program"
    if not program.exists():
        return 0 if good else 1
    # How often the server finds nothing and waits is a matter of chance: in turns.
    series = {"none": [], "served": [], "asked": []}
    for _ in range(8):
        for kind, counts in series.items():
            counts.append(for_each_round(program, kind))
    kinds = {kind: statistics.median(counts) for kind, counts in series.items()}
    most = max(series["none"])
    print(f"        without a page: {min(series['none']):.0f} to {most:.0f}")
    for kind in ("served", "asked"):
        ratio = kinds[kind] / kinds["none"]
        verdict(kinds[kind] <= most,
                f"a request of a server whose live page is {kind}: {kinds[kind]:.0f} instructions, "
                f"{kinds['none']:.0f} without a page ({ratio:.4f})")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
