#!/usr/bin/env python3
"""Runs an example as a test:

    run_example.py [--interrupt-after=LINE] [--ended-by=SIGNAL] EXPECTED PROGRAM [ARGUMENT...]

It must exit with 0, or be ended by SIGNAL if that is given, and print the text of the file EXPECTED, if that exists; <n> there
stands for any number, including the blanks before it. With --interrupt-after it gets a
SIGINT, as from Ctrl-C, once it has printed LINE. If it ends with 77 it cannot run here,
and the test counts as skipped.
"""
import difflib
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path

SKIPPED = 77  # meson's number
NUMBER = re.compile(r" *[0-9]+(?: [0-9]{3})*(?:\.[0-9]+)?")


def no_core():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run(command, interrupt_after):
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          text=True, preexec_fn=no_core) as process:
        lines = []
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip("\n"))
            if lines[-1] == interrupt_after:
                process.send_signal(signal.SIGINT)
                interrupt_after = None
    return lines, process.returncode


def agrees(wanted, printed):
    """Whether a printed line is the wanted one, which may hold <n>."""
    pattern = NUMBER.pattern.join(re.escape(part) for part in wanted.split("<n>"))
    return re.fullmatch(pattern, printed) is not None


def main():
    arguments, interrupt_after, wanted_status = sys.argv[1:], None, 0
    if arguments[0].startswith("--interrupt-after="):
        interrupt_after = arguments.pop(0).partition("=")[2]
    if arguments[0].startswith("--ended-by="):
        wanted_status = -signal.Signals[arguments.pop(0).partition("=")[2]]
    expected, command = Path(arguments[0]), arguments[1:]

    printed, status = run(command, interrupt_after)
    if status == SKIPPED:
        return SKIPPED
    if status != wanted_status:
        print(f"{command[0]} ended with {status}, not {wanted_status}")
        return 1
    if not expected.is_file():
        return 0
    # A line that agrees counts as the wanted one, so the difference shows only wrong lines.
    wanted = expected.read_text().splitlines()
    shown = [w if agrees(w, p) else p for w, p in zip(wanted, printed)] + printed[len(wanted):]
    difference = list(difflib.unified_diff(wanted, shown, expected.name, "printed", lineterm=""))
    print("\n".join(difference))
    return 1 if difference else 0


if __name__ == "__main__":
    sys.exit(main())
