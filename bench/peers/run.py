#!/usr/bin/env python3
"""vigil beside its peers, in one run: `./dev bench --peers` starts this.

For each workload every peer is started and prepared. Then samples are drawn in
turn, one of each peer in a round, and each round begins with another peer, so
that whatever the machine does meanwhile affects all alike. The first rounds warm
up and are thrown away. The report has the median, the least and the most of the
rest; a ratio is the median of vigil / peer taken round by round. A peer that
is not asked for a sample waits in read(2).

peers.hpp describes the protocol, workloads.py the workloads.
"""
import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import report
from workloads import PEERS, WORKLOADS

SOURCES = Path(__file__).resolve().parent


class Process:
    """A peer that was started for one workload."""

    def __init__(self, peer, workload, numbers, programs, prefix=()):
        places = {"programs": programs, "sources": SOURCES}
        numbers = {**dict(peer.numbers), **numbers}
        self.command = [*prefix, *(part.format(**places) for part in peer.command),
                        workload.program, *(f"{k}={v}" for k, v in numbers.items())]
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        answer = self.process.stdout.readline().strip()
        if answer not in ("ready", "unsupported"):
            raise RuntimeError(f"{' '.join(self.command)}: said {answer!r}, not ready")
        self.supported = answer == "ready"

    def sample(self):
        self.process.stdin.write("sample\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{' '.join(self.command)}: ended by {self.process.wait()}")
        return {name: float(value) for name, value in re.findall(r"(\w+)=(\S+)", line)}

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


# --- sampling


def peers_of(workload):
    return [p for p in PEERS if not p.only or workload.program in p.only]


def rotated(items, by):
    by %= max(len(items), 1)
    return items[by:] + items[:by]


def start_all(workload, numbers, programs):
    started = {p: Process(p, workload, numbers, programs) for p in peers_of(workload)}
    for peer, process in list(started.items()):
        if not process.supported:
            process.close()
            del started[peer]
    return started


def sample_in_turn(workload, numbers, rounds, programs):
    """Peer name -> its samples, one of each round, without the rounds that warm up."""
    processes = start_all(workload, numbers, programs)
    samples = {p.name: [] for p in processes}
    for round_number in range(rounds):
        for peer in rotated(list(processes), round_number):
            samples[peer.name].append(processes[peer].sample())
    for process in processes.values():
        process.close()
    return {name: all_[workload.warm_up:] for name, all_ in samples.items()}


def sample_fresh(workload, numbers, rounds, programs):
    """The same, but each sample comes from a process of its own."""
    samples = {}
    for round_number in range(rounds):
        for peer in rotated(peers_of(workload), round_number):
            process = Process(peer, workload, numbers, programs)
            if process.supported:
                cold = {"cold_" + name: value for name, value in process.sample().items()}
                samples.setdefault(peer.name, []).append({**cold, **process.sample()})
            process.close()
    return samples


# --- counting system calls


def calls_between_marks(trace):
    """The names of the calls that strace saw between the two of getppid."""
    marks, calls = 0, Counter()
    for line in trace.splitlines():
        if "getppid(" in line:
            marks += 1
        elif marks == 1 and (match := re.match(r"\d+ +(\w+)\(", line)):
            calls[match[1]] += 1
    return calls


def count_calls(workload, numbers, programs):
    """Peer name -> a Counter of the system calls of one sample."""
    counted = {}
    for peer in peers_of(workload):
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder, "trace")
            process = Process(peer, workload, numbers, programs,
                              ("strace", "-f", "-o", str(trace)))
            if process.supported:
                process.sample()
            process.close()
            if process.supported:
                counted[peer.name] = calls_between_marks(trace.read_text())
    return counted


# --- putting together


def summary(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values),
            "samples": values}


def paired_ratio(ours, theirs):
    """The median of vigil / peer, taken round by round."""
    pairs = [a / b for a, b in zip(ours, theirs) if b > 0]
    return statistics.median(pairs) if pairs else None


def metric_result(metric, samples):
    values = {name: [s[metric.key] for s in all_ if metric.key in s]
              for name, all_ in samples.items()}
    values = {name: v for name, v in values.items() if v}
    peers = {name: summary(v) for name, v in values.items()}
    for name, result in peers.items():
        if metric.ratio and name != "vigil" and "vigil" in values:
            result["ratio"] = paired_ratio(values["vigil"], values[name])
    return {"key": metric.key, "title": metric.title, "unit": metric.unit, "peers": peers}


def run(workload, is_long, programs):
    numbers = workload.long if is_long else workload.short
    rounds = workload.rounds[is_long]
    sample = sample_fresh if workload.fresh else sample_in_turn
    samples = sample(workload, numbers, rounds, programs)
    commonest = {}
    if workload.traced:
        for name, calls in count_calls(workload, numbers, programs).items():
            for one in samples[name]:
                one["calls"] = float(sum(calls.values()))
            commonest[name] = ", ".join(f"{call} {n}" for call, n in calls.most_common(2)) or "none"
    metrics = [metric_result(m, samples) for m in workload.metrics]
    return {"name": workload.name, "title": workload.title, "numbers": numbers,
            "rounds": rounds - workload.warm_up,
            "metrics": [m for m in metrics if m["peers"]], "calls": commonest}


# --- where it ran


def first_line(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.strip().splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "unknown"


def found(pattern, path):
    try:
        match = re.search(pattern, Path(path).read_text())
    except OSError:
        match = None
    return match[1] if match else "unknown"


def where(programs):
    lock = Path(programs, "tokio", "Cargo.lock")
    return {
        "machine": {
            "processor": found(r"model name\s*: (.*)", "/proc/cpuinfo"),
            "processors": len(os.sched_getaffinity(0)),
            "kernel": platform.release(),
            "load_before": os.getloadavg()[0],
        },
        "versions": {
            "vigil": first_line("git", "-C", str(SOURCES), "describe", "--always", "--dirty"),
            "libuv": first_line("pkg-config", "--modversion", "libuv"),
            "Boost (Asio, Fiber)": found(r'BOOST_LIB_VERSION "(.*)"',
                                         "/usr/include/boost/version.hpp").replace("_", "."),
            "Go": first_line("/usr/bin/go", "version").replace("go version go", ""),
            "Node": first_line("node", "--version").lstrip("v"),
            "Tokio": found(r'name = "tokio"\nversion = "(.*)"', lock),
            "Rust": first_line("/usr/bin/rustc", "--version").replace("rustc ", ""),
            "g++": first_line("g++", "-dumpfullversion"),
        },
    }


# --- the command line


def arguments():
    parser = argparse.ArgumentParser(
        prog="./dev bench --peers",
        description="vigil beside its peers; about 3 minutes, with --long about 12",
        epilog="workloads: " + ", ".join(w.name for w in WORKLOADS))
    parser.add_argument("filter", nargs="?", default="", help="part of a workload's name")
    parser.add_argument("--long", action="store_true", help="the counts of docs/performance.md")
    parser.add_argument("--json", action="store_true", help="print JSON, no tables")
    parser.add_argument("--plots", metavar="DIR", help="write run.json and plots (SVG) there")
    parser.add_argument("--write-docs", metavar="FILE",
                        help="put the tables between the marks of this file")
    parser.add_argument("--from", metavar="FILE", dest="earlier",
                        help="show an earlier run.json; run nothing")
    parser.add_argument("--programs", default=".", help=argparse.SUPPRESS)
    return parser.parse_args()


def measure(options):
    is_long = options.long
    chosen = [w for w in WORKLOADS if options.filter in w.name]
    # A workload that only long runs contain can still be asked for by its name.
    chosen = [w for w in chosen if w.rounds[is_long] or options.filter == w.name]
    if not chosen:
        sys.exit(f"no workload has {options.filter!r} in its name; see --help")
    results = {**where(options.programs), "long": is_long, "workloads": []}
    for workload in chosen:
        print(f"== {workload.name}", file=sys.stderr, flush=True)
        result = run(workload, is_long or not workload.rounds[0], options.programs)
        results["workloads"].append(result)
        if not options.json:
            print(report.text_table(result), flush=True)
    return results


def main():
    options = arguments()
    if options.earlier:
        results = json.loads(Path(options.earlier).read_text())
        for workload in results["workloads"] if not options.json else ():
            print(report.text_table(workload))
    else:
        results = measure(options)
    if options.json:
        print(json.dumps(results, indent=1))
    if options.plots:
        folder = Path(options.plots)
        folder.mkdir(parents=True, exist_ok=True)
        Path(folder, "run.json").write_text(json.dumps(results, indent=1) + "\n")
        import plots  # only here, and last: it needs matplotlib
        plots.write(results, folder)
    if options.write_docs:
        report.write_docs(results, Path(options.write_docs))


if __name__ == "__main__":
    main()
