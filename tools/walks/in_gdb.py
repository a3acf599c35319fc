"""Run by gdb for walk.py: records each call of a function of the library between the marks.

$WALK_PLAN names a JSON file: {"functions": [[address, size], ...], "out": FILE}. To FILE
goes a list of calls, each a list of such addresses: the function that is entered, its
caller, the caller of that, to the end of the fiber's stack, functions of the library
only. Threads other than the one that met the first mark are not followed.
"""
import bisect
import json
import os

import gdb

plan = json.load(open(os.environ["WALK_PLAN"]))
functions = sorted(plan["functions"])
starts = [start for start, _ in functions]
calls = []
thread = None


def function_at(pc):
    i = bisect.bisect_right(starts, pc) - 1
    return starts[i] if i >= 0 and pc < starts[i] + functions[i][1] else None


def stack():
    found, frame = [], gdb.newest_frame()
    try:
        while frame is not None and len(found) < 200:
            at = function_at(frame.pc())
            if at is not None:
                found.append(at)
            frame = frame.older()
    except gdb.error:
        pass  # the end of a fiber's stack
    return found


class entry(gdb.Breakpoint):
    def stop(self):
        if gdb.selected_thread().num == thread:
            calls.append(stack())
        return False


for setting in ("pagination off", "confirm off", "debuginfod enabled off",
                "breakpoint always-inserted on", "backtrace past-main off"):
    gdb.execute(f"set {setting}")
gdb.execute("break walk_begins", to_string=True)
gdb.execute("run", to_string=True)
thread = gdb.selected_thread().num
for start in starts:
    entry(f"*{start:#x}", internal=True).silent = True
gdb.execute("break walk_ends", to_string=True)
gdb.execute("continue", to_string=True)
if gdb.selected_frame().name() != "walk_ends":
    raise gdb.GdbError("the walk did not come to its end")
json.dump(calls, open(plan["out"], "w"))
gdb.execute("kill", to_string=True)
