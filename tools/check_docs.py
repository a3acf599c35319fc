#!/usr/bin/env python3
"""Code in the docs is code that runs: usage: check_docs.py SOURCE_ROOT

A ```cpp block in README.md or docs/ that follows the line

    <!-- example: examples/02_timers.cpp reset -->

must equal the region between the two `//! [reset]` marks of that file, with
the common indentation taken away. A ```cpp block without that line is a fault:
what is not taken from an example is not known to compile.

In the tables of tests/coverage.md a text in quotes in the last column is the title
of a test case or of a suite (a ... in it stands for any text), in the test file that
is named before it in that row, or else in one that the text above the table names
(`tests/idle_timeouts/timeout_*_test` names several); or a heading of that page.
"""
import re
import sys
import textwrap
from fnmatch import fnmatch
from pathlib import Path

MARK = re.compile(r"^\s*<!--\s*example:\s*(\S+)\s+(\S+)\s*-->\s*$")


def region(path, name):
    if not path.is_file():
        return None, "there is no such file"
    lines = path.read_text().splitlines()
    marks = [i for i, line in enumerate(lines) if line.strip() == f"//! [{name}]"]
    if len(marks) != 2:
        return None, f"has {len(marks)} marks `//! [{name}]`, not 2"
    return textwrap.dedent("\n".join(lines[marks[0] + 1 : marks[1]])).strip("\n"), None


def block_after(lines, index):
    """The text of the ```cpp block that starts right after line `index`."""
    start = index + 1
    while start < len(lines) and not lines[start].strip():
        start += 1
    if start == len(lines) or lines[start].strip() != "```cpp":
        return None
    for end in range(start + 1, len(lines)):
        if lines[end].strip() == "```":
            return textwrap.dedent("\n".join(lines[start + 1 : end])).strip("\n")
    return None


def unmarked_blocks(lines):
    """The lines that open a ```cpp block which no mark introduces."""
    before = ""
    for index, line in enumerate(lines):
        if line.strip() == "```cpp" and not MARK.match(before):
            yield index
        if line.strip():
            before = line


def check_page(root, page):
    lines = page.read_text().splitlines()
    for index in unmarked_blocks(lines):
        yield f"{page.relative_to(root)}:{index + 1}: a ```cpp block that no example stands for"
    for index, line in enumerate(lines):
        if not (match := MARK.match(line)):
            continue
        place = f"{page.relative_to(root)}:{index + 1}"
        wanted, trouble = region(root / match[1], match[2])
        if trouble:
            yield f"{place}: {match[1]} {trouble}"
            continue
        shown = block_after(lines, index)
        if shown is None:
            yield f"{place}: no ```cpp block follows"
        elif shown != wanted:
            yield f"{place}: differs from {match[1]} [{match[2]}], which reads\n{wanted}"


def titles_of(path):
    """The titles of the test cases and suites of a file."""
    case = re.compile(r'TEST_(?:CASE(?:_TEMPLATE(?:_DEFINE)?)?|SUITE)\(\s*((?:"(?:[^"\\]|\\.)*"\s*)+)')
    return ["".join(re.findall(r'"((?:[^"\\]|\\.)*)"', literals))
            for literals in case.findall(path.read_text())]


def check_coverage(root):
    page = root / "tests/coverage.md"
    files = {}
    for p in sorted((root / "tests").rglob("*.[ch]pp")):
        files.setdefault(p.relative_to(root / "tests").with_suffix("").as_posix(), []).extend(
            titles_of(p))

    def called(name):
        name = name.removeprefix("tests/")
        return [f for f in files if fnmatch(f, name) or fnmatch(f, "*/" + name)]

    lines = page.read_text().splitlines()
    headings = {line.lstrip("# ").replace("`", "") for line in lines if line.startswith("#")}
    of_section = []
    for index, line in enumerate(lines):
        if line.startswith("#"):
            of_section = []
        if not line.startswith("| "):
            of_section += [f for name in re.findall(r"[\w/*]+_tests?\b(?!\.go)", line) for f in called(name)]
            continue
        named = of_section
        row = line.strip("| ").split(" | ")[-1]
        for name, quoted in re.findall(r'([\w/]+_tests?\b|\bnettest(?=: "))|"([^"]+)"', row):
            place = f"tests/coverage.md:{index + 1}"
            if name:
                named = called(name)
                if not named:
                    yield f"{place}: there is no {name}.cpp"
                continue
            pattern = ".*".join(re.escape(part) for part in quoted.split("..."))
            if any(re.fullmatch(pattern, heading) or heading.startswith(quoted)
                   for heading in headings):
                continue
            if not named:
                yield f'{place}: neither row nor section says in which file "{quoted}" is'
            elif not any(re.fullmatch(pattern, t) for f in named for t in files[f]):
                yield f'{place}: no test case "{quoted}" in {", ".join(named)}'


def main():
    root = Path(sys.argv[1])
    pages = [p for p in sorted(root.glob("*.md")) + sorted((root / "docs").rglob("*.md"))]
    faults = [fault for page in pages for fault in check_page(root, page)]
    faults += check_coverage(root)
    print("\n".join(faults) or f"{len(pages)} pages agree with the examples")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
