"""Builds the unit suites in a folder of their own and counts what they say.

For arm64.py and matrix.py. `core` are the programs of src/core's layers, `io` are those of
vigil-io and, where it is built, vigil-tls.
"""
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import count_tests

ROOT = Path(__file__).resolve().parent.parent
OPTIONS = ["-Dtests=true", "-Ddebug=false", "-Dinspect=disabled", "-Dexamples=false"]

Counts = namedtuple("Counts", "passed failed skipped reasons")  # of one program


class Fault(Exception):
    """Why a folder could not be configured, built or tested: the end of what was said."""


def run(log, command, **options):
    with open(log, "w") as out:
        done = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, **options)
    if done.returncode != 0:
        lines = Path(log).read_text(errors="replace").splitlines()
        faults = [i for i, line in enumerate(lines) if re.search(r"\b(error|ERROR)\b", line)]
        first = max(0, faults[0] - 2) if faults else max(0, len(lines) - 20)
        raise Fault("\n".join(lines[first:first + 20] + [f"(all of it: {log})"]))


def need(*packages):
    """Installs packages as ./dev does. Returns whether they are there now."""
    return subprocess.run([ROOT / "dev", "need", *packages], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL).returncode == 0


def configure(folder, suites, options, environment):
    setup = ["meson", "setup", folder, ROOT, *OPTIONS, *options,
             *(["-Dio=enabled", "-Dtls=auto"] if "io" in suites
               else ["-Dio=disabled", "-Dtls=disabled"])]
    if (folder / "build.ninja").is_file():
        if (folder / "setup").read_text() == shlex.join(map(str, setup)):
            return
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    run(folder.with_name(folder.name + ".setup.log"), setup, env=environment)
    (folder / "setup").write_text(shlex.join(map(str, setup)))


def programs(folder, suites, wanted):
    """The names of the tests, with their programs relative to the folder."""
    listed = subprocess.run(["meson", "introspect", folder, "--tests"], check=True,
                            stdout=subprocess.PIPE, text=True)
    places = {"core": ("tests",), "io": ("tests/io", "tests/tls")}
    found = {}
    for test in json.loads(listed.stdout):
        program = Path(test["cmd"][0])
        if not any(name.endswith(":unit") for name in test["suite"]):
            continue
        if not program.is_relative_to(folder):
            continue
        place = program.relative_to(folder)
        if any(str(place.parent) in places[suite] for suite in suites):
            if not wanted or test["name"] in wanted:
                found[test["name"]] = str(place)
    return found


def build_and_run(folder, suites=("core", "io"), options=(), environment=None, wanted=(),
                  jobs=None):
    """Returns {name: Counts}, and prints what failed. Raises Fault."""
    folder = Path(folder).resolve()
    environment = {**os.environ, **(environment or {})}
    jobs = str(jobs or os.environ.get("VIGIL_JOBS") or os.cpu_count())
    configure(folder, suites, [*options], environment)
    tests = programs(folder, suites, wanted)
    if not tests:
        raise Fault(f"no such test: {' '.join(wanted)}")
    run(folder.with_name(folder.name + ".build.log"),
        ["ninja", "-C", folder, "-j", jobs, *sorted(set(tests.values()))], env=environment)
    said = folder / "meson-logs/testlog.json"
    said.unlink(missing_ok=True)
    subprocess.run(["meson", "test", "-C", folder, "--no-rebuild", "--num-processes", jobs,
                    "--timeout-multiplier", "20", *tests],
                   env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if not said.is_file():
        raise Fault(f"meson test has run nothing in {folder}")
    counts = {}
    with open(said) as log:
        for line in filter(str.strip, log):
            entry = json.loads(line)
            name = entry["name"].split(" / ")[-1]
            passed, failed, skipped = count_tests.count(entry)
            counts[name] = Counts(passed, failed, skipped,
                                  list(dict.fromkeys(count_tests.skips(entry))))
            if failed:
                print(f"\n== failed: {name}", *count_tests.reason(entry), sep="\n")
                sys.stdout.flush()
    return counts


def total(counts):
    return Counts(*(sum(c[i] for c in counts.values()) for i in range(3)),
                  list(dict.fromkeys(why for c in counts.values() for why in c.reasons)))


def in_words(counts):
    reasons = f" ({'; '.join(counts.reasons)})" if counts.reasons else ""
    return f"{counts.passed} passed, {counts.failed} failed, {counts.skipped} skipped{reasons}"
