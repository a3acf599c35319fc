#!/usr/bin/env python3
"""The tree without a git repository, as an archive has it: usage: archive_test.py ROOT COMPILER...

The checks that ask git say that they cannot, and no other check notices the difference.
VIGIL_LONG=1 takes the slow ones along. The tree lies inside a repository that is not
vigil's, since users unpack it into theirs.
"""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
from snapshot import need_repository, run, unpack  # noqa: E402

ROOT, COMPILER = Path(sys.argv[1]), sys.argv[2:]
OF_THE_BUILD = {"no asio"}  # looks into a library
SLOW = {"header budgets", "reference"}


def check_tool(tree, name, status, says):
    done = subprocess.run([sys.executable, tree / "tools" / name, tree], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != status or not re.search(says, done.stdout, re.M):
        sys.exit(f"{name} ends with {done.returncode}, not {status}, and says:\n{done.stdout}")


def check_suite(tree):
    environment = {**os.environ, "CXX": " ".join(COMPILER)}
    run("meson", "setup", tree / "build", tree, "-Dtests=true", env=environment)
    listed = run("meson", "test", "-C", tree / "build", "--no-rebuild", "--list", "--suite", "lint")
    names = set(re.findall(r"^.*? / (.+)$", listed, re.M)) - OF_THE_BUILD
    if not os.environ.get("VIGIL_LONG"):
        names -= SLOW
    if len(names) < 12:
        sys.exit(f"meson lists too few checks:\n{listed}")
    run("meson", "test", "-C", tree / "build", "--no-rebuild", "--suite", "lint",
        "--timeout-multiplier", "20", *sorted(names))
    print(f"{len(names)} checks agree with the archive")


def main():
    need_repository(ROOT)
    with tempfile.TemporaryDirectory(prefix="vigil-archive-") as folder:
        outer = Path(folder, "outer")
        tree = outer / "vigil"
        unpack(ROOT, tree, Path(folder, "scratch"))
        run("git", "init", "--quiet", outer)
        check_tool(tree, "check_commits.py", 77, r"^skipped: git knows no repository here")
        check_tool(tree, "check_lists.py", 0, r"^skipped: the tree of ARCHITECTURE.md: git knows")
        check_suite(tree)


if __name__ == "__main__":
    main()
