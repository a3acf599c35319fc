#!/usr/bin/env python3
"""Runs clang-tidy on the lines that changed: usage: check_tidy.py SOURCE_ROOT BUILD_DIR [BASE]

It looks at the lines of .cpp files in src/ that differ from the commit BASE, or else from
where this branch left origin's, or else from HEAD. A whole file would bring up faults
from before .clang-tidy was run at all. Exit status 77: nothing can be compared here.
"""
import os
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
from repository import NONE, git  # noqa: E402

DIFF, TIDY = "clang-tidy-diff-14.py", "clang-tidy-14"


def base_of(root):
    for branch in ("origin/HEAD", "origin/main", "origin/master"):
        if base := git(root, "merge-base", "HEAD", branch):
            return base.strip()
    return "HEAD"


def main():
    root, build = sys.argv[1:3]
    if git(root, "rev-parse", "HEAD") is None:
        print(f"skipped: {NONE}")
        return 77
    if shutil.which(DIFF) is None:
        print(f"skipped: {DIFF} is not installed")
        return 77
    base = sys.argv[3] if len(sys.argv) > 3 else base_of(root)
    changes = git(root, "diff", "-U0", base, "--", "src/*.cpp")
    if not changes:
        print(f"no source differs from {base}")
        return 0
    done = subprocess.run(
        [DIFF, "-p1", "-path", build, "-clang-tidy-binary", TIDY, "-j", str(os.cpu_count() or 1),
         "-regex", r".*\.cpp$", "-quiet"],
        input=changes, capture_output=True, text=True, cwd=root)
    said = [line for line in done.stdout.splitlines()
            if ": warning:" in line or ": error:" in line]
    print("\n".join(dict.fromkeys(said)) or f"the lines that differ from {base} are tidy")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
