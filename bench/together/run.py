#!/usr/bin/env python3
"""The same work with one, two and four workers, interleaved: `./dev bench together`.

Each sample is a process of its own (work.cpp). A round takes one sample of each number
of workers, and one worker twice (A/A); each round begins with another. The table has the
medians of processor time and of elapsed time for one operation, their spread (least to
most), and the ratio to one worker: the median of the ratios of the rounds.

A line is marked "loaded" if its processes waited for a processor for more than a quarter of
the time that they used one: then it is not to be believed.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys

WORKS = [
    ("stream", "one byte there and back over TCP, deadline_stream"),
    ("stream4k", "the same with a buffer of 4 KiB"),
    ("use_fiber", "one byte there and back over TCP, use_fiber.within"),
    ("callbacks", "a million callbacks within a second"),
    ("sleepers", "100 000 fibers asleep within a second"),
    ("sleepers2", "the same, the second time in one process"),
    ("gate", "10 000 fibers alive together"),
    ("event1", "an event every 1 ms"),
    ("event10", "an event every 10 ms"),
    ("event100", "an event every 100 ms"),
    ("hops", "a value there and back over channels"),
    ("pairs", "64 pairs of fibers over TCP"),
    ("compute", "5 us of computation between sleeps"),
]


def sample(program, work, workers):
    out = subprocess.run([program, work, str(workers)], capture_output=True, text=True,
                         check=True, timeout=600).stdout
    return {name: float(value) for name, value in re.findall(r"(\w+)=(\S+)", out)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("work", nargs="?", choices=["", *(work for work, _ in WORKS)],
                        default="")
    parser.add_argument("--program", required=True)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    columns = [("1", 1), ("1 again", 1), ("2", 2), ("4", 4)]
    print(f"{os.cpu_count()} processors, medians of {arguments.rounds} rounds")
    for work, title in WORKS:
        if arguments.work and work != arguments.work:
            continue
        samples = {name: [] for name, _ in columns}
        for i in range(arguments.rounds):
            shift = i % len(columns)
            for name, workers in columns[shift:] + columns[:shift]:
                samples[name].append(sample(arguments.program, work, workers))
        print(f"\n{title} ({work})")
        for name, _ in columns:
            line = f"  {name:8}"
            for what in ("cpu", "elapsed"):
                values = [s[what] / 1e3 for s in samples[name]]
                ratios = [a[what] / b[what] for a, b in zip(samples[name], samples["1"])]
                line += (f"  {what} {statistics.median(values):9.2f} us"
                         f" ({min(values):.2f} to {max(values):.2f})"
                         f" ratio {statistics.median(ratios):5.2f}")
            line += f"  wakes {statistics.median(s['wakes'] for s in samples[name]):.3f}"
            if statistics.median(s["delay"] / s["cpu"] for s in samples[name]) > 0.25:
                line += "  loaded"
            print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
