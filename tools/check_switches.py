#!/usr/bin/env python3
"""Checks that a switch over a reason to wait names each: usage: check_switches.py SOURCE_ROOT

A `default:` beside a `case wait_reason::…` would give a new reason some meaning that
nobody chose; without it the compiler asks (-Wswitch).
"""
import re
import sys
from pathlib import Path

ENUMS = ("wait_reason",)


def body_of(text, at):
    """The text between the braces that open behind `at`."""
    start = at = text.index("{", at)
    depth = 0
    while True:
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[start : at + 1]
        at += 1


def faults_of(name, text):
    bare = re.sub(r"//.*", "", text)
    for m in re.finditer(r"\bswitch \(", bare):
        body = body_of(bare, m.end())
        for enum in ENUMS:
            names = re.search(rf"\b(?:case (?:\w+::)*{enum}::|using enum (?:\w+::)*{enum};)", body)
            if names and re.search(r"\bdefault:", body):
                line = bare.count("\n", 0, m.start()) + 1
                yield f"{name}:{line}: name each {enum} instead of `default:`"


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    root = Path(sys.argv[1])
    files = [p for folder in ("src", "include") for p in sorted((root / folder).rglob("*.?pp"))]
    faults = [f for p in files for f in faults_of(p.relative_to(root).as_posix(), p.read_text())]
    print("\n".join(faults) or f"{len(files)} files: no default beside a named reason")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
