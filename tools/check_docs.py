#!/usr/bin/env python3
"""Checks that code in the docs runs, and prints what they say:

    check_docs.py SOURCE_ROOT [--update]

A ```cpp block in README.md or docs/ that follows the line

    <!-- example: examples/02_timers.cpp reset -->

must equal the region between the two `//! [reset]` marks of that file, without the
common indentation. A ```cpp block without that line is a fault: code that is not taken
from an example is not known to compile.

A ```cmake block may have such a line, too; the marks of a CMakeLists.txt are `#! [name]`.

A ``` block that follows the line

    <!-- printed: examples/hang.expected examples/hang.expected_stderr -->

must quote what these files say, with which the example's output is compared. A line `…`
leaves lines out; printed.py says what the files may hold. In a page with such a line any
other ``` block is a fault, unless it begins with a command (`$ `).

A page with the line

    <!-- each of: examples/recipes -->

shows each program of that folder and the folders in it, with all that it prints, under a
heading `### TASK` of its own, to which a line before the first such heading links.

--update writes the blocks of code anew, and on such a page the output as well; the lines
with their marks, and some block after each, must be there.
"""
import re
import sys
import textwrap
from pathlib import Path

sys.dont_write_bytecode = True
from printed import agrees, blocks_of  # noqa: E402

MARK = re.compile(r"^\s*<!--\s*example:\s*(\S+)\s+(\S+)\s*-->\s*$")
PRINTED = re.compile(r"^\s*<!--\s*printed:\s*(\S.*?)\s*-->\s*$")
EACH_OF = re.compile(r"^\s*<!--\s*each of:\s*(\S+)\s*-->\s*$")


def is_cmake(path):
    return Path(path).name == "CMakeLists.txt"


def region(path, name):
    if not path.is_file():
        return None, "there is no such file"
    lines = path.read_text().splitlines()
    mark = f"{'#!' if is_cmake(path) else '//!'} [{name}]"
    marks = [i for i, line in enumerate(lines) if line.strip() == mark]
    if len(marks) != 2:
        return None, f"has {len(marks)} marks `{mark}`, not 2"
    return textwrap.dedent("\n".join(lines[marks[0] + 1 : marks[1]])).strip("\n"), None


def block_after(lines, index, fence="```cpp"):
    """The text of the block that starts right after line `index`."""
    start = index + 1
    while start < len(lines) and not lines[start].strip():
        start += 1
    if start == len(lines) or lines[start].strip() != fence:
        return None
    for end in range(start + 1, len(lines)):
        if lines[end].strip() == "```":
            return textwrap.dedent("\n".join(lines[start + 1 : end])).strip("\n")
    return None


def unmarked_blocks(lines):
    """The lines that open a ```cpp block without a mark before it."""
    before = ""
    for index, line in enumerate(lines):
        if line.strip() == "```cpp" and not MARK.match(before):
            yield index
        if line.strip():
            before = line


def check_printed(root, lines, place_of):
    """Blocks that say what programs print."""
    marks = {index: match[1].split() for index, line in enumerate(lines)
             if (match := PRINTED.match(line))}
    for index, files in marks.items():
        missing = [file for file in files if not (root / file).is_file()]
        if missing:
            yield f"{place_of(index)}: there is no {missing[0]}"
            continue
        block = block_after(lines, index, "```")
        if block is None:
            yield f"{place_of(index)}: no ``` block follows"
        elif (wrong := misquoted(block.splitlines(),
                                 [line for file in files
                                  for line in (root / file).read_text().splitlines()])):
            yield f"{place_of(index)}: {' '.join(files)} does not have these lines there:\n" + \
                "\n".join(wrong)
    if not marks:
        return
    before, inside = -1, False
    for index, line in enumerate(lines):
        if line.strip().startswith("```"):
            if (not inside and line.strip() == "```" and before not in marks
                    and not lines[index + 1].startswith("$ ")):
                yield f"{place_of(index)}: a ``` block that no program is known to print"
            inside = not inside
        if line.strip():
            before = index


def misquoted(quoted, wanted):
    """None, or the first of the quoted blocks that is not there after those before it."""
    at = 0
    for block in blocks_of(quoted):
        place = next((p for p in range(at, len(wanted) - len(block) + 1)
                      if all(map(agrees, wanted[p:p + len(block)], block))), None)
        if place is None:
            return block
        at = place + len(block)
    return None


def check_each_of(root, lines, place_of):
    """A page of programs: each is there, with its whole output, and in the contents."""
    folder = next((match[1] for line in lines if (match := EACH_OF.match(line))), None)
    if folder is None:
        return
    shown = {match[1]: index for index, line in enumerate(lines) if (match := MARK.match(line))}
    heads = [index for index, line in enumerate(lines) if line.startswith("### ")]
    for program in sorted((root / folder).rglob("*.cpp")):
        name = program.relative_to(root).as_posix()
        if name not in shown:
            yield f"{place_of(0)}: does not show {name}"
            continue
        index = shown.pop(name)
        output = name.replace(".cpp", ".expected")
        after = next((i for i in heads if i > index), len(lines))
        at = next((i for i in range(index, after)
                   if (match := PRINTED.match(lines[i])) and match[1] == output), None)
        if at is None:
            yield f"{place_of(index)}: no <!-- printed: {output} --> follows"
        elif (block := block_after(lines, at, "```")) is not None:
            if len(block.splitlines()) != len((root / output).read_text().splitlines()):
                yield f"{place_of(at)}: is not the whole of {output}"
    contents = lines[:heads[0]] if heads else lines
    for index in heads:
        if not any(f"[{lines[index][4:]}](#" in line for line in contents):
            yield f"{place_of(index)}: the contents do not link `{lines[index][4:]}`"


def update(root, page):
    """Puts what the examples say into the blocks of a page."""
    lines = page.read_text().splitlines()
    whole = any(map(EACH_OF.match, lines))
    for index in reversed(range(len(lines))):
        text = None
        if match := MARK.match(lines[index]):
            text, _ = region(root / match[1], match[2])
        elif whole and (match := PRINTED.match(lines[index])):
            text = (root / match[1]).read_text().rstrip("\n")
        fences = [i for i in range(index + 1, len(lines)) if lines[i].strip().startswith("```")][:2]
        if text is not None and len(fences) == 2:
            lines[fences[0] + 1:fences[1]] = text.splitlines()
    page.write_text("\n".join(lines) + "\n")


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
        fence = "```cmake" if is_cmake(match[1]) else "```cpp"
        shown = block_after(lines, index, fence)
        if shown is None:
            yield f"{place}: no {fence} block follows"
        elif shown != wanted:
            yield f"{place}: differs from {match[1]} [{match[2]}], which reads\n{wanted}"
    for check in (check_printed, check_each_of):
        yield from check(root, lines, lambda i: f"{page.relative_to(root)}:{i + 1}")


def main():
    root = Path(sys.argv[1])
    pages = [p for p in sorted(root.glob("*.md")) + sorted((root / "docs").rglob("*.md"))]
    if "--update" in sys.argv[2:]:
        for page in pages:
            update(root, page)
    faults = [fault for page in pages for fault in check_page(root, page)]
    print("\n".join(faults) or f"{len(pages)} pages agree with the examples")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
