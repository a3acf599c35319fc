#!/usr/bin/env python3
"""Runs an example as a test:

    run_example.py [--interrupt-after=LINE] [--ended-by=SIGNAL] [--stderr=EXPECTED_STDERR]
        [--tries=N] EXPECTED PROGRAM [ARGUMENT...]

It must exit with 0, or be ended by SIGNAL if that is given, and print the text of the file
EXPECTED, if that exists, and to standard error that of EXPECTED_STDERR; printed.py says what
<n> and … stand for in both. With --interrupt-after it gets a SIGINT, as from Ctrl-C, once
it has printed LINE. One of N tries must do. If it ends with 77 it cannot run here, and the
test counts as skipped.
"""
import argparse
import difflib
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
from printed import agrees, disagreement  # noqa: E402

SKIPPED = 77  # meson's number


def no_core():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run(command, interrupt_after):
    """The lines on standard output, those on standard error, and the exit status."""
    with tempfile.TemporaryFile("w+") as errors:
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=errors, text=True, preexec_fn=no_core) as process:
            lines = []
            for line in process.stdout:
                print(line, end="", flush=True)
                lines.append(line.rstrip("\n"))
                if lines[-1] == interrupt_after:
                    process.send_signal(signal.SIGINT)
                    interrupt_after = None
        errors.seek(0)
        said = errors.read()
    sys.stderr.write(said)
    return lines, said.splitlines(), process.returncode


def differences(expected, printed):
    # A line that agrees counts as the wanted one, so the difference shows only wrong lines.
    wanted = expected.read_text().splitlines()
    shown = [w if agrees(w, p) else p for w, p in zip(wanted, printed)] + printed[len(wanted):]
    return list(difflib.unified_diff(wanted, shown, expected.name, "printed", lineterm=""))


def faults_of(options):
    """None if the example cannot run here."""
    command, expected = options.command, options.expected
    printed, errors, status = run(command, options.interrupt_after)
    if status == SKIPPED:
        return None
    if status != (-signal.Signals[options.ended_by] if options.ended_by else 0):
        return [f"{command[0]} ended with {status}"]
    faults = differences(expected, printed) if expected.is_file() else []
    if options.stderr:
        block = disagreement(options.stderr.read_text().splitlines(), errors)
        if block is not None:
            faults += [f"{options.stderr.name}: not at its place on standard error:", *block]
    return faults


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--interrupt-after")
    parser.add_argument("--ended-by")
    parser.add_argument("--stderr", type=Path)
    parser.add_argument("--tries", type=int, default=1)
    parser.add_argument("expected", type=Path)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    for _ in range(options.tries):
        faults = faults_of(options)
        if faults is None:
            return SKIPPED
        if not faults:
            return 0
        print("\n".join(faults))
    return 1


if __name__ == "__main__":
    sys.exit(main())
