#!/usr/bin/env python3
"""HTTP servers side by side: `./dev bench --peers http` starts this.

vigil's example server, Go's net/http and Boost.Beast on Asio's coroutines give the same
answer, with a Date, on keep-alive connections. Each server has one processor and the
load another, except for `two` and `pipelining`, where a server has two. Samples are drawn in turn,
one of each server in a round, and each round begins with another server. `vigil again`
is vigil's a second time, so its ratio shows what the machine makes of equals. The report
has medians, and the median of vigil / peer taken round by round. A line is marked
"loaded" if the server's threads waited for a processor for more than a quarter of the
time that they used one: then it is not to be believed.
"""
import argparse
import datetime
import os
import re
import resource
import statistics
import subprocess
import sys
from pathlib import Path

BEGIN, END = "<!-- http: begin -->", "<!-- http: end -->"
CPUS = sorted(os.sched_getaffinity(0))
SERVER_CPU, LOAD_CPU = (CPUS * 2)[:2]
TWO_CPUS = f"{SERVER_CPU},{LOAD_CPU}"
# The load's processors beside a server with two; without a third one they share.
OTHER_CPUS = ",".join(map(str, CPUS[2:])) or TWO_CPUS


class Server:
    def __init__(self, name, command, cpus=SERVER_CPU):
        self.name = name
        self.process = subprocess.Popen(["taskset", "-c", str(cpus), *map(str, command)],
                                        stdout=subprocess.PIPE, text=True)
        self.port = re.search(r"port (\d+)", self.process.stdout.readline())[1]

    def rss(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) * 1024

    def close(self):
        self.process.terminate()
        self.process.stdout.close()
        self.process.wait()


class Bench:
    def __init__(self, programs, is_long):
        self.load_program = Path(programs, "http_load")
        self.rounds = 9 if is_long else 3
        self.seconds = 2 if is_long else 1
        vigil = Path(programs, "../../examples/io/http_server/http_server")
        self.vigil = [vigil, "--workers=1"]
        self.commands = {
            "vigil": self.vigil,
            "vigil again": self.vigil,
            "Beast": [Path(programs, "http_beast")],
            "Go": [Path(programs, "http_go")],
        }

    def command(self, mode, server, cpus=LOAD_CPU, **numbers):
        return ["taskset", "-c", str(cpus), str(self.load_program), mode, server.port,
                *(f"{k}={v}" for k, v in numbers.items())]

    def load(self, mode, server, **numbers):
        numbers = {"seconds": self.seconds, "pid": server.process.pid, **numbers}
        done = subprocess.run(self.command(mode, server, **numbers), capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{server.name}: {done.stderr}")
        values = {k: float(v) for k, v in re.findall(r"(\w+)=(\S+)", done.stdout)}
        values["cpu_us"] = 1e6 * values["cpu"] / values["requests"]
        values["rate"] = values["requests"] / values["seconds"]
        return values

    def in_turn(self, servers, sample):
        """name -> samples, one of each round."""
        samples = {s.name: [] for s in servers}
        for number in range(self.rounds):
            by = number % len(servers)
            for server in servers[by:] + servers[:by]:
                samples[server.name].append(sample(server))
        return samples

    # --- the tables

    def speed(self):
        servers = [Server(*item) for item in self.commands.items()]
        for connections in (64, 1):
            samples = self.in_turn(servers, lambda s: self.load("closed", s, connections=connections))
            table(f"processor {SERVER_CPU} for each server, the load on {LOAD_CPU}; "
                  f"{connections} connections, each asks again at once", samples, [
                ("CPU per request, us", "cpu_us"), ("requests a second", "rate")])
        samples = self.in_turn(servers, lambda s: self.load("open", s, rate=10_000))
        table("10000 requests a second at fixed times, 64 connections", samples, [
            ("p50, us", "p50"), ("p99, us", "p99"), ("CPU per request, us", "cpu_us")])
        for server in servers:
            server.close()

    def two(self):
        """Two processors for each server; the load waits in the kernel, and shares them if
        there is no third one."""
        servers = [Server(name, command, TWO_CPUS) for name, command in {
            "vigil": [self.vigil[0], "--workers=2"],
            "vigil again": [self.vigil[0], "--workers=2"],
            "vigil, 1 worker": self.vigil,
            "Beast, 2 threads": [*self.commands["Beast"], "2"],
            "Go": ["env", "GOMAXPROCS=2", *self.commands["Go"]],
        }.items()]
        for connections in (64, 1):
            samples = self.in_turn(servers, lambda s: self.load(
                "closed", s, cpus=OTHER_CPUS, connections=connections, waits=1))
            table(f"processors {TWO_CPUS} for each server, the load on {OTHER_CPUS}; "
                  f"{connections} connections, each asks again at once", samples, [
                      ("CPU per request, us", "cpu_us"), ("requests a second", "rate")])
        for server in servers:
            server.close()

    def recorder(self):
        """The price of the flight recorder. The server without it is listed twice."""
        recording = ["env", "VIGIL_RECORDER_EVENTS=16384"]
        for workers in (1, 2):
            vigil = [self.vigil[0], f"--workers={workers}"]
            servers = [Server(name, command, TWO_CPUS) for name, command in {
                "vigil": [*recording, *vigil],
                "without": vigil,
                "without, again": vigil,
            }.items()]
            samples = self.in_turn(servers, lambda s: self.load(
                "closed", s, cpus=OTHER_CPUS, connections=64, waits=1))
            table(f"the flight recorder, {workers} worker{'s' * (workers > 1)}; 64 connections, "
                  "each asks again at once", samples, [("CPU per request, us", "cpu_us")],
                  by="without")
            for server in servers:
                server.close()

    def memory(self, connections=10_000):
        def sample(server):
            before = server.rss()
            command = self.command("hold", server, connections=connections)
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  text=True) as load:
                if load.stdout.readline() != "ready\n":
                    sys.exit(f"{server.name}: no {connections} connections")
                each = (server.rss() - before) / connections
                load.stdin.close()
            return {"each": each, "rss": server.rss() / 1e6}

        # Once each: a server keeps its peak.
        samples = {}
        for name, command in self.commands.items():
            server = Server(name, command)
            samples[name] = [sample(server)]
            server.close()
        table(f"{connections} open keep-alive connections", samples, [
            ("bytes for each", "each"), ("resident in all, MB", "rss")])

    def slow_clients(self, slow=200):
        """Half a header, a byte each 100 ms; the server gives them two seconds."""
        beside = f"beside {slow} slow clients"
        servers = [Server(name, [*self.vigil, "--header=2"])
                   for name in ("vigil", "vigil again", beside)]
        samples = self.in_turn(servers, lambda s: self.load(
            "open", s, rate=10_000, seconds=3, slow=slow if s.name == beside else 0))
        for server in servers:
            server.close()
        table("slow clients: half a header, a byte each 100 ms, cut after 2 s", samples, [
            ("p50, us", "p50"), ("p99, us", "p99"), ("CPU per request, us", "cpu_us")],
            by="vigil")
        cut = [s for s in samples[beside] if s["cut"]]
        if not cut:
            sys.exit("no slow client was cut: the server did not keep its time for headers, "
                     "or the run was shorter than that")
        say(f"  {sum(s['cut'] for s in cut):.0f} were cut, after "
            f"{min(s['cut_min'] for s in cut):.2f} to {max(s['cut_max'] for s in cut):.2f} s "
            "(they see it at their next byte)\n")

    def pipelining(self, others=6, pause=0.005):
        """An honest client beside some that are never without a request under way."""
        servers = [Server(name, command, TWO_CPUS) for name, command in {
            "vigil": [self.vigil[0], "--workers=2"],
            "vigil again": [self.vigil[0], "--workers=2"],
            "Beast, 2 threads": [*self.commands["Beast"], "2"],
            "Go": ["env", "GOMAXPROCS=2", *self.commands["Go"]],
        }.items()]
        samples = self.in_turn(servers, lambda s: self.load(
            "pipelining", s, cpus=OTHER_CPUS, connections=others, pause=pause))
        for server in servers:
            server.close()
        table(f"an honest client, {1000 * pause:.0f} ms from an answer to its next request, "
              f"beside {others} that pipeline endlessly; 2 workers", samples, [
                  ("its p50, us", "p50"), ("its p95, us", "p95"), ("its p99, us", "p99"),
                  ("requests of the others a second", "rate")])
        ratios = [a["p95"] / b["p95"] for a, b in zip(samples["vigil"], samples["Go"])]
        say(f"  p95, vigil / Go: {statistics.median(ratios):.2f} "
            f"({min(ratios):.2f} to {max(ratios):.2f}), goal 2 at most\n")


said = []


def say(line=""):
    print(line, flush=True)
    said.append(line)


def run_delay(row):
    """Of the server's threads, as a share of the time that they ran."""
    return row["delay"] / row["cpu"] if row.get("cpu") else 0


def table(title, samples, metrics, by=None):
    """`by`: the server by whose values the others are divided; without it vigil's are
    divided by theirs."""
    say(f"## {title}\n")
    width = max(map(len, samples))
    for label, key in metrics:
        say(f"  {label}")
        for name, rows in samples.items():
            values = [row[key] for row in rows]
            base = [row[key] for row in samples[by or "vigil"]]
            pairs = zip(values, base) if by else zip(base, values)
            ratio = statistics.median(a / b for a, b in pairs)
            what = f"/ {by}" if by else "vigil / it"
            shown = "" if name == (by or "vigil") else f"  {what} {ratio:.2f}"
            loaded = statistics.median(map(run_delay, rows)) > 0.25
            say(f"    {name:{width}}  {statistics.median(values):10.2f}  "
                f"({min(values):.2f} to {max(values):.2f}){shown}{'  loaded' if loaded else ''}")
    say()


def write_docs(path, rounds):
    """Writes the output between the marks of a page."""
    text = path.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"{path}: lacks the marks {BEGIN} and {END}")
    when = f"{datetime.date.today()}, {rounds} rounds: median, least and most, ratio."
    block = "\n".join(said).strip("\n")
    path.write_text(f"{before}{BEGIN}\n\n{when}\n\n```\n{block}\n```\n\n{end}{after}")


def main():
    parser = argparse.ArgumentParser(prog="./dev bench --peers http",
                                     description="about three minutes, with --long about 13")
    parser.add_argument("only", nargs="*", choices=["speed", "two", "memory", "slow", "pipelining", "recorder", []])
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--write-docs", metavar="FILE", type=Path,
                        help="put all tables between the marks of this file")
    parser.add_argument("--programs", default=".", help=argparse.SUPPRESS)
    options = parser.parse_args()
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    bench = Bench(options.programs, options.long)
    parts = {"speed": bench.speed, "two": bench.two, "memory": bench.memory, "slow": bench.slow_clients,
             "pipelining": bench.pipelining, "recorder": bench.recorder}
    for name in options.only or parts:
        parts[name]()
    if options.write_docs and not options.only:
        write_docs(options.write_docs, bench.rounds)


if __name__ == "__main__":
    main()
