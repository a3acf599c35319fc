#!/usr/bin/env python3
"""A trace, read by protoc with Perfetto's message definitions.

usage: trace_test.py PROGRAM PROTO

PROGRAM writes the trace; PROTO is the file with the definitions.
"""
import os
import re
import shutil
import subprocess
import sys

from trace_reader import read_trace

passed = failed = 0


def check(what, holds):
    global passed, failed
    passed, failed = passed + bool(holds), failed + (not holds)
    print(f"{'ok' if holds else 'FAILED'}: {what}")


if shutil.which("protoc") is None:
    print("skipped: protobuf-compiler is not installed")
    sys.exit(77)

program = subprocess.run([sys.argv[1]], capture_output=True, check=True)
trace = program.stdout
decoded = subprocess.run(
    ["protoc", f"-I{os.path.dirname(sys.argv[2])}", "--decode=perfetto.protos.Trace", sys.argv[2]],
    input=trace, capture_output=True)
check("protoc reads the file", decoded.returncode == 0)
text = decoded.stdout.decode()
check("each field is one of the definitions", not re.search(r"^\s*\d+[:{ ]", text, re.M))

packets = text.split("packet {\n")[1:]


def fields(packet, name):
    return re.findall(rf"^\s*{name}: (.*)$", packet, re.M)


tracks = {}  # uuid: (name, parent)
for p in packets:
    if "track_descriptor {" in p:
        name = (fields(p, "thread_name") or fields(p, "process_name") or fields(p, "name") or [""])[0]
        tracks[fields(p, "uuid")[0]] = (name.strip('"'), (fields(p, "parent_uuid") or [None])[0])
names = [name for name, _ in tracks.values()]
for expected in ("worker 0", "worker 1", "timer fiber", "runnable fibers", "pending timers"):
    check(f"there is one track {expected}", names.count(expected) == 1)
check("each track but the process has a parent that came before",
      all(parent is None or parent in tracks for _, parent in tracks.values()) and
      sum(parent is None for _, parent in tracks.values()) == 1)

events = [p for p in packets if "track_event {" in p]
times = [int(fields(p, "timestamp")[0]) for p in events]
check("times are in order", times == sorted(times))
check("each event is on a track that was described", all(fields(p, "track_uuid")[0] in tracks for p in events))


def on(track):
    uuid = next(u for u, (name, _) in tracks.items() if name == track)
    return [p for p in events if fields(p, "track_uuid") == [uuid]]


def kinds(all_events):
    return [fields(p, "type")[0] for p in all_events]


check("five deadlines of waits and a callback fired, in order",
      sum("deadline of a wait" in p for p in on("timer fiber")) >= 5 and
      sum("callback is due" in p for p in on("timer fiber")) == 1)
check("each says how late it was", all("late by ns" in p for p in on("timer fiber") if "INSTANT" in p))
fiber = next(name for name in names if name.startswith("hostile"))
check("the name is UTF-8", b"String field" not in decoded.stderr and "\\357\\277\\275" in fiber)
check("five regions begin and end",
      kinds(on(fiber)) == ["TYPE_SLICE_BEGIN", "TYPE_SLICE_END"] * 5 and
      all('name: "job"' in p for p in on(fiber)[::2]))
for worker in ("worker 0", "worker 1"):
    depth = 0
    for kind in kinds(on(worker)):
        depth += {"TYPE_SLICE_BEGIN": 1, "TYPE_SLICE_END": -1}.get(kind, 0)
        if depth not in (0, 1):
            break
    check(f"the slices of {worker} follow one another", depth in (0, 1))
begun = {f for p in events for f in fields(p, "flow_ids")}
ended = [f for p in events for f in fields(p, "terminating_flow_ids")]
check("an arrow leads from who readied to who ran", len(ended) >= 5 and set(ended) <= begun)
check("no arrow ends twice", len(ended) == len(set(ended)))
check("counters do not go below zero", not any(int(v) < 0 for p in events for v in fields(p, "counter_value")))
check("the call on the side pool is there", sum("blocking call" in p for p in events) == 1)

_, seen = read_trace(trace, sys.argv[2])
workers = ("worker 0", "worker 1")
on_track = {t: [e for e in seen if e.track == t] for t in (*workers, "other threads")}
following = {id(e): after for t in workers for e, after in zip(on_track[t], on_track[t][1:])}
before = {id(after): e for t in workers for e, after in zip(on_track[t], on_track[t][1:])}

ready = {f: e for e in seen for f in e.begins}
check("each arrow begins once, where a fiber became ready",
      len(ready) == sum(len(e.begins) for e in seen) and
      all(e.kind == "INSTANT" and e.name.startswith("ready ") for e in ready.values()))
ran = [(ready[f], e) for e in seen for f in e.ends]
check("each ends where that fiber runs, not earlier",
      all(e.kind == "SLICE_BEGIN" and e.time >= r.time and
          (e.name == r.name[len("ready "):] or
           r.name == "ready callbacks" and e.name.startswith("callback")) for r, e in ran))

asleep = [e for e in seen if e.name == "asleep"]
check("a worker that sleeps does nothing else",
      any(id(e) in following for e in asleep) and
      all(e.kind == "SLICE_BEGIN" and e.track in workers for e in asleep) and
      all(following[id(e)].kind == "SLICE_END" for e in asleep if id(e) in following))

steals = [e for e in seen if e.name == "steal"]
check("as many fibers are stolen as the program has counted",
      sum(int(e.notes["fibers"]) for e in steals) == int(re.search(rb"^(\d+) stolen$", program.stderr, re.M)[1]))
check("a stolen fiber runs next",
      all(e.track in workers and following[id(e)].kind == "SLICE_BEGIN" for e in steals))
stolen = next(e for e in seen if e.kind == "SLICE_BEGIN" and e.name.startswith("stolen"))
start = next(e for e in seen if e.name == f"start {stolen.name}")
check("it was started on the other worker",
      before[id(stolen)].name == "steal" and {start.track, stolen.track} == set(workers))

passed_limit = next(e for e in seen if e.name == "slow_fiber" and "computes" in before[id(e)].name)
frames = passed_limit.notes["frames"]
check("a limit is passed within the run of the fiber that computes",
      before[id(passed_limit)].kind == "SLICE_BEGIN" and
      passed_limit.notes["fiber"] == before[id(passed_limit)].notes["fiber"])
# A build without libdw knows no name; on a busy machine the thread may not answer.
excuse = r"at \? |\(the thread that runs it has not answered\)"
check("it has the frames of that moment, down to the function",
      any(re.match(rf"at .*compute_for_long\(\) |{excuse}", f) for f in frames))

# The thread of the side pool may ready the main fiber, or come before it has parked.
acts = [e for e in on_track["other threads"] if e.name != "ready main"]
number = next((e.name.split()[-1] for e in acts if e.name.startswith("start fiber ")), "?")
check("what other threads did", [e.name for e in acts] == [
    "start timer fiber", "start callbacks", "start main", "arm timer", "reset timer", "stop timer",
    f"start fiber {number}", f"ready fiber {number}", "arm timer"])
check("their timers are due in an hour, and in two",
      [-(-int(e.notes.get("due in ns", 0)) // (3600 * 10**9)) for e in acts[3:5]] == [1, 2])
print(f"{passed} passed, {failed} failed")
sys.exit(1 if failed else 0)
