#!/usr/bin/env python3
"""What lldb shows with tools/gdb/vigil_lldb.py: usage:
lldb_test.py SOURCE_ROOT PROGRAM LLDB TASK_PROGRAM FIVE_LINES NO_REGISTER_WRITES [IO_PROGRAM]

TASK_PROGRAM and IO_PROGRAM are task_waits_program and io_waits_program. PROGRAM is
waits_program, without debug information. Its ten fibers must be found with
each function of their stacks, in a process that lldb started, in one that it attaches to
and in the kernel's core, with the script loaded before and after.
Exit status: 77 if LLDB is "none", has no Python, or cannot run FIVE_LINES, a program
without vigil. (The script calls no function, so it writes no registers.)
"""
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
from waits import (check, check_stacks, expected_functions, expected_tasks,  # noqa: E402
                   kernel_core, lldb_with_python, need_debugger, reason_in, summary, tasks_of)

ROOT, PROGRAM, LLDB = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), sys.argv[3]
SCRIPT = ROOT / "tools" / "gdb" / "vigil_lldb.py"


def stacks_of(text):
    """{name of a fiber: the functions on its stack, the innermost first}"""
    stacks, stack = {}, None
    for line in text.splitlines():
        if match := re.match(r"fiber \d+ \((.*?)\) \[.*\] started at", line):
            stack = stacks[match[1]] = []
        elif stack is not None and (match := re.match(
                r"    frame #\d+: 0x[0-9a-f]+ [^`]*`(.*?)(?: \+ \d+)?$", line)):
            stack.append(match[1])
        elif line.startswith("(lldb)"):
            stack = None
    return stacks


def check_look(way, text, wanted):
    check(f"{way}: vigil fibers: 13 in all", "\n13 fibers\n" in text, text)
    for name, reason in (("sleeping", "sleep"), ("receiving", "channel receive"),
                         ("conditional", "condition_variable")):
        check(f"{way}: vigil fibers: {name} [parked: {reason}]",
              re.search(rf"^fiber \d+ \({name}\) \[parked: {reason}, for [^\]]*\] "
                        r"started at .*:\d+ by fiber \d+$", text, re.M), text)
    check_stacks(way, stacks_of(text), wanted)


def check_attached(lldb, script, look, wanted):
    with subprocess.Popen([Path(sys.argv[5]).resolve(), "stay"], stdout=subprocess.PIPE,
                          text=True) as five_lines:
        five_lines.stdout.readline()
        text = lldb(f"process attach -p {five_lines.pid}", "detach")
        five_lines.kill()
    if f"Process {five_lines.pid} detached" not in text:
        print(f"skipped: lldb may not attach here: {reason_in(text)}")
        return
    with subprocess.Popen([PROGRAM, "stay"], stdout=subprocess.PIPE, text=True) as program:
        try:
            program.stdout.readline()
            attach = f"process attach -p {program.pid}"
            check_look("attached, then loaded", lldb(attach, script, *look), wanted)
            text = lldb(script, attach, "thread select 2", *look)
            check_look("loaded, then attached", text, wanted)
            text = lldb(script, attach, "thread select 2", "vigil fibers", "thread list", "detach",
                        attach, "vigil fiber 4")
            check("attached: vigil fibers keeps the selected thread",
                  re.search(r"^\* thread #2: .*\n(?:  .*\n)*  thread #\d+: .*'fiber 4 \(sleeping\)'",
                            text, re.M), text)
            check_stacks("attached again", stacks_of(text), {"sleeping": wanted["sleeping"]})
            text = lldb(script, attach, "detach", "vigil fibers")
            check("detached: vigil fibers says what it needs",
                  "error: There is no process: launch one, attach to one, or load a core." in text,
                  text)
            check("attached: the process stays", program.poll() is None)
        finally:
            program.kill()


def main():
    need_debugger("lldb", LLDB)
    script = f"command script import {SCRIPT}"
    lldb = lldb_with_python(LLDB)
    if lldb is None:
        print("skipped: lldb has no Python here")
        return 77
    text = lldb(f"target create {Path(sys.argv[5]).resolve()}",
                "breakpoint set --name answer", "run")
    if "stop reason = breakpoint" not in text:
        print(f"skipped: lldb may not control a process here: {reason_in(text)}")
        return 77
    wanted = expected_functions(PROGRAM)
    look = ["vigil fibers", *(f"vigil fiber {n}" for n in range(4, 14))]
    text = lldb(script, f"target create {PROGRAM}", "breakpoint set --name all_wait",
                "run go", *look, "frame select 1", "vigil fiber 3", "vigil fiber 99")
    check_look("live", text, wanted)
    check("live: fiber 3 says why it has no frames", "It has no frames of its own" in text, text)
    check("live: fiber 99 is not there", "There is no fiber 99." in text, text)
    text = lldb(script, f"target create {PROGRAM}", "breakpoint set --name all_wait",
                "run go", "vigil fiber 6", "continue")
    check("live: with a fiber selected the process goes on, and ends well",
          "exited with status = 0" in text, text)
    check_attached(lldb, script, look, wanted)
    with tempfile.TemporaryDirectory(prefix="vigil-lldb-") as name:
        core = kernel_core(PROGRAM, Path(name))
        if core is None:
            print("skipped: the kernel leaves no core in the program's folder here "
                  "(kernel.core_pattern, ulimit -c)")
        else:
            text = lldb(script, f"target create {PROGRAM} --core {core}", *look)
            check_look("core", text, wanted)
            text = lldb(f"target create {PROGRAM} --core {core}", script, *look)
            check_look("core, then loaded", text, wanted)
    text = lldb(f"command script import {SCRIPT}",
                f"target create {Path(sys.argv[4]).resolve()}",
                "breakpoint set --name all_wait", "run go", "vigil tasks")
    tasks = expected_tasks(text)
    shown = tasks_of(text)
    check("tasks: the program says six", len(tasks) == 6 and "\n6 tasks\n" in text, text)
    for number, (state, functions) in tasks.items():
        line, found = shown.get(number, ("", []))
        # lldb shows no objects.
        state = re.split(r" (?:from|made|of|on|\()|, for", state)[0]
        check(f"tasks: task {number} [{state}]: {' <- '.join(functions)}",
              re.match(rf"task {number} \[{state}(?:, for [\d.]+ s)?\] started at ", line)
              and found == functions, text)
    if len(sys.argv) > 7:
        text = lldb(f"command script import {SCRIPT}",
                    f"target create {Path(sys.argv[7]).resolve()}",
                    "breakpoint set --name all_wait", "run", "vigil fibers")
        numbers = dict(re.findall(r"^(\w+): (?:socket|descriptor) (\d+)", text, re.M))
        for name in ("server", "reader", "piper"):
            check(f"io: {name} waits for its descriptor", re.search(
                rf"^fiber \d+ \({name}\) \[parked: I/O of descriptor {numbers.get(name)}, for ",
                text, re.M), text)
    return summary()


if __name__ == "__main__":
    sys.exit(main())
