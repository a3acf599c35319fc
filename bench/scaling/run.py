#!/usr/bin/env python3
"""Which cache line moves between workers how often: `./dev bench scaling`.

Runs each workload of scaling_work with several numbers of workers (count.cpp says what is
counted) and writes a table in Markdown; docs/internals/scaling.md is made from it. All
figures are for one operation.

A line is named by the file, and the atomic members, through which most of its transfers
come; one without atomic members by the function. Lines with the same name are one row:
how many there are, and the touches, writes and transfers of all of them with the most
workers; then the transfers of the one that moves most, for each number of workers. Threads
that wait for a lock are left out of the transfers: they hold up only one another.

The wall of a row is the number of operations in a second at which its hottest line moves
without a pause, if a transfer takes 70 ns. The row "on the timer fiber" has the transfers
of all lines there, since that is one fiber. scaling_time, the same program without the
counter, says what an operation takes on one worker.
"""
import argparse
import re
import subprocess
import sys
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

WORKS = [
    ("hops", "a value there and back over channels; a pair of fibers for each worker"),
    ("sleepers", "a sleep of at most 1 ms; sixteen fibers for each worker"),
    ("timers", "a callback within 1 ms, three of four stopped; a fiber for each worker"),
    ("trees", "a fiber started and joined, in trees of 62; a root for each worker"),
    ("tcp", "a byte there and back over TCP with deadlines; a pair of fibers for each worker"),
]
ROOT = Path(__file__).resolve().parents[2]
TRANSFER = 70e-9  # seconds
ATOMIC = (2, 3, 4)  # the kinds of count.cpp

# A frame in one of these is named by its caller.
TOOLS = re.compile(r"src/core/base/(atomic|spinlock|intrusive_list|thread_annotations|random)\b")
MEMBER = re.compile(r"(\w+)(?:\[[^\]]*\])?(?:\.|->)(?:load|store|exchange|fetch_\w+|"
                    r"compare_exchange\w*|add|get|clear|lock|unlock|try_lock)\(")
GUARD = re.compile(r"_guard \w+\(([^)]*?)\);")
DECLARED = re.compile(r"(?:atomic<[^;&]*>|futex_word|own_counter) (\w+)(?:\[\w+\])?[;{]")
WAITING = ("", "a lock that is taken")


@cache
def lines_of(path):
    return Path(path).read_text().splitlines()


@cache
def homes():
    """member -> the file that declares it, if there is only one"""
    found = defaultdict(set)
    for path in (ROOT / "src").rglob("*.hpp"):
        for member in DECLARED.findall(path.read_text()):
            found[member].add(short(path))
    return {member: files.pop() for member, files in found.items() if len(files) == 1}


def short(path):
    return re.sub(r"^src/(core/)?|^include/vigil/|\.[ch]pp$", "", str(path.relative_to(ROOT)))


def function_name(function):
    for _ in range(3):
        function = re.sub(r"<[^<>]*>|\([^()]*\)", "", function)
    return function.split("::")[-1].split(" ")[-1] + "()"


def name_of(frames, kind):
    """(file, atomic member or function) of an access."""
    for function, place in frames:
        path, _, line = place.partition(":")
        path = Path(path).resolve()
        if "/boost/asio/" in str(path):
            return "asio", function_name(function)
        if not path.is_relative_to(ROOT) or TOOLS.match(str(path.relative_to(ROOT))):
            continue
        text = lines_of(path)[int(re.match(r"\d*", line)[0] or 1) - 1]
        found = kind in ATOMIC and (GUARD.search(text) or MEMBER.search(text))
        if not found:
            return short(path), function_name(function)
        member = found[1]
        for one in (member, member.rstrip("_")):
            if one in homes():
                return homes()[one], one
        return short(path), member
    return WAITING if "wait_for" in frames[-1][0] else ("", function_name(frames[-1][0]))


def names_of(program, kinds):
    """address -> (file, member)"""
    asked = "".join(f"{int(address, 16) - 1:x}\n" for address in kinds)
    out = subprocess.run(["addr2line", "-a", "-i", "-f", "-C", "-e", program], input=asked,
                         capture_output=True, text=True, check=True).stdout
    blocks = (b.splitlines() for b in re.split(r"^0x[0-9a-f]+\n", out, flags=re.M)[1:])
    return {address: name_of(list(zip(rows[0::2], rows[1::2])), kind)
            for (address, kind), rows in zip(kinds.items(), blocks)}


class Line:
    def __init__(self, words, kinds, names):
        self.transfers, _, reads, writes, loads, stores, modifications = map(int, words[1:8])
        self.writes = writes + stores + modifications
        self.touches = reads + loads + self.writes
        atomics, others = Counter(), Counter()
        for address, touches, transfers in (site.split(":") for site in words[8:]):
            if names[address] == WAITING:
                self.transfers -= int(transfers)
                continue
            group = atomics if kinds[address] in ATOMIC else others
            # A touch without a transfer decides only where there is nothing else.
            group[names[address]] += int(transfers) + int(touches) / 1e6
        self.members = atomics or others
        files = Counter()
        for (file, _), n in self.members.items():
            files[file] += n
        self.file = files.most_common(1)[0][0] if files else ""
        locks = [m for (f, m), _ in atomics.most_common() if f == self.file and "lock" in m]
        self.key = (self.file, locks[0] if locks else "words" if atomics else "plain")


class Run:
    def __init__(self, programs, work, workers, yield_after):
        program = programs / "scaling_work"
        out = subprocess.run([program, work, str(workers), str(yield_after)], capture_output=True,
                             text=True, check=True, timeout=900).stdout
        rows = defaultdict(list)
        for kind, *words in map(str.split, out.splitlines()):
            rows[kind].append(words)
        self.n, self.touches, self.transfers, self.fired, self.count = map(int, rows["all"][0])
        kinds = {address: int(kind) for address, kind, *_ in rows["site"]}
        names = names_of(program, kinds)
        self.groups = defaultdict(list)
        for words in rows["line"]:
            line = Line(words, kinds, names)
            self.groups[line.key].append(line)
        self.sites = Counter()
        for address, _, _, transfers in rows["site"]:
            self.sites[names[address]] += int(transfers)

    def sum_of(self, key, what):
        return sum(getattr(line, what) for line in self.groups[key]) / self.n

    def hottest(self, key):
        return max((line.transfers for line in self.groups.get(key, [])), default=0) / self.n


def middle_run(rounds, *arguments):
    runs = sorted((Run(*arguments) for _ in range(rounds)), key=lambda run: run.transfers)
    return runs[rounds // 2]


def title_of(key, runs):
    members = Counter()
    for run in runs:
        for line in run.groups.get(key, []):
            for (file, member), n in line.members.items():
                if file == key[0]:
                    members[member] += n / run.n
    common = [member for member, n in members.most_common(3) if n > 0.1 * members.total()]
    return f"`{key[0]}`: {', '.join(f'`{m}`' for m in common)}"


def wall(transfers):
    return f"{1 / (transfers * TRANSFER) / 1e6:.1f}" if transfers else ""


def table(runs, least):
    last = runs[-1][1]
    heads = ["how many", "touches", "writes", "transfers",
             *(f"hottest, {workers} workers" for workers, _ in runs), "wall, M/s"]
    print(f"| line | {' | '.join(heads)} |")
    print("| --- |" + " ---: |" * len(heads))
    for key in sorted(last.groups, key=last.hottest, reverse=True):
        if last.hottest(key) < least and last.sum_of(key, "transfers") < 10 * least:
            continue
        sums = (f"{last.sum_of(key, what):.2f}" for what in ("touches", "writes", "transfers"))
        moves = (f"{run.hottest(key):.2f}" for _, run in runs)
        print("|", " | ".join([title_of(key, [run for _, run in runs]),
                               str(len(last.groups[key])), *sums, *moves,
                               wall(last.hottest(key))]), "|")
    if last.fired:
        moves = (f"{run.fired / run.n:.2f}" for _, run in runs)
        print("| on the timer fiber | | | |", f"{last.fired / last.n:.2f} |", " | ".join(moves),
              f"| {wall(last.fired / last.n)} |")
    moves = ", ".join(f"{run.transfers / run.n:.1f}" for _, run in runs)
    print(f"\n{last.touches / last.n:.0f} touches of {last.count} lines that move."
          f" Transfers of all, waits included: {moves}.", flush=True)


def processor_time(programs, work):
    """Nanoseconds of an operation on one worker, the least of three runs."""
    runs = [subprocess.run([programs / "scaling_time", work, "1"], capture_output=True, text=True,
                           check=True, timeout=900).stdout for _ in range(3)]
    return min(float(re.search(r"cpu=(\S+)", out)[1]) for out in runs)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("work", nargs="?", choices=["", *(work for work, _ in WORKS)], default="")
    parser.add_argument("--programs", type=Path, required=True, help="the folder of both")
    parser.add_argument("--workers", default="1,2,4,8,16,32,64")
    parser.add_argument("--rounds", type=int, default=3, help="of which the middle one counts")
    parser.add_argument("--least", type=float, default=0.05, help="transfers that make a row")
    parser.add_argument("--yield-after", type=int, default=5, help="count.hpp")
    parser.add_argument("--sites", action="store_true", help="also the accesses that transfer most")
    arguments = parser.parse_args()
    for work, title in WORKS:
        if arguments.work and work != arguments.work:
            continue
        print(f"\n{work}: {title}. Processor time on one worker:"
              f" {processor_time(arguments.programs, work):.0f} ns.\n")
        runs = [(workers, middle_run(arguments.rounds, arguments.programs, work, workers,
                                     arguments.yield_after))
                for workers in sorted(map(int, arguments.workers.split(",")))]
        table(runs, arguments.least)
        if arguments.sites:
            for (file, member), n in runs[-1][1].sites.most_common(40):
                print(f"  {n / runs[-1][1].n:7.3f} {file} {member}")


if __name__ == "__main__":
    sys.exit(main())
