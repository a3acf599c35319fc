#!/usr/bin/env python3
"""The code of UPGRADING.md: usage: upgrading_test.py ROOT COMPILER...

after.cpp compiles. before.cpp does not: each of its regions has errors on as many lines as
the line before it says, an error of each line says what that says, and no other line has
one. Both have the same regions, and the page shows all of them. With COMPILER, and with the
other one of g++ and clang++ if that is installed.
"""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT, COMPILER = Path(sys.argv[1]).resolve(), sys.argv[2:]
HERE = Path(__file__).resolve().parent
MARK = re.compile(r"^\s*//! \[(\w+)\]$")
ERRORS = re.compile(r"^\s*// errors: (\d+|-)  (.+)$")
# A line of a compiler's: the file, the line, and what is said about it.
SAID = re.compile(r"(\S+?):(\d+):(?:\d+:)? +(.*)")


def compilers():
    is_clang = any("clang" in word for word in COMPILER)
    yield COMPILER
    for name in ["g++"] if is_clang else ["clang++-14", "clang++"]:
        if shutil.which(name):
            yield [name]
            return
    print(f"skipped: {'g++' if is_clang else 'clang++'} is not installed")


def say(compiler, name):
    more = ["-ftemplate-backtrace-limit=0", "-ferror-limit=0"] if "clang" in compiler[-1] else []
    done = subprocess.run(
        [*compiler, "-std=c++20", "-fsyntax-only", "-w", *more, f"-I{ROOT / 'include'}",
         "-DBOOST_ASIO_SEPARATE_COMPILATION", HERE / name],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        env={**os.environ, "LC_ALL": "C"})
    return done.returncode, done.stdout


def regions(name):
    """{name: (the numbers of its lines, the line before it)}"""
    lines, found, begun = (HERE / name).read_text().splitlines(), {}, {}
    for number, line in enumerate(lines, 1):
        if match := MARK.match(line):
            if (first := begun.pop(match[1], None)) is None:
                begun[match[1]] = number
            else:
                found[match[1]] = (range(first + 1, number), lines[first - 2])
    return found


def errors(said):
    """Pairs: what an error says, and the lines of before.cpp to which it belongs.

    An error inside a header belongs to the line that made the compiler look there, which
    g++ names before the error, and clang++ in a note after it.
    """
    found, required = [], set()
    for line in said.splitlines():
        if (match := SAID.match(line)) is None:
            continue
        here = {int(match[2])} if Path(match[1]).name == "before.cpp" else set()
        if re.match(r"(fatal )?error:", match[3]):
            found.append((match[3].partition("error:")[2], required | here))
            required = set()
        elif match[3].startswith("note:"):
            required = set()
            if found and match[3].endswith("requested here"):
                found[-1][1].update(here)
        elif match[3].endswith("required from here"):
            required |= here
    return found


def check_patterns(before):
    """No pattern matches a path: one that did could be taken for what a message says."""
    paths = [path.relative_to(ROOT) for path in [HERE / "before.cpp", *(ROOT / "include").rglob("*.hpp")]]
    for name, (_, head) in before.items():
        match = ERRORS.match(head)
        path = match and next((path for path in paths if re.search(match[2], str(path))), None)
        if match is None:
            yield f"before.cpp [{name}]: the line before it does not say what is wrong"
        elif path:
            yield f"before.cpp [{name}]: `{match[2]}` matches a path as well, {path}"


def check(compiler, before):
    status, said = say(compiler, "after.cpp")
    if status != 0:
        yield f"after.cpp does not compile:\n{said}"
    status, said = say(compiler, "before.cpp")
    found = errors(said)
    wrong = set().union(*(places for _, places in found))
    for name, (lines, head) in before.items():
        count, pattern = ERRORS.match(head).groups()
        there = sorted(wrong & set(lines))
        wrong -= set(lines)
        right = [places for text, places in found if re.search(pattern, text)]
        if count == "-":
            if not any(not places or places & set(lines) for places in right):
                yield f"before.cpp [{name}]: no error says `{pattern}`"
            continue
        if len(there) != int(count):
            yield f"before.cpp [{name}]: errors on the lines {there}, not on {count}"
        for line in set(there).difference(*right):
            yield f"before.cpp:{line} [{name}]: no error says `{pattern}`"
    if wrong:
        yield f"before.cpp: errors outside of the regions, on the lines {sorted(wrong)}:\n{said}"


def main():
    before, after = regions("before.cpp"), regions("after.cpp")
    page = (ROOT / "UPGRADING.md").read_text()
    faults = [f"one of before.cpp and after.cpp lacks [{name}]" for name in sorted(before.keys() ^ after.keys())]
    faults += [f"UPGRADING.md does not show tests/upgrading/{file} {name}"
               for file, names in (("before.cpp", before), ("after.cpp", after)) for name in names
               if f"<!-- example: tests/upgrading/{file} {name} -->" not in page]
    faults += check_patterns(before)
    for compiler in [] if faults else compilers():
        faults += [f"{compiler[-1]}: {fault}" for fault in check(compiler, before)]
    print("\n".join(faults) or f"{len(before)} pieces of code, before and after")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
