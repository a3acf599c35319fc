#!/usr/bin/env python3
"""Counts how often a program waits in the kernel, by strace:

    count_waits.py MOST PROGRAM [ARGUMENT...]

Ends with 1 if it waits more often than MOST times: then it is a busy loop. If strace shows
nothing of a process that does nothing, it ends with 77, and the test counts as skipped.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter

SKIPPED = 77  # meson's number
WAITS = "epoll_wait,epoll_pwait,?epoll_pwait2,poll,ppoll,select,pselect6,clock_nanosleep"


def main():
    most, command = int(sys.argv[1]), sys.argv[2:]
    if shutil.which("strace") is None:
        print("skipped: strace is not installed")
        return SKIPPED
    strace = ["strace", "-f", "-e", "trace=" + WAITS, "-o"]
    asked = subprocess.run([*strace, os.devnull, "true"], capture_output=True, text=True)
    if asked.returncode != 0:
        print(f"skipped: strace cannot trace here: {(asked.stderr.splitlines() or ['?'])[0]}")
        return SKIPPED
    with tempfile.NamedTemporaryFile("r") as calls:
        run = subprocess.run([*strace, calls.name, *command], capture_output=True, text=True)
        names = re.findall(r"^(?:\d+ +)?(\w+)\(", calls.read(), re.M)
    print(run.stdout, dict(Counter(names)), sep="\n")
    if run.returncode != 0:
        print(f"{command[0]} ended with {run.returncode}")
        return 1
    if len(names) > most:
        print(f"it has waited {len(names)} times, more often than {most}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
