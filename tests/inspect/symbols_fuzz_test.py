#!/usr/bin/env python3
"""Hands broken dumps to vigil-symbols: usage: symbols_fuzz_test.py ROOT PROGRAM [SECONDS [SEED]]

PROGRAM is sigquit_program. A dump of its is changed by bytes, by lines and by words that
dumps are made of, and so are copies of the file that it names. Whatever comes: no
exception, an end, no descriptor left open, and each line that is no frame of a file that
is there comes out as it was.
"""
import importlib.machinery
import importlib.util
import os
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

root, program = Path(sys.argv[1]), Path(sys.argv[2]).resolve()
seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 5
first_seed = int(sys.argv[4]) if len(sys.argv) > 4 else 1
PATIENCE = 120  # seconds; for one input, whatever the machine does meanwhile

sys.dont_write_bytecode = True
script = str(root / "tools/vigil-symbols")
loader = importlib.machinery.SourceFileLoader("vigil_symbols", script)
tool = importlib.util.module_from_spec(importlib.util.spec_from_loader("vigil_symbols", loader))
loader.exec_module(tool)

MADE = re.compile(rb"    (at .*( \[inlined\]|\+0x[0-9a-f]+\))"
                  rb"|\.\.\. \d+ functions? of (vigil|std|vigil and std))")
WORDS = [b"    at ? (", b"    (build ", b" of ", b")", b"+0x", b"+0x0", b"+0xffffffffffffffff",
         b"+0x1ffffffffffffffffffff", b"\\n", b"\\x0", b"\\x00", b"\\\\", b"\\q", b"/", b"//",
         b"\0", b"\r", b"\n", b"\r\n", b"\x0b\x0c\x1c\x85", b"\xff\xfe", "\u2028é".encode(),
         b"    ... 3 functions of vigil\n", b"    ... 1 function of std\n",
         b"    at vigil::v0::x() (/x+0x1)\n", b"-", b"%s{}", b"/" + b"y" * 5000]


def path_of_frame(line):
    """The path in a line that may be named; None: it must stay. Not by the tool's way."""
    text = line.rstrip(b"\r\n")
    head, _, digits = text.rpartition(b"+0x")
    begin = b"    at ? ("
    is_frame = (head.startswith(begin + b"/") and digits.endswith(b")") and len(digits) > 1
                and not digits[:-1].strip(b"0123456789abcdef"))
    return tool.unescaped(head[len(begin):]) if is_frame else None


def is_file(path):
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def fault(given, written):
    """What is wrong with the text that was written; None: nothing."""
    lines = written.splitlines_of()
    at = 0
    for line in given.splitlines_of():
        path = path_of_frame(line)
        start = at
        while at < len(lines) and lines[at] != line and MADE.fullmatch(lines[at].rstrip(b"\r\n")):
            at += 1
        if at < len(lines) and lines[at] == line:
            at += 1
        elif path is None or not is_file(path):
            return f"{line!r} is missing after {lines[max(0, start - 1):start + 1]}"
        else:
            at = start  # it has been named, or is among those that were folded
    rest = [x for x in lines[at:] if not MADE.fullmatch(x.rstrip(b"\r\n"))]
    return f"{rest[0]!r} came from nowhere" if rest else None


class Text(bytes):
    def splitlines_of(self):
        """At line feeds alone, as a file is read."""
        return [x for x in re.split(rb"(?<=\n)", self) if x]


def changed(dice, text, words):
    data = bytearray(text)
    for _ in range(dice.randint(1, 8)):
        at = dice.randrange(len(data) + 1)
        kind = dice.randrange(7)
        if kind == 0 and data:
            data[at - 1] ^= 1 << dice.randrange(8)
        elif kind == 1:
            data[at:at] = dice.choice(words)
        elif kind == 2:
            del data[at:at + dice.randint(1, 40)]
        elif kind == 3:
            end = at + dice.randint(1, 200)
            data[at:at] = data[at:end] * dice.randint(1, 3)
        elif kind == 4:
            lines = Text(data).splitlines_of()
            dice.shuffle(lines)
            data = bytearray(b"".join(lines))
        elif kind == 5:
            del data[at:]
        else:  # another file
            data = bytearray(bytes(data).replace(os.fsencode(program), dice.choice(words[-6:]),
                                                 dice.randint(1, 3)))
    return Text(data)


def files_in(folder, dice):
    """Files and what is none."""
    (folder / "empty").touch()
    (folder / "loop").symlink_to(folder / "loop")
    os.mkfifo(folder / "fifo")
    data = bytearray(program.read_bytes())
    for _ in range(200):  # most of them in its head and its tables
        end = 4096 if dice.randrange(2) else len(data)
        data[dice.randrange(64, end)] ^= 1 << dice.randrange(8)
    (folder / "broken").write_bytes(data)
    (folder / "cut").write_bytes(data[:dice.randrange(len(data))])
    names = ("empty", "loop", "fifo", "broken", "cut", ".")
    return [os.fsencode(folder / name) for name in names]


def folded(text):
    """What main() does with a dump."""
    modules, builds, out = {}, {}, tool.Folder()
    written = b"".join(tool.named(line, modules, builds, out) for line in text.splitlines_of())
    for module in modules.values():
        module.close()
    return Text(written + out.rest())


def run(seed, dump, files):
    text = changed(random.Random(seed), dump, WORDS + files)
    before = len(os.listdir("/proc/self/fd"))
    written = folded(text)
    wrong = fault(text, written)
    if not wrong and len(os.listdir("/proc/self/fd")) != before:
        wrong = "a descriptor is left open"
    if not wrong and seed % 16 == 0:
        whole = subprocess.run([sys.executable, script], input=text, capture_output=True)
        if (whole.returncode, whole.stdout) != (0, written):
            wrong = f"the program says otherwise: {whole}"
    if wrong:
        print(f"FAILED: seed {seed}: {wrong}\n{bytes(text)}")
        sys.exit(1)


if shutil.which("addr2line") is None:
    print("skipped: vigil-symbols needs binutils")
    sys.exit(77)
sys.stderr = None  # of the tool, which tells why a file is not named
plain = subprocess.run([program], capture_output=True).stderr
end = time.monotonic() + seconds
seed = first_seed
with tempfile.TemporaryDirectory() as folder:
    files = files_in(Path(folder), random.Random(first_seed))
    while seed == first_seed or time.monotonic() < end:
        signal.alarm(PATIENCE)
        run(seed, plain, files)
        seed += 1
    signal.alarm(0)
print(f"{seed - first_seed} dumps from seed {first_seed} on")
