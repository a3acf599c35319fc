#!/usr/bin/env python3
"""What gdb shows with tools/gdb/vigil-gdb.py: usage:
gdb_test.py SOURCE_ROOT PROGRAM GDB TASK_PROGRAM FIVE_LINES NO_REGISTER_WRITES [MORE_PROGRAM]...

TASK_PROGRAM is task_waits_program, MORE_PROGRAM io_waits_program and stuck_program. PROGRAM is
waits_program, without debug information. Its ten fibers must be found with
each function of their stacks, in a process that gdb started, in one that it attaches to,
in a core that gdb wrote, and in one that the kernel wrote.

What gdb can do here it shows first on FIVE_LINES, a program without vigil; what it cannot
do there is skipped. NO_REGISTER_WRITES, preloaded, takes one ability from it. Exit status:
77 if GDB is "none", is too old, has no Python, or may control no process.
"""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
from waits import (check, check_stacks, expected_functions, expected_tasks,  # noqa: E402
                   kernel_core, need_debugger, reason_in, summary, tasks_of)

ROOT, PROGRAM, GDB = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), sys.argv[3]
FIVE_LINES, NO_REGISTER_WRITES = (Path(name).resolve() for name in sys.argv[5:7])
SCRIPT = ROOT / "tools" / "gdb" / "vigil-gdb.py"
LOOK = ["info fibers", "fiber apply all bt", "info timers", "info channels", "info channels 4",
        "info channels 5", "info channels 7"]
REASONS = {
    "sleeping": "sleep",
    "receiving": "channel receive from the channel made at ",
    "sending": "channel send to the channel made at ",
    "selecting": "select (receive from the channel made at ",
    "locking": "mutex made at ",
    "sharing": "shared_mutex (to read) made at ",
    "acquiring": "semaphore made at ",
    "grouped": "wait_group made at ",
    "latched": "latch made at ",
    "conditional": "condition_variable made at ",
}
def gdb(*arguments, commands, environment=None, early=("source " + str(SCRIPT),)):
    """{command: what gdb printed after it}"""
    call = [GDB, "-nx", "-batch", "-iex", "set debuginfod enabled off"]
    for command in early:
        call += ["-iex", command]
    for command in ["set width 0", "set height 0"]:
        call += ["-ex", command]
    for command in commands:
        call += ["-ex", f"echo \\n@@{command}\\n", "-ex", command]
    done = subprocess.run([*call, *map(str, arguments)], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False,
                          env={**os.environ, **(environment or {}), "LC_ALL": "C"})
    parts = re.split(r"^@@(.*)\n", done.stdout, flags=re.M)
    said = {"": parts[0]}
    for command, text in zip(parts[1::2], parts[2::2]):
        said[command] = said.get(command, "") + text
    return said


def stacks_of(text):
    """{name of a fiber: the functions on its stack, the innermost first}"""
    stacks = {}
    for line in text.splitlines():
        if match := re.match(r"fiber [\d.]+ \((.*?)\) \[", line):
            stack = stacks[match[1]] = []
        elif match := re.match(r"#\d+\s+(?:0x[0-9a-f]+ in )?(.*?)(?: \(.*\))?(?: at .*| from .*)?$",
                               line):
            stack.append(match[1])
    return stacks


def check_look(way, said, wanted):
    fibers = said["info fibers"]
    for name, reason in REASONS.items():
        check(f"{way}: info fibers: {name} [parked: {reason}…]",
              re.search(rf"^  fiber \d+ \({name}\) \[parked: {re.escape(reason)}.*\] started at "
                        rf".*ten_waits.hpp:\d+ by fiber \d+$", fibers, re.M), fibers)
    check(f"{way}: info fibers: a select names each of its cases",
          re.search(r"send to the channel made at [^,]*, semaphore made at [^,]*ten_waits.hpp:\d+, "
                    r"mutex made at [^,]*ten_waits.hpp:\d+, ", fibers), fibers)
    # The thread that gdb attaches to runs no fiber.
    mark = " " if way == "attached" else "*"
    check(f"{way}: info fibers: main runs on a thread, marked '{mark}'",
          re.search(rf"^{re.escape(mark)} fiber \d+ \(main\) \[running on thread \d+ \(LWP \d+\)"
                    rf"\]", fibers, re.M), fibers)
    check(f"{way}: info fibers: 13 in all", "\n13 fibers\n" in fibers, fibers)
    text = said["fiber apply all bt"]
    check_stacks(way, stacks_of(text), wanted)
    # Without its symbols a library of the system has functions without a name.
    troubles = [line for line in text.splitlines()
                if re.search(r"Backtrace stopped|Python Exception|\?\?(?! \(\) from /)|corrupt", line)]
    check(f"{way}: no stack ends with a complaint", not troubles, "\n".join(troubles))

    timers = said["info timers"]
    found = re.findall(r"^  (\d+) ns \(\+([\d.]+) s\), due in ([\d.]+) s: (.*)$", timers, re.M)
    check(f"{way}: info timers: by their deadlines, to the nanosecond",
          [f[:3] for f in found] == [
              ("946685400000000000", "0.000", "600.000"),
              ("946686000000000000", "600.000", "1200.000"),
              ("946686600000000000", "1200.000", "1800.000"),
              ("946688400000000000", "3000.000", "3600.000")], timers)
    kinds = ["callback, made at ", "callback, every 1200.000 s, made at ", "callback, made at ",
             "deadline of a wait: fiber 4 (sleeping)"]
    check(f"{way}: info timers: kinds and places",
          len(found) == 4 and all(f[3].startswith(kind) for f, kind in zip(found, kinds)), timers)

    channels = said["info channels"]
    empty, full, done = (re.findall(r"^  channel made at .*: (capacity .*)$", channels, re.M)
                         + ["", "", ""])[:3]
    check(f"{way}: info channels: who waits to receive, in order",
          re.fullmatch(r"capacity 0, size 0, open; to send: nobody; to receive: "
                       r"fiber \d+ \((selecting|receiving)\), fiber \d+ \((selecting|receiving)\)",
                       empty), channels)
    check(f"{way}: info channels: who waits to send, in order",
          re.fullmatch(r"capacity 0, size 0, open; to send: "
                       r"fiber \d+ \((selecting|sending)\), fiber \d+ \((selecting|sending)\); "
                       r"to receive: nobody", full), channels)
    check(f"{way}: info channels: three", done and "\n3 channels\n" in channels, channels)
    check(f"{way}: info channels N: none of a fiber that sleeps",
          said["info channels 4"].strip() == "0 channels", said["info channels 4"])
    check(f"{way}: info channels N: the one of a fiber that receives, with all that wait there",
          said["info channels 5"].splitlines()[:2] == [line_of(channels, empty), "1 channels"],
          said["info channels 5"])
    check(f"{way}: info channels N: each of a select, as in the whole list",
          said["info channels 7"].strip() == channels.strip(), said["info channels 7"])


def line_of(text, part):
    return next((line for line in text.splitlines() if line.endswith(part)), None)


def check_two_look(way, said):
    """Fibers are named by two numbers: other is 1.4, the ten waits are 2.4 and so on."""
    fibers = said["info fibers"]
    for number, name in (("1.4", "other"), ("2.4", "sleeping"), ("2.13", "conditional")):
        check(f"{way}: info fibers: fiber {number} is {name}, started by main", re.search(
            rf"^  fiber {number} \({name}\) \[parked: .*\] started at .* by fiber "
            rf"{number[0]}\.3$", fibers, re.M), fibers)
    check(f"{way}: info fibers: 17 in all", "\n17 fibers\n" in fibers, fibers)
    for number, name in (("1.4", "other"), ("2.4", "sleeping")):
        text = said[f"fiber {number}"]
        check(f"{way}: fiber {number} selects {name}",
              re.search(rf"^fiber {number} \({name}\) .*\n#1 .*vigil::", text), text)
    check(f"{way}: the stack is that of the fiber of this runtime",
          "ten_waits::sleeping::wait" in said["backtrace"], said["backtrace"])
    text = said["fiber apply 1.4 2.5 backtrace 1"]
    check(f"{way}: fiber apply takes such numbers", list(stacks_of(text)) == ["other", "receiving"],
          text)
    check(f"{way}: a number alone is refused, with those that may be meant",
          "Several runtimes have a fiber 4: 1.4, 2.4." in said["fiber 4"], said["fiber 4"])
    check(f"{way}: fiber 3.4 is not there", "There is no fiber 3.4." in said["fiber 3.4"],
          said["fiber 3.4"])
    text = said["info channels 1.4"]
    check(f"{way}: info channels 1.4: those of that runtime's fiber", re.fullmatch(
        r"  channel made at \S*waits_program.cpp:\d+ at 0x\w+: capacity 0, size 0, open; "
        r"to send: nobody; to receive: fiber 1\.4 \(other\)\n1 channels", text.rstrip()), text)
    text = said["info channels 2.5"]
    check(f"{way}: info channels 2.5: those of that runtime's fiber",
          re.search(r"to receive: fiber 2\.\d+ \(\w+\), fiber 2\.\d+ \(\w+\)\n1 channels",
                    text), text)
    timers = said["info timers"]
    check(f"{way}: info timers: those of each runtime",
          re.search(r"^runtime 1: 1 timers pending\n.*deadline of a wait: fiber 1\.4 \(other\)\n"
                    r"runtime 2: 4 timers pending$", timers, re.M), timers)


def check_two_runtimes():
    look = ["info fibers", "fiber 1.4", "fiber 2.4", "backtrace", "fiber apply 1.4 2.5 backtrace 1",
            "fiber 4", "fiber 3.4", "info channels 1.4", "info channels 2.5", "info timers"]
    with tempfile.TemporaryDirectory(prefix="vigil-gdb-") as name:
        core = Path(name) / "core.gdb"
        said = gdb("--args", PROGRAM, "two", environment={"VIGIL_STACK_GUARD": "mprotect"},
                   commands=["break all_wait", "run", *look, f"generate-core-file {core}",
                             "continue"])
        check_two_look("two runtimes", said)
        check("two runtimes: the process goes on, and ends well",
              "exited normally" in said["continue"], said["continue"])
        check_two_look("two runtimes, core by gdb", gdb(PROGRAM, core, commands=look))


def refusals(environment=None):
    """Why gdb cannot do each of these with FIVE_LINES; "" where it can."""
    version = "python print(int(gdb.VERSION.split('.')[0]) >= 12)"
    said = gdb(FIVE_LINES, early=(), environment=environment,
               commands=[version, "break main", "run", "call (int)answer()", "continue"])
    tries = [("scripts", version, "True"), ("run", "run", "Breakpoint 1, "),
             ("call", "call (int)answer()", "= 42")]
    why = {what: "" if wanted in said.get(command, "") else reason_in(said.get(command) or said[""])
           for what, command, wanted in tries}
    with subprocess.Popen([FIVE_LINES, "stay"], stdout=subprocess.PIPE, text=True) as program:
        program.stdout.readline()
        said = gdb("-p", program.pid, early=(), environment=environment,
                   commands=["info registers rip", "detach"])
        program.kill()
    why["attach"] = "" if "rip" in said.get("info registers rip", "") else reason_in(said[""])
    return why


def check_live(wanted, folder):
    """Finds the script by the program's own section. Leaves a core in the folder."""
    core = folder / "core.gdb"
    own = [f"set auto-load safe-path {SCRIPT.parent}", f"directory {SCRIPT.parent}"]
    said = gdb("--args", PROGRAM, "go", early=own, environment={"VIGIL_STACK_GUARD": "mprotect"},
               commands=["break all_wait", "run", *LOOK, f"generate-core-file {core}",
                         "fiber 4", "info frame", "up", "backtrace 1", "fiber 0", "frame",
                         "fiber apply 4 5 backtrace 1", "fiber 1", "fiber 99", "fiber 6", "continue"])
    check_look("live", said, wanted)
    check("live: fiber 4 selects its innermost frame",
          re.search(r"^fiber 4 \(sleeping\).*\n#1 .*vigil::", said["fiber 4"], re.M), said["fiber 4"])
    check("live: up goes to its caller", re.search(r"^#2 ", said["up"], re.M), said["up"])
    check("live: fiber 0 goes back to the thread",
          re.search(r"^#0 .* all_wait \(\)", said["frame"], re.M), said["frame"])
    check("live: fiber apply N... takes those alone",
          list(stacks_of(said["fiber apply 4 5 backtrace 1"])) == ["sleeping", "receiving"],
          said["fiber apply 4 5 backtrace 1"])
    check("live: fiber 1 says why it has no frames",
          "fiber 1 (timer fiber) has no frames: it has not begun." in said["fiber 1"], said["fiber 1"])
    check("live: fiber 99 is not there", "There is no fiber 99." in said["fiber 99"], said["fiber 99"])
    check("live: with a fiber selected the process goes on, and ends well",
          "exited normally" in said["continue"], said["continue"])
    check("live: gdb writes a core of less than 200 MB",
          core.exists() and core.stat().st_size < 200_000_000, said[f"generate-core-file {core}"])
    return core


def check_other_version(folder):
    """A script that does not fit says where the one lies that does."""
    other = folder / SCRIPT.name
    other.write_text(SCRIPT.read_text().replace('FORMAT = "vigil', 'FORMAT = "another'))
    said = gdb("--args", PROGRAM, "go", commands=["break all_wait", "run", "info fibers"],
               early=[f"source {other}"])["info fibers"]
    places = re.findall(r"\S+/vigil-gdb.py", said)
    check("another version: says where the script is", "vigil debug layout" in said and places == [
        str(SCRIPT.relative_to(ROOT)), "share/gdb/auto-load/vigil-gdb.py"], said)


def check_attached(wanted, cannot):
    look = [*LOOK, "fiber 5", *([] if cannot["call"] else ["call (int)getpid()"]), "backtrace 1",
            "detach"]
    with subprocess.Popen([PROGRAM, "stay"], stdout=subprocess.PIPE, text=True) as program:
        try:
            program.stdout.readline()
            said = gdb("-p", program.pid, commands=look)
            check_look("attached", said, wanted)
            if cannot["call"]:
                print(f"skipped: gdb cannot call a function here: {cannot['call']}")
            else:
                check("attached: a function can be called with a fiber selected",
                      f"= {program.pid}" in said["call (int)getpid()"], said["call (int)getpid()"])
            check("attached: the process stays", program.poll() is None)
        finally:
            program.kill()


def check_core(way, core, wanted):
    said = gdb(PROGRAM, core, commands=[*LOOK, "fiber 7", "up", "info registers rip", "fiber", "bt"])
    check_look(way, said, wanted)
    check(f"{way}: with the script loaded gdb does not miss the one that the program names",
          "auto-load" not in said[""], said[""])
    check(f"{way}: the frame's registers are the fiber's",
          re.search(r"^rip .*<vigil::", said["info registers rip"], re.M), said["info registers rip"])
    check(f"{way}: fiber goes back to the thread",
          "ten_waits::selecting" not in said["bt"] and "all_wait" in said["bt"], said["bt"])


def check_io(program):
    """Each object as the program says, with what the kernel knows; the number alone in a core."""
    with tempfile.TemporaryDirectory(prefix="vigil-gdb-") as name:
        core = Path(name) / "core.gdb"
        said = gdb(program, environment={"VIGIL_STACK_GUARD": "mprotect"},
                   commands=["break all_wait", "run", "info fibers", f"generate-core-file {core}"])
        wanted = re.findall(r"^(\w+): (.+)$", said["run"], re.M)
        check("io: the program says six waits", len(wanted) == 6, said["run"])
        at_core = gdb(program, core, commands=["info fibers"])["info fibers"]
        for fiber, text in wanted:
            check(f"io: {fiber}: {text}", re.search(
                rf"^  fiber \d+ \({fiber}\) \[parked: .*{re.escape(text.rstrip())}.*\]",
                said["info fibers"], re.M), said["info fibers"])
            text = re.sub(r"^socket (\d+) .*", r"descriptor \1", text.rstrip())
            check(f"io: {fiber} in a core: {text}", re.search(
                rf"^  fiber \d+ \({fiber}\) \[parked: .*{re.escape(text)}(?!\w).*\]", at_core, re.M),
                  at_core)


def check_task_look(way, text, wanted):
    shown = tasks_of(text)
    for number, (state, functions) in wanted.items():
        line, found = shown.get(number, ("", []))
        check(f"{way}: task {number} [{state}…]", re.match(
            rf"task {number} \[{re.escape(state)}.*\] started at .*task_waits_program.cpp:\d+$",
            line), text)
        check(f"{way}: task {number}: {' <- '.join(functions) or 'no functions'}",
              found == functions, text)
    check(f"{way}: info tasks: {len(wanted)} in all", f"\n{len(wanted)} tasks\n" in text, text)


def check_tasks(program):
    with tempfile.TemporaryDirectory(prefix="vigil-gdb-") as name:
        core = Path(name) / "core.gdb"
        said = gdb("--args", program, "go", environment={"VIGIL_STACK_GUARD": "mprotect"},
                   commands=["break all_wait", "run", "info tasks", "info timers", "info channels",
                             f"generate-core-file {core}", "continue"])
        wanted = expected_tasks(said["run"])
        check("tasks: the program says six", len(wanted) == 6, said["run"])
        check_task_look("tasks", said["info tasks"], wanted)
        check("tasks: a timer names its task",
              ": deadline of a wait: task 1\n" in said["info timers"], said["info timers"])
        # The seed has chosen their order.
        queued = re.search(r"to receive: (.*)\n", said["info channels"])
        names = sorted(queued[1].split(", ")) if queued else []
        check("tasks: a channel names the tasks in its queue",
              len(names) == 3 and re.fullmatch(r"fiber \d+ \(tasks\)", names[0]) and
              names[1:] == ["task 2", "task 4"], said["info channels"])
        check("tasks: the process goes on, and ends well",
              "exited normally" in said["continue"], said["continue"])
        check_task_look("tasks, core by gdb",
                        gdb(program, core, commands=["info tasks"])["info tasks"], wanted)
        core.unlink()
        core = kernel_core(program, Path(name))
        if core is not None:
            check_task_look("tasks, core by the kernel",
                            gdb(program, core, commands=["info tasks"])["info tasks"], wanted)


def names_in(text):
    """The names of the fibers in each list of `info stuck`."""
    lists = text.partition("fibers that may never go on: ")
    return [set(re.findall(r"^  fiber \d+ \((.*?)\) ", part, re.M)) for part in (lists[0], lists[2])]


def check_stuck(program):
    """Those that gdb calls stuck are so by the library's own search. A word that a register or a
    frame has left over may make one less certain."""
    expected = subprocess.run([program, "expected"], text=True, capture_output=True,
                              check=True).stdout.split("\n")
    expected = set(filter(None, expected))
    check("stuck: the library finds some", {"rent", "wages", "holder"} <= expected, expected)
    said = gdb("--args", program, "go", commands=["break all_wait", "run", "info stuck", "continue"])
    texts = {"stuck": said["info stuck"]}
    check("stuck: the process goes on, and ends well",
          "exited normally" in said["continue"], said["continue"])
    with tempfile.TemporaryDirectory(prefix="vigil-gdb-") as name:
        core = kernel_core(program, Path(name))
        if core is None:
            print("skipped: stuck fibers in a core: the kernel leaves none here")
        else:
            texts["stuck, core"] = gdb(program, core, commands=["info stuck"])["info stuck"]
    for way, text in texts.items():
        certain, possible = names_in(text)
        check(f"{way}: a cycle of locks", {"rent", "wages"} <= certain, text)
        check(f"{way}: none that the library does not find", certain <= expected, text)
        check(f"{way}: the others may go on, and a deadline is no question",
              certain | possible == expected | {"live"}, text)
        check(f"{way}: the cycle is named",
              re.search(r"^  cycle: fiber \d+ \((rent|wages)\) waits for mutex made at .*, held by "
                        r"fiber \d+ \((rent|wages)\), which waits for mutex .* \(\1\)$", text, re.M),
              text)
        check(f"{way}: of many in one place some are shown",
              text.count("(crowd) [") <= 2 * 20
              and re.search(r"^  \.\.\. and \d+ more that were started there and wait so$", text, re.M),
              text)
        check(f"{way}: what may end the wait is said",
              re.search(r"^  fiber \d+ \(live\) .*\n    \(may go on: what it waits for can be "
                        r"reached from ", text, re.M), text)


def main():
    need_debugger("gdb", GDB)
    cannot = refusals()
    if cannot["scripts"] or cannot["run"]:
        print(f"skipped: gdb {'may not control a process' if cannot['run'] else 'has no Python'} "
              f"here: {cannot['run'] or cannot['scripts']}")
        return 77
    without = refusals({"LD_PRELOAD": str(NO_REGISTER_WRITES)})
    check("a gdb that cannot write registers is one that cannot call, and can do the rest",
          without == {**cannot, "call": "Couldn't write extended state status: Bad address."},
          without)
    wanted = expected_functions(PROGRAM)
    with tempfile.TemporaryDirectory(prefix="vigil-gdb-") as name:
        folder = Path(name)
        check_other_version(folder)
        core = check_live(wanted, folder)
        if cannot["attach"]:
            print(f"skipped: gdb may not attach here: {cannot['attach']}")
        else:
            check_attached(wanted, cannot)
        check_core("core by gdb", core, wanted)
        core.unlink()
        core = kernel_core(PROGRAM, folder)
        if core is None:
            print("skipped: the kernel leaves no core in the program's folder here "
                  "(kernel.core_pattern, ulimit -c)")
        else:
            check_core("core by the kernel", core, wanted)
    check_two_runtimes()
    check_tasks(Path(sys.argv[4]).resolve())
    more = {Path(name).name: Path(name).resolve() for name in sys.argv[7:]}
    if "io_waits_program" in more:
        check_io(more["io_waits_program"])
    if "stuck_program" in more:
        check_stuck(more["stuck_program"])
    return summary()


if __name__ == "__main__":
    sys.exit(main())
