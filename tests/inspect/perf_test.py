#!/usr/bin/env python3
"""perf follows the stack of a fiber to its first frame and stops there: usage:
perf_test.py PROGRAM PERF

PROGRAM is computes_program. Exit status: 77 if perf may not sample here.
"""
import re
import subprocess
import sys
import tempfile
from pathlib import Path

program, perf = Path(sys.argv[1]).resolve(), sys.argv[2]
passed = failed = 0


def check(what, holds, shown=""):
    global passed, failed
    passed, failed = passed + bool(holds), failed + (not holds)
    print(f"{'ok' if holds else 'FAILED'}: {what}" + ("" if holds else f"\n{shown}"))


with tempfile.TemporaryDirectory() as folder:
    data = Path(folder) / "perf.data"
    # By a timer of the kernel's: a virtual machine may have no counter of cycles.
    done = subprocess.run([perf, "record", "-e", "cpu-clock:u", "-F", "200", "--call-graph", "dwarf",
                           "-o", data, program], capture_output=True, text=True)
    if done.returncode != 0:
        print("skipped: perf may not sample here\n" + done.stderr)
        sys.exit(77)
    script = subprocess.run([perf, "script", "-i", data, "-F", "ip,sym"], capture_output=True,
                            text=True)

# A sample is a line for each frame, the innermost first, and an empty line.
samples = [[line.split(None, 1)[1] for line in sample.splitlines() if line.strip()]
           for sample in script.stdout.split("\n\n") if "::computes" in sample]
check("the function that computes was seen", samples, script.stdout + script.stderr)


def is_whole(stack):
    """It has the program's calls in order, and ends with the fiber's first frame."""
    names = [re.sub(r"\(.*", "", f.replace("(anonymous namespace)::", "")) for f in stack]
    return names[:3] == ["computes", "inner", "outer"] and names[-1].endswith("::stack_begins")


wrong = [stack for stack in samples if not is_whole(stack)]
check(f"each of its {len(samples)} stacks ends with the fiber's first frame", not wrong,
      "\n\n".join("\n".join(stack) for stack in wrong[:3]))
print(f"{passed} passed, {failed} failed")
sys.exit(1 if failed else 0)
