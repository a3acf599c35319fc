#!/usr/bin/env python3
"""Plants a fault: applies a patch of tests/model/faults to a copy of a source.

usage: plant.py SOURCE PATCH OUTPUT...

A patch is text that says what is broken, followed by a unified diff of one file. Its
hunks are found by their lines alone, wherever they have moved to, so a patch fits until
one of the few lines that it names changes.
"""

import pathlib
import re
import sys


def hunks_of(patch):
    """Returns the (line, before, after) of each hunk."""
    hunks = []
    for text in patch.splitlines():
        if head := re.match(r"@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@", text):
            hunks.append((int(head[1]), [], []))
        elif hunks and not text.startswith("\\"):
            _, before, after = hunks[-1]
            if not text.startswith("+"):
                before.append(text[1:])
            if not text.startswith("-"):
                after.append(text[1:])
    return hunks


def plant(lines, patch, name):
    hunks = hunks_of(patch)
    if not hunks:
        sys.exit(f"plant.py: {name} holds no hunk (a line that begins with @@)")
    for wanted, before, after in hunks:
        size = len(before)
        places = [i for i in range(len(lines) - size + 1) if lines[i : i + size] == before]
        if not places:
            sys.exit(
                f"plant.py: {name} no longer fits: the source has no such lines any more:\n"
                + "".join(f"    {line}\n" for line in before)
                + "If the protocol is the same, write the same fault for the new lines; if the\n"
                "fault cannot be made any more, take it out of tests/model/meson.build and of\n"
                "docs/internals/model.md, and say why in the commit."
            )
        at = min(places, key=lambda i: abs(i + 1 - wanted))
        lines[at : at + size] = after
    return lines


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    source, patch, *outputs = map(pathlib.Path, sys.argv[1:])
    lines = plant(source.read_text().splitlines(), patch.read_text(), patch.name)
    for output in outputs:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
