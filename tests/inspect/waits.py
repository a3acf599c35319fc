"""What the tests of the debuggers' scripts have in common: waits_program and its stacks, and
task_waits_program."""
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

results = {True: 0, False: 0}


def check(what, is_right, said=""):
    results[bool(is_right)] += 1
    print(("ok      " if is_right else "FAILED  ") + what, flush=True)
    if not is_right:
        print("\n".join("    " + line for line in str(said).splitlines()[-40:]), flush=True)


def need_debugger(name, path):
    if path == "none":
        print(f"skipped: {name} is not installed")
        sys.exit(77)


def lldb_with_python(path):
    """A function that runs lldb with these commands and returns what it printed; None: this
    lldb has no Python."""
    def run(environment, *commands):
        call = [path, "--no-lldbinit", "--batch"]
        for command in commands:
            call += ["-o", command]
        return subprocess.run(call, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              stdin=subprocess.DEVNULL, env=environment, check=False).stdout

    # lldb looks for its modules beside the python3 of PATH, and Debian's lldb 14 in a
    # folder that is not there.
    own = {**os.environ, "PATH": f"{Path(path).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    folders = Path(path).resolve().parent.parent.glob("lib/python3*/dist-packages")
    for environment in (own, *({**own, "PYTHONPATH": str(folder)} for folder in folders)):
        if "VIGIL IS 7" in run(environment, "script print('VIGIL IS', 3 + 4)"):
            return lambda *commands: run(environment, *commands)  # noqa: B023: it returns
    return None


def reason_in(said):
    """The line of a debugger's complaint that says why: the last one."""
    return ([line.strip() for line in said.splitlines() if line.strip()] or ["it says nothing"])[-1]


def summary():
    """Prints the last line; returns the exit status."""
    print(f"{results[True]} passed, {results[False]} failed")
    return 1 if results[False] else 0


def expected_functions(program):
    """{name of a fiber: the program's functions on its stack, the innermost first}"""
    said = subprocess.run([program, "expected"], text=True, capture_output=True, check=True).stdout
    functions = {}
    for line in said.splitlines():
        name, _, function = line.partition(" ")
        functions.setdefault(name, []).append(function)
    return functions


def expected_tasks(said):
    """{number of a task: (the beginning of its state, the functions of its coroutines)}, as
    task_waits_program says"""
    return {int(number): (state, functions.split()) for number, state, functions in
            re.findall(r"^(\d+): (.*): ([\w ]*)$", said, re.M)}


def tasks_of(text):
    """{number of a task: (its line, the functions below)}, as the debugger shows them"""
    tasks, functions = {}, []
    for line in text.splitlines():
        if match := re.match(r" *(task (\d+) .*)", line):
            functions = []
            tasks[int(match[2])] = match[1], functions
        elif match := re.match(r" +at task_waits::(\w+)\([^.]*\)$", line):
            functions.append(match[1])
    return tasks


def check_stacks(way, stacks, wanted):
    """`stacks`: what the debugger shows, as {name of a fiber: functions}"""
    for name, functions in wanted.items():
        shown = stacks.get(name, [])
        begin = next((i for i, f in enumerate(shown) if f.startswith("ten_waits::")), 0)
        lines = shown[begin:begin + len(functions)]
        # Line by line; what is above and below is the library's own.
        wrong = [f"{is_} instead of {should_be}"
                 for is_, should_be in zip(lines, functions) if is_ != should_be]
        others = shown[:begin] + shown[begin + len(functions):]
        # The name of a function that is made of a template begins with its result. The body
        # of a fiber of run() has a frame of its own where it is not inlined.
        wrong += [f for f in others if not re.match(
            r"(?:[a-z ]+ )?vigil::|operator\(\)|ten_waits::run<", f)]
        if (len(lines) != len(functions)
                or not shown[-1].startswith("vigil::v0::detail::stack_begins")):
            wrong.append("not the whole stack")
        check(f"{way}: {name}: {len(functions)} functions among {len(shown)} frames", not wrong,
              "\n".join(wrong + shown))


def kernel_core(program, folder):
    """The core of the program in the folder, or None if the kernel leaves none there."""
    def before():
        _, most = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (most, most))
        os.chdir(folder)
    subprocess.run([program, "abort"], preexec_fn=before, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, check=False)
    return next(folder.glob("core*"), None)
