#!/usr/bin/env python3
"""vigil-symbols names what a dump in a signal handler leaves out: usage: symbols_test.py ROOT PROGRAM MODULE

PROGRAM is sigquit_program, MODULE the one that it loads.
"""
import os
import re
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

root, program, module = Path(sys.argv[1]), Path(sys.argv[2]).resolve(), Path(sys.argv[3]).resolve()
PATIENCE = 60  # seconds
passed = failed = 0


def check(what, holds, shown=""):
    global passed, failed
    passed, failed = passed + holds, failed + (not holds)
    print(f"{'ok' if holds else 'FAILED'}: {what}" + ("" if holds else f"\n{shown}"))


def symbols(*arguments, text=True, **how):
    return subprocess.run([root / "tools/vigil-symbols", *arguments], capture_output=True, text=text,
                          **how)


dump = subprocess.run([program], capture_output=True, text=True).stderr
expected = subprocess.run([program, "expected"], capture_output=True, text=True).stdout.splitlines()
named = symbols(input=dump)
own = [line.removeprefix("    at ") for line in named.stdout.splitlines()
       if line.startswith("    at ten_waits::")]
found = [line[:len(want)] for line, want in zip(own, expected)]
check("each function is named, in order", len(expected) == 6 and found == expected and
      len(own) == len(expected), named.stdout)
check("all other lines are as they were",
      [x for x in dump.splitlines() if not x.startswith("    at ")] ==
      [x for x in named.stdout.splitlines() if not x.startswith(("    at ", "    ... "))])
FOLDED = re.compile(r"^    \.\.\. (?:1 function|\d\d+ functions|[2-9] functions) of "
                    r"(?:vigil|std|vigil and std)$", re.M)
runs = re.findall(r"^    \.\.\. .*", named.stdout, re.M)
check("the functions of the library and the calls of std are folded, by runs",
      runs and all(map(FOLDED.search, runs)) and
      not re.search(r"    at (?:vigil::|(?:.* )?std::__invoke)", named.stdout) and
      not re.search(r"functions? of .*\n    \.\.\.", named.stdout), named.stdout)

builds = dict(re.findall(r"^    \(build ([0-9a-f]+) of (.*)\)$", dump, re.M))
builds = {path: build for build, path in builds.items()}
said = subprocess.run(["readelf", "-n", program], capture_output=True, text=True).stdout
own_build = re.search(r"Build ID: ([0-9a-f]+)", said)
if own_build:
    check("the dump tells the program's build", builds.get(str(program)) == own_build[1], dump)
    check("each file's build once, before its first frame",
          len(re.findall(r"^    \(build .* of " + re.escape(str(program)), dump, re.M)) == 1
          and dump.index(f" of {program})") < dump.index(f"({program}+0x"), dump)
    other = symbols(input=dump.replace(own_build[1], own_build[1][::-1]))
    check("another build's functions are not named",
          "ten_waits::" not in "".join(re.findall("    at .*", other.stdout)), other.stdout)
    check("and why is said, once", other.stderr.count(f"{program} is not the file that ran") == 1,
          other.stderr)
    check("for the same build nothing is said", named.stderr == "", named.stderr)
    one = re.search(rf"^    \(build .* of {re.escape(str(program))}\)\n(.*\n)*?    at .*\n", dump, re.M)[0]
    many = symbols(input=one * 100, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40)))
    check("any number of dumps may follow one another", (many.returncode, many.stderr) == (0, "") and
          many.stdout == symbols(input=one).stdout * 100, many)
else:
    print("skipped: the linker gives the program no build ID")
relative = subprocess.run([program, f"./{module.name}"], cwd=module.parent, capture_output=True,
                          text=True).stderr
check("a file that was loaded by a relative path is named by its whole path",
      f"({module}+0x" in relative, relative)
check("so its functions are named", None is not re.search(
    rf"^    at call_back(\(.*\))? .*\({re.escape(str(module))}\+0x", symbols(input=relative).stdout,
    re.M), symbols(input=relative).stdout)

with tempfile.TemporaryDirectory() as folder:
    odd = Path(folder) / "a\n    at evil() \x1b\\n"
    odd.mkdir()
    copy = Path(shutil.copy(program, odd))
    said = subprocess.run([copy], capture_output=True, text=True).stderr
    check("a path with a line break is written in one line", "\n    at evil()" not in said and
          "a\\n    at evil() \\x1b\\\\n/" in said, said)
    check("and found", symbols(input=said).stdout.count("at ten_waits::") == len(expected),
          symbols(input=said).stdout)

# As a terminal does it, to a group. The first part's answer shows that it has begun, and
# that it does not wait for more.
parts = dump.rpartition("    at ?")
parts = (parts[0], parts[1] + parts[2])
half = re.sub(rb"    \.\.\. \d+ functions? of .*\n$", b"", symbols(input=parts[0]).stdout.encode())
behind = subprocess.Popen([root / "tools/vigil-symbols"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, start_new_session=True)
behind.stdin.write(parts[0].encode())
behind.stdin.flush()
said = b""
while len(said) < len(half) and select.select([behind.stdout], [], [], PATIENCE)[0]:
    said += os.read(behind.stdout.fileno(), len(half)) or b"(end)" * len(half)
check("what has come is written at once", said == half, said.decode())
for key in (signal.SIGQUIT, signal.SIGINT):
    os.killpg(behind.pid, key)
said += behind.communicate(parts[1].encode())[0]
check("behind a pipe it goes on after Ctrl-C and Ctrl-\\, and so does its addr2line",
      behind.returncode == 0 and said.decode() == named.stdout, f"{behind.returncode} {said}")

odd = (b"caf\xe9\r\n\xff\xfe\x00\ralone\n    at ? (/nowhere/program+0x12)\n"
       b"    at ? (/%b+0x12)\n    at ? (/a\x00b+0x12)\n    at ? (/\xff+0x12)\n"
       b"    at ? (/tmp+0x12)\n    at ? (/nowhere+0x12)" % (b"x" * 300))
for how in ("utf-8:strict", "ascii:strict"):
    same = symbols(input=odd, text=False, env={**os.environ, "PYTHONIOENCODING": how})
    check(f"lines that name nothing stay as they are, byte by byte ({how})",
          (same.returncode, same.stdout, same.stderr) == (0, odd, b""), same)
lines = symbols(input=dump.replace("\n", "\r\n").encode(), text=False).stdout
check("lines that end in CR LF are named and still do",
      lines == named.stdout.replace("\n", "\r\n").encode(), lines)
for path, why in (("/nowhere/dump", "No such file"), ("/tmp", "Is a directory")):
    none = symbols(path)
    check(f"a dump that cannot be read is an error: {why}",
          none.returncode == 1 and why in none.stderr and none.stderr.count("\n") == 1, none.stderr)
without = subprocess.run([sys.executable, root / "tools/vigil-symbols"], input=dump, text=True,
                         capture_output=True, env={**os.environ, "PATH": "/nowhere"})
check("without binutils the dump goes on without names, and why is said, once",
      without.stdout == dump and without.returncode == 1 and
      without.stderr.count("install binutils") == without.stderr.count("\n") == 1, without.stderr)


def as_nobody():
    if os.getuid() == 0:
        os.setuid(65534)


# Root may read everything.
if symbols("--help", preexec_fn=as_nobody).returncode == 2:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        closed = Path(folder) / "closed"
        closed.mkdir()
        for target in (closed / "program", Path(folder) / "program"):
            shutil.copy(program, target)
            os.chmod(target, 0)
        os.chmod(closed, 0)
        for which, target in (("it", Path(folder) / "program"), ("its folder", closed / "program")):
            copied = dump.replace(str(program), str(target))
            said = symbols(input=copied, preexec_fn=as_nobody)
            check(f"of a file that may not be read nothing is named ({which})",
                  said.returncode == 0 and said.stdout == symbols(input=copied.replace(
                      str(target), "/nowhere")).stdout.replace("/nowhere", str(target)), said)
            check("and why is said, once",
                  said.stderr.count("\n") == said.stderr.count(
                      f"{target} cannot be read (Permission denied)") == 1, said.stderr)
        os.chmod(closed, 0o700)
else:
    print("skipped: another user may not read vigil-symbols")
print(f"{passed} passed, {failed} failed")
sys.exit(1 if failed else 0)
