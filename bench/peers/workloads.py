"""The tables of run.py: the peers and the workloads.

A workload is one way to start the peers (the program's workload and its
numbers) and the metrics that each sample gives. To add one: write it in the
peers that can do it, then a line here; a peer that does not know it answers
`unsupported` and is shown as "-".
"""
from dataclasses import dataclass


@dataclass(frozen=True)
class Peer:
    name: str
    title: str
    command: tuple  # {programs} and {sources} are folders
    numbers: tuple = ()
    only: tuple = ()  # workloads of the program; empty: all
    workers: int = 1  # by default; 0: as many as there are processors


PEERS = (
    Peer("vigil", "vigil", ("{programs}/peer_vigil",), workers=0),
    Peer("vigil_tasks", "vigil's tasks", ("{programs}/peer_vigil_tasks",), (),
         ("yield", "spawn", "channels", "sleepers"), workers=0),
    Peer("libuv", "libuv", ("{programs}/peer_libuv",), (("cached", 0),)),
    Peer("libuv_cached", "libuv, cached clock", ("{programs}/peer_libuv",), (("cached", 1),),
         ("arm", "arm-parallel")),
    Peer("asio", "Asio", ("{programs}/peer_asio",)),
    Peer("boost_fiber", "Boost.Fiber", ("{programs}/peer_boost_fiber",)),
    Peer("go", "Go", ("{programs}/peer_go",), workers=0),
    Peer("node", "Node", ("node", "{sources}/node.mjs")),
    Peer("tokio", "Tokio", ("{programs}/tokio/release/peer_tokio",), workers=0),
    Peer("bare", "bare machine", ("{programs}/peer_bare",)),
)


@dataclass(frozen=True)
class Metric:
    key: str
    title: str
    unit: str
    ratio: bool = True  # whether vigil / peer says something


@dataclass(frozen=True)
class Workload:
    name: str
    title: str
    program: str
    short: dict  # numbers of the program
    long: dict
    metrics: tuple
    rounds: tuple = (9, 9)  # short and long, including those that warm up; 0: not run
    warm_up: int = 2
    # A process for each round, and two samples of it: the first, from a new
    # process, has names that begin with "cold_".
    fresh: bool = False
    traced: bool = False  # system calls are counted as well, in a run of its own


ARM_METRICS = (
    Metric("one", "arm+stop, one timer used again", "ns"),
    Metric("records", "arm+stop, 100 000 records in turn", "ns"),
    Metric("fresh", "arm+stop, fresh objects", "ns"),
    Metric("reset_one", "reset, one pending timer again and again", "ns"),
    Metric("reset_any", "reset, a random one of the others", "ns"),
)

PARALLEL_METRICS = (
    Metric("alone", "one worker", "ns"),
    Metric("one_of_two", "two workers, one of them arms", "ns"),
    Metric("both", "two workers, both arm", "ns"),
    Metric("scaling", "throughput, both / one worker", "x"),
)

BURST_METRICS = (
    Metric("cpu", "CPU for each callback", "ns"),
    Metric("early", "callbacks that ran early", "", False),
    Metric("latest", "the latest one", "ms"),
    Metric("in_time", "all armed before the first was due", "", False),
)

SPAWN_METRICS = (
    Metric("single", "spawn+join, one at a time", "ns"),
    Metric("hundred", "spawn+join, a hundred at a time", "ns"),
)

# Round trips between two fibers; items from one fiber to another through 128
# places; items from four fibers to four others through 8 places. Wall time.
CHANNEL_METRICS = (
    Metric("rendezvous", "unbuffered, there and back", "ns"),
    Metric("timed", "buffer of 1, each receive with a timeout of 1 s", "ns"),
    Metric("buffered", "an item through a buffer of 128", "ns"),
    Metric("shared", "an item among 8 fibers, buffer of 8", "ns"),
)

# One mutex; wall time of a lock and unlock. In turns: with a yield after each.
MUTEX_METRICS = (
    Metric("alone", "one fiber", "ns"),
    Metric("tight", "8 fibers", "ns"),
    Metric("turns", "8 fibers, a yield after each", "ns"),
    Metric("longest", "8 fibers, the longest wait", "us"),
)

SLEEPER_METRICS = (
    Metric("cold_cpu", "CPU each from start to end, in a new process", "ns"),
    Metric("cpu", "CPU each from start to end, the second time", "ns"),
    Metric("cold_memory", "memory each, all asleep", "bytes"),
    Metric("together", "all were asleep together", "", False),
)

OVERSHOOT_METRICS = (
    Metric("p50", "late by, p50", "us"),
    Metric("p99", "late by, p99", "us"),
    Metric("early", "sleeps that ended early", "", False),
)

KERNEL_METRICS = (
    Metric("calls", "system calls", ""),
    Metric("switches", "wake-ups (voluntary context switches)", ""),
)


def arm(name, others, among):
    sizes = {"others": others, "records": 100_000, "workers": 1}
    return Workload(name, f"arm and stop a timer among {among} others, one worker", "arm",
                    {**sizes, "ops": 20_000}, {**sizes, "ops": 200_000}, ARM_METRICS)


def arm_parallel(name, records, what):
    sizes = {"others": 1_000, "records": records}
    return Workload(name, f"arm+stop among 1 000 others, {what}, from two workers at once",
                    "arm-parallel", {**sizes, "ops": 100_000}, {**sizes, "ops": 300_000},
                    PARALLEL_METRICS)


def burst(name, workers, what, rounds):
    return Workload(name, f"1 000 000 callbacks at random instants of one second, {what}", "burst",
                    {"n": 100_000, "spread_us": 100_000, "workers": workers},
                    {"n": 1_000_000, "spread_us": 1_000_000, "workers": workers},
                    BURST_METRICS, rounds, 1)


def spawn(name, workers, what):
    return Workload(name, f"spawn and join, {what}", "spawn",
                    {"ops": 20_000, "workers": workers}, {"ops": 200_000, "workers": workers},
                    SPAWN_METRICS)


def channels(name, workers, what):
    return Workload(name, f"channels, {what}", "channels",
                    {"ops": 20_000, "workers": workers}, {"ops": 200_000, "workers": workers},
                    CHANNEL_METRICS, (11, 11))


def mutex(name, workers, what):
    return Workload(name, f"lock and unlock of a mutex, {what}", "mutex",
                    {"ops": 200_000, "workers": workers}, {"ops": 2_000_000, "workers": workers},
                    MUTEX_METRICS, (11, 11))


# Longer than any peer takes to start a sleeper and see it asleep, page faults included: 8 µs
# on most machines, 50 where the machine beneath takes back each page that is freed.
START_US = 10


def sleepers(name, short, long, what, rounds):
    return Workload(name, f"{what} sleeping fibers, each until a random instant of one second",
                    "sleepers",
                    {"n": short, "workers": 1, "start_us": START_US},
                    {"n": long, "workers": 1, "start_us": START_US},
                    SLEEPER_METRICS, rounds, 0, fresh=True)


def kernel(name, what):
    return Workload(name, f"what {what} ask of the kernel", name, {"n": 1000}, {"n": 1000},
                    KERNEL_METRICS, (2, 4), 1, traced=True)


WORKLOADS = (
    arm("arm-0", 0, "no"),
    arm("arm-1000", 1_000, "1 000"),
    arm("arm-1000000", 1_000_000, "1 000 000"),
    arm_parallel("parallel-one", 1, "one timer each"),
    arm_parallel("parallel-records", 100_000, "100 000 records each"),
    burst("burst-1", 1, "one worker", (4, 7)),
    burst("burst-2", 2, "two workers", (4, 5)),
    Workload("touch", "refresh one of 1 000 000 idle timeouts at random", "touch",
             {"n": 1_000_000, "ops": 200_000}, {"n": 1_000_000, "ops": 1_000_000},
             (Metric("touch", "one refresh", "ns"),)),
    Workload("yield", "two fibers yield to each other, one worker", "yield",
             {"ops": 50_000, "fibers": 2, "workers": 1},
             {"ops": 300_000, "fibers": 2, "workers": 1}, (Metric("yield", "yield", "ns"),)),
    spawn("spawn-1", 1, "one worker"),
    spawn("spawn-2", 2, "two workers"),
    channels("channels-1", 1, "one worker"),
    channels("channels-2", 2, "two workers"),
    mutex("mutex-1", 1, "one worker"),
    mutex("mutex-2", 2, "two workers"),
    sleepers("sleepers", 20_000, 100_000, "100 000", (2, 4)),
    sleepers("sleepers-million", 1_000_000, 1_000_000, "1 000 000", (0, 3)),
    Workload("overshoot", "how late a sleep of 1 ms ends, idle machine", "overshoot",
             {"n": 50, "workers": 1}, {"n": 300, "workers": 1}, OVERSHOOT_METRICS, (5, 9), 1),
    kernel("kernel-random", "1 000 timers at random instants of one second"),
    kernel("kernel-ticks", "1 000 periodic ticks of 1 ms"),
    kernel("kernel-stopped", "1 000 timeouts that are stopped before they are due"),
)
