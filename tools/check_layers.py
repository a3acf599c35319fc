#!/usr/bin/env python3
"""Checks which layer includes which: usage: check_layers.py SOURCE_ROOT

1. A layer of src/core/, and a library beside it, includes only itself and what ALLOWED says
of it. Inside `sched` a room includes only itself and the rooms before it in ROOMS; the files
directly in sched/ put the rooms together.
2. Only `machine` includes Boost.Context, only `io`, `tls` and `inspect_page` include Asio,
and only `inspect_page` Beast; of the rest of Boost the other layers include only the
containers, and `inspect` JSON.
3. In include/vigil only io/ includes Boost, and no public header includes a private
one.
4. A file that opens a namespace gets its macro from <vigil/detail/config.hpp>: otherwise the
word would itself be the name of a namespace.
"""
import re
import sys
from pathlib import Path

# From the bottom to the top: layer -> what it may include besides itself.
BASE = set()
MACHINE = {"base"}
SCHED = MACHINE | {"machine"}
MIDDLE = SCHED | {"sched"}  # timer, chan and sync do not know each other
IDLE_TIMEOUTS = MIDDLE | {"timer"}
TIME = MIDDLE | {"timer", "chan", "sync"}
UPPER = TIME | {"time"}
IO = UPPER | {"cancel", "blocking"}
RUNTIME = UPPER | {"cancel", "blocking"}  # puts the layers together
TOP = IO | {"io", "runtime"}
ALLOWED = {
    "base": BASE,
    "machine": MACHINE,
    "sched": SCHED,
    "timer": MIDDLE,
    "chan": MIDDLE,
    "sync": MIDDLE,
    "idle_timeouts": IDLE_TIMEOUTS,
    "time": TIME,
    "cancel": UPPER,
    "clocks": UPPER,
    "task": UPPER | {"cancel"},
    "blocking": UPPER,
    "runtime": RUNTIME,
    "guest": RUNTIME | {"runtime"},
    "io": IO | {"runtime"},
    "tls": IO | {"runtime", "io"},
    "testing": TOP,
    "debug": TOP | {"task"},
    "inspect": RUNTIME | {"runtime", "task"},
    "lock_check": RUNTIME | {"runtime", "inspect"},
    "inspect_page": IO | {"io", "runtime", "inspect"},
}

# The rooms of sched, from the bottom to the top.
ROOMS = ["record", "wait", "fiber", "queue", "idle", "worker", "call", "report", "overseer",
         "run", "process"]

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
ASIO = re.compile(r"^(boost/)?asio(/|\.hpp$)")


def includes(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if match := INCLUDE.match(line):
            yield number, match[1], match[2]


def place_of(name):
    """The layer or library of a path relative to src/, and the parts of the path below it."""
    parts = name.split("/")
    if parts[0] == "core" and len(parts) > 2:
        parts = parts[1:]
    return parts[0], parts[1:]


def storey(below):
    """Of a file of sched, given by the parts of its path below sched/."""
    return ROOMS.index(below[0]) if len(below) > 1 else len(ROOMS)


def code_files(folder):
    return sorted(p for p in folder.rglob("*") if p.suffix in (".hpp", ".cpp"))


def check_private(root, complain):
    src = root / "src"
    for path in code_files(src):
        layer, below = place_of(path.relative_to(src).as_posix())
        if layer == "sched" and len(below) > 1 and below[0] not in ROOMS:
            complain(path, 1, f"the room '{below[0]}' is not in the table")
            continue
        if layer not in ALLOWED:
            complain(path, 1, f"the layer '{layer}' is not in the table")
            continue
        for number, quote, name in includes(path):
            target, rest = place_of(name)
            if quote == '"':
                if not (src / name).is_file():
                    complain(path, number, f'"{name}" is no file of src; it is written from there')
                elif target not in ALLOWED:
                    complain(path, number, f"'{target}' is no layer")
                elif target != layer and target not in ALLOWED[layer]:
                    complain(path, number, f"{layer} may not include {target}")
                elif layer == target == "sched" and storey(below) < storey(rest):
                    complain(path, number, f'"{name}" stands above the room {below[0]}')
            elif ASIO.match(name):
                if layer not in ("io", "tls", "inspect_page"):
                    complain(path, number, "only io, tls and inspect_page include Asio")
            elif name.startswith("boost/beast/"):
                if layer != "inspect_page":
                    complain(path, number, "only inspect_page includes Beast")
            elif name.startswith("boost/context"):
                if layer != "machine":
                    complain(path, number, "only machine includes Boost.Context")
            elif name.startswith("boost/container/") or (
                    name.startswith("boost/json/") and layer == "inspect"):
                continue
            elif target == "boost" and layer not in ("machine", "io"):
                complain(path, number, f"{layer} may include Boost's containers only")


def check_public(root, complain):
    public = root / "include" / "vigil"
    for path in code_files(public):
        in_io = path.relative_to(public).parts[0] == "io"
        for number, quote, name in includes(path):
            if quote == '"':
                complain(path, number, "public headers include <vigil/...> only")
            elif (name.startswith("boost/") or ASIO.match(name)) and not in_io:
                complain(path, number, "only io/ includes Boost in public headers")


NAMESPACE = re.compile(r"\bVIGIL_(ABI|PUBLIC|DETAIL|IO|IO_DETAIL)\b")


def check_abi_defined(root, complain):
    defined = {root / "include" / "vigil" / "detail" / "config.hpp": True}

    def reaches(path):
        if path not in defined:
            defined[path] = False  # for a circle
            found = (
                base / name
                for _, _, name in includes(path)
                for base in (root / "include", root / "src", path.parent)
            )
            defined[path] = any(reaches(p) for p in found if p.is_file())
        return defined[path]

    for path in code_files(root / "src") + code_files(root / "include"):
        if NAMESPACE.search(path.read_text()) and not reaches(path):
            complain(path, 1, "opens a namespace without <vigil/detail/config.hpp>")


def main():
    root = Path(sys.argv[1])
    faults = []

    def complain(path, number, text):
        faults.append(f"{path.relative_to(root)}:{number}: {text}")

    check_private(root, complain)
    check_public(root, complain)
    check_abi_defined(root, complain)
    print("\n".join(faults) or "every include goes downwards")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
