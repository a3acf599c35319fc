#!/usr/bin/env python3
"""Sums up a run of `meson test`: usage: count_tests.py TESTLOG_JSON

Prints what each failed test said of its failure: the end of a long log is what is read
first. `N passed, N failed` (`, N skipped`) is the last line. A doctest executable counts
by its cases, every other test as one. An executable that ended badly without a failed
case (a crash, a sanitizer's report) counts as one more failure. Cases that doctest skips
do not count: a filter leaves them out, or another case runs them in a separate process.

What a machine cannot do is skipped with a line `skipped: REASON`, which this prints before
the counts: of a whole test, which also ends with 77; of a part of one, which counts as one
skipped beside the test's own result; and of a doctest case (by MESSAGE), which then counts
as skipped, not as passed. Exit status: 0 if something passed and nothing failed.
"""
import json
import re
import sys

# The test's own summary is the last thing that it prints; those of its children come before.
SUMMARY = re.compile(r"test cases:\s*\d+\s*\|\s*(\d+) passed\s*\|\s*(\d+) failed[^\n]*\n"
                     r"(?:\[doctest\][^\n]*\n)*\s*\Z")

CASE = re.compile(r"^=+$", re.MULTILINE)
REASON = re.compile(r"^(?:\S+: MESSAGE: )?skipped: (.*)$", re.MULTILINE)
MOST_LINES = 60  # of one failed test


def skips(entry):
    """Why parts of this test, or all of it, did not run."""
    printed = entry.get("stdout", "")
    reasons = REASON.findall(printed)
    if entry["result"] == "SKIP" and not reasons:
        reasons = printed.strip().splitlines()[-1:] or ["no reason given"]
    return reasons


def count(entry):
    result = entry["result"]
    printed = entry.get("stdout", "")
    if result == "EXPECTEDFAIL":  # meson: should_fail
        return 1, 0, 0
    summary = SUMMARY.search(printed)
    if summary is None:
        if result == "SKIP":
            return 0, 0, 1
        passed = result == "OK"
        return int(passed), int(not passed), len(skips(entry))
    passed, failed = map(int, summary.groups())
    skipped = sum(REASON.search(case) is not None and "ERROR:" not in case
                  for case in CASE.split(printed))
    if result != "OK" and failed == 0:
        failed = 1
    return passed - skipped, failed, skipped


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
    for entry in entries:
        for why in dict.fromkeys(skips(entry)):
            print(f"\n== skipped, {entry['name']}: {why}")
    passed, failed, skipped = (sum(column) for column in zip((0, 0, 0), *counts))
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 0 if passed > 0 and failed == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
