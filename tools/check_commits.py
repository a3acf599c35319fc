#!/usr/bin/env python3
"""Checks the titles of commits: usage: check_commits.py SOURCE_ROOT

Each commit of HEAD after FIRST must have a title `area: what changed`, of at most 60
characters, that does not end in a full stop. Merges, and titles that begin with WIP, do
not count. Without a git history, or without that commit in it, there is nothing to look
at: the exit status is 77.
"""
import re
import subprocess
import sys

FIRST = "c2c27546813ccdfddda47875a1940d71862f85f2"
MOST = 60


def git(root, *arguments):
    try:
        done = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None


def main():
    root = sys.argv[1]
    if git(root, "merge-base", "--is-ancestor", FIRST, "HEAD") is None:
        print("skipped: no history to look at")
        return 77
    faults, count = [], 0
    for line in git(root, "log", "--no-merges", "--format=%h %s", f"{FIRST}..HEAD").splitlines():
        commit, _, title = line.partition(" ")
        if title.startswith("WIP"):
            continue
        count += 1
        if len(title) > MOST:
            faults.append(f"{commit}: {len(title)} characters, at most {MOST}: {title}")
        if not re.match(r"[\w/., +*-]+: \S", title) or title.endswith("."):
            faults.append(f"{commit}: not `area: what changed`: {title}")
    print("\n".join(faults) or f"{count} titles")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
