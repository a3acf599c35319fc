#!/usr/bin/env python3
"""vigil-symbols names what a dump in a signal handler leaves out: usage: symbols_test.py ROOT PROGRAM

PROGRAM writes such a dump, and with the argument "expected" the functions on the stack
of its fiber, the innermost first.
"""
import subprocess
import sys
from pathlib import Path

root, program = Path(sys.argv[1]), sys.argv[2]
passed = failed = 0


def check(what, holds, shown=""):
    global passed, failed
    passed, failed = passed + holds, failed + (not holds)
    print(f"{'ok' if holds else 'FAILED'}: {what}" + ("" if holds else f"\n{shown}"))


def symbols(*arguments, **how):
    return subprocess.run([root / "tools/vigil-symbols", *arguments], capture_output=True, text=True,
                          **how)


dump = subprocess.run([program], capture_output=True, text=True).stderr
expected = subprocess.run([program, "expected"], capture_output=True, text=True).stdout.splitlines()
named = symbols(input=dump)
own = [line.removeprefix("    at ") for line in named.stdout.splitlines()
       if line.startswith("    at ten_waits::")]
found = [line[:len(want)] for line, want in zip(own, expected)]
check("each function is named, in order", len(expected) == 6 and found == expected and
      len(own) == len(expected), named.stdout)
check("all other lines are as they were",
      [x for x in dump.splitlines() if not x.startswith("    at ")] ==
      [x for x in named.stdout.splitlines() if not x.startswith("    at ")])
gone = "    at ? (/nowhere/program+0x12)"
check("a file that is gone leaves the line as it is", symbols(input=gone).stdout == gone + "\n")
none = symbols("/nowhere/dump")
check("a dump that is not there is an error", none.returncode == 1 and "No such file" in none.stderr)
print(f"{passed} passed, {failed} failed")
sys.exit(1 if failed else 0)
