#!/usr/bin/env python3
"""Sums up a run of `meson test`: usage: count_tests.py TESTLOG_JSON

Prints what each failed test said of its failure: the end of a long log is what is read
first. `N passed, N failed` (`, N skipped`) is the last line. A doctest executable counts
by its cases, every other test as one. An executable that ended badly without a failed
case (a crash, a sanitizer's report) counts as one more failure. Cases that doctest skips
do not count: a filter leaves them out, or another case runs them in a separate process.
Exit status: 0 if something passed and nothing failed.
"""
import json
import re
import sys

SUMMARY = re.compile(
    r"test cases:\s*\d+\s*\|\s*(\d+) passed\s*\|\s*(\d+) failed")

CASE = re.compile(r"^=+$", re.MULTILINE)
MOST_LINES = 60  # of one failed test


def count(entry):
    result = entry["result"]
    if result == "EXPECTEDFAIL":  # meson: should_fail
        return 1, 0, 0
    summary = SUMMARY.search(entry.get("stdout", ""))
    if summary is None:
        return {"OK": (1, 0, 0), "SKIP": (0, 0, 1)}.get(result, (0, 1, 0))
    passed, failed = map(int, summary.groups())
    if result != "OK" and failed == 0:
        failed = 1
    return passed, failed, 0


def reason(entry):
    """The failed cases of a doctest executable, or else the end of what a test printed."""
    printed = entry.get("stdout", "")
    cases = [case.strip() for case in CASE.split(printed) if "ERROR:" in case]
    if cases:
        return "\n\n".join(cases).splitlines()[:MOST_LINES]
    return (printed + entry.get("stderr", "")).splitlines()[-MOST_LINES:]


def main():
    with open(sys.argv[1]) as log:
        entries = [json.loads(line) for line in log if line.strip()]
    counts = [count(entry) for entry in entries]
    for entry, (_, failed, _) in zip(entries, counts):
        if failed:
            print(f"\n== failed: {entry['name']}", *reason(entry), sep="\n")
    passed, failed, skipped = (sum(column) for column in zip((0, 0, 0), *counts))
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 0 if passed > 0 and failed == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
