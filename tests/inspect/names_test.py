#!/usr/bin/env python3
"""The names, lines and offsets of a fiber's frames, by each way to get them: usage:
names_test.py ROOT PROGRAM MODULE OTHER LIBDW [SPLIT]

PROGRAM is names_program, MODULE the one that it loads, OTHER the same code with another
name. LIBDW: 1 if vigil-inspect was built with libdw, else 0. SPLIT, if given: PROGRAM's
debug information is in a .dwo, which addr2line does not read.
"""
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

root, program, module, other = (Path(x).resolve() for x in sys.argv[1:5])
has_libdw = sys.argv[5] == "1"
is_split = len(sys.argv) > 6
passed = failed = 0


def check(what, holds, shown=""):
    global passed, failed
    passed, failed = passed + bool(holds), failed + (not holds)
    print(f"{'ok' if holds else 'FAILED'}: {what}" + ("" if holds else f"\n{shown}"))


def said(*arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    return done.stdout + done.stderr


def own(text):
    """The frames in the program's source file, without its folder: it is given as to the
    compiler, or absolute."""
    lines = re.findall(r"^    at (.*names::.*|(?:around|outermost) .*)$", text, re.M)
    return [re.sub(r" \S*/(names_program\.cpp:)", r" \1", line) for line in lines]


# --- static functions, and what was inlined into one of them

expected = [line.rpartition(" ")[::2] for line in said("expected").splitlines()]
_, lambda_line = expected.pop()
check("four functions are expected, and a lambda", len(expected) == 4, expected)
raw = said("signal")
named = subprocess.run([root / "tools/vigil-symbols"], input=raw, capture_output=True,
                       text=True).stdout


def place_of(function):
    """The place in brackets, as vigil-symbols leaves it."""
    found = re.search(rf"^    at (?:names::)?{function}\b.* (\({re.escape(str(program))}\+0x\w+\))$",
                      named, re.M)
    return found[1] if found else f"no place of {function}"


around, outermost = place_of("around"), place_of("outermost")
ends = ["[inlined]", "[inlined]", around, outermost]
lines = [f"{function} names_program.cpp:{line} {end}"
         for (function, line), end in zip(expected, ends)]
# g++ gives a static function no linkage name, so addr2line may know its plain name alone.
short = [re.sub(r"^names::(\w+)\(void\*\)", r"\1", line) for line in lines]
found = own(named)
if not is_split:
    check("vigil-symbols names each, with its line, after SIGQUIT",
          len(found) == len(lines) and
          all(map(lambda f, *either: f in either, found, lines, short)), named)
    check("and the line of a lambda", f"names_program.cpp:{lambda_line} " in named, named)
check("the frames had no names before",
      f"    at ? {around}\n    at ? {outermost}\n" in raw, raw)

if has_libdw:
    text = said("text")
    check("a dump of the living program has the same lines", own(text) == lines, text)
    check("and that of the lambda", f"names_program.cpp:{lambda_line} " in text, text)
    dumped = said("json")
    frames = [f for stack in json.loads(dumped)["stacks"] for f in stack["frames"]
              if any("names::" in function["name"] for function in f["functions"])]
    mine = [[f for f in frame["functions"] if "names::" in f["name"]] for frame in frames]
    wanted = [(function, int(line)) for function, line in expected]
    check("in JSON they are functions of two frames, with their lines, the innermost first",
          [[(f["name"], f.get("line")) for f in frame] for frame in mine] ==
          [wanted[:3], wanted[3:]], dumped)
    check("and their file",
          all(f.get("file", "").endswith("/names_program.cpp") for frame in mine for f in frame),
          mine)
    check("the function around the inlined ones is the last",
          [frame["functions"][-1]["name"] for frame in frames] ==
          [function for function, _ in expected[2:]], dumped)
    check("each frame's place is the same",
          [f"({frame['module']}+{frame['offset']:#x})" for frame in frames] ==
          [around, outermost], dumped)

# --- a file that is gone

table = subprocess.run(["readelf", "--dyn-syms", "-W", module], capture_output=True, text=True)
begin, size = re.search(r": (\w+) +(\d+) FUNC .* call_back$", table.stdout, re.M).groups()
begin, size = int(begin, 16), int(size)
with tempfile.TemporaryDirectory() as folder:
    for what, replacement in ("deleted", None), ("replaced", other):
        loaded, replaces = (Path(folder) / name for name in ("module.so", "other.so"))
        shutil.copy(module, loaded)
        if replacement:
            shutil.copy(replacement, replaces)
        text = said("text", loaded, *([replaces] if replacement else []))
        check(f"the file was {what}", loaded.exists() == bool(replacement), text)
        place = re.search(r"^    at call_back \(" + re.escape(str(loaded)) + r"\+0x(\w+)\)$", text,
                          re.M)
        check(f"an exported function of a file that was {what} has its name", place, text)
        check("and its offset", place and begin < int(place[1], 16) < begin + size, text)
        check("the functions of other files have their names as before",
              not has_libdw or [line.partition(" (")[0] for line in own(text)] ==
              [line.partition(" (")[0] for line in lines], text)
print(f"{passed} passed, {failed} failed")
sys.exit(1 if failed else 0)
