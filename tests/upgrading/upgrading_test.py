#!/usr/bin/env python3
"""The code of UPGRADING.md: usage: upgrading_test.py ROOT COMPILER...

after.cpp compiles. before.cpp does not: each of its regions has errors on as many lines as
the line before it says, an error says what that says, and no other line has one. Both
have the same regions, and the page shows all of them. With COMPILER, and with the other one
of g++ and clang++ if that is installed.
"""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT, COMPILER = Path(sys.argv[1]), sys.argv[2:]
HERE = Path(__file__).resolve().parent
MARK = re.compile(r"^\s*//! \[(\w+)\]$")
ERRORS = re.compile(r"^\s*// errors: (\d+|-)  (.+)$")
PLACE = re.compile(r"^\S*before\.cpp:(\d+):.*(?:error:|required from here|requested here)", re.M)


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


def check(compiler, before):
    status, said = say(compiler, "after.cpp")
    if status != 0:
        yield f"after.cpp does not compile:\n{said}"
    status, said = say(compiler, "before.cpp")
    wrong = {int(number) for number in PLACE.findall(said)}
    for name, (lines, head) in before.items():
        match = ERRORS.match(head)
        if match is None:
            yield f"before.cpp [{name}]: the line before it does not say what is wrong"
            continue
        there = sorted(wrong & set(lines))
        wrong -= set(lines)
        if match[1] != "-" and len(there) != int(match[1]):
            yield f"before.cpp [{name}]: errors on the lines {there}, not on {match[1]}"
        if not re.search(match[2], said):
            yield f"before.cpp [{name}]: no error says `{match[2]}`"
    if wrong:
        yield f"before.cpp: errors outside of the regions, on the lines {sorted(wrong)}:\n{said}"


def main():
    before, after = regions("before.cpp"), regions("after.cpp")
    page = (ROOT / "UPGRADING.md").read_text()
    faults = [f"one of before.cpp and after.cpp lacks [{name}]" for name in sorted(before.keys() ^ after.keys())]
    faults += [f"UPGRADING.md does not show tests/upgrading/{file} {name}"
               for file, names in (("before.cpp", before), ("after.cpp", after)) for name in names
               if f"<!-- example: tests/upgrading/{file} {name} -->" not in page]
    for compiler in compilers():
        faults += [f"{compiler[-1]}: {fault}" for fault in check(compiler, before)]
    print("\n".join(faults) or f"{len(before)} pieces of code, before and after")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
