#!/usr/bin/env python3
"""Checks the titles and the sizes of commits: usage: check_commits.py SOURCE_ROOT

Each commit of HEAD after FIRST must have a title `area: what changed`, of at most 60
characters, that does not end in a full stop. Merges, and titles that begin with WIP, do
not count. After FIRST_OF_A_SIZE one that changes more than MOST_LINES lines, moves and
generated files aside, has a line in its message that begins with `One idea: ` and says
what makes it one. Without a git history, or without those commits in it, there is nothing
to look at: the exit status is 77.
"""
import re
import sys

sys.dont_write_bytecode = True
import repository  # noqa: E402
from repository import output as git  # noqa: E402

FIRST = "c2c27546813ccdfddda47875a1940d71862f85f2"
MOST = 60
FIRST_OF_A_SIZE = "b66b78590c4483715f17b262390b8d5ee2754b21"
MOST_LINES = 800
GENERATED = re.compile(r"docs/internals/walks\.md|packaging/abi/[^/]+\.abi")


def commits_since(root, first):
    """Of each: its short name, its message, and git's list of changed files."""
    said = git(root, "log", "--no-merges", "-M", "--numstat", "-z", "--format=%x01%h%x02%B%x02", f"{first}..HEAD")
    return [entry.split("\x02") for entry in said.split("\x01")[1:]]


def changed_lines(files):
    """A file that has moved counts with the lines that differ; one that is no text, not."""
    count, rows = 0, iter(files.split("\0"))
    for row in rows:
        if not row.strip():
            continue
        added, gone, name = row.strip("\n").split("\t")
        if not name:  # moved: the two names follow
            next(rows)
            name = next(rows)
        if not GENERATED.fullmatch(name) and added != "-":
            count += int(added) + int(gone)
    return count


def main():
    root = sys.argv[1]
    if repository.git(root, "rev-parse", "HEAD") is None:
        print(f"skipped: {repository.NONE}")
        return 77
    for first in (FIRST, FIRST_OF_A_SIZE):
        if git(root, "merge-base", "--is-ancestor", first, "HEAD") is None:
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
    sized = commits_since(root, FIRST_OF_A_SIZE)
    for commit, message, files in sized:
        lines = changed_lines(files)
        if lines > MOST_LINES and not re.search(r"^One idea: \S", message, re.M):
            faults.append(f"{commit}: {lines} changed lines, more than {MOST_LINES}: cut it into "
                          "a series, or say in a line `One idea: ...` what makes it one")
    print("\n".join(faults) or f"{count} titles, {len(sized)} sizes")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
