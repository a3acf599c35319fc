#!/usr/bin/env python3
"""Prints the states that the model tests explore, and the faults that they find.

usage: model_table.py BUILD_DIR proofs [--long]   the states that each proof explores
model_table.py BUILD_DIR faults            the proof that finds each planted fault

Runs the model tests of a build, or its planted faults. With --long the proofs also run
with the wider bounds (VIGIL_LONG=1), for as long as that takes.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent

COLUMNS = ["2/1", "3/2", "whole"]


def read_runs(lines, rows):
    """Adds what VIGIL_MODEL_TABLE has collected to {name: {bounds: states}}."""
    for line in lines:
        name, preemptions, stale, _, states, _, complete = line.split("\t")
        bounds = "whole" if preemptions == "unlimited" else f"{preemptions}/{stale}"
        number = f"{int(states):,}".replace(",", " ")
        rows.setdefault(name, {})[bounds] = (
            number if complete == "complete" else f"more than {number}")


def table_of(rows):
    # Proofs that were run with every bound they can bear say so.
    text = ["| Proof | 2/1 | 3/2 | without bounds |", "|---|---:|---:|---:|"]
    for name, states in rows.items():
        text.append(f"| {name} | {' | '.join(states.get(b, '') for b in COLUMNS)} |")
    return "\n".join(text)


def proofs(build, is_long):
    rows = {}
    for long_form in ([False, True] if is_long else [False]):
        with tempfile.NamedTemporaryFile("r") as table:
            env = {**os.environ, "VIGIL_MODEL_TABLE": table.name}
            env.pop("VIGIL_LONG", None)
            if long_form:
                env["VIGIL_LONG"] = "1"
            done = subprocess.run([build / "tests/model/test_model", "-tce=litmus*"], env=env,
                                  stdout=subprocess.DEVNULL)
            if done.returncode != 0 and not long_form:
                sys.exit("model_table.py: test_model fails: mend that first")
            read_runs(table.read().splitlines(), rows)
    return table_of(rows)


def faults(build):
    tests = json.loads(subprocess.run(["meson", "introspect", "--tests", build],
                                      capture_output=True, text=True, check=True).stdout)
    text = ["| Fault | In | Found by | As | States | Schedule |", "|---|---|---|---|---:|---|"]
    for test in tests:
        if not test["name"].startswith("fault-"):
            continue
        name = test["name"].removeprefix("fault-")
        patch = (ROOT / f"tests/model/faults/{name}.patch").read_text()
        source = re.search(r"^--- a/(?:src|include)/(\S+)", patch, re.M)[1]
        out = subprocess.run(test["cmd"], env={**os.environ, "VIGIL_EXPECT_FAULT": "1"},
                             capture_output=True, text=True, errors="replace").stdout
        row = re.search(r"^model  (.*?)\s+2/1\s.*?(\d+) states  FAULT$", out, re.M) or \
            re.search(r"^model  (.*?)\s+unlimited/unlimited\s.*?(\d+) states  FAULT$", out, re.M)
        said = re.search(r"^found     (.*)$", out, re.M)
        schedule = re.search(r"^schedule  (.*)$", out, re.M)
        replayed = re.search(r"^replayed  (.*)$", out, re.M)
        if not (row and said and schedule and replayed and replayed[1] == said[1]):
            text.append(f"| `{name}` | {source} | **not found** | | | |")
            continue
        number = f"{int(row[2]):,}".replace(",", " ")
        fault = said[1].removeprefix("requirement does not hold: ")
        fault = re.sub(r"^nobody can ever go on: .*", "nobody can ever go on", fault)
        text.append(f"| `{name}` | {source} | {row[1]} | {fault} | {number} | `{schedule[1]}` |")
    return "\n".join(text[:2] + sorted(text[2:]))


def main():
    arguments = [a for a in sys.argv[1:] if a != "--long"]
    if len(arguments) != 2 or arguments[1] not in ("proofs", "faults"):
        sys.exit(__doc__)
    build = pathlib.Path(arguments[0]).resolve()
    print(faults(build) if arguments[1] == "faults" else proofs(build, "--long" in sys.argv))


if __name__ == "__main__":
    main()
