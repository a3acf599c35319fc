#!/usr/bin/env python3
"""The ten figures at the head of docs/performance.md: `./dev bench --peers table`.

A row is one metric of a workload of workloads.py, or of the HTTP servers, for vigil and
for the best peer: the one with the least median. Each peer has as many workers as it
takes by default. Samples are drawn in turn, as in run.py, and the ratio is the median of
vigil / peer taken round by round. A missing peer is left out and named, and a peer whose
callbacks run early does not count in that row. A sample in which some timers were due
before all were armed does not count either.

While it runs it counts how much of the processors' time went to other programs, or was
taken by the machine below (steal). If that is too much, the figures are not to be
believed, and the page says so.
"""
import argparse
import datetime
import importlib.util
import json
import os
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import report
import run
from workloads import PEERS, Workload

BEGIN, END = "<!-- ten: begin -->", "<!-- ten: end -->"
COMMAND = "./dev bench --peers table --write-docs docs/performance.md"

# If others have more than this share of the processors' time, a run says that it is not
# to be believed.
TOO_MUCH = 0.05


@dataclass(frozen=True)
class Row:
    what: str
    unit: str
    workload: str  # program of the peers; "http": the servers
    key: str


ROWS = (
    Row("start a fiber and join it", "ns", "spawn", "single"),
    Row("yield to the next of 16 fibers", "ns of CPU", "yield", "yield"),
    Row("a value there and back between two fibers, unbuffered channels", "ns", "channels",
        "rendezvous"),
    Row("the same, each receive with a timeout of 1 s", "ns", "channels", "timed"),
    Row("lock and unlock a mutex that 8 fibers want", "ns", "mutex", "tight"),
    Row("start a timer and stop it, 1 000 others pending", "ns of CPU", "arm", "fresh"),
    Row("a timer's callback, not early, one of 20 000 within 20 ms", "ns of CPU", "burst", "cpu"),
    Row("how late a sleep of 1 ms ends, p99", "µs", "overshoot", "p99"),
    Row("memory of a sleeping fiber, one of 100 000", "bytes", "sleepers", "memory"),
    Row("an HTTP request, 64 keep-alive connections", "µs of CPU", "http", "cpu_us"),
)

# program: its numbers, rounds (including those that warm up), whether each sample comes
# from a process of its own.
FULL = {
    "spawn": ({"ops": 100_000}, 9, False),
    "yield": ({"ops": 30_000, "fibers": 16}, 9, False),
    "channels": ({"ops": 100_000}, 9, False),
    "mutex": ({"ops": 400_000}, 9, False),
    "arm": ({"others": 1_000, "records": 1_000, "ops": 100_000}, 9, False),
    "burst": ({"n": 20_000, "spread_us": 20_000}, 9, False),
    "overshoot": ({"n": 300}, 9, False),
    "sleepers": ({"n": 100_000, "start_us": 60}, 3, True),
}
QUICK = {
    "spawn": ({"ops": 2_000}, 3, False),
    "yield": ({"ops": 1_000, "fibers": 16}, 3, False),
    "channels": ({"ops": 2_000}, 3, False),
    "mutex": ({"ops": 10_000}, 3, False),
    "arm": ({"others": 1_000, "records": 1_000, "ops": 2_000}, 3, False),
    "burst": ({"n": 2_000, "spread_us": 20_000}, 3, False),
    "overshoot": ({"n": 20}, 3, False),
    "sleepers": ({"n": 2_000, "start_us": 60}, 2, True),
}
WARM_UP = 2  # rounds that are thrown away, of samples that share a process


class Without:
    """The peers that could not be started."""

    def __init__(self):
        self.why = {}

    def start(self, peer, workload, numbers, programs):
        """A process that has said that it can do the workload, or none."""
        if peer.title in self.why:
            return None
        try:
            process = run.Process(peer, workload, numbers, programs)
        except (OSError, RuntimeError) as error:
            if peer.name == "vigil":
                raise
            self.why[peer.title] = str(error)
            print(f"   without {peer.title}: {error}", file=sys.stderr, flush=True)
            return None
        if process.supported:
            return process
        process.close()
        return None


def peers_of_table():
    # "vigil's tasks" is no peer.
    return [p for p in PEERS if p.name not in ("bare", "libuv_cached", "vigil_tasks")]


def numbers_for(peer, numbers):
    return {**numbers, "workers": peer.workers}


def in_turn(program, numbers, rounds, programs, without):
    workload = Workload(program, program, program, {}, {}, ())
    processes = {}
    for peer in peers_of_table():
        process = without.start(peer, workload, numbers_for(peer, numbers), programs)
        if process:
            processes[peer.title] = process
    samples = {name: [] for name in processes}
    for number in range(rounds):
        for name in run.rotated(list(processes), number):
            samples[name].append(processes[name].sample())
    for process in processes.values():
        process.close()
    return {name: all_[WARM_UP:] for name, all_ in samples.items()}


def one_each(program, numbers, rounds, programs, without):
    workload = Workload(program, program, program, {}, {}, ())
    samples = {}
    for number in range(rounds):
        for peer in run.rotated(peers_of_table(), number):
            process = without.start(peer, workload, numbers_for(peer, numbers), programs)
            if process:
                samples.setdefault(peer.title, []).append(process.sample())
                process.close()
    return samples


def http_servers(programs, is_quick, without):
    """The samples of the servers of http/run.py. They, and the load, may use every processor."""
    place = importlib.util.spec_from_file_location("http_run", run.SOURCES / "http/run.py")
    http = importlib.util.module_from_spec(place)
    place.loader.exec_module(http)
    bench = http.Bench(programs, False)
    bench.rounds = 2 if is_quick else 7
    bench.seconds = 0.2 if is_quick else 1
    everywhere = ",".join(map(str, http.CPUS))
    servers = []
    for name, command in {"vigil": bench.vigil[:1], "Go": bench.commands["Go"],
                          "Beast": bench.commands["Beast"]}.items():
        if Path(command[0]).exists():
            servers.append(http.Server(name, command, everywhere))
        else:
            without.why.setdefault(name, f"no {command[0]}")
            print(f"   without {name}: no {command[0]}", file=sys.stderr, flush=True)
    samples = bench.in_turn(servers, lambda s: bench.load("closed", s, cpus=everywhere,
                                                          connections=64))
    for server in servers:
        server.close()
    return samples


# --- the others' share of the machine


class Machine:
    """The processors' time from here on: how much was used, and how much of it by this run."""

    def __init__(self):
        self.before = self.look()

    @staticmethod
    def look():
        """Seconds: used by anybody, used by this process and its children, on the clock."""
        tick = os.sysconf("SC_CLK_TCK")
        used = 0
        for line in Path("/proc/stat").read_text().splitlines():
            name, *fields = line.split()
            if name[3:].isdigit() and int(name[3:]) in os.sched_getaffinity(0):
                user, nice, system, _, _, _, _, steal = map(int, fields[:8])
                used += user + nice + system + steal  # interrupts are nobody's
        own = os.times()
        return (used / tick, own.user + own.system + own.children_user + own.children_system,
                time.monotonic())

    def share_of_others(self):
        used, own, clock = (b - a for a, b in zip(self.before, self.look()))
        return max(0.0, (used - own) / (clock * len(os.sched_getaffinity(0))))


# --- the rows


def counts_for(sample):
    """Whether all timers were armed, or all fibers asleep, before the first was due."""
    return sample.get("in_time", 1) == 1 and sample.get("together", 1) == 1


def runs_early(row, samples, counts):
    """Whether more than one in a hundred of its callbacks were early: it then does less
    than was asked."""
    if row.workload != "burst":
        return False
    return statistics.median(s["early"] for s in samples) > counts["burst"][0]["n"] / 100


def ratio(ours, theirs):
    """The median of vigil / peer, over the rounds in which both count."""
    pairs = [a / b for a, b in zip(ours, theirs) if a is not None and b]
    return statistics.median(pairs) if pairs else None


def row_result(row, samples, counts):
    values = {name: [s[row.key] if counts_for(s) else None for s in all_]
              for name, all_ in samples.items() if row.key in all_[0]}
    peers = {}
    for name, all_ in values.items():
        counted = [v for v in all_ if v is not None]
        if counted:
            peers[name] = run.summary(counted)
            peers[name]["of"] = len(all_)
            if name != "vigil":
                peers[name]["ratio"] = ratio(values["vigil"], all_)
    rivals = [name for name in peers
              if name != "vigil" and not runs_early(row, samples[name], counts)]
    best = min(rivals, key=lambda name: peers[name]["median"], default=None)
    return {"what": row.what, "unit": row.unit, "peers": peers, "best": best,
            "too_slow": [name for name in values if name not in peers]}


def measure(programs, is_quick):
    counts = QUICK if is_quick else FULL
    without = Without()
    machine = Machine()
    taken = {}
    for row in ROWS:
        if row.workload in taken:
            continue
        print(f"== {row.workload}", file=sys.stderr, flush=True)
        if row.workload == "http":
            taken["http"] = http_servers(programs, is_quick, without)
        else:
            numbers, rounds, fresh = counts[row.workload]
            sample = one_each if fresh else in_turn
            taken[row.workload] = sample(row.workload, numbers, rounds, programs, without)
    others = machine.share_of_others()
    return {**run.where(programs), "date": str(datetime.date.today()), "quick": is_quick,
            "others": others, "without": without.why,
            "rows": [row_result(row, taken[row.workload], counts) for row in ROWS]}


# --- the page


def cells(row):
    """What, unit, vigil, best peer, ratio; and whether vigil takes less, if the medians and
    the ratio agree."""
    peers = row["peers"]
    shown = {name: report.number(peers[name]["median"], "ns")
             for name in ("vigil", row["best"]) if name in peers}
    best = f"{shown[row['best']]} ({row['best']})" if row["best"] else "-"
    found = peers[row["best"]]["ratio"] if row["best"] else None
    line = [row["what"], row["unit"], shown.get("vigil", "-"), best,
            "-" if found is None else f"{found:.2f}"]
    if found is None:
        return line, None
    is_less = peers["vigil"]["median"] < peers[row["best"]]["median"]
    return line, is_less if is_less == (found < 1) else None


HEAD = ["", "unit", "vigil", "best peer", "vigil / peer"]


def text_table(results):
    lines = [HEAD] + [cells(row)[0] for row in results["rows"]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEAD))]
    return "\n".join("  ".join(cell.ljust(width) if i < 2 else cell.rjust(width)
                               for i, (cell, width) in enumerate(zip(line, widths))).rstrip()
                     for line in lines)


def markdown_table(results):
    lines = [HEAD, ["---", "---"] + ["---:"] * 3]
    for row in results["rows"]:
        line, is_less = cells(row)
        if is_less is not None:
            bold = 2 if is_less else 3
            line[bold] = f"**{line[bold]}**"
        lines.append(line)
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def doubts(results):
    if results["quick"]:
        yield "These are small counts, to see that it runs: not for quoting."
    for row in results["rows"]:
        lost = [name for name, peer in row["peers"].items() if peer["of"] > len(peer["samples"])]
        if lost + row["too_slow"]:
            yield (f"Of \"{row['what']}\" not all samples count: the machine was too slow for "
                   f"{', '.join(lost + row['too_slow'])} to start everything before the first was "
                   "due.")
    if results["others"] > TOO_MUCH:
        yield (f"Other programs had {100 * results['others']:.0f} % of the processors' time while "
               "it ran: too much to believe these figures.")


def where_line(results):
    machine = results["machine"]
    versions = "; ".join(f"{name} {version}" for name, version in results["versions"].items()
                         if version != "unknown")
    line = (f"{results['date']}, {machine['processor']}, {machine['processors']} processors, Linux "
            f"{machine['kernel']}; others had {100 * results['others']:.1f} % of them. {versions}.")
    if results["without"]:
        line += f" Not there: {', '.join(results['without'])}."
    return f"{line} Again: `{COMMAND}`, about 3 minutes."


def page(results):
    warning = "".join(f"**{doubt}**\n\n" for doubt in doubts(results))
    return (f"{warning}{markdown_table(results)}\n\n"
            "Less is better in every row: below 1 vigil takes less, and the better of the two is "
            "bold. Medians; each\nwith as many workers as it takes by default: vigil, Go and Tokio "
            "one for each processor, the others one.\n\n"
            f"<sub>{where_line(results)}</sub>")


def write_docs(results, path):
    text = path.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"{path}: lacks the marks {BEGIN} and {END}")
    path.write_text(f"{before}{BEGIN}\n\n{page(results)}\n\n{END}{after}")


def main():
    parser = argparse.ArgumentParser(
        prog="./dev bench --peers table",
        description="ten figures, vigil and the best peer; about 3 minutes")
    parser.add_argument("--quick", action="store_true", help="small counts: only to see it run")
    parser.add_argument("--json", action="store_true", help="print every sample as JSON")
    parser.add_argument("--write-docs", metavar="FILE", type=Path,
                        help="put the table between the marks of this file")
    parser.add_argument("--programs", default=".", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write_docs and BEGIN not in options.write_docs.read_text():
        sys.exit(f"{options.write_docs}: lacks the marks {BEGIN} and {END}")
    results = measure(options.programs, options.quick)
    if options.json:
        print(json.dumps(results, indent=1))
    else:
        print(text_table(results))
        print()
        for doubt in doubts(results):
            print(doubt)
        print(where_line(results))
    if options.write_docs:
        write_docs(results, options.write_docs)


if __name__ == "__main__":
    main()
