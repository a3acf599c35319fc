#!/usr/bin/env python3
"""Checks the format of every source and header: usage: check_format.py SOURCE_ROOT [--write]

Runs one version of clang-format over the C++ files of the tree, and says which differ;
--write changes them. Another version would format some of them differently. Where that
version is not installed the test is skipped (exit status 77); `./dev lint` and
`./dev format` install it.
"""
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TOOL = "clang-format-16"
FOLDERS = ("src", "include", "tests", "examples", "bench")


def differs(name):
    done = subprocess.run([TOOL, name], capture_output=True, text=True)
    return done.stdout != Path(name).read_text()


def main():
    root = Path(sys.argv[1])
    if shutil.which(TOOL) is None:
        print(f"skipped: {TOOL} is not installed: ./dev lint does that")
        return 77
    files = sorted(str(p) for f in FOLDERS for p in (root / f).rglob("*") if p.suffix in (".cpp", ".hpp"))
    mode = ["-i"] if "--write" in sys.argv else ["--dry-run", "--Werror", "--ferror-limit=1"]
    jobs = os.cpu_count() or 1
    with ThreadPoolExecutor(jobs) as pool:
        done = list(pool.map(
            lambda part: subprocess.run([TOOL, *mode, *part], capture_output=True, text=True),
            [files[i :: jobs * 4] for i in range(jobs * 4)]))
    said = "".join(d.stderr for d in done)
    named = {line.split(":")[0] for line in said.splitlines() if "clang-format-violations" in line}
    # For a function's try block it reports changes that change nothing.
    faults = sorted(Path(name).relative_to(root).as_posix() for name in named if differs(name))
    if not named and any(d.returncode for d in done):
        faults = [said]
    print("\n".join(faults) or f"{len(files)} files are formatted")
    if faults:
        print("not formatted: ./dev format")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
