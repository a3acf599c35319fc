#!/usr/bin/env python3
"""Follows four events through the library, in gdb: usage: walk.py DEBUG_BUILD > docs/internals/walks.md

DEBUG_BUILD is a build folder of meson, made with -Doptimization=0 -Ddebug=true
-Dunity=off, that has src/libvigil.a and src/libvigil-io.a. Takes about two minutes. With
--raw it prints each call, indented under its caller, and leaves nothing out.

Each program of this folder has two marks. Between them gdb stops at the entry of each
function that is compiled from src/ or include/, so the functions, their order and their
files are found, not chosen. What a page leaves out is decided by the rules of the page's
head, RULES below. The only text that is written by hand is WHY: what each part does there.
A part without a sentence is an error; a sentence without a part, too.
"""
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

sys.dont_write_bytecode = True
from why import MISSED, WHY  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent.parent
HERE = Path(__file__).resolve().parent

# So many lines have a function of two statements with its head and its brace.
SHORT = 4

# Name, at most so many parts, heading, what happens.
WALKS = [
    ("deadline", 16, "A deadline",
     "A fiber calls `sleep_for`; its worker has nothing else to do, sleeps until the deadline, and "
     "the timer fiber fires it. Ends when `sleep_for` returns."),
    ("value", 8, "A value through a select",
     "A fiber waits in a select of two channels; another one sends to the first of them, and then "
     "waits for the next question. Ends when `select` returns."),
    ("byte", 20, "A byte",
     "A fiber waits in `read_some` of an `io::deadline_stream` on a socket, under a deadline; its "
     "worker has nothing else to do and sleeps in the watch, until a byte comes in from outside. "
     "Ends when `read_some` returns."),
    ("cancel", 9, "A cancel",
     "A fiber waits in `recv(ctx)` of a channel; another one cancels the context, and then waits "
     "for the first. Ends when the `cancelled` has been caught."),
]

RULES = """\
# Walks

Four events, followed through the library: which functions are called, in which order, and
where they stand. This page is made by `tools/walks/walk.py` from a debug build, on one
worker, with gdb at the entry of every function that is compiled from `src/` or
`include/`. `./dev prove` makes it anew, and fails if it differs from this one.

The programs are in `tools/walks/`. The round that is followed is the third: the first two make
what is needed once, such as stacks and timer records.

A function stands where it is first called, indented by its depth on its stack, with its
file; it is not repeated when it is called again, nor are instances of one template. Left
out are

- functions of `src/core/base/` and of the headers in `include/vigil/detail/` that have no
  counterpart elsewhere: durations, words, locks, lists, the clock;
- functions of at most two statements that call nothing that is listed: accessors.

A *part* is a header together with the source and the `detail/` header of the same name.
Counted is each part that has a function in a source, or one that calls another part. A
header whose functions call no other part is a *leaf*: leaves are listed behind the parts,
and counted apart.
"""


def run(command, **more):
    return subprocess.run(command, check=True, text=True, **more)


def flags_of(build):
    """The flags of a source of vigil-io, which has all that its users need."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if entry["file"].endswith("/io/serve.cpp"):
            words = shlex.split(entry["command"])
            if "-O0" not in words or "-g" not in words:
                sys.exit(f"{build} is not a build with -Doptimization=0 and -Ddebug=true")
            prefixes = ("-I", "-D", "-std", "-O", "-g", "-f", "-m", "-pthread")
            return [w for w in words if w.startswith(prefixes)]
    sys.exit(f"{build} has no vigil-io, or is not a build with -Dunity=off")


def compile_program(build, name, out):
    libraries = [build / "src/libvigil-io.a", build / "src/libvigil.a", "-lboost_context"]
    run(["g++", *flags_of(build), "-no-pie", "-o", out, HERE / f"{name}.cpp", *libraries], cwd=build)


def in_tree(path):
    """The path below ROOT. A cache of compiled files may have the folder of another clone."""
    m = re.search(r"/((?:src|include/vigil)/(?:(?!/(?:src|include)/).)*)$", os.path.normpath(path))
    return m[1] if m and (ROOT / m[1]).is_file() else None


def functions_of(program):
    """{address: (size, demangled name, file, line)} of what is compiled from src/ and include/."""
    found = {}
    for line in run(["nm", "-C", "-S", "--defined-only", program], capture_output=True).stdout.splitlines():
        m = re.match(r"([0-9a-f]+) ([0-9a-f]+) [tTwWuVv] (.*)", line)
        if m and "vigil" in m[3]:
            found[int(m[1], 16)] = (int(m[2], 16), m[3])
    order = list(found)
    places = run(["addr2line", "-e", program], input="\n".join(map(hex, order)), capture_output=True)
    known = {}
    for address, place in zip(order, places.stdout.splitlines()):
        path, _, line = place.partition(" ")[0].rpartition(":")
        path = in_tree(path)
        if path and line.isdigit():
            known[address] = (*found[address], path, int(line))
    return known


def lines_of(program, functions):
    """{address: number of lines from the function's head to its last brace}."""
    text = run(["objdump", "-d", "-l", "--no-show-raw-insn", program], capture_output=True).stdout
    lines, at, path = {}, None, ""
    for line in text.splitlines():
        if m := re.match(r"([0-9a-f]+) <.*>:$", line):
            at = int(m[1], 16)
        elif at in functions and (m := re.match(r"(/\S+|\.\./\S+):(\d+)", line)):
            path = m[1]
            if path.endswith(functions[at][2].split("/")[-1]):
                lines.setdefault(at, set()).add(int(m[2]))
    return {at: max(n) - min(n) + 1 for at, n in lines.items()}


def follow(program, functions):
    with tempfile.TemporaryDirectory() as folder:
        plan, out = Path(folder) / "plan.json", Path(folder) / "calls.json"
        plan.write_text(json.dumps(
            {"functions": [[a, f[0]] for a, f in functions.items()], "out": str(out)}))
        done = subprocess.run(
            ["gdb", "-q", "-nx", "-batch", "-x", HERE / "in_gdb.py", program],
            env={**os.environ, "WALK_PLAN": str(plan)}, text=True, capture_output=True,
            stdin=subprocess.DEVNULL)
        if not out.exists():
            sys.exit(f"gdb has not followed {program}:\n{done.stdout}\n{done.stderr}")
        return json.loads(out.read_text())


def short_name(name):
    """vigil::v0::detail::worker::pick() -> worker::pick."""
    name = name.replace("(anonymous namespace)::", "").replace("operator()", "operator[]")
    name = name.replace("operator->", "operator[]").replace("operator<", "operator[]")
    kept, depth = "", 0
    for c in name:
        if c in "<({":
            if depth == 0 and c == "{":
                kept += "{lambda}"
            depth += 1
        elif c in ">)}":
            depth -= 1
        elif depth == 0:
            kept += c
    kept = re.sub(r"\[abi:\w+\]", "", kept).replace(" const", "").replace("operator[]", "operator()")
    if "operator " in kept:
        kept = kept[kept.rindex("vigil::") :]
    kept = kept.split("vigil::")[-1].split(" ")[-1] if "operator " not in kept else kept
    kept = re.sub(r"^(?:vigil::)?(?:(?:v\d\w*|io|detail|testing|this_fiber)::)*", "", kept)
    m = re.match(r"(.*?)(?:::\{lambda\}.*)$", kept)
    return f"a lambda in {m[1]}" if m else kept


def part_of(path):
    """src/io/context.cpp -> io/context; include/vigil/detail/sync_core.hpp -> sync_core."""
    where = Path(path)
    return ("io/" if "io" in where.parts[:-1] else "") + where.stem


class Walk:
    def __init__(self, functions, lines, calls):
        self.functions = functions
        named = {part_of(f[2]) for f in functions.values() if "/detail/" not in f[2]}
        self.callees = {}
        for stack in calls:
            for callee, caller in zip(stack, stack[1:]):
                self.callees.setdefault(caller, set()).add(callee)

        def is_vocabulary(path):
            return path.startswith("src/core/base/") or (
                "/detail/" in path and path.startswith("include/") and part_of(path) not in named)

        entered = {stack[0] for stack in calls if stack}
        self.listed = {a for a in entered
                       if not is_vocabulary(functions[a][2]) and lines.get(a, 1) > SHORT}
        # A short one that calls something listed is listed, and so on upwards.
        grew = True
        while grew:
            more = {a for a in entered - self.listed if not is_vocabulary(functions[a][2])
                    and self.callees.get(a, set()) & self.listed}
            grew = bool(more)
            self.listed |= more
        self.rows, seen = [], set()
        for stack in calls:
            kept = [a for a in stack if a in self.listed]
            if not stack or stack[0] not in self.listed:
                continue
            path = functions[stack[0]][2]
            name = short_name(functions[stack[0]][1])
            if (name, path) not in seen:
                seen.add((name, path))
                self.rows.append((len(kept) - 1, name, path))

    def parts(self):
        """The names of the parts, in the order of their first call."""
        return list(dict.fromkeys(part_of(path) for _, _, path in self.rows))

    def acts(self, part):
        """Whether it counts: is more than a leaf."""
        for a in self.listed:
            path = self.functions[a][2]
            if part_of(path) == part:
                if path.endswith(".cpp"):
                    return True
                called = self.callees.get(a, set()) & self.listed
                if any(part_of(self.functions[c][2]) != part for c in called):
                    return True
        return False


def link(path):
    return f"[{path}](../../{path})"


def render(name, goal, title, happens, walk):
    base = min((depth for depth, _, _ in walk.rows), default=0)
    print(f"\n## {title}\n\n{fill(happens)}\n")
    print("| | Function | File |\n|---:|---|---|")
    for i, (depth, function, path) in enumerate(walk.rows, 1):
        print(f"| {i} | {'&emsp;' * (depth - base)}`{function}` | {link(path)} |")
    parts = [p for p in walk.parts() if walk.acts(p)]
    leaves = [p for p in walk.parts() if not walk.acts(p)]
    verdict = (f"**{len(parts)} parts**, {len(parts) + len(leaves)} with the leaves. "
               f"The goal is at most {goal}")
    if len(parts) > goal:
        verdict += f": {len(parts) - goal} too many. {MISSED[name]}"
    else:
        verdict += "."
    print(f"\n{fill(verdict)}\n\n| | Part | Why |\n|---:|---|---|")
    for i, part in enumerate(parts, 1):
        print(f"| {i} | `{part}` | {WHY[part]} |")
    for part in leaves:
        print(f"| leaf | `{part}` | {WHY[part]} |")


def fill(text, width=90):
    return textwrap.fill(text, width, break_on_hyphens=False, break_long_words=False)


def main():
    arguments = [a for a in sys.argv[1:] if not a.startswith("--")]
    if len(arguments) != 1:
        sys.exit(__doc__)
    build = Path(arguments[0]).resolve()
    walks = []
    with tempfile.TemporaryDirectory() as folder:
        for name, *_ in WALKS:
            program = Path(folder) / name
            compile_program(build, name, program)
            functions = functions_of(program)
            lines = lines_of(program, functions)
            calls = follow(program, functions)
            walks.append(Walk(functions, lines, calls))
            print(f"{name}: {len(calls)} calls, {len(walks[-1].rows)} functions, "
                  f"{sum(map(walks[-1].acts, walks[-1].parts()))} of {len(walks[-1].parts())} parts act", file=sys.stderr)
            if "--raw" in sys.argv:
                for stack in calls:
                    f = functions[stack[0]]
                    mark = "* " if stack[0] in walks[-1].listed else "  "
                    print(mark + "  " * (len(stack) - 1) + short_name(f[1]), f"{f[2]}:{f[3]}", lines.get(stack[0]))
    if "--raw" in sys.argv:
        return
    parts = {part for walk in walks for part in walk.parts()}
    for part in sorted(parts - WHY.keys()):
        print(f"tools/walks/why.py does not say what the part {part} does", file=sys.stderr)
    for part in sorted(WHY.keys() - parts):
        print(f"tools/walks/why.py: no walk comes to {part}", file=sys.stderr)
    if parts != WHY.keys():
        sys.exit(1)
    print(RULES, end="")
    for about, walk in zip(WALKS, walks):
        render(*about, walk)


if __name__ == "__main__":
    main()
