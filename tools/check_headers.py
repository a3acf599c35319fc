#!/usr/bin/env python3
"""Checks that public headers compile alone and stay light: usage: check_headers.py SOURCE_ROOT COMPILER...

Counts the lines of each header in include/vigil after preprocessing, compares them with
tests/headers/budget.txt, and compiles them. A header without a budget and a budget
without a header are faults as well.
"""
import subprocess
import sys
from pathlib import Path


def read_budgets(path):
    lines = (line.split("#")[0].split() for line in path.read_text().splitlines())
    return {words[0]: int(words[1]) for words in lines if words}


def preprocessed(root, compiler, name):
    done = subprocess.run(
        [*compiler, "-std=c++20", "-E", "-P", "-x", "c++", "-I", root / "include", "-"],
        input=f"#include <vigil/{name}>\n",
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def first_error(compiler, text):
    done = subprocess.run(
        [*compiler, "-std=c++20", "-fsyntax-only", "-x", "c++-cpp-output", "-"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    errors = [line for line in done.stderr.splitlines() if "error: " in line]
    return None if done.returncode == 0 else (errors or ["the compiler failed without a message"])[0]


def main():
    root, compiler = Path(sys.argv[1]), sys.argv[2:]
    budgets = read_budgets(root / "tests" / "headers" / "budget.txt")
    # io.hpp is all of Asio, which has no budget.
    headers = sorted(p.name for p in (root / "include" / "vigil").glob("*.hpp")
                     if p.name != "io.hpp")
    faults = [f"{name}: in budget.txt, but there is no such header"
              for name in sorted(budgets.keys() - set(headers))]
    for name in headers:
        text = preprocessed(root, compiler, name)
        size = text.count("\n")
        if error := first_error(compiler, text):
            faults.append(f"{name} does not compile alone: {error}")
        if name not in budgets:
            faults.append(f"{name}: no budget; it has {size} lines now")
        elif size > budgets[name]:
            faults.append(f"{name}: {size} lines, over its budget of {budgets[name]}")
        else:
            print(f"{name}: {size} of {budgets[name]}")
    print("\n".join(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
