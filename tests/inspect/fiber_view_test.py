#!/usr/bin/env python3
"""Whether all that show a fiber say the same: usage:
fiber_view_test.py SOURCE_ROOT PROGRAM GDB LLDB FIVE_LINES

PROGRAM is fiber_view_program. It prints its fibers as text, JSON, page and metrics; GDB
and LLDB list them in the same process. A debugger that is "none", or cannot control
FIVE_LINES, a program without vigil, is left out, and the test says so.
"""
import json
import re
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
from waits import check, lldb_with_python, summary  # noqa: E402

ROOT, PROGRAM = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
GDB, LLDB, FIVE_LINES = sys.argv[3], sys.argv[4], Path(sys.argv[5]).resolve()
SCRIPTS = ROOT / "tools" / "gdb"
LINE = re.compile(
    r"(?:fiber|task) (?P<id>\d+)(?: \((?P<name>[^)]*)\))? "
    r"\[(?P<state>[a-z]+)(?P<run>,? (?:for|on) [^,\]]*)?"
    r"(?:: (?P<reason>.*?)(?P<object> (?:to|from|of) (?:the channel|fiber|task) .*?)?)?"
    r"(?:, for (?P<age>[\d.]+) s)?(?:, due (?P<due>in [\d.]+ s|[\d.]+ s ago))?"
    r"(?P<flags>(?:, [a-z ]+)*)\] "
    r"started at (?P<place>.*?)(?: by fiber (?P<parent>\d+))?")


def sections(text):
    """{NAME: what follows the line "@@NAME"}"""
    parts = re.split(r"^.*@@(\w+)\n", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def fields_of(line):
    """The fields of a line of text, named as in JSON."""
    match = LINE.fullmatch(line)
    if match is None:
        return {"line": line}
    found = match.groupdict()
    shown = {key: found[key] for key in ("id", "name", "state", "parent") if found[key]}
    for flag in found["flags"].split(", ")[1:]:
        shown[flag.replace(" ", "_")] = "true"
    shown["started_at"] = found["place"]
    for key, part in (("reason", "reason"), ("nanoseconds", "age"), ("due_in_nanoseconds", "due")):
        if found[part]:
            shown[key] = found[part]
    return shown


def seconds(nanos):
    return f"{abs(nanos) // 10**9}.{abs(nanos) // 10**6 % 1000:03}"


def fields_in(shown):
    """The same of a fiber in JSON, in the words of text."""
    found = {key: str(shown[key]) for key in ("id", "state", "parent") if key in shown}
    if shown["name"]:
        found["name"] = "".join({"\t": "\\t", "\ufffd": "\\xff"}.get(c, c) for c in shown["name"])
    for key, value in shown.items():
        if value is True:
            found[key] = "true"
    site = shown["started_at"]
    found["started_at"] = site["file"] + (f":{site['line']}" if "line" in site else "")
    wait = shown.get("waits_for", {})
    if "reason" in wait:
        found["reason"] = wait["reason"]
    if "nanoseconds" in wait:
        found["nanoseconds"] = seconds(wait["nanoseconds"])
    if "due_in_nanoseconds" in wait:
        due = wait["due_in_nanoseconds"]
        found["due_in_nanoseconds"] = f"in {seconds(due)} s" if due >= 0 else f"{seconds(due)} s ago"
    return found


def lines_of(text):
    """{"fiber 4": its line, "task 1": ...}, without what marks it in a debugger."""
    lines = (re.match(r"[* ]*((?:fiber|task) \d+)( .*)$", line) for line in text.splitlines())
    return {match[1]: match[1] + match[2] for match in lines if match}


def without_thread(line):
    """A debugger says on which thread a fiber runs, the library for how long."""
    return re.sub(r"\[running[^,\]]*(, for [^,\]]*)?", "[running", line)


def keys_in(shown, prefix=""):
    for key, value in shown.items():
        yield key
        if key == "waits_for":
            yield from keys_in(value)


def check_same(what, found, wanted):
    different = [f"{key}: {found.get(key)}\n  not {wanted.get(key)}"
                 for key in sorted({*found, *wanted}) if found.get(key) != wanted.get(key)]
    check(f"{what}: {len(wanted)} as in the others", not different and len(wanted) > 0,
          "\n".join(different))


def check_metrics(text, fibers):
    samples = {(m[1], m[2]): int(m[3]) for m in re.finditer(
        r'^(vigil_fiber_\w+)\{runtime="1",\w+="([^"]*)"\} (\d+)$', text, re.M)}
    wanted = {}
    for f in (f for f in fibers if f["started_at"]["file"] != "vigil"):  # not the system's
        keys = [("vigil_fiber_state", f["state"])]
        keys += [("vigil_fiber_waiting", f["waits_for"]["reason"])] if "waits_for" in f else []
        keys += [("vigil_fiber_flagged", key) for key, value in f.items() if value is True]
        for key in keys:
            wanted[key] = wanted.get(key, 0) + 1
    found = {key: n for key, n in samples.items() if n and key[0] in (
        "vigil_fiber_state", "vigil_fiber_waiting", "vigil_fiber_flagged")}
    check_same("metrics", found, wanted)


def check_program(said):
    every = json.loads(said["json"])
    fibers, tasks = every["fibers"], every["tasks"]
    table = [line.split() for line in said["fields"].split("\n") if line]
    missing = {key for _, key in table} - {key for f in fibers for key in keys_in(f)}
    check(f"each of the {len(table)} fields is shown of some fiber", not missing, missing)
    text = lines_of(said["text"])
    check_same("JSON", {f"fiber {f['id']}": fields_in(f) for f in fibers}
               | {f"task {t['id']}": fields_in(t) for t in tasks},
               {key: fields_of(line) for key, line in text.items()})
    # On the page a fiber stands for its group; here each has a line of its own.
    of_page = [g["oldest"] for g in json.loads(said["page"])["groups"]]
    check_same("page", {f["id"]: fields_in(f) for f in of_page},
               {f["id"]: fields_in(f) for f in fibers if f["started_at"]["file"] != "vigil"})
    # Two of the system's fibers may be one group, which shows the older.
    groups = every["groups"]["groups"]
    of_json = {g["oldest"]["id"]: fields_in(g["oldest"]) for g in groups}
    check_same("JSON, groups", of_json,
               {f["id"]: fields_in(f) for f in fibers
                if f["id"] in of_json or f["started_at"]["file"] != "vigil"})
    check("JSON, groups: each fiber is in one", sum(g["count"] for g in groups) == len(fibers), groups)
    check_same("page, tasks", {t["oldest"]["id"]: fields_in(t["oldest"])
                               for t in json.loads(said["tasks"])["groups"]},
               {t["id"]: fields_in(t) for t in tasks})
    runs = [w["runs"] for r in json.loads(said["workers"]) for w in r["workers"] if "runs" in w]
    check("page, workers: main runs, as in JSON",
          [fields_in(r) for r in runs] == [fields_in(f) for f in fibers if f["state"] == "running"]
          and "ran" in runs[0], runs)
    check_metrics(said["metrics"], fibers)


def check_debugger(name, output, wanted):
    said = sections(output)
    shown = lines_of(said.get("debugger", ""))
    check_same(name, {key: without_thread(line) for key, line in shown.items()},
               {key: without_thread(line) for key, line in lines_of(said.get(wanted, "")).items()})


def gdb(program, place, *commands):
    call = [GDB, "-nx", "-batch", "-iex", "set debuginfod enabled off"]
    for command in (f"source {SCRIPTS / 'vigil-gdb.py'}", "set width 0", "set height 0",
                    f"break {place}", "run", *commands):
        call += ["-ex", command]
    return subprocess.run([*call, program], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False).stdout


def main():
    check_program(sections(subprocess.run([PROGRAM], text=True, capture_output=True,
                                          check=True).stdout))
    if GDB == "none" or "Breakpoint 1, " not in gdb(FIVE_LINES, "answer"):
        print("gdb is left out: it is not here, or controls no process")
    else:
        # It names objects, as inspect::dump does.
        check_debugger("gdb", gdb(PROGRAM, "all_shown", "info fibers", "info tasks"), "text")
    lldb = None if LLDB == "none" else lldb_with_python(LLDB)
    if lldb is None or "stop reason = breakpoint" not in lldb(
            f"target create {FIVE_LINES}", "breakpoint set --name answer", "run"):
        print("lldb is left out: it is not here, has no Python, or controls no process")
    else:
        check_debugger("lldb", lldb(
            f"command script import {SCRIPTS / 'vigil_lldb.py'}", f"target create {PROGRAM}",
            "breakpoint set --name all_shown", "run", "vigil fibers", "vigil tasks"), "plain")
    return summary()


if __name__ == "__main__":
    sys.exit(main())
