#!/usr/bin/env python3
"""Checks that memory orders name their partners: usage: check_orders.py SOURCE_ROOT

Each `memory_order_...`, and each use of the short names of base/atomic.hpp, in src/ and
include/ needs the words "Pairs with" or "ordering" in a comment on its line or within
the three lines above it. Fences are refused: ThreadSanitizer does not understand them.
"""
import re
import sys
from pathlib import Path

LINES_ABOVE = 3
COMMENT = re.compile(r"//.*|/\*.*")
ORDER = re.compile(
    r"\bmemory_order(_|::)(relaxed|consume|acquire|release|acq_rel|seq_cst)\b"
    r"|[(,]\s*(detail::)?(order::)?(relaxed|acquire|release|acq_rel)\s*[,)]")
FENCE = re.compile(r"\batomic_(thread|signal)_fence\b")


def explained(lines, index):
    near = lines[max(0, index - LINES_ABOVE) : index + 1]
    comments = " ".join(m[0] for line in near if (m := COMMENT.search(line)))
    return "Pairs with" in comments or "ordering" in comments


# No operation on an atomic orders plain accesses after a store, or before a load.
def orders_plain_memory(line):
    return "of plain memory" in line


def main():
    root = Path(sys.argv[1])
    faults = []
    orders = 0
    for folder in ("src", "include"):
        for path in sorted((root / folder).rglob("*.[ch]pp")):
            lines = path.read_text().splitlines()
            for index, line in enumerate(lines):
                code = COMMENT.sub("", line)
                place = f"{path.relative_to(root)}:{index + 1}"
                if FENCE.search(code) and not orders_plain_memory(line):
                    faults.append(f"{place}: a fence; use seq_cst operations")
                if ORDER.search(code):
                    orders += 1
                    if not explained(lines, index):
                        faults.append(f"{place}: no 'Pairs with' or 'ordering' in the lines above")
    print("\n".join(faults) or f"{orders} orders, each with its partner")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
