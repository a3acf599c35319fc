#!/usr/bin/env python3
"""perf follows the stack of a fiber to its first frame and stops there: usage:
perf_test.py PROGRAM FIVE_LINES PERF

PROGRAM is computes_program. Exit status: 77 if PERF is "none", or shows no stacks of
FIVE_LINES, a program without vigil.
"""
import re
import subprocess
import sys
import tempfile
from pathlib import Path

program, five_lines = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
perf = sys.argv[3]
passed = failed = 0


def check(what, holds, shown=""):
    global passed, failed
    passed, failed = passed + bool(holds), failed + (not holds)
    print(f"{'ok' if holds else 'FAILED'}: {what}" + ("" if holds else f"\n{shown}"))


def stacks_of(function, *command):
    """The stacks of the samples with this function, each a list of names, the innermost first;
    and what perf complained of."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "perf.data"
        # By a timer of the kernel's: a virtual machine may have no counter of cycles.
        record = subprocess.run(
            [perf, "record", "-e", "cpu-clock:u", "-F", "200", "--call-graph", "dwarf",
             "-o", data, *command], capture_output=True, text=True)
        script = subprocess.run([perf, "script", "-i", data, "-F", "ip,sym"],
                                capture_output=True, text=True)
    # A sample is a line for each frame, the innermost first, and an empty line.
    stacks = [[line.split(None, 1)[1] for line in sample.splitlines() if line.strip()]
              for sample in script.stdout.split("\n\n")]
    return [s for s in stacks if any(function in f for f in s)], record.stderr + script.stderr


if perf == "none":
    print("skipped: perf is not installed")
    sys.exit(77)
seen, complaint = stacks_of("answer", five_lines, "work")
if not any("main" in stack for stack in seen):
    print("skipped: perf shows no stacks of a program here: " +
          ([line for line in complaint.splitlines() if line.strip()] or ["it says nothing"])[0])
    sys.exit(77)
samples, complaint = stacks_of("::computes", program)
check("the function that computes was seen", samples, complaint)


def is_whole(stack):
    """It has the program's calls in order, and ends with the fiber's first frame."""
    names = [re.sub(r"\(.*", "", f.replace("(anonymous namespace)::", "")) for f in stack]
    return names[:3] == ["computes", "inner", "outer"] and names[-1].endswith("::stack_begins")


wrong = [stack for stack in samples if not is_whole(stack)]
check(f"each of its {len(samples)} stacks ends with the fiber's first frame", not wrong,
      "\n\n".join("\n".join(stack) for stack in wrong[:3]))
print(f"{passed} passed, {failed} failed")
sys.exit(1 if failed else 0)
