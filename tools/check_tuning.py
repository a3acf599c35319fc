#!/usr/bin/env python3
"""Checks where the durations of sched stand: usage: check_tuning.py SOURCE_ROOT

A number by which a worker or the overseer decides when to look or to wake is a constant of
src/core/sched/idle/tuning.hpp, and there are at most ten. What else lasts for a fixed time in
sched is in PROMISED: each is no figure of a machine, but what users are told.
"""
import re
import sys
from pathlib import Path

TUNING = "idle/tuning.hpp"
MOST = 10
# Constant -> why its value is no tuning.
PROMISED = {
    "run/stopping.cpp:grace_at_least": "signals that come together are one (guide/errors.md)",
    "run/stopping.cpp:main_grace": "main's grace after a signal (guide/errors.md)",
    "run/stopping.cpp:main_is_told_after": "the line about it (guide/errors.md)",
    "run/stopping.cpp:at_least": "the root context's end within a stop limit of 0",
    "call/caller.cpp:patience": "the warning of a send without a runtime",
    "overseer/stuck_watch.cpp:shortest_tick": "options::stuck_limit is counted in ticks",
    "overseer/stuck_watch.cpp:longest_tick": "options::stuck_limit is counted in ticks",
    "worker/standstill.hpp:most_time": "the warning that virtual time stands still",
    "worker/standstill.hpp:short_time": "the warning that virtual time stands still",
}
CONSTANT = re.compile(r"\bconstexpr nanos (\w+) = ")
LITERAL = re.compile(r"\d'000\b")
WAKING = ("queue/", "idle/", "worker/", "overseer/")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sched = Path(sys.argv[1]) / "src" / "core" / "sched"
    faults, known = [], set()
    tuning = (sched / TUNING).read_text()
    count = len(re.findall(r"^inline constexpr ", tuning, re.M))
    if count > MOST:
        faults.append(f"src/core/sched/{TUNING}: {count} numbers; at most {MOST}")
    for path in sorted(sched.rglob("*.?pp")):
        name = path.relative_to(sched).as_posix()
        if name == TUNING:
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            code = line.split("//")[0]
            if "numeric_limits" in code:
                continue
            if found := CONSTANT.search(code):
                key = f"{name}:{found[1]}"
                known.add(key)
                if key not in PROMISED:
                    faults.append(f"src/core/sched/{name}:{number}: a duration stands in {TUNING}")
            elif LITERAL.search(code) and name.startswith(WAKING) and "constexpr" not in code:
                faults.append(f"src/core/sched/{name}:{number}: a number for {TUNING}")
    faults += [f"PROMISED: there is no {key}" for key in PROMISED if key not in known]
    print("\n".join(faults) or f"{count} numbers decide when to look and to wake")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
