#!/usr/bin/env python3
"""usage: ./dev bench [WAY] [ARGUMENT...]

  [FILTER] [--json]      build and run the benchmarks
  instructions           instructions of places that could record, and of a server
                         with its live page, by callgrind; 10 minutes
  together [WORK] [--rounds N]
                         the same work with 1, 2 and 4 workers, in turns
  scaling [WORK] [--workers N,N...]
                         which cache lines move between workers, and how often
  --peers [FILTER] [--json] [--long] [--plots DIR] [--write-docs FILE]
                         vigil beside libuv, Asio, Boost.Fiber, Go, Node and
                         Tokio, in one run; docs/performance.md
  --peers table [--quick] [--json] [--write-docs FILE]
                         ten figures of it, vigil and the best peer, 3 minutes
  --peers together [WORK] [--rounds N]
                         1 and 2 workers beside Asio, Go and Boost.Fiber, in turns
  --peers http [speed] [two] [memory] [slow] [pipelining] [--long]
      [--write-docs FILE]
                         vigil's HTTP server beside Go's and Beast's
"""
import os
import shutil
import signal
import subprocess
import sys

BUILT = "build/release/bench"
PEERS = f"{BUILT}/peers"

# Those of peers/workloads.py that meson builds.
PEER_PROGRAMS = [f"bench/peers/peer_{peer}"
                 for peer in "vigil vigil_tasks libuv asio boost_fiber bare".split()]
HTTP_PROGRAMS = ["bench/peers/http_load", "bench/peers/http_beast",
                 "examples/io/http_server/http_server"]
TOKIO_PACKAGES = ["rustc", "cargo", "librust-tokio-dev", "librust-libc-dev"]


def prepare(*command, **environment):
    """Runs a command whose output is no figure of a benchmark, so it goes to stderr."""
    subprocess.run(command, check=True, stdout=sys.stderr, env={**os.environ, **environment})


def need(*packages):
    prepare("./dev", "need", *packages)


def build(parts, *targets, kind="release"):
    prepare("./dev", "build", kind, parts, *targets)


# Go and Rust are Debian's, whatever else is in PATH; only Debian's packages are fetched.
def build_go(program, source):
    own = os.path.abspath(f"{PEERS}/go")
    prepare("/usr/bin/go", "build", "-trimpath", "-o", f"{PEERS}/{program}",
            f"bench/peers/{source}", GOPATH=own, GOCACHE=f"{own}/cache", GOPROXY="off")


def build_tokio():
    """From a copy, so that cargo's lock file does not lie among the sources."""
    copy = f"{PEERS}/tokio"
    shutil.copytree("bench/peers/tokio/src", f"{copy}/src", dirs_exist_ok=True)
    shutil.copy("bench/peers/tokio/Cargo.toml", copy)
    prepare("/usr/bin/cargo", "build", "--quiet", "--release", "--offline",
            "--manifest-path", f"{copy}/Cargo.toml", "--target-dir", copy,
            "--config", 'source.crates-io.replace-with="debian"',
            "--config", 'source.debian.directory="/usr/share/cargo/registry"',
            RUSTC="/usr/bin/rustc")


# --- the ways: each prepares, and returns the command that then gets the arguments


def groups():
    build("io bench", "bench/vigil_bench")
    return [f"{BUILT}/vigil_bench"]


def instructions():
    need("valgrind")
    build("io bench tests", "bench/recorder_program", "bench/observed_program")
    build("bench", "bench/recorder_program", kind="unrecorded")
    return ["tools/count_instructions.py", BUILT, "build/unrecorded/bench"]


def together():
    build("io bench", "bench/together_work")
    return ["bench/together/run.py", "--program", f"{BUILT}/together_work"]


def scaling():
    build("io bench", "bench/scaling_work", "bench/scaling_time")
    return ["bench/scaling/run.py", "--programs", BUILT]


def peers():
    need("golang-go", *TOKIO_PACKAGES, "python3-matplotlib")
    if not shutil.which("node"):
        need("nodejs")
    build("io bench peers", *PEER_PROGRAMS)
    build_go("peer_go", "go/main.go")
    build_tokio()
    return ["bench/peers/run.py", "--programs", PEERS]


def peers_table():
    def without(peer, step, *words):  # one that cannot be built is left out, and named
        try:
            step(*words)
        except (OSError, subprocess.CalledProcessError):
            print(f"== without {peer}: {step.__name__} has failed", file=sys.stderr, flush=True)
    without("Go", need, "golang-go")
    without("Tokio", need, *TOKIO_PACKAGES)
    if not shutil.which("node"):
        without("Node", need, "nodejs")
    build("io examples bench peers", *HTTP_PROGRAMS, *PEER_PROGRAMS)
    without("Go", build_go, "peer_go", "go/main.go")
    without("Go", build_go, "http_go", "http/server.go")
    without("Tokio", build_tokio)
    return ["bench/peers/table.py", "--programs", PEERS]


def peers_together():
    need("golang-go")
    build("io bench peers", "bench/together_work",
          "bench/peers/together_asio", "bench/peers/together_boost_fiber")
    build_go("together_go", "together/work.go")
    return ["bench/together/run.py", "--program", f"{BUILT}/together_work", "--peers", PEERS]


def peers_http():
    need("golang-go")
    build("io examples bench peers", *HTTP_PROGRAMS)
    build_go("http_go", "http/server.go")
    return ["bench/peers/http/run.py", "--programs", PEERS]


WAYS = {"": groups, "instructions": instructions, "together": together, "scaling": scaling}
PEER_WAYS = {"": peers, "table": peers_table, "together": peers_together, "http": peers_http}


def main():
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # it ends without a traceback
    os.chdir(f"{os.path.dirname(os.path.abspath(__file__))}/..")
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    words = [word for word in sys.argv[1:] if word != "--peers"]
    if not {"-h", "--help"}.isdisjoint(words):
        sys.exit(print(__doc__))
    ways = PEER_WAYS if "--peers" in sys.argv else WAYS
    way = ways[words.pop(0) if words and words[0] in ways else ""]
    try:
        command = way()
    except subprocess.CalledProcessError as failed:  # it has said why
        sys.exit(failed.returncode)
    except FileNotFoundError as missing:
        sys.exit(f"bench: there is no {missing.filename}")
    if command[0].endswith(".py"):
        command.insert(0, sys.executable)
    os.execv(command[0], [*command, *words])


if __name__ == "__main__":
    main()
