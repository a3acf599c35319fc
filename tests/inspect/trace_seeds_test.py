#!/usr/bin/env python3
"""Traces of runs on virtual time, event by event against what the seed dictates.

usage: trace_seeds_test.py PROGRAM PROTO

PROGRAM SEED writes the trace, and to standard error a line for each event that is due in it.
"""
import re
import shutil
import subprocess
import sys

from trace_reader import read_trace

EPOCH = 946684800 * 10**9  # testing::epoch
FIRST_RUNTIME = 1 << 40  # in the numbers of its arrows
SEEDS = range(1, 21)


class Expected:
    """The trace of the dictated events: lines of text, one for each event of the trace."""

    def __init__(self):
        self.lines = []
        self.ids = {}  # of fibers, by name, in the order of their starts
        self.notes = {}  # of their slices, by name
        self.queued = {}  # the arrow to each runnable fiber
        self.arrows = 0
        self.pending = 0
        self.runs = None

    def say(self, *words):
        self.lines.append(" ".join(map(str, (self.now, *words))))

    def label(self, name):
        return f"{name} (fiber {self.ids[name]})" if re.fullmatch(r"f\d", name) else name

    def count(self, track, number):
        self.say(f"[{track}]", "COUNTER", number)

    def change_pending(self, by):
        self.pending += by
        self.count("pending timers", self.pending)

    def end_stretch(self, how):
        self.say("[worker 0]", "SLICE_END", *how)
        if self.runs == "timer fiber":
            self.say("[timer fiber]", "SLICE_END")
        self.runs = None

    def add(self, line):
        log, time, kind, rest = line.split(" ", 3) if line.count(" ") > 2 else (*line.split(" "), "")
        self.now = int(time)
        track = "[other threads]" if log == "outside" else f"[worker {log}]"
        getattr(self, kind)(track, rest)

    def start(self, track, rest):
        name, by, place = re.fullmatch(r"(.*) by (\S+) at (.*)", rest).groups()
        self.ids[name] = len(self.ids) + 1
        place = place.removesuffix(":0")  # no line
        self.notes[name] = [f"fiber={self.ids[name]}", f"started at={place}"]
        if by != "nobody":
            self.notes[name].append(f"started by fiber={self.ids[by]}")
        self.say(track, "INSTANT", "start", self.label(name))

    def ready(self, track, name):
        self.arrows += 1
        self.queued[name] = self.arrows
        self.say(track, "INSTANT", "ready", self.label(name), f"begins {self.arrows}")
        self.count("runnable fibers", len(self.queued))

    def run(self, track, rest):
        if self.runs is not None:  # a callback, and what is before and after it
            self.end_stretch([])
        name, _, place = rest.partition(" at ")
        self.runs = name
        notes = list(self.notes[name])
        if place:
            notes[1] = f"started at={place.removesuffix(':0')}"
        label = self.label(name)
        if name == "callbacks" and not place.endswith(":0"):
            label = f"callback {place}"
        arrow = self.queued.pop(name, None)
        if arrow is not None:
            self.count("runnable fibers", len(self.queued))
            notes.append(f"ends {arrow}")
        self.say(track, "SLICE_BEGIN", label, *notes)
        if name == "timer fiber":
            self.say("[timer fiber]", "SLICE_BEGIN", "runs")

    def leave(self, _, rest):
        self.end_stretch([f"left={rest.partition(', ')[2]}"])

    def arm(self, track, rest):
        self.say(track, "INSTANT", "arm timer", f"due in ns={int(rest.split()[-1]) - self.now}")
        self.change_pending(1)

    def reset(self, track, rest):
        self.say(track, "INSTANT", "reset timer", f"due in ns={int(rest.split()[-1]) - self.now}")

    def stop(self, track, _):
        self.say(track, "INSTANT", "stop timer")
        self.change_pending(-1)

    def fire(self, track, rest):
        if not rest.startswith("callback"):  # it was due before
            self.due(track, rest)
        self.change_pending(-1)

    def due(self, _, rest):
        what, late = rest.split(", late by ")
        self.say("[timer fiber]", "INSTANT", what, f"late by ns={late}")


def in_words(e):
    # Which of the two depends on the stopped timers that are still in the heap.
    notes = [re.sub("timers: (none pending|the note)", "timers", f"{k}={v}") for k, v in e.notes.items()]
    arrows = [f"begins {int(f) - FIRST_RUNTIME}" for f in e.begins]
    arrows += [f"ends {int(f) - FIRST_RUNTIME}" for f in e.ends]
    words = [e.time - EPOCH, f"[{e.track}]", e.kind, e.name, *notes, *arrows, e.count]
    return " ".join(str(w) for w in words if w not in (None, ""))


def differences(seed):
    """Returns what is wrong with the trace of the seed, in words; empty if nothing is."""
    done = subprocess.run([sys.argv[1], str(seed)], capture_output=True)
    if done.returncode != 0:
        return f"the program did not run as the seed dictates ({done.returncode})"
    names, events = read_trace(done.stdout, sys.argv[2])
    if names[1:] != ["worker 0", "timer fiber", "other threads", "runnable fibers", "pending timers"]:
        return f"tracks: {names}"
    expected = Expected()
    for line in done.stderr.decode().splitlines():
        expected.add(line)
    seen = [in_words(e) for e in events]
    if seen == expected.lines:
        return ""
    at = next((i for i, (a, b) in enumerate(zip(seen, expected.lines)) if a != b),
              min(len(seen), len(expected.lines)))
    return "\n".join(["after", *seen[max(0, at - 5):at], "seen", *seen[at:at + 3], "expected",
                      *expected.lines[at:at + 3]])


if shutil.which("protoc") is None:
    print("skipped: protobuf-compiler is not installed")
    sys.exit(77)

failed = 0
for number in SEEDS:
    wrong = differences(number)
    failed += bool(wrong)
    print(f"seed {number}: {wrong or 'ok'}")
sys.exit(1 if failed else 0)
