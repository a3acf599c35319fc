#!/usr/bin/env python3
"""The same work with one, two and four workers, interleaved: `./dev bench together`; or with
one and two beside the peers that can do it: `./dev bench --peers together`.

Each sample is a process of its own. A round takes one sample of each column, and one worker
twice (A/A); each round begins with another column. The table has the medians of processor
time and of elapsed time for one operation, their spread (least to most), and a ratio: of
vigil to one worker, or of vigil to the peer with as many workers; the median of the ratios
of the rounds.

A line is marked "loaded" if its processes waited for a processor for more than a quarter of
the time that they used one: then it is not to be believed.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

WORKS = [
    ("stream", "one byte there and back over TCP, deadline_stream"),
    ("stream4k", "the same with a buffer of 4 KiB"),
    ("use_fiber", "one byte there and back over TCP, use_fiber.within"),
    ("callbacks", "a million callbacks within a second"),
    ("sleepers", "100 000 fibers asleep within a second"),
    ("sleepers2", "the same, after as many were alive in that process"),
    ("million2", "a million fibers asleep within a second, likewise"),
    ("gate", "10 000 fibers alive together"),
    ("gate2", "the same, the second time in one process"),
    ("event1", "an event every 1 ms"),
    ("event10", "an event every 10 ms"),
    ("event100", "an event every 100 ms"),
    ("hops", "a value there and back over channels"),
    ("pairs", "64 pairs of fibers over TCP"),
    ("compute", "5 us of computation between sleeps"),
    ("share_go", "16 computations of 1 ms that go starts"),
    ("share_timers", "the same, due at one instant"),
    ("share_close", "the same, readied by one close"),
]

# Asio's coroutines have no deadline, Go's goroutines have one.
PEERS = {
    "Asio": ("together_asio", {"stream", "stream4k", "callbacks"}),
    "Go": ("together_go", {"stream", "stream4k", "sleepers2", "million2", "gate", "gate2", "hops"}),
    "Boost.Fiber": ("together_boost_fiber", {"hops"}),
}


def sample(program, work, workers):
    out = subprocess.run([program, work, str(workers)], capture_output=True, text=True,
                         check=True, timeout=600).stdout
    return {name: float(value) for name, value in re.findall(r"(\w+)=(\S+)", out)}


def columns_of(work, program, peers):
    """name -> (program, workers, the column that its ratio is about)"""
    columns = {"1": (program, 1, "1"), "1 again": (program, 1, "1"), "2": (program, 2, "1")}
    if not peers:
        columns["4"] = (program, 4, "1")
        return columns
    for peer, (name, works) in PEERS.items():
        if work in works:
            for workers in (1, 2):
                columns[f"{peer} {workers}"] = (Path(peers, name), workers, str(workers))
    return columns


def ratio(column, about, samples, what):
    """Of vigil to one worker; for a peer, of vigil to the peer."""
    pairs = zip(samples[column], samples[about])
    if column[0].isdigit():
        return statistics.median(a[what] / b[what] for a, b in pairs)
    return statistics.median(b[what] / a[what] for a, b in pairs)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("work", nargs="?", choices=["", *(work for work, _ in WORKS)],
                        default="")
    parser.add_argument("--program", required=True)
    parser.add_argument("--peers", help="the folder of their programs")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} processors, medians of {arguments.rounds} rounds")
    for work, title in WORKS:
        if arguments.work and work != arguments.work:
            continue
        columns = columns_of(work, arguments.program, arguments.peers)
        names = list(columns)
        if arguments.peers and names[-1] == "2":
            continue
        samples = {name: [] for name in names}
        for i in range(arguments.rounds):
            shift = i % len(names)
            for name in names[shift:] + names[:shift]:
                program, workers, _ = columns[name]
                samples[name].append(sample(program, work, workers))
        print(f"\n{title} ({work})")
        for name, (_, _, about) in columns.items():
            line = f"  {name:13}"
            for what in ("cpu", "elapsed"):
                values = [s[what] / 1e3 for s in samples[name]]
                line += (f"  {what} {statistics.median(values):9.2f} us"
                         f" ({min(values):.2f} to {max(values):.2f})"
                         f" ratio {ratio(name, about, samples, what):5.2f}")
            for what in ("busy", "second"):
                if what in samples[name][0]:
                    line += f"  {what} {statistics.median(s[what] for s in samples[name]) / 1e3:.2f} us"
            line += f"  wakes {statistics.median(s['wakes'] for s in samples[name]):.3f}"
            if statistics.median(s["delay"] / s["cpu"] for s in samples[name]) > 0.25:
                line += "  loaded"
            print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
