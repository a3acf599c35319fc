"""gdb commands for programs that use vigil, on a process as on a core: gdb 12 or newer.

  info fibers                 every fiber: its state, its wait, where it was started
  fiber N                     makes bt, up, frame and info locals show fiber N
  fiber                       goes back to the thread; so does `fiber 0`
  fiber apply all COMMAND     runs the command for each fiber, or for those that are named:
  fiber apply N... COMMAND    a number each, or R.N for fiber N of runtime R
  info timers                 the pending timers, by their deadlines
  info channels [N]           the channels at which fibers and tasks wait, or fiber N
  info tasks                  every task: as fibers, and the functions of its coroutines
  info stuck                  the fibers that can never go on, and those that may not

The program needs no debug information, only its symbols: the text `vigil_debug_layout` in
it says where everything is (src/core/base/debug_layout.hpp). Fibers are found in the table of
stacks. Nothing in the process is changed, neither memory nor registers: an unwinder lets
frame 0 of the selected thread be followed by the frames of the selected fiber.
"""
if __name__ == "__main__":
    # gdb runs all scripts in this one namespace. It is put back at the end.
    namespace_before = dict(globals())

import array
import bisect
import ipaddress
import os
import re
import struct
import time
import types

import gdb
import gdb.unwinder

NAMESPACE = "_ZN5vigil2v06detail"
FORMAT = "vigil debug layout 3"
OTHER_SCRIPT = ("take the script of the program's version of vigil: tools/gdb/vigil-gdb.py in the "
                "source tree, share/gdb/auto-load/vigil-gdb.py below the prefix of an installation.")


# --- reading the program

def address_of(symbol):
    try:
        return int(gdb.parse_and_eval("&" + symbol))
    except gdb.error:
        return None


def address_in_namespace(name):
    return address_of(f"{NAMESPACE}{len(name)}{name}E")


def read(address, size):
    return bytes(gdb.selected_inferior().read_memory(address, size))


def number_at(address, size=8, signed=False):
    return int.from_bytes(read(address, size), "little", signed=signed)


def text_at(address, most=1024):
    found = b""
    while address and len(found) < most:
        step = 256 - address % 256  # never into a page that may not be there
        try:
            found += read(address, step)
        except gdb.MemoryError:
            return found.decode(errors="replace") or "?"
        if b"\0" in found:
            break
        address += step
    return found.split(b"\0")[0].decode(errors="replace")


def symbol_at(address):
    """The name of the symbol that begins there, or "" if none does."""
    said = gdb.execute(f"info symbol {address:#x}", to_string=True)
    match = re.match(r"(.*) in section ", said.splitlines()[0]) if said else None
    return match[1] if match else ""


def coroutine_name(resume):
    """The name of the coroutine that this function resumes; "" if none begins there."""
    name = symbol_at(resume)
    # g++ names it after the type of the frame, whose name has the function's inside.
    if match := re.search(r"(?:\d|::)(_Z[^\s:]*?)\.Frame", name):
        try:
            return gdb.execute(f"demangle -l c++ -- {match[1]}", to_string=True).strip()
        except gdb.error:
            return match[1]
    return re.sub(r" \[clone \.\w+\]$|\.(resume|actor)$", "", name)


class Field:
    """A field of a fiber, as fiber_view.hpp shows it."""

    def __init__(self, kind, offset, size, key, before):
        self.kind, self.key, self.before = kind, key, before
        self.offset, self.size = int(offset), int(size)

    def raw(self, block):
        """A number; of a name its bytes."""
        found = block[self.offset:self.offset + self.size]
        if self.kind == "name":
            return found.split(b"\0")[0]
        return int.from_bytes(found, "little", signed=self.kind in ("age", "due"))


class Layout:
    """The offsets, sizes, constants and names that the program's text tells."""

    def __init__(self):
        at = address_of("vigil_debug_layout")
        if at is None:
            raise gdb.GdbError(
                "This program has no symbol vigil_debug_layout: it does not use vigil, or it "
                "has been stripped.")
        lines = text_at(at, 1 << 16).splitlines()
        if not lines or lines[0] != FORMAT:
            raise gdb.GdbError(f"The program says {lines[:1]}, this script reads '{FORMAT}': "
                               + OTHER_SCRIPT)
        self.names = {}
        self.numbers = {}
        self.fields = []
        for key, _, value in (line.partition("=") for line in lines[1:]):
            kind, _, rest = key.partition(".")
            if kind in ("fiber_state", "wait_reason", "ended_by", "timer_kind"):
                self.names[kind, int(rest)] = value
            elif kind == "fiber_field":
                self.fields.append(Field(*value.split("\t")))
            else:
                self.numbers[key] = int(value)

    def __call__(self, key):
        if key not in self.numbers:
            raise gdb.GdbError(f"The program does not say where '{key}' is: " + OTHER_SCRIPT)
        return self.numbers[key]

    def value(self, key):
        return self("value." + key)

    def size(self, key):
        return self("sizeof." + key)

    def name(self, kind, number):
        return self.names.get((kind, number), "?")

    def field(self, object_at, key, size=8, signed=False):
        return number_at(object_at + self(key), size, signed)


# --- texts, as the library's dump writes them

def seconds(nanos):
    sign = "-" if nanos < 0 else ""
    millis = abs(nanos) // 1_000_000
    return f"{sign}{millis // 1000}.{millis % 1000:03} s"


def written(name):
    """As written_name.cpp writes it: control characters and bytes that are not UTF-8 escaped."""
    special = {"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}

    def is_shown(c):
        return ord(c) >= 0xa0 and not 0xd800 <= ord(c) < 0xe000 or 0x20 <= ord(c) < 0x7f

    return "".join(special.get(c) or (c if is_shown(c) else "".join(
        f"\\x{b:02x}" for b in c.encode(errors="surrogateescape"))) for c in name)


def place(file, line):
    return f"{file}:{line}" if line else file


# --- descriptors, as awaited_object.cpp writes them

def is_on_this_machine():
    """Whether gdb itself controls the process."""
    connection = getattr(gdb.selected_inferior(), "connection", None)
    return connection is not None and connection.type == "native"


def address_text(packed):
    """An address and a port as /proc/net writes them."""
    host, _, port = packed.partition(":")
    words = struct.pack(f"<{len(host) // 8}I", *(int(host[i:i + 8], 16)
                                                 for i in range(0, len(host), 8)))
    ip = ipaddress.ip_address(words)
    mapped = getattr(ip, "ipv4_mapped", None)
    text = f"[::ffff:{mapped}]" if mapped else f"[{ip}]" if ip.version == 6 else str(ip)
    return f"{text}:{int(port, 16)}"


def socket_text(pid, inode):
    """The ends of a socket by the tables in /proc, or "" if they do not have it."""
    for name in ("tcp", "tcp6", "udp", "udp6"):
        for fields in (line.split() for line in open(f"/proc/{pid}/net/{name}")):
            if len(fields) > 9 and fields[9] == inode:
                text = f" ({name.rstrip('6')} {address_text(fields[1])}"
                if not fields[2].endswith(":0000"):
                    text += f", peer {address_text(fields[2])}"
                return text + (", listening)" if fields[3] == "0A" else ")")
    for fields in (line.split(maxsplit=7) for line in open(f"/proc/{pid}/net/unix")):
        if len(fields) > 6 and fields[6] == inode:
            text = f" (unix {written(fields[7].rstrip())}" if len(fields) > 7 else " (unix"
            return text + (", listening)" if int(fields[3], 16) & 0x10000 else ")")
    return ""


def descriptor_text(number):
    """Its addresses as well, for a process that gdb itself controls."""
    pid = gdb.selected_inferior().pid
    if not is_on_this_machine():
        return f"descriptor {number}"
    try:
        target = os.readlink(f"/proc/{pid}/fd/{number}")
        if target.startswith("socket:["):
            return f"socket {number}" + socket_text(pid, target[8:-1])
    except FileNotFoundError:
        return f"descriptor {number} (closed)"
    except (OSError, ValueError):
        pass
    return f"descriptor {number}"


def call_text(thread):
    return {0: " (not begun)", -1: " (has returned)"}.get(thread, f" (on thread {thread})")


# --- what the program has

stopped_at = None  # the monotonic clock when the process last stopped


def real_now():
    """The time on the machine of a process that gdb itself controls; None for others."""
    if not is_on_this_machine():
        return None
    return stopped_at or time.clock_gettime_ns(time.CLOCK_MONOTONIC)


class Runtime:
    def __init__(self, layout, at):
        self.at = at
        self.number = layout.field(at, "scheduler.number_")
        self.service = layout.field(at, "scheduler.timers_")
        self.tasks = layout.field(at, "scheduler.parts_above.all_[0]")
        self.is_virtual = layout.field(at, "scheduler.clock.virtual_", 1) != 0
        if self.is_virtual:
            self.now = layout.field(at, "scheduler.clock.virtual_now_", signed=True)
        else:
            self.now = real_now()
        begin, end = struct.unpack("<QQ", read(at + layout("scheduler.workers_"), 16))
        self.workers = [number_at(begin + i) for i in range(0, end - begin, 8)]
        # The fiber that each worker runs -> the kernel's number of the worker's thread.
        self.threads = {layout.field(w, "worker.current"):
                        layout.field(w, "worker.kernel_thread", 4) for w in self.workers}


class Shown:
    """A fiber or a task: its line has the fields of fiber_view.hpp that it has. A kind that
    this script does not know is left out."""

    def __init__(self, program, runtime, at, raw):
        self.program, self.runtime, self.at, self.raw = program, runtime, at, raw

    def waits_for(self, *reasons):
        return self.is_in("parked") and self.program.is_one_of(self.raw["reason"], *reasons)

    @property
    def title(self):
        name = written(self.raw.get("name", b"").decode(errors="surrogateescape"))
        return (f"{self.kind} {self.program.number_in(self.runtime, self.raw['id'])}"
                + (f" ({name})" if name else ""))

    def wait_text(self):
        reason = self.program.layout.name("wait_reason", self.raw["reason"])
        return reason + self.program.object_text(self)

    def due_in(self, until):
        left = until - self.now
        return f"in {seconds(left)}" if left >= 0 else f"{seconds(-left)} ago"

    def text_of(self, field):
        """What follows the words before it; None: the field is not shown."""
        raw, program = self.raw.get(field.key), self.program
        is_parked = self.is_in("parked")
        if field.kind == "state":
            return self.state_word()
        if raw is None or field.key in ("id", "name"):  # they are the title
            return None
        if field.kind == "reason":
            return self.wait_text() if is_parked else None
        if field.kind == "age":
            is_known = is_parked and raw != 0 and self.now is not None
            return seconds(max(0, self.now - raw)) if is_known else None
        if field.kind == "due":
            is_known = raw != program.layout.value("never") and self.now is not None
            return self.due_in(raw) if is_parked and is_known else None
        if field.kind == "flag":
            return "" if raw else None
        if field.kind == "place":
            return place(written(text_at(raw)), self.line)
        if field.kind == "id":
            return program.number_in(self.runtime, raw) if raw else None
        return None

    def line_text(self):
        text = self.title
        for field in self.program.layout.fields:
            if (value := self.text_of(field)) is not None:
                text += field.before + value
            elif field.kind == "run":
                text += self.run_text()
        return text


class Fiber(Shown):
    kind = "fiber"

    def __init__(self, program, block_at, bottom, top):
        layout = program.layout
        block = read(block_at, layout.value("block_places::room"))

        def word(key, size=8):
            at = layout("fiber_core." + key)
            return int.from_bytes(block[at:at + size], "little")

        self.bottom, self.top = bottom, top
        self.is_there = word("magic") == layout.value("fiber_core::live_magic")
        if not self.is_there:
            return
        raw = {f.key: f.raw(block) for f in layout.fields if f.size}
        self.id, self.state, self.line = raw["id"], word("state", 1), word("identity.line", 4)
        self.has_run, self.resumes_at = word("has_run", 1), word("side.resume_at_")
        self.object, self.ends_with = word("present.object"), word("present.ends_with")
        super().__init__(program, program.runtimes.get(word("sched")), block_at, raw)

    @property
    def now(self):
        return self.runtime.now if self.runtime else real_now()

    @property
    def number(self):
        return self.program.number_in(self.runtime, self.id)

    def is_in(self, state):
        return self.state == self.program.layout.value("fiber_state::" + state)

    def state_word(self):
        return self.program.layout.name("fiber_state", self.state)

    def run_text(self):
        thread = self.thread()
        return f" on thread {thread.num} (LWP {thread.ptid[1]})" if thread else ""

    def thread(self):
        """The thread that runs it, or None."""
        if self.is_in("running") and self.runtime is not None:
            number = self.runtime.threads.get(self.at)
            for thread in gdb.selected_inferior().threads():
                if number is not None and number in thread.ptid[1:]:
                    return thread
        return None

    def registers(self):
        """Those with which it goes on, or a text that says why there are none."""
        layout = self.program.layout
        if self.is_in("ended"):
            return "its function has returned"
        if self.is_in("running"):
            return "it runs, and its thread is not to be found"
        if not self.has_run:
            return "it has not begun"
        if "sizeof.left_frame" not in layout.numbers:
            return "this build leaves stacks by Boost's jump, whose frames the script does not read"
        if not self.bottom <= self.resumes_at < self.at:
            return "where it goes on does not lie on its stack"
        saved = {r: layout.field(self.resumes_at, "left_frame." + r)
                 for r in ("rbx", "rbp", "r12", "r13", "r14", "r15")}
        saved["rip"] = layout.field(self.resumes_at, "left_frame.goes_on")
        saved["rsp"] = self.resumes_at + layout.size("left_frame")
        return saved


class Task(Shown):
    kind, ends_with = "task", 0

    def __init__(self, program, runtime, at):
        layout = program.layout

        def word(key, size=8, signed=False):
            return layout.field(at, "task_core." + key, size, signed)

        made_at = at + layout("task_core.made_at")
        bits = layout.value("birth::line_bits")
        self.line = layout.field(made_at, "birth.line_and_name", 4) & (1 << bits) - 1
        self.park, self.object, self.now = word("park", 1), word("object"), runtime.now
        self.next, self.outermost = word("next"), word("outermost")
        super().__init__(program, runtime, at, {
            "id": word("id"), "reason": word("reason", 1), "nanoseconds": word("since", signed=True),
            "stop_requested": word("stop_flag", 1), "started_at": layout.field(made_at, "birth.file")})

    def is_in(self, state):
        word = {"parked": "suspended", "running": "running"}[state]
        return self.park == self.program.layout.value("task_core::park_word::" + word)

    def state_word(self):
        return next((word for word in ("parked", "running") if self.is_in(word)), "runnable")

    def run_text(self):
        fiber = self.program.runner_of(self) if self.is_in("running") else None
        return f" on {fiber.title}" if fiber else ""

    def functions(self):
        """Those of its coroutines, the innermost first; none of a task that runs."""
        frame, found = self.next, []
        name = self.function_of(frame)
        while name and len(found) < 1000:
            found.append(name)
            frame, name = self.awaiting(frame)
        return found

    @staticmethod
    def function_of(frame):
        """"" if it is no frame of a coroutine, which begins with the function that resumes."""
        try:
            return coroutine_name(number_at(frame)) if frame else ""
        except gdb.MemoryError:
            return ""

    def awaiting(self, frame):
        """The frame of the coroutine that awaits the one with this frame, and its function.
        The promise, a task_frame, lies behind two addresses of functions; farther behind if
        its alignment asks for that."""
        layout = self.program.layout
        for offset in (16, 32, 64, 128, 256) if frame != self.outermost else ():
            try:
                if layout.field(frame + offset, "task_frame.task") != self.at:
                    continue
                found = layout.field(frame + offset, "task_frame.awaiting")
            except gdb.MemoryError:
                continue
            if name := self.function_of(found):
                return found, name
        return 0, ""


class Program:
    def __init__(self):
        if not gdb.selected_inferior().threads():
            raise gdb.GdbError("There is neither a process nor a core.")
        self.layout = Layout()
        self.runtimes = {r.at: r for r in self.find_runtimes()}
        self.stacks_without_fiber = 0
        self.fibers = sorted(self.find_fibers(), key=lambda f: (
            f.runtime.number if f.runtime else 0, f.id))
        self.by_block = {f.at: f for f in self.fibers}
        self.tasks = [t for r in sorted(self.runtimes.values(), key=lambda r: r.number)
                      for t in self.find_tasks(r)]
        self.by_core = {t.at: t for t in self.tasks}
        self.names = address_in_namespace("object_names")

    def number_in(self, runtime, fiber_id):
        if len(self.runtimes) < 2 or runtime is None:
            return str(fiber_id)
        return f"{runtime.number}.{fiber_id}"

    def find_runtimes(self):
        layout = self.layout
        block = address_in_namespace("first_slots")
        while block:
            for at in range(0, layout.size("slot_block::slots"), layout.size("runtime_slot")):
                running = layout.field(block + layout("slot_block.slots") + at,
                                       "runtime_slot.running")
                if running:
                    yield Runtime(layout, running)
            block = layout.field(block, "slot_block.next")

    def find_slabs(self):
        """(begin, end, size of a stack with its guard, bytes that tell which are in use): the
        walk of slab_table.cpp."""
        layout = self.layout
        table = address_in_namespace("slabs")
        if table is None:
            raise gdb.GdbError("This program has no symbol vigil::detail::slabs.")
        for c in range(layout.field(table, "slab_table.chunk_count", 4)):
            chunk = number_at(table + layout("slab_table.chunks") + 8 * c)
            for s in range(layout.value("chunk_slabs")):
                slab = chunk + layout("chunk.slabs") + s * layout.size("slab")
                if layout.field(slab, "slab.state", 4) == layout.value("slab_state::vacant"):
                    continue
                base = layout.field(slab, "slab.base")
                size = (layout.value("min_stack_size") << layout.field(slab, "slab.size_class", 1)
                        ) + layout.value("stack_guard_size")
                used = read(slab + layout("slab.in_use"), layout.field(slab, "slab.count", 1))
                yield base, base + size * len(used), size, used

    def find_stacks(self):
        """(bottom, top) of each stack in use."""
        guard = self.layout.value("stack_guard_size")
        for base, _, size, used in self.find_slabs():
            for i, is_used in enumerate(used):
                if is_used:
                    yield base + i * size + guard, base + (i + 1) * size

    def find_fibers(self):
        layout = self.layout
        for bottom, top in self.find_stacks():
            # As control_block() of fiber.hpp.
            number = top >> layout.value("block_places::number_shift") & 0xffff_ffff
            colour = ((number * layout.value("block_places::factor") & 0xffff_ffff)
                      >> layout.value("block_places::colour_shift"))
            at = (top - layout.value("block_places::room")
                  - colour * layout.value("block_places::step"))
            try:
                fiber = Fiber(self, at, bottom, top)
            except gdb.MemoryError:
                fiber = None
            if fiber is not None and fiber.is_there:
                yield fiber
            else:
                self.stacks_without_fiber += 1

    def find_tasks(self, runtime):
        at = runtime.tasks and self.layout.field(runtime.tasks, "task_service.all_.first_")
        while at:
            yield Task(self, runtime, at)
            at = self.layout.field(at, "task_core.among_all.after")

    def runner_of(self, task):
        """The fiber that is inside the task: the record that says so lies on its stack."""
        layout = self.layout
        at = layout.field(task.runtime.tasks, "task_service.runners_.first_")
        while at:
            if layout.field(at, "task_service::runner.inside") == task.at:
                return next((f for f in self.fibers if f.bottom <= at < f.top), None)
            at = layout.field(at, "task_service::runner.hook.after")
        return None

    def fiber(self, number):
        """The fiber of this number, as the user writes it: N or R.N."""
        if not re.fullmatch(r"(\d+\.)?\d+", number):
            raise gdb.GdbError(f"'{number}' is not the number of a fiber.")
        runtime, _, fiber_id = number.rpartition(".")
        found = [f for f in self.fibers if f.id == int(fiber_id)
                 and (not runtime or (f.runtime and f.runtime.number == int(runtime)))]
        if not found:
            raise gdb.GdbError(f"There is no fiber {number}.")
        if len(found) > 1:
            raise gdb.GdbError(f"Several runtimes have a fiber {number}: "
                               + ", ".join(f.number for f in found) + ".")
        return found[0]

    # --- what fibers wait for, as awaited_object.cpp writes it

    def birth_text(self, at):
        bits = self.layout.value("birth::line_bits")
        word = self.layout.field(at, "birth.line_and_name", 4)
        line, name = word & (1 << bits) - 1, word >> bits
        file = written(text_at(self.layout.field(at, "birth.file")))
        text = f' "{written(text_at(number_at(self.names + 8 * (name - 1))))}"' if name else ""
        return text + (f" made at {file}:{line}" if line else f" of {file}")

    def object_text(self, fiber):
        try:
            text = self.awaited_text(fiber) if fiber.object else ""
            if fiber.ends_with:
                text += ", or the end of the context" + self.birth_text(fiber.ends_with)
            return text
        except gdb.MemoryError:
            return ""

    def is_one_of(self, reason, *names):
        return reason in [self.layout.value("wait_reason::" + n) for n in names]

    def awaited_text(self, fiber):
        if fiber.waits_for("select"):
            waits = [self.case_text(fiber, *wait) for wait in self.waits(fiber)]
            return " (" + ", ".join(waits) + ")" if waits else ""
        if fiber.waits_for("io"):
            at = number_at(fiber.object - 2) if fiber.object & 3 == 2 else fiber.object
            return " of " + descriptor_text(at >> 1) if at & 1 else self.birth_text(at)
        if fiber.waits_for("blocking"):
            return call_text(self.layout.field(fiber.object, "side_call.thread", 4, signed=True))
        return self.wait_text(fiber, fiber.raw["reason"], fiber.object)

    def case_text(self, fiber, reason, at):
        name = ("send" if self.is_one_of(reason, "send") else
                "receive" if self.is_one_of(reason, "recv") else
                self.layout.name("wait_reason", reason))
        return name + self.wait_text(fiber, reason, at)

    def wait_text(self, fiber, reason, at):
        """The object, to follow the reason."""
        if self.is_one_of(reason, "join"):
            other = self.by_block.get(at) or self.by_core.get(at)
            return f" of {other.title}" if other else ""
        if self.is_one_of(reason, "send", "recv"):
            return ((" to " if self.is_one_of(reason, "send") else " from ")
                    + self.channel_text(at))
        if self.is_one_of(reason, "io") and at & 1:
            return f" of descriptor {at >> 1}"
        return self.birth_text(at) + self.holder_text(fiber, reason, at)

    def holder_word(self, reason, at):
        for reasons, core, member in ((("mutex",), "mutex_core", "holder"),
                                      (("shared_mutex_read", "shared_mutex_write"),
                                       "shared_mutex_core", "holder"),
                                      (("once",), "once_core", "runner")):
            if self.is_one_of(reason, *reasons):
                return self.layout.field(at - self.layout(core + ".queue"), f"{core}.{member}")
        return 0

    def holder_text(self, fiber, reason, at):
        holder = self.holder_word(reason, at)
        if holder & 1:
            return ", held by a thread"
        if holder == 0:
            return ""
        number = holder >> 1 & (1 << 40) - 1  # holder_word.hpp; above it the runtime's
        same = [f for f in self.fibers if f.id == number]
        same.sort(key=lambda f: f.runtime is not fiber.runtime)
        return (f", held by {same[0].title}" if same else
                f", held by fiber {number}, which has ended")

    def holder_of(self, reason, at):
        """The block of the fiber that holds the lock; 0: it is not known."""
        holder = self.holder_word(reason, at)
        if holder & 1:
            return 0
        return next((f.at for f in self.fibers if f.id == holder >> 1 & (1 << 40) - 1
                     and f.runtime and f.runtime.number == holder >> 41), 0)

    def waits(self, fiber):
        """[(reason, address of the object)]: several for a select"""
        layout = self.layout
        if not fiber.object:
            return []
        if not fiber.waits_for("select"):
            return [(fiber.raw["reason"], fiber.object)]
        found = []
        cases = layout.field(fiber.object, "shown_select.cases")
        for i in range(layout.field(fiber.object, "shown_select.count")):
            case = number_at(cases + 8 * i)
            at = layout.field(case, "select_case.object")
            is_waiting = (layout.field(case, "select_case.type", 1)
                          == layout.value("select_case::kind::waits"))
            if is_waiting and at:
                table = layout.field(case, "select_case.table")
                reason = layout.field(table, "case_table.reason", 1)
                at += layout.field(table, "case_table.shown_at")
                if self.is_one_of(reason, "io"):  # there lies what is shown
                    at = number_at(at)
                if at:
                    found.append((reason, at))
        return found

    def channel_waits(self, fiber):
        """The addresses of the channels that it waits at."""
        if not fiber.is_in("parked"):
            return []
        return [at for reason, at in self.waits(fiber)
                if self.is_one_of(reason, "send", "recv")]

    def is_closed(self, at):
        marks = self.layout.field(at, "channel_core.marks_", 1)
        return bool(marks & self.layout.value("channel_core::closed"))

    def channel_text(self, at):
        layout = self.layout
        text = "the channel" + self.birth_text(at + layout("channel_core.made_at"))
        capacity = layout.field(at, "channel_core.capacity_")
        if self.is_closed(at):
            return text + " (closed)"
        if capacity:
            size = layout.field(at, "channel_core.size_")
            return text + f" ({size} of {capacity} values)"
        return text

    def channel_line(self, at):
        layout = self.layout
        state = "closed" if self.is_closed(at) else "open"
        return ("channel" + self.birth_text(at + layout("channel_core.made_at"))
                + f" at {at:#x}: capacity {layout.field(at, 'channel_core.capacity_')}, "
                f"size {layout.field(at, 'channel_core.size_')}, {state}; "
                f"to send: {self.queue_text(at, 'senders_')}; "
                f"to receive: {self.queue_text(at, 'receivers_')}")

    def queue_text(self, channel, queue):
        layout = self.layout
        at = layout.field(channel, f"channel_core.{queue}.elements_.first_")
        found = []
        while at and len(found) < 10_000:
            found.append(self.waiter_text(layout.field(at, "queued_waiter.whose")))
            at = layout.field(at, "queued_waiter.hook.after")
        return ", ".join(found) or "nobody"

    def waiter_text(self, at):
        layout = self.layout
        kind = layout.field(at, "waiter.kind_", 1)
        if kind == layout.value("waiter::kind::of_thread"):
            return "a thread"
        if kind != layout.value("waiter::kind::of_fiber"):
            task = self.by_core.get(layout.field(at, "waiter.owner_"))
            return task.title if task else "a task that is gone"
        fiber = self.by_block.get(layout.field(at, "waiter.owner_"))
        return fiber.title if fiber else "a fiber that is gone"

    # --- timers

    def pending_timers(self, runtime):
        """(deadline, address of the timer, whether its callback is due), each once."""
        layout = self.layout
        parts = runtime.service + layout("timer_service.parts_")
        size = layout.size("heap_entry")
        arrays = [(layout.field(parts, "timer_service::parts.heap.heap_.entries_"),
                   layout.field(parts, "timer_service::parts.heap.heap_.size_"))]
        intakes = parts + layout("timer_service::parts.heap.intakes_")
        for at in range(number_at(intakes), number_at(intakes + 8), layout.size("intake")):
            arrays.append((at + layout("intake.entries"), layout.field(at, "intake.size", 4)))
        found = {}
        for begin, count in arrays:
            entries = read(begin, count * size) if count else b""
            for i in range(count):
                entry = entries[i * size:(i + 1) * size]
                key, = struct.unpack_from("<q", entry, layout("heap_entry.key"))
                timer, = struct.unpack_from("<Q", entry, layout("heap_entry.timer"))
                if layout.field(timer, "runtime_timer.filed", signed=True) == key:
                    found[timer] = False
        timer = layout.field(parts, "timer_service::parts.callbacks.queue_.first_")
        while timer:
            found[timer] = True
            timer = layout.field(timer, "timer_record.next")
        all_ = [(layout.field(t, "runtime_timer.when", signed=True), t, due)
                for t, due in found.items()]
        return sorted(t for t in all_ if t[0] > 0)

    def timer_text(self, at):
        layout = self.layout
        kind = layout.field(at, "runtime_timer.kind", 1)
        text = layout.name("timer_kind", kind)
        if kind == layout.value("timer_kind::fiber_ready"):
            return text + ": " + self.waiter_text(layout.field(at, "runtime_timer.wait.whose"))
        if kind == layout.value("timer_kind::go_func"):
            period = layout.field(at, "timer_record.period")
            text += f", every {seconds(period)}" if period else ""
            file = text_at(layout.field(at, "timer_record.made_at.file"))
            text += f", made at {place(file, layout.field(at, 'timer_record.made_at.line', 4))}"
            return text + self.callback_text(layout.field(at, "timer_record.call.table_"))
        channel = layout.field(at, "runtime_timer.send.argument")
        return text + ": received by " + self.queue_text(channel, "receivers_")

    @staticmethod
    def callback_text(table):
        match = re.search(r"_table<(.*)>$", symbol_at(table)) if table else None
        return f": {match[1]}" if match else ""


# --- fibers that can never go on: the rules of stuck_fibers.hpp, on a process that stands

class Part:
    """Something that can become visible: a word in visible memory points into `ranges[0]`."""

    def __init__(self, title, *ranges):
        self.title, self.ranges = title, ranges
        self.seen_by = None  # the fiber on whose stack the word lies; 0: other memory


class Candidate:
    """A fiber that waits without a deadline for something that others do."""

    def __init__(self, fiber):
        self.fiber = fiber
        self.ways = None  # functions: why the way is open, or None; no list: not known
        self.why = None   # it is live


class StuckSearch:
    """A word that happens to look like a pointer makes a fiber less certain, never more; so
    does what is not looked into here: the locks' queues and contexts with a function."""

    ADDRESS = (1 << 48) - 1

    def __init__(self, program):
        self.program, self.layout = program, program.layout
        self.parts = {}     # by the beginning of the object
        self.left_out = []  # ranges that are not read
        self.roots = {r.at: self.root_of(r) for r in program.runtimes.values()}
        self.candidates = [Candidate(f) for f in program.fibers if self.may_be_stuck(f)]
        self.by_block = {c.fiber.at: c for c in self.candidates}
        self.stacks = {c: Part("something on its stack", (c.fiber.resumes_at + 1, c.fiber.at))
                       for c in self.candidates}
        self.blocks = {c: Part("its handle, which can stop it", (c.fiber.at, c.fiber.at + 1))
                       for c in self.candidates if self.has_handle(c.fiber)}
        for c in self.candidates:
            try:
                c.ways = self.ways_of(c)
            except gdb.MemoryError:
                pass
        # Main waits so for the shutdown, in a server.
        for c in self.candidates[:]:
            if c.ways == [] and self.is_main(c.fiber):
                self.candidates.remove(c)
                for table, key in ((self.stacks, c), (self.blocks, c), (self.by_block, c.fiber.at)):
                    table.pop(key, None)

    def of_fiber(self, fiber, key, size=1):
        return self.layout.field(fiber.at, "fiber_core." + key, size)

    def root_of(self, runtime):
        """The node of the runtime's context, which only the shutdown ends."""
        layout = self.layout
        whole = runtime.at + layout("scheduler.number_") - layout("run_core.number_")
        root = layout.field(whole, "run_core.end.root")
        fibers = runtime.at + layout("scheduler.fibers")
        self.left_out.append((fibers, fibers + layout.size("scheduler.fibers")))
        for worker in runtime.workers:
            self.left_out.append((worker, worker + layout.size("worker")))
        if root:
            begin = root - layout("cancel_context.node")
            self.left_out.append((begin, begin + layout.size("cancel_context")))
        return root

    def may_be_stuck(self, f):
        layout, runtime = self.layout, f.runtime
        if runtime is None or not f.is_in("parked") or layout.names.get(
                ("ended_by", f.raw["reason"]), "system") == "system":
            return False
        return (self.of_fiber(f, "park_state") == layout.value("park_word::parked")
                and self.of_fiber(f, "own_waiter.word_", 8)
                & layout.value("waiter::outcome_mask") == 0
                and f.raw["due_in_nanoseconds"] == layout.value("never")
                and (not f.raw["stop_requested"] or self.is_for_lock(f))
                and self.of_fiber(f, "role") != layout.value("fiber_role::timer")
                and layout.field(runtime.at, "scheduler.state.phase_", 1)
                == layout.value("run_phase::running")
                and not layout.field(runtime.at, "scheduler.settings_.is_observer", 1))

    def is_for_lock(self, f):
        return self.program.is_one_of(f.raw["reason"], "mutex", "shared_mutex_read",
                                      "shared_mutex_write")

    def is_main(self, f):
        return self.of_fiber(f, "role") == self.layout.value("fiber_role::main")

    def has_handle(self, f):
        return (not self.is_main(f)
                and self.of_fiber(f, "life.handle") == self.layout.value("handle_state::held"))

    # --- the ways in which a wait can end

    def part(self, title, begin, size, *more):
        if begin not in self.parts:
            self.parts[begin] = Part(title, (begin, begin + size), *more)
        part = self.parts[begin]
        return lambda: part.title + self.seen_text(part) if part.seen_by is not None else None

    def seen_text(self, part):
        by = part.seen_by
        while by and by.at in self.by_block and self.by_block[by.at].why is None:
            by = self.stacks[self.by_block[by.at]].seen_by  # it cannot go on itself
        where = f"the stack of {by.title}" if by else "memory that is no fiber's stack"
        return f" can be reached from {where}"

    def ways_of(self, c):
        f = c.fiber
        ways = []
        if f.ends_with:
            node = f.ends_with - self.layout("cancel_node.made_at")
            ways += self.ways_of_context(node, self.roots[f.runtime.at])
        ways += self.ways_to(f, f.raw["reason"], f.object)
        return None if None in ways else ways

    def ways_of_context(self, node, root):
        layout, ways = self.layout, []
        while node and node != root:
            begin = node - layout("cancel_context.node")
            if (layout.field(begin, "cancel_context.deadline", signed=True) != layout.value("never")
                    or layout.field(begin, "cancel_context.timer_")
                    or layout.field(begin, "cancel_context.heard_")
                    or layout.field(node, "cancel_node.state_", 1)):
                return [None]  # it ends by itself
            ways.append(self.part("its context", begin, layout.size("cancel_context")))
            # The library's own links: nobody acts by them.
            self.left_out.append((node + layout("cancel_node.above_"),
                                  node + layout("cancel_node.callbacks_")))
            self.left_out.append((node + layout("cancel_node.children_"),
                                  node + layout.size("cancel_node")))
            node = layout.field(node, "cancel_node.above_")
        return ways

    def ways_to(self, f, reason, at):
        """A None among them: something that is not looked into."""
        layout = self.layout
        by = layout.names.get(("ended_by", reason), "system")
        if by == "nobody":
            return []
        if by == "end_of_other":
            return [lambda: None if at in self.by_block and self.by_block[at].why is None
                    else "the fiber that it waits for may end"]
        if by == "channel":
            if layout.field(at, "channel_core.source"):
                return [None]
            ops = layout.field(at, "channel_core.ops")
            ring = layout.field(at, "channel_core.ring_")
            size = layout.field(at, "channel_core.capacity_") * layout.field(ops, "element_ops.size")
            return [self.part("what it waits for", at, layout.size("channel_core"),
                              *([(ring, ring + size)] if ring else []))]
        if by == "cases":
            ways = []
            for case in self.cases_of(f):
                ways += [None] if case is None else self.ways_to(f, *case)
            return ways
        if by == "group":
            return [self.part("its group", at, layout.size("group_core"))]
        if by == "queue":
            return [lambda: self.way_of_lock(reason, at)]
        return [None]

    def cases_of(self, f):
        """(reason, object) of each case that waits; a None: one of another kind."""
        layout = self.layout
        if not f.object:
            return [None]
        found = []
        cases = layout.field(f.object, "shown_select.cases")
        for i in range(layout.field(f.object, "shown_select.count")):
            case = number_at(cases + 8 * i)
            if layout.field(case, "select_case.type", 1) != layout.value("select_case::kind::waits"):
                return [None]
            if at := layout.field(case, "select_case.object"):
                table = layout.field(case, "select_case.table")
                found.append((layout.field(table, "case_table.reason", 1),
                              at + layout.field(table, "case_table.shown_at")))
        return found

    def way_of_lock(self, reason, at):
        holder = self.program.holder_of(reason, at)
        if holder in self.by_block and self.by_block[holder].why is None:
            return None
        lies_on = next((c for c in self.candidates if c.fiber.bottom <= at < c.fiber.top), None)
        if lies_on is None:
            return "what it waits for can be reached"
        stack = self.stacks[lies_on]
        return "what it waits for" + self.seen_text(stack) if stack.seen_by is not None else None

    # --- memory

    def registers(self):
        """Those of all threads, as bytes, and the stack pointer of each thread."""
        words, pointers = [], {}
        general = ("rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "rip",
                   *(f"r{n}" for n in range(8, 16)))
        with kept_selection():
            choose(None)
            for thread in gdb.selected_inferior().threads():
                thread.switch()
                frame = gdb.newest_frame()
                for name in general:
                    words.append(int(frame.read_register(name)))
                pointers[thread.num] = int(frame.read_register("rsp"))
                for n in range(16):
                    vector = frame.read_register(f"xmm{n}")["v2_int64"]
                    words += [int(vector[0]), int(vector[1])]
        return b"".join(struct.pack("<Q", w & (1 << 64) - 1) for w in words), pointers

    def slabs(self):
        """The memory of all stacks."""
        return [(begin, end) for begin, end, _, _ in self.program.find_slabs()]

    def pieces(self):
        """What is there of all memory that the process can write: (begin, end)."""
        pid = gdb.selected_inferior().pid
        if is_on_this_machine():
            with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as page_map:
                for line in open(f"/proc/{pid}/maps"):
                    place_, rights, _, _, inode, *name = line.split(maxsplit=5)
                    begin, end = (int(x, 16) for x in place_.split("-"))
                    if rights[0] == "r" and (rights[1] == "w" or inode == "0") and not (
                            name and name[0].startswith(("[vvar", "[vdso", "[vsys"))):
                        yield from self.pages_there(page_map, begin, end, rights[3] == "s")
        else:
            # A core; what was only reserved is in it without contents.
            found = re.findall(r"(0x\w+)->(0x\w+) at \w+: load\w+ .*\bHAS_CONTENTS",
                               gdb.execute("maint info sections", to_string=True))
            if not found:
                raise gdb.GdbError("info stuck reads a core, or a process that gdb itself "
                                   "controls.")
            for begin, end in found:
                yield int(begin, 16), int(end, 16)

    @staticmethod
    def pages_there(page_map, begin, end, is_shared):
        for at in range(begin, end, 4096 << 15):
            stop = min(end, at + (4096 << 15))
            try:
                page_map.seek(at // 4096 * 8)
                entries = struct.unpack(f"<{(stop - at) // 4096}Q",
                                        page_map.read((stop - at) // 4096 * 8))
            except (OSError, struct.error):
                is_shared = True
            if is_shared:  # a page may be there without an entry of this process
                yield at, stop
                continue
            first = None
            for i, entry in enumerate(entries):
                if entry >> 62 and first is None:
                    first = i
                elif not entry >> 62 and first is not None:
                    yield at + 4096 * first, at + 4096 * i
                    first = None
            if first is not None:
                yield at + 4096 * first, stop

    def roots_in_memory(self):
        out = merged(self.left_out + self.slabs()
                     + [r for p in self.parts.values() for r in p.ranges])
        for begin, end in self.pieces():
            for hole_begin, hole_end in out:
                if hole_end > begin and hole_begin < end:
                    yield begin, min(hole_begin, end)
                    begin = max(begin, hole_end)
            yield begin, end

    def look_at(self, data, by):
        """Makes visible what the words point to. One may begin at each fourth byte."""
        tops = self.tops
        for shift in (0, 4):
            words = array.array("Q")
            words.frombytes(data[shift:shift + (len(data) - shift) // 8 * 8])
            for word in {w for w in words if w >> 24 & 0xff_ffff in tops}:
                word &= self.ADDRESS
                i = bisect.bisect_right(self.begins, word) - 1
                if i >= 0 and word < self.targets[i][1] and self.targets[i][2].seen_by is None:
                    self.targets[i][2].seen_by = by
                    self.waiting.append(self.targets[i][2])

    def scan(self, begin, end, by=0):
        step = 1 << 22
        out = [r for r in self.links if r[1] > begin and r[0] < end]
        for at in range((begin + 3) // 4 * 4, end, step):
            try:
                data = bytearray(read(at, min(step + 4, end - at)))
            except gdb.MemoryError:
                data = self.readable(at, min(end, at + step))
            for link_begin, link_end in out:
                low, high = max(link_begin - at, 0), min(link_end - at, len(data))
                if low < high:
                    data[low:high] = bytes(high - low)
            self.look_at(data, by)

    @staticmethod
    def readable(begin, end):
        data = bytearray()
        while begin < end:
            size = min(4096 - begin % 4096, end - begin)
            try:
                data += read(begin, size)
            except gdb.MemoryError:
                data += bytes(size)
            begin += size
        return data

    # --- the search

    def run(self):
        """The candidates; `why` is None for those that can never go on."""
        self.links = merged(self.left_out)
        self.targets = sorted(((*p.ranges[0], p) for p in (
            *self.parts.values(), *self.stacks.values(), *self.blocks.values())),
            key=lambda t: t[:2])
        self.begins = [t[0] for t in self.targets]
        self.tops = {top for begin, end, _ in self.targets
                     for top in range(begin >> 24, (end >> 24) + 1)}
        self.waiting = []
        if not self.candidates:
            return []
        registers, pointers = self.registers()
        self.look_at(registers, 0)
        for begin, end in self.roots_in_memory():
            self.scan(begin, end)
        for fiber in self.program.fibers:
            if fiber.at not in self.by_block:
                self.scan(self.used_from(fiber, pointers), fiber.at, fiber)
        self.settle()
        return self.candidates

    def used_from(self, fiber, pointers):
        if fiber.is_in("ended"):
            at = self.of_fiber(fiber, "body", 8)
        elif fiber.is_in("running"):
            thread = fiber.thread()
            at = pointers[thread.num] - 128 if thread else 0
        else:
            at = fiber.resumes_at
        return at if fiber.bottom <= at < fiber.at else fiber.bottom

    def settle(self):
        by_stack = {part: c for c, part in self.stacks.items()}
        again = True
        while again:
            again = False
            while self.waiting:
                part = self.waiting.pop()
                of = by_stack.get(part)
                for begin, end in () if part in self.blocks.values() else part.ranges:
                    self.scan(begin, end, of.fiber if of else 0)
            for c in self.candidates:
                if c.why is None and (why := self.open_way(c)) is not None:
                    c.why, again = why, True
                    if self.stacks[c].seen_by is None:
                        self.stacks[c].seen_by = c.fiber
                        self.waiting.append(self.stacks[c])

    def open_way(self, c):
        if c.ways is None:
            return "it is not known what can end this wait"
        for way in c.ways:
            if (why := way()) is not None:
                return why
        for part in () if self.is_for_lock(c.fiber) else (self.blocks.get(c), self.stacks[c]):
            if part is not None and part.seen_by is not None:
                return part.title + self.seen_text(part)
        return None

    # --- the stuck ones

    def needed_by(self, c):
        """The stuck fiber that alone can end the wait."""
        reason, at = c.fiber.raw["reason"], c.fiber.object
        by = self.layout.names.get(("ended_by", reason))
        if by == "queue":
            at = self.program.holder_of(reason, at)
        return self.by_block.get(at) if by in ("queue", "end_of_other") else None

    def cycles(self):
        """Lists of fibers each of which waits for the next, and the last for the first."""
        known = set()
        for c in self.candidates:
            walk = []
            while c is not None and c.why is None and c not in known:
                known.add(c)
                walk.append(c)
                c = self.needed_by(c)
            if c in walk:
                yield [c.fiber for c in walk[walk.index(c):]]


def merged(ranges):
    """In order; those that touch are one."""
    found = []
    for begin, end in sorted(ranges):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        elif begin < end:
            found.append((begin, end))
    return found


# --- the selected fiber

class Selection:
    """What stands in place of the callers of a thread's innermost frame."""

    def __init__(self, fiber, registers):
        frame = gdb.newest_frame()
        self.title, self.at = fiber.title, fiber.at
        self.thread = gdb.selected_thread().ptid
        self.pc, self.sp = frame.pc(), int(frame.read_register("rsp"))
        self.registers = registers
        # gdb takes a caller whose stack lies below its callee's for a broken stack: so
        # frame 0 is said to lie where the fiber was left.
        self.frame_sp = fiber.resumes_at

    def is_selected_thread(self):
        thread = gdb.selected_thread()
        return thread is not None and thread.ptid == self.thread


selection = None


class FrameId:
    def __init__(self, sp, pc):
        self.sp, self.pc = gdb.Value(sp), gdb.Value(pc)


class FiberUnwinder(gdb.unwinder.Unwinder):
    def __init__(self):
        super().__init__("vigil fiber")

    def __call__(self, frame):
        s = selection
        if s is None or not s.is_selected_thread():
            return None
        if (int(frame.read_register("rsp")) != s.sp or int(frame.read_register("rip")) != s.pc):
            return None
        info = frame.create_unwind_info(FrameId(s.frame_sp, s.pc))
        word = gdb.selected_inferior().architecture().integer_type(64, False)
        for name, value in s.registers.items():
            info.add_saved_register(name, gdb.Value(struct.pack("<Q", value), word))
        return info


def innermost_frame():
    """The selected fiber's: behind the thread's own, and what is inlined into that."""
    frame = gdb.newest_frame()
    while frame.type() == gdb.INLINE_FRAME:
        frame = frame.older()
    return frame.older()


class FiberFilter:
    """Leaves the thread's own frame out of the backtrace of a fiber."""

    def __init__(self):
        self.name, self.priority, self.enabled = "vigil fiber", 100, False

    def filter(self, frames):
        first = 0
        if selection is not None and selection.is_selected_thread():
            first = innermost_frame().level()
        return (frame for frame in frames if frame.inferior_frame().level() >= first)


frame_filter = FiberFilter()


def choose(new):
    """Selects a fiber's frames, or the thread's own for None."""
    global selection
    selection = new
    frame_filter.enabled = new is not None
    gdb.invalidate_cached_frames()
    if new is not None:
        innermost_frame().select()


def show(fiber):
    """Makes the fiber's innermost frame the selected one; says why it cannot."""
    thread = fiber.thread()
    if thread is not None:
        choose(None)
        thread.switch()
        return None
    registers = fiber.registers()
    if isinstance(registers, str):
        return registers
    choose(None)
    choose(Selection(fiber, registers))
    return None


class kept_selection:
    """Puts back the thread, the fiber and the frame that are selected now."""

    def __enter__(self):
        self.thread, self.selection, self.level = gdb.selected_thread(), selection, 0
        frame = gdb.selected_frame()
        while frame.newer() is not None:
            frame, self.level = frame.newer(), self.level + 1
        return self

    def __exit__(self, *_):
        choose(None)
        self.thread.switch()
        choose(self.selection)
        frame = gdb.newest_frame()
        for _ in range(self.level):
            frame = frame.older() or frame
        frame.select()


def on_continue(_):
    # gdb forgets the frames by itself here.
    global selection, stopped_at
    selection, stopped_at = None, None
    frame_filter.enabled = False


def on_stop(_):
    global stopped_at
    stopped_at = time.clock_gettime_ns(time.CLOCK_MONOTONIC)


# --- commands

class InfoFibers(gdb.Command):
    """List all fibers of vigil: state, wait, place of start.
The selected one, or the one that the selected thread runs, is marked with `*`."""

    def __init__(self):
        super().__init__("info fibers", gdb.COMMAND_STATUS)

    def invoke(self, argument, from_tty):
        program = Program()
        for fiber in program.fibers:
            if selection is not None and selection.is_selected_thread():
                is_selected = selection.at == fiber.at
            else:
                thread = fiber.thread()
                is_selected = thread is not None and thread == gdb.selected_thread()
            print(("* " if is_selected else "  ") + fiber.line_text())
        print(f"{len(program.fibers)} fibers")
        if program.stacks_without_fiber:
            print(f"{program.stacks_without_fiber} more stacks are in use and hold no fiber. "
                  "If this is a core, it lacks them: gdb's generate-core-file writes them only "
                  "with VIGIL_STACK_GUARD=mprotect in the program's environment.")


class FiberCommand(gdb.Command):
    """Select a fiber of vigil: fiber N
Makes bt, up, frame and info locals show its frames. Their numbers begin behind those of
frame 0 and of what it is inlined into, which remain the thread's own. Without a number,
or with 0, it goes back to the thread, as does each command that lets the process go on."""

    def __init__(self):
        super().__init__("fiber", gdb.COMMAND_STACK, gdb.COMPLETE_NONE, True)

    def invoke(self, argument, from_tty):
        words = gdb.string_to_argv(argument)
        if len(words) > 1:
            raise gdb.GdbError("usage: fiber [N]")
        if not words or words[0] == "0":
            choose(None)
            gdb.execute("frame")
            return
        fiber = Program().fiber(words[0])
        trouble = show(fiber)
        if trouble:
            raise gdb.GdbError(f"{fiber.title} has no frames: {trouble}.")
        print(fiber.line_text())
        gdb.execute("frame")


class FiberApply(gdb.Command):
    """Run a command for several fibers of vigil.
fiber apply all COMMAND
fiber apply N... COMMAND"""

    def __init__(self):
        super().__init__("fiber apply", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        match = re.match(r"\s*(all|[\d.]+(?:\s+[\d.]+)*)\s+(\S.*)", argument)
        if not match:
            raise gdb.GdbError("usage: fiber apply all COMMAND, or fiber apply N... COMMAND")
        program = Program()
        if match[1] == "all":
            fibers = program.fibers
        else:
            fibers = [program.fiber(number) for number in match[1].split()]
        with kept_selection() as kept:
            for fiber in fibers:
                choose(None)
                kept.thread.switch()
                print("\n" + fiber.line_text())
                trouble = show(fiber)
                if trouble:
                    print(f"{fiber.title} has no frames: {trouble}.")
                    continue
                try:
                    gdb.execute(match[2], from_tty)
                except gdb.error as e:
                    print(e)


class InfoTimers(gdb.Command):
    """List the pending timers of each runtime of vigil by their deadlines."""

    def __init__(self):
        super().__init__("info timers", gdb.COMMAND_STATUS)

    def invoke(self, argument, from_tty):
        program = Program()
        for runtime in sorted(program.runtimes.values(), key=lambda r: r.number):
            timers = program.pending_timers(runtime)
            print(f"runtime {runtime.number}: {len(timers)} timers pending")
            for deadline, timer, is_due in timers:
                text = f"  {deadline} ns (+{seconds(deadline - timers[0][0])})"
                if runtime.now is not None:
                    late = runtime.now - deadline
                    text += (f", due {seconds(late)} ago" if late > 0
                             else f", due in {seconds(-late)}")
                text += ", waits for a fiber to run it" if is_due else ""
                print(f"{text}: {program.timer_text(timer)}")


class InfoChannels(gdb.Command):
    """List the channels that fibers and tasks of vigil wait at: info channels [N]
With the number of a fiber: those that it waits at."""

    def __init__(self):
        super().__init__("info channels", gdb.COMMAND_STATUS)

    def invoke(self, argument, from_tty):
        program = Program()
        number = argument.strip()
        waiting = [program.fiber(number)] if number else [*program.fibers, *program.tasks]
        channels = {}
        for fiber in waiting:
            for channel in program.channel_waits(fiber):
                channels[channel] = None
        for channel in channels:
            print("  " + program.channel_line(channel))
        print(f"{len(channels)} channels")


class InfoTasks(gdb.Command):
    """List all tasks of vigil: state, wait, place of start.
Below each stand the functions of its coroutines, the innermost first. A task that runs has
none: its functions are on the stack of the fiber."""

    def __init__(self):
        super().__init__("info tasks", gdb.COMMAND_STATUS)

    def invoke(self, argument, from_tty):
        program = Program()
        for task in program.tasks:
            print("  " + task.line_text())
            for function in task.functions():
                print("    at " + function)
        print(f"{len(program.tasks)} tasks")


class InfoStuck(gdb.Command):
    """List the fibers of vigil that can never go on, and those that perhaps may not.
Reads all memory that the process can write: some seconds for each hundred megabytes. Fewer
are certain than in inspect::find_stuck_fibers(), which knows more of what ends a wait."""

    MOST = 20  # of those that were started in one line and wait for one kind of thing

    def __init__(self):
        super().__init__("info stuck", gdb.COMMAND_STATUS)

    def invoke(self, argument, from_tty):
        search = StuckSearch(Program())
        found = search.run()

        def is_stuck(c):
            return c.why is None

        for what, is_wanted in (("can never go on", is_stuck),
                                ("may never go on", lambda c: c.why is not None)):
            chosen = [c for c in found if is_wanted(c)]
            print(f"fibers that {what}: {len(chosen)}")
            for cycle in search.cycles() if is_wanted is is_stuck else ():
                print(f"  cycle: {cycle[0].title} waits for "
                      + ", which waits for ".join(f.wait_text() for f in cycle))
            places = {}
            for c in chosen:
                raw = c.fiber.raw
                places.setdefault((raw["started_at"], c.fiber.line, raw["reason"]), []).append(c)
            for alike in sorted(places.values(), key=len, reverse=True):
                for c in alike[:self.MOST]:
                    print("  " + c.fiber.line_text())
                    if c.why is not None:
                        print(f"    (may go on: {c.why})")
                if len(alike) > self.MOST:
                    print(f"  ... and {len(alike) - self.MOST} more that were started there and "
                          "wait so")


def install():
    gdb.frame_filters[frame_filter.name] = frame_filter
    gdb.unwinder.register_unwinder(None, FiberUnwinder(), replace=True)
    gdb.events.cont.connect(on_continue)
    gdb.events.stop.connect(on_stop)
    for command in (InfoFibers, FiberCommand, FiberApply, InfoTimers, InfoChannels,
                    InfoTasks, InfoStuck):
        command()


def load_as_module():
    # A program and several shared libraries may name this script.
    if not hasattr(gdb, "vigil"):
        gdb.vigil = types.ModuleType("vigil-gdb", __doc__)
        with open(__file__) as script:
            exec(compile(script.read(), __file__, "exec"), gdb.vigil.__dict__)
        become_known(os.path.abspath(__file__))


def become_known(path):
    """Lets gdb find this file, and load it, where a program names it: without that gdb warns
    of each such program. Whoever has loaded it trusts it."""
    gdb.execute(f'directory "{os.path.dirname(path)}"', to_string=True)
    gdb.execute(f"add-auto-load-safe-path {path}", to_string=True)


def put_back(namespace, before):
    namespace.clear()
    namespace.update(before)


if __name__ == "__main__":
    load_as_module()
    put_back(globals(), namespace_before)
else:
    install()
