#!/usr/bin/env python3
"""Counts the lines of code of the scheduler and of what lies around it.

usage: count_parts.py SOURCE_ROOT [SOURCE_ROOT_BEFORE]

Lines without blanks and comments, in src/ and include/, whole; the share of comments is
that of the lines that are not blank. With a second tree its figures stand before.
"""
import sys
from pathlib import Path

sys.dont_write_bytecode = True
from measure_code import without_comments  # noqa: E402

LAYERS = {"base", "machine", "sched", "timer", "time", "chan", "sync", "runtime"}
# Each is the beginning of a name below src/core/sched/, whatever folder it is in.
WAKING = ("idle", "idler", "clock_turns", "pinned_", "turn_trials", "short_turns",
          "watch_absences", "ready_work", "stuck_watch", "slow_fiber", "stretch_notes",
          "overseer", "oversight", "tuning")
# By the files' names, since they have changed folders: what stood in sched/report and
# sched/record, and beside it process_*; and what has gone from sched to machine.
AROUND = {"deadlock", "dump_extension", "dump_note", "dump_writer", "dump", "fiber_dump",
          "fiber_snapshot", "fiber_view", "fiber_words", "holders", "slow_fiber", "standstill",
          "stuck_watch", "event", "event_log", "record_here", "record_trigger",
          "shared_event_log", "fiber_identity"}
FROM_SCHED = {"detached_thread", "without_signals", "signal_name", "process_state",
              "process_threads"}
# The public headers of those layers.
PUBLIC = {"channel", "fiber", "fiber_local", "go", "mutex", "once", "options", "receiver",
          "runtime", "select", "semaphore", "shared_mutex", "sleep", "spawn", "stats",
          "ticker", "time", "timer", "wait_group", "condition"}


def parts_of(path):
    """Returns the names of the rows that the file belongs to."""
    where = [part for part in path.parts if part != "core"]  # as it was before
    rows = ["src and include"]
    if where[0] == "include":
        if len(where) == 3 and path.stem in PUBLIC:
            rows.append("the eight layers")
        return rows
    layer = where[1]
    if layer in LAYERS:
        rows.append("the eight layers")
    if layer != "sched" and path.stem not in FROM_SCHED:
        return rows
    is_around = path.stem in AROUND or path.name.startswith("process")
    rows.append("report, record, process" if is_around else "sched without these")
    if path.name.startswith(WAKING):
        rows.append("waking")
    return rows


def count(root):
    code, comments = {}, {}
    for top in ("src", "include"):
        for path in sorted((root / top).rglob("*.[ch]pp")):
            text = path.read_text()
            some = sum(1 for line in text.splitlines() if line.strip())
            n = sum(1 for line in without_comments(text).splitlines() if line.strip())
            for row in parts_of(path.relative_to(root)):
                code[row] = code.get(row, 0) + n
                comments[row] = comments.get(row, 0) + some - n
    return code, comments


def main():
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    trees = [count(Path(root)) for root in reversed(sys.argv[1:])]
    for row in trees[-1][0]:
        figures = [f"{code.get(row, 0):7} ({100 * comments[row] // (code[row] + comments[row])} % comments)"
                   for code, comments in trees]
        print(f"{row:26}" + "  now".join(figures))


if __name__ == "__main__":
    main()
