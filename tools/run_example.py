#!/usr/bin/env python3
"""Runs an example as a test: usage: run_example.py EXPECTED PROGRAM [ARGUMENT...]

It must exit with 0, and print what the file EXPECTED says, if that exists.
"""
import difflib
import subprocess
import sys
from pathlib import Path


def main():
    expected, command = Path(sys.argv[1]), sys.argv[2:]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    print(done.stdout, end="")
    if done.returncode != 0:
        print(f"{command[0]} ended with {done.returncode}")
        return 1
    if not expected.is_file():
        return 0
    difference = list(difflib.unified_diff(
        expected.read_text().splitlines(), done.stdout.splitlines(),
        expected.name, "printed", lineterm=""))
    print("\n".join(difference))
    return 1 if difference else 0


if __name__ == "__main__":
    sys.exit(main())
