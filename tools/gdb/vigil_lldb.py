"""lldb commands for programs that use vigil: `command script import vigil_lldb.py`

  vigil fibers      every fiber: its state, the kind of its wait, how long it has lasted,
                    where it was started
  vigil fiber N     the backtrace of fiber N, which is the selected thread from then on
  vigil tasks       every task: as fibers, and the functions of its coroutines

lldb unwinds from the registers of a thread alone. So each fiber that is off its stack is
shown to it as a thread (a plugin for operating systems, whose threads are in memory):
`bt`, `up` and `frame` work on it, in a process and in a core, and nothing in the process
is changed. The text `vigil_debug_layout` in the program says where everything is
(src/core/base/debug_layout.hpp); debug information is not needed.
"""
import re
import struct
import time

import lldb

NAMESPACE = "_ZN5vigil2v06detail"
FORMAT = "vigil debug layout 3"
OTHER_SCRIPT = ("take the script of the program's version of vigil: tools/gdb/vigil_lldb.py in the "
                "source tree, share/vigil/vigil_lldb.py below the prefix of an installation.")
PLUGIN_SETTING = "target.process.python-os-plugin-path"
FIRST_THREAD = 0x7669_0000_0000_0000  # the numbers of threads that stand for fibers
REGISTERS = ("rax", "rbx", "rcx", "rdx", "rdi", "rsi", "rbp", "rsp", "r8", "r9", "r10", "r11",
             "r12", "r13", "r14", "r15", "rip")
DWARF = dict(zip(("rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11",
                  "r12", "r13", "r14", "r15", "rip"), range(17)))
SAVED = ("rbx", "rbp", "r12", "r13", "r14", "r15")


class NoFibers(Exception):
    pass


moments = {}  # of a process: the number of its last stop, and the monotonic clock then


def stopped_at(process):
    """The monotonic clock when the process stopped, or when it was looked at first since;
    None: that of a core, or of another machine."""
    if (process.GetPluginName() == "elf-core"
            or process.GetTarget().GetPlatform().GetName() != "host"):
        return None
    stop, moment = moments.get(process.GetUniqueID(), (None, None))
    if stop != process.GetStopID():
        moment = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        moments[process.GetUniqueID()] = process.GetStopID(), moment
    return moment


class Program:
    def __init__(self, process):
        self.process, self.target = process, process.GetTarget()
        self.numbers, self.names, self.fields = {}, {}, []
        at = self.address_of("vigil_debug_layout")
        if at is None:
            raise NoFibers("The program has no symbol vigil_debug_layout: it does not use vigil, "
                           "or it has been stripped.")
        lines = self.text_at(at, 1 << 16).splitlines()
        if not lines or lines[0] != FORMAT:
            raise NoFibers(f"The program says {lines[:1]}, this script reads '{FORMAT}': "
                           + OTHER_SCRIPT)
        for key, _, value in (line.partition("=") for line in lines[1:]):
            kind, _, rest = key.partition(".")
            if kind in ("fiber_state", "wait_reason", "ended_by", "timer_kind"):
                self.names[kind, int(rest)] = value
            elif kind == "fiber_field":
                self.fields.append(Field(*value.split("\t")))
            else:
                self.numbers[key] = int(value)
        self.runtimes = list(self.find_runtimes())
        self.stopped_at = stopped_at(process)

    def address_of(self, symbol):
        for context in self.target.FindSymbols(symbol):
            at = context.GetSymbol().GetStartAddress().GetLoadAddress(self.target)
            if at != lldb.LLDB_INVALID_ADDRESS:
                return at
        return None

    def read(self, address, size, may_be_short=False):
        found = self.process.ReadMemory(address, size, lldb.SBError())
        if found is None or len(found) != size:  # a core lacks what the program's file has
            place = self.target.ResolveLoadAddress(address)
            found = self.target.ReadMemory(place, size, lldb.SBError())
        if not found or (len(found) != size and not may_be_short):
            raise NoFibers(f"No memory at {address:#x}.")
        return found

    def number_at(self, address, size=8):
        return int.from_bytes(self.read(address, size), "little")

    def text_at(self, address, most=1024):
        found = b""
        while len(found) < most and b"\0" not in found:
            step = 256 - address % 256  # never into a page that may not be there
            try:
                found += self.read(address, step, may_be_short=True)  # at a section's end
            except NoFibers:
                break
            address += step
        return found.split(b"\0")[0].decode(errors="replace")

    def offset(self, key):
        if key not in self.numbers:
            raise NoFibers(f"The program does not say where '{key}' is: " + OTHER_SCRIPT)
        return self.numbers[key]

    def field(self, at, key, size=8):
        return self.number_at(at + self.offset(key), size)

    def value(self, key):
        return self.offset("value." + key)

    def size(self, key):
        return self.offset("sizeof." + key)

    def stacks(self):
        """(bottom, top) of each stack in use: the walk of slab_table.cpp."""
        table = self.address_of(NAMESPACE + "5slabsE")
        if table is None:
            raise NoFibers("The program has no symbol vigil::detail::slabs.")
        guard = self.value("stack_guard_size")
        for c in range(self.field(table, "slab_table.chunk_count", 4)):
            chunk = self.number_at(table + self.offset("slab_table.chunks") + 8 * c)
            for s in range(self.value("chunk_slabs")):
                slab = chunk + self.offset("chunk.slabs") + s * self.size("slab")
                if self.field(slab, "slab.state", 4) == self.value("slab_state::vacant"):
                    continue
                base = self.field(slab, "slab.base")
                size = self.value("min_stack_size") << self.field(slab, "slab.size_class", 1)
                used = self.read(slab + self.offset("slab.in_use"),
                                 self.field(slab, "slab.count", 1))
                for i, is_used in enumerate(used):
                    bottom = base + i * (size + guard) + guard
                    if is_used:
                        yield bottom, bottom + size

    def fibers(self):
        found = []
        for bottom, top in self.stacks():
            # As control_block() of fiber.hpp.
            number = top >> self.value("block_places::number_shift") & 0xffff_ffff
            colour = ((number * self.value("block_places::factor") & 0xffff_ffff)
                      >> self.value("block_places::colour_shift"))
            at = (top - self.value("block_places::room")
                  - colour * self.value("block_places::step"))
            try:
                if self.field(at, "fiber_core.magic") == self.value("fiber_core::live_magic"):
                    found.append(Fiber(self, at, bottom))
            except NoFibers:
                continue
        return sorted(found, key=lambda f: (f.sched, f.id))

    def find_runtimes(self):
        """The address of the scheduler of each runtime that runs."""
        block = self.address_of(NAMESPACE + "11first_slotsE")
        while block:
            for at in range(0, self.size("slot_block::slots"), self.size("runtime_slot")):
                slot = block + self.offset("slot_block.slots") + at
                if running := self.field(slot, "runtime_slot.running"):
                    yield running
            block = self.field(block, "slot_block.next")

    def now(self, runtime):
        """The time on the runtime's clock; None: that of a core, or of another machine."""
        if runtime in self.runtimes and self.field(runtime, "scheduler.clock.virtual_", 1):
            return self.field(runtime, "scheduler.clock.virtual_now_")
        return self.stopped_at

    def tasks(self):
        """Those of each runtime."""
        found = []
        for runtime in self.runtimes:
            part = self.field(runtime, "scheduler.parts_above.all_[0]")
            task = part and self.field(part, "task_service.all_.first_")
            while task:
                found.append(Task(self, runtime, task))
                task = self.field(task, "task_core.among_all.after")
        return found

    def coroutine_name(self, frame):
        """The coroutine with this frame, by the function that resumes it; "" if it is none."""
        try:
            resume = self.target.ResolveLoadAddress(self.number_at(frame)) if frame else None
        except NoFibers:
            return ""
        symbol = resume.GetSymbol() if resume else None
        if not symbol or symbol.GetStartAddress() != resume:
            return ""
        name = symbol.GetName() or ""
        # g++ names it after the type of the frame, whose name has the function's inside.
        if match := re.search(r"(?:\d|::)(_Z[^\s:]*?)\.Frame", name):
            functions = self.target.FindSymbols(match[1])
            return functions[0].GetSymbol().GetName() if functions.GetSize() else match[1]
        return re.sub(r" [(\[](clone )?\.\w+[)\]]$|\.(resume|actor)$", "", name)


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


def seconds(nanos):
    return f"{nanos // 1_000_000_000}.{nanos // 1_000_000 % 1000:03} s"


def written(name):
    """As written_name.cpp writes it: control characters and bytes that are not UTF-8 escaped."""
    special = {"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}

    def is_shown(c):
        return ord(c) >= 0xa0 and not 0xd800 <= ord(c) < 0xe000 or 0x20 <= ord(c) < 0x7f

    return "".join(special.get(c) or (c if is_shown(c) else "".join(
        f"\\x{b:02x}" for b in c.encode(errors="surrogateescape"))) for c in name)


class Shown:
    """A fiber or a task: its line has the fields of fiber_view.hpp that it has. A kind that
    this script does not know is left out."""
    object = 0

    def __init__(self, program, raw, now):
        self.program, self.raw, self.now = program, raw, now
        self.id = raw["id"]

    @property
    def title(self):
        name = written(self.raw.get("name", b"").decode(errors="surrogateescape"))
        return f"{self.kind} {self.id}" + (f" ({name})" if name else "")

    def reason_text(self):
        program, reason = self.program, self.raw["reason"]
        text = program.names.get(("wait_reason", reason), "?")
        if reason == program.value("wait_reason::io"):
            try:
                at = program.number_at(self.object - 2) if self.object & 3 == 2 else self.object
            except NoFibers:  # a live process has gone on, or a core lacks it
                at = 0
            text += f" of descriptor {at >> 1}" if at & 1 else ""
        return text

    def text_of(self, field):
        """What follows the words before it; None: the field is not shown."""
        raw, is_parked = self.raw.get(field.key), self.state_word() == "parked"
        if field.kind == "state":
            return self.state_word()
        if raw is None or field.key in ("id", "name"):  # they are the title
            return None
        if field.kind == "reason":
            return self.reason_text() if is_parked else None
        if field.kind == "age":
            is_known = is_parked and raw != 0 and self.now is not None
            return seconds(max(0, self.now - raw)) if is_known else None
        if field.kind == "due":
            if not is_parked or raw == self.program.value("never") or self.now is None:
                return None
            left = raw - self.now
            return f"in {seconds(left)}" if left >= 0 else f"{seconds(-left)} ago"
        if field.kind == "flag":
            return "" if raw else None
        if field.kind == "place":
            return self.program.text_at(raw) + (f":{self.line}" if self.line else "")
        if field.kind == "id":
            return str(raw) if raw else None
        return None

    def line_text(self):
        text = self.title
        for field in self.program.fields:
            if (value := self.text_of(field)) is not None:
                text += field.before + value
        return text


class Fiber(Shown):
    kind = "fiber"

    def __init__(self, program, at, bottom):
        def word(key, size=8):
            return program.field(at, "fiber_core." + key, size)

        self.at, self.bottom = at, bottom
        block = program.read(at, program.value("block_places::room"))
        self.state, self.line = word("state", 1), word("identity.line", 4)
        self.object, self.sched = word("present.object"), word("sched")
        self.has_run, self.resumes_at = word("has_run", 1), word("side.resume_at_")
        super().__init__(program, {f.key: f.raw(block) for f in program.fields if f.size},
                         program.now(self.sched))

    def state_word(self):
        return self.program.names.get(("fiber_state", self.state), "?")

    def has_frames(self):
        program = self.program
        return (self.state not in (program.value("fiber_state::running"),
                                   program.value("fiber_state::ended"))
                and self.has_run and "sizeof.left_frame" in program.numbers
                and self.bottom <= self.resumes_at < self.at)

    def registers(self):
        program, at = self.program, self.resumes_at
        saved = {r: program.field(at, "left_frame." + r) for r in SAVED}
        saved["rip"] = program.field(at, "left_frame.goes_on")
        saved["rsp"] = at + program.size("left_frame")
        return saved


class Task(Shown):
    kind = "task"

    def __init__(self, program, runtime, at):
        def word(key, size=8):
            return program.field(at, "task_core." + key, size)

        self.at, self.park = at, word("park", 1)
        self.next, self.outermost = word("next"), word("outermost")
        made_at = at + program.offset("task_core.made_at")
        self.line = program.field(made_at, "birth.line_and_name", 4)
        self.line &= (1 << program.value("birth::line_bits")) - 1
        super().__init__(program, {
            "id": word("id"), "reason": word("reason", 1), "nanoseconds": word("since"),
            "stop_requested": word("stop_flag", 1),
            "started_at": program.field(made_at, "birth.file")}, program.now(runtime))

    def state_word(self):
        for word, shown in (("running", "running"), ("suspended", "parked")):
            if self.park == self.program.value("task_core::park_word::" + word):
                return shown
        return "runnable"

    def functions(self):
        """Those of its coroutines, the innermost first; none of a task that runs."""
        frame, found = self.next, []
        name = self.program.coroutine_name(frame)
        while name and len(found) < 1000:
            found.append(name)
            frame, name = self.awaiting(frame)
        return found

    def awaiting(self, frame):
        """The frame of the coroutine that awaits this one, and its function. The promise, a
        task_frame, lies behind two addresses of functions, and farther behind if its
        alignment asks for that."""
        program = self.program
        for offset in (16, 32, 64, 128, 256) if frame != self.outermost else ():
            try:
                if program.field(frame + offset, "task_frame.task") != self.at:
                    continue
                found = program.field(frame + offset, "task_frame.awaiting")
            except NoFibers:
                continue
            if name := program.coroutine_name(found):
                return found, name
        return 0, ""


class OperatingSystemPlugIn:
    """The name that lldb looks for: says which threads there are besides the real ones."""

    def __init__(self, process):
        self.process = process
        self.by_thread = {}

    def get_thread_info(self):
        self.by_thread = {}
        try:
            fibers = [f for f in Program(self.process).fibers() if f.has_frames()]
        except NoFibers:
            return []
        for fiber in fibers:
            self.by_thread[thread_number(fiber)] = fiber
        return [{"tid": number, "name": fiber.title, "state": "stopped", "stop_reason": "none"}
                for number, fiber in self.by_thread.items()]

    def get_register_info(self):
        generic = {"rip": "pc", "rsp": "sp", "rbp": "fp"}
        registers = []
        for i, name in enumerate(REGISTERS):
            register = {"name": name, "bitsize": 64, "offset": 8 * i, "encoding": "uint",
                        "format": "hex", "set": 0, "gcc": DWARF[name], "dwarf": DWARF[name]}
            if name in generic:
                register["generic"] = register["alt-name"] = generic[name]
            registers.append(register)
        return {"sets": ["general"], "registers": registers}

    def get_register_data(self, number):
        try:
            saved = self.by_thread[number].registers()
        except NoFibers:  # the process goes on, and the stack is gone
            saved = {}
        return struct.pack("<17Q", *(saved.get(name, 0) for name in REGISTERS))


def thread_number(fiber):
    # The place of its block tells fibers of several runtimes with one number apart.
    return FIRST_THREAD + (fiber.at & 0xffff_ffff_ffff)


def stopped_program(process):
    if process.GetState() not in (lldb.eStateStopped, lldb.eStateCrashed, lldb.eStateSuspended):
        raise NoFibers("The process runs: stop it first, by `process interrupt`."
                       if process.is_running else
                       "There is no process: launch one, attach to one, or load a core.")
    return Program(process)


def thread_of(process, fiber):
    return process.GetThreadByID(thread_number(fiber))


def take_as_threads(debugger, process, fibers):
    """lldb asks the plugin for threads at each stop, but not at the one by which it attaches:
    naming the plugin once more makes it ask now."""
    if all(thread_of(process, f).IsValid() for f in fibers if f.has_frames()):
        return
    selected = process.GetSelectedThread().GetThreadID()
    debugger.HandleCommand(f"settings set {PLUGIN_SETTING} '{__file__}'")
    process.SetSelectedThreadByID(selected)


def fibers_command(debugger, argument, context, result, _):
    process = context.GetProcess()
    try:
        fibers = stopped_program(process).fibers()
        take_as_threads(debugger, process, fibers)
    except NoFibers as e:
        result.SetError(str(e))
        return
    for fiber in fibers:
        result.AppendMessage(fiber.line_text())
    result.AppendMessage(f"{len(fibers)} fibers")


def tasks_command(debugger, argument, context, result, _):
    try:
        tasks = stopped_program(context.GetProcess()).tasks()
        for task in tasks:
            result.AppendMessage(task.line_text())
            for function in task.functions():
                result.AppendMessage("    at " + function)
    except NoFibers as e:
        result.SetError(str(e))
        return
    result.AppendMessage(f"{len(tasks)} tasks")


def fiber_command(debugger, argument, context, result, _):
    process = context.GetProcess()
    try:
        fibers = stopped_program(process).fibers()
        take_as_threads(debugger, process, fibers)
    except NoFibers as e:
        result.SetError(str(e))
        return
    found = [f for f in fibers if str(f.id) == argument.strip()]
    if not found:
        result.SetError(f"There is no fiber {argument.strip()}.")
    for fiber in found:
        result.AppendMessage(fiber.line_text())
        thread = thread_of(process, fiber)
        if not fiber.has_frames():
            result.AppendMessage("It has no frames of its own: it runs on a thread, has not "
                                 "begun, or has ended.")
        elif not thread.IsValid():
            result.SetError("lldb has not taken it as a thread: `settings show "
                            f"{PLUGIN_SETTING}` must show {__file__}.")
        else:
            process.SetSelectedThread(thread)
            for frame in thread:
                result.AppendMessage(f"    {frame}")


def __lldb_init_module(debugger, _):
    # lldb imports the file once more for the plugin.
    if getattr(lldb, "vigil_is_loaded", False):
        return
    lldb.vigil_is_loaded = True

    def run(command):
        debugger.HandleCommand(command)

    run(f"settings set {PLUGIN_SETTING} '{__file__}'")
    run("command script add -h 'Lists the fibers of vigil.' -f "
        f"{__name__}.fibers_command vigil-fibers")
    run("command script add -h 'Lists the tasks of vigil.' -f "
        f"{__name__}.tasks_command vigil-tasks")
    run("command script add -h 'Shows the backtrace of a fiber of vigil: vigil fiber N.' -f "
        f"{__name__}.fiber_command vigil-fiber")
    run("command regex vigil -h 'Commands for vigil: vigil fibers, vigil tasks, vigil fiber N.' "
        "'s/^fibers *$/vigil-fibers/' 's/^tasks *$/vigil-tasks/' 's/^fiber +(.+)$/vigil-fiber %1/'")
