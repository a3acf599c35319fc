#!/usr/bin/env python3
"""Checks that ctags, and so editors, see the code: usage: check_tags.py SOURCE_ROOT [--show]

Of the classes in src/ and include/, their functions, and the functions defined outside of
classes, Universal Ctags finds at least 95 %. It does not preprocess: what stands in a
namespace that it cannot parse is hidden as a whole. --show prints what it does not see.
"""
import re
import shutil
import subprocess
import sys
from pathlib import Path

from measure_code import behind, sources, types_of, without_comments

SEEN = 0.95
# Formatted code has these at the first column, and nothing else with a body behind brackets.
FUNCTION = re.compile(r"^(?!#|using|namespace|extern|static_assert)[\w\[:<][^\n;={}]*?(\w+)\(", re.M)


def functions_of(text):
    """Yields the names of the functions that are defined outside of classes."""
    for m in FUNCTION.finditer(text):
        after = re.compile(r"[^;{]*").match(text, behind(text, m.end() - 1)).end()
        if text[after : after + 1] == "{" and m[1] != "operator":
            yield m[1]


def expected_in(path):
    text = re.sub(r"^[ \t]*#(?:.*\\\n)*.*", "", without_comments(path.read_text()), flags=re.M)
    for t in types_of(text, path):
        yield t.name.rsplit("::")[-1]
        yield from (f for f in t.functions if re.fullmatch(r"\w+", f))
    yield from functions_of(text)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    if shutil.which("ctags") is None:
        print("skipped: universal-ctags is not installed")
        return 77
    files = list(sources(Path(sys.argv[1])))
    tags = subprocess.run(["ctags", "--languages=C++", "--c++-kinds=+p", "-f", "-", "-L", "-"],
                          input="\n".join(map(str, files)), capture_output=True, text=True)
    if tags.returncode != 0:
        print(f"skipped: this ctags does not list C++: {tags.stderr.strip().splitlines()[0]}")
        return 77
    seen = {tuple(line.split("\t")[:2]) for line in tags.stdout.splitlines()}
    expected = {(name, str(path)) for path in files for name in expected_in(path)}
    hidden = sorted((path, name) for name, path in expected - seen)
    if "--show" in sys.argv:
        print("\n".join(f"{path}: {name}" for path, name in hidden))
    share = 1 - len(hidden) / len(expected)
    print(f"ctags sees {len(expected) - len(hidden)} of {len(expected)} names, {share:.1%}")
    return share < SEEN


if __name__ == "__main__":
    sys.exit(main())
