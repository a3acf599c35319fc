#!/usr/bin/env python3
"""From the symptom to the line by the steps of docs/guide/debugging.md: usage:
faulty_server_test.py SOURCE_ROOT PROGRAM LIBDW PAGE none|GDB FIVE_LINES

PROGRAM is faulty_server, with five faults, and is asked about each by the guide's commands.
LIBDW and PAGE are 1 if reports have lines, and if there is a live page. A step that needs
what is not here is left out, and the test says so.
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
from waits import check, reason_in, summary  # noqa: E402

ROOT, PROGRAM = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
LIBDW, PAGE = sys.argv[3] == "1", sys.argv[4] == "1"
GDB, *FIVE_LINES = sys.argv[5:]
SOURCE = ROOT / "tests/inspect/faulty_server.cpp"
PATIENCE = 60  # seconds, for what takes a few
# A fiber, or several that have the same frames, and what is said below.
BLOCK = re.compile(r"^fiber .*\n(?:(?:fiber|    |\.\.\. and).*\n)*", re.M)


def line_of(marker):
    """The number of the line that ends in this comment."""
    lines = [number for number, line in enumerate(SOURCE.read_text().splitlines(), 1)
             if line.endswith(f"// {marker}")]
    assert len(lines) == 1, f"{marker}: {lines}"
    return lines[0]


class Frame:
    """`function` at the line of the marker. It is found in a dump and in gdb."""

    def __init__(self, function, marker):
        line = line_of(marker)
        self.says = f"{function} at line {line}"
        self.pattern = re.compile(
            rf"^    (?:at |#).*\b{function}\b.*{SOURCE.name}:{line}\b", re.M)


class Fiber:
    """A fiber with such a line, and with these frames in this order."""

    def __init__(self, line, *frames):
        self.line, self.frames = line, frames

    def is_in(self, text):
        for block in BLOCK.findall(text):
            if re.search(self.line, block) and has_frames(block, self.frames):
                return True
        return False

    def __str__(self):
        return f"{self.line}: " + ", ".join(frame.says for frame in self.frames)


def has_frames(text, frames):
    at = 0
    for frame in frames:
        found = frame.pattern.search(text, at)
        if found is None:
            return False
        at = found.end()
    return True


class Report(Fiber):
    """The same in a report of the library's, which begins with such a line."""

    def is_in(self, text):
        return any(has_frames(report, self.frames) for report in re.findall(
            rf"^vigil: .*{self.line}.*\n(?: .*\n)*", text, re.M))


class Server:
    def __init__(self, fault, folder, **environment):
        self.folder = Path(folder)
        self.errors = open(self.folder / "stderr", "w+", encoding="utf-8")
        call = [PROGRAM] + ([f"--fault={fault}"] if fault else [])
        call += [f"--page={folder}/page"] if PAGE else []
        # A shell ignores SIGQUIT for what it runs in the background.
        self.process = subprocess.Popen(
            call, stdout=subprocess.PIPE, stderr=self.errors, text=True,
            preexec_fn=lambda: signal.signal(signal.SIGQUIT, signal.SIG_DFL),
            env={**os.environ, **environment})

    def __enter__(self):
        self.ready = self.process.stdout.readline()
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.errors.close()

    def said(self):
        return (self.folder / "stderr").read_text(encoding="utf-8", errors="replace")


# --- the commands: each returns the text in which the line is looked for


def standard_error(server):
    return server.said()


def standard_error_of_new_run(server):
    """slow_fiber reports once in a run, and has no frames of a thread that hears too late."""
    folder = server.folder / str(time.monotonic_ns())
    folder.mkdir()
    with Server("late-timer", folder) as other:
        end = time.monotonic() + PATIENCE
        # The last line below is no frame: the folded ones, or the reason for none.
        while time.monotonic() < end and not re.search(
                r"slow_fiber: fiber \d+ \(summary\).*\n(?:    at .*\n)*    [^a].*\n", other.said()):
            time.sleep(0.05)
        return other.said()


def by_signal(server, number):
    before = len(server.said())
    server.process.send_signal(number)
    end = time.monotonic() + PATIENCE
    while server.said()[before:].count("\n") < 2 and time.monotonic() < end:
        time.sleep(0.05)
    return server.said()


def kill_usr2(server):
    return by_signal(server, signal.SIGUSR2)


def kill_quit(server):
    return subprocess.run([ROOT / "tools/vigil-symbols"], input=by_signal(server, signal.SIGQUIT),
                          text=True, capture_output=True, check=False).stdout


def curl_dump(server):
    token = re.search(r"#token=(\w+)", server.said())[1]
    return subprocess.run(
        ["curl", "--silent", "--unix-socket", server.folder / "page", "-X", "POST",
         "-H", f"X-Vigil-Token: {token}", "http://localhost/dump.txt"],
        text=True, capture_output=True, check=False).stdout


def gdb(process, *commands):
    call = [GDB, "-nx", "-batch", "-iex", "set debuginfod enabled off", "-p", str(process.pid)]
    for command in ("set width 0", f"source {ROOT / 'tools/gdb/vigil-gdb.py'}", *commands):
        call += ["-ex", command]
    return subprocess.run(call, text=True, capture_output=True, check=False, timeout=PATIENCE)


def gdb_channels(server):
    return gdb(server.process, "info channels").stdout


def gdb_stacks(server):
    said = gdb(server.process, "fiber apply all bt").stdout
    return re.sub(r"^fiber \d+\.", "fiber ", said, flags=re.M).replace("\n#", "\n    #")


# --- the steps

left_out = {}


def leave_out():
    """Says once which steps cannot be taken here."""
    if shutil.which("addr2line") is None:
        left_out[kill_quit] = "vigil-symbols needs binutils"
    if not LIBDW:
        left_out[kill_usr2] = left_out[curl_dump] = left_out[standard_error] = \
            left_out[standard_error_of_new_run] = \
            "without libdw a report has no lines"
    if not PAGE:
        left_out[curl_dump] = "there is no live page in this build"
    elif shutil.which("curl") is None:
        left_out[curl_dump] = "there is no curl"
    why = "there is no gdb" if GDB == "none" else ""
    if not why:
        with subprocess.Popen([*FIVE_LINES, "stay"], stdout=subprocess.PIPE) as other:
            other.stdout.readline()
            tried = gdb(other, "info registers rip")
            other.kill()
        if not re.search(r"^rip ", tried.stdout, re.M):
            why = f"gdb attaches to no process: {reason_in(tried.stderr)}"
    if why:
        left_out[gdb_channels] = left_out[gdb_stacks] = why
    for command, reason in left_out.items():
        print(f"left out: {command.__name__}: {reason}")


def step(server, command, *wanted):
    """Whether the command says what is wanted. It is given again until it does: the fibers
    that show the fault may be on their way at the moment of a dump."""
    if command in left_out:
        return
    end = time.monotonic() + PATIENCE
    while True:
        text = command(server)
        missing = [str(w) for w in wanted
                   if not (w.is_in(text) if isinstance(w, Fiber) else re.search(w, text))]
        if not missing or time.monotonic() > end:
            break
        time.sleep(0.2)
    check(f"{command.__name__}: " + ", ".join(map(str, wanted)), not missing,
          "\n".join([text, "MISSING", *missing]))


def begin(server, fault, symptom):
    print(f"--- {fault}: {server.ready.strip()}")
    check(f"{fault}: it has the symptom", re.match(f"ready: .*(?:{symptom})", server.ready),
          server.said())


def unread(folder):
    sends = Fiber(r'\(refund\) \[parked: channel send to the channel "notes" .*\(16 of 16 values\)',
                  Frame("refund", "fault: unread"))
    with Server("unread", folder) as server:
        begin(server, "unread", "no answer|late")
        for command in (kill_usr2, kill_quit, curl_dump, gdb_stacks):
            step(server, command, sends)
        for command in (kill_usr2, kill_quit, curl_dump):
            step(server, command, r'(?m)^    "notes": nobody has ever received$')
        step(server, gdb_channels, r'channel "notes" .* to send: .*\(refund\).*to receive: nobody')


def lock_cycle(folder):
    refund = Fiber(r'\(refund\) \[parked: mutex "stock" .*held by fiber [\d.]+ \(buy\)',
                   Frame("take_back", "fault: lock-cycle"))
    buy = Fiber(r'\(buy\) \[parked: mutex "ledger" .*held by fiber [\d.]+ \(refund\)',
                Frame("buy", "other: lock-cycle"))
    with Server("lock-cycle", folder) as server:
        begin(server, "lock-cycle", "no answer|late")
        for command in (kill_usr2, kill_quit, curl_dump, gdb_stacks):
            step(server, command, refund, buy)
        step(server, kill_usr2, r'cycle: fiber \d+ \((?:refund|buy)\).* waits for mutex "(?:stock|ledger)" '
             r'.*held by .*, which waits for mutex "(?:stock|ledger)" ')
        if kill_usr2 not in left_out:
            certain = kill_usr2(server).partition("that may never go on")[0]
            check("kill_usr2: both are certain", refund.is_in(certain) and buy.is_in(certain),
                  certain)


def lock_across_wait(folder):
    locks = Frame("price", "fault: lock-across-wait")
    waits = Frame("price", "waits: lock-across-wait")
    with Server("lock-across-wait", folder, VIGIL_LOCK_CHECK="report") as server:
        begin(server, "lock-across-wait", "no answer|late")
        step(server, standard_error,
             Report(r"\(price\).*is about to wait .* and holds a mutex", locks, waits))
    with Server("lock-across-wait", folder) as server:
        step(server, standard_error, r"vigil: no worker has switched to another fiber",
             Fiber(r"\(price\) \[running", Frame("price", "fault: lock-across-wait")))
        # Once each worker waits for the lock, a holder whose wait has ended finds none.
        holds = Fiber(r"\(price\) \[(?:parked: (?:sleep|semaphore)|runnable)", waits)
        for command in (kill_quit, curl_dump):
            step(server, command, holds)


def empty_pool(folder):
    with Server("empty-pool", folder) as server:
        begin(server, "empty-pool", "no answer|late")
        for command in (kill_usr2, kill_quit, curl_dump):
            step(server, command, Fiber(r'\[parked: semaphore "connections"'))
        # The users that have not given back.
        for command in (kill_quit, curl_dump):
            step(server, command,
                 r'"connections": acquired by fiber [\d.]+ \(refund\), which has ended, '
                 rf".* started at .*{SOURCE.name}:{line_of('refund')}\b")


def late_timer(folder):
    started = line_of("summary")
    computes = Frame("summary", "fault: late-timer")
    with Server("late-timer", folder) as server:
        begin(server, "late-timer", "no answer|late")
        step(server, standard_error,
             rf"vigil: slow_fiber: fiber \d+ \(summary\), started at .*{SOURCE.name}:{started}\b")
        step(server, standard_error_of_new_run,
             Report(r"slow_fiber: fiber \d+ \(summary\)", computes))
        step(server, curl_dump, Fiber(r"\(summary\) \[running", computes))


def no_fault(folder):
    with Server("", folder, VIGIL_LOCK_CHECK="report") as server:
        begin(server, "no fault", "1000 answers")
        server.process.terminate()
        status = server.process.wait(PATIENCE)
        check("no fault: it ends by SIGTERM, and no lock was held",
              status == 0 and "is about to wait" not in server.said(), server.said())


def main():
    leave_out()
    for fault in (unread, lock_across_wait, lock_cycle, empty_pool, late_timer, no_fault):
        with tempfile.TemporaryDirectory() as folder:
            fault(folder)
    return summary()


if __name__ == "__main__":
    sys.exit(main())
