#!/usr/bin/env python3
"""Which memory orders does a proof need? Weakens each, and looks whether a proof notices.

usage: weaken_orders.py TEST_MODEL [--states N] [--proofs N] [--only PART] [--jobs N]

TEST_MODEL is the built tests/model/test_model. One line of src/ at a time, each atomic
operation stronger than relaxed is made weaker by one step (seq_cst to acq_rel, acquire
or release; those to relaxed). Then proofs that reach the line are run, at most 24 for
each line and each for at most 50 000 states. A line that no proof notices is stronger
than needed, or lacks a proof, or needs more states. This takes from minutes to an hour,
so it is not part of the suite.
"""

import argparse
import collections
import concurrent.futures
import os
import subprocess
import sys
import tempfile


def lines_of(program, offsets):
    """The src/ file and line of each offset; other places are left out."""
    out = subprocess.run(
        ["addr2line", "-a", "-i", "-e", program],
        input="\n".join(offsets), capture_output=True, text=True, check=True).stdout
    places, at = {}, None
    for text in out.splitlines():
        if text.startswith("0x"):
            at = hex(int(text, 16))
        elif at is not None and "/include/c++/" not in text:
            path, _, line = text.partition(":")
            if "/src/" in path:
                places[at] = path.rpartition("/src/")[2] + ":" + line.split(" ")[0]
            at = None
    return places


def run(program, **env):
    return subprocess.run(
        [program, "-tce=litmus*"], env={**os.environ, **env},
        capture_output=True, text=True, errors="replace")


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("program")
    arguments.add_argument("--states", default="50000")
    arguments.add_argument("--proofs", type=int, default=24)
    arguments.add_argument("--only", default="")
    arguments.add_argument("--jobs", type=int, default=1)
    chosen = arguments.parse_args()

    with tempfile.TemporaryDirectory() as scratch:
        table = os.path.join(scratch, "sites")
        run(chosen.program, VIGIL_MODEL_SITES=table, VIGIL_MODEL_STATES="30000")
        rows = [row.rstrip("\n").split("\t") for row in open(table)]
        places = lines_of(chosen.program, sorted({hex(int(row[1], 16)) for row in rows}))
        sites = collections.defaultdict(lambda: (set(), set(), set()))
        for proof, offset, what, order in rows:
            offset = hex(int(offset, 16))
            if offset in places and chosen.only in places[offset]:
                offsets, kinds, proofs = sites[places[offset]]
                offsets.add(offset)
                kinds.add(f"{what} {order}")
                proofs.add(proof)

        reach = collections.Counter(proof for _, _, proofs in sites.values() for proof in proofs)

        def some(proofs):
            """One third are the proofs that reach the least else; of the rest, every n-th."""
            ranked = sorted(proofs, key=lambda proof: (reach[proof], proof))
            first, rest = ranked[: chosen.proofs // 3], ranked[chosen.proofs // 3 :]
            step = -(-len(rest) // max(1, chosen.proofs - len(first)))
            return first + (rest[::step] if rest else [])

        def look(site):
            offsets, kinds, proofs = sites[site]
            names = os.path.join(scratch, site.replace("/", "_"))
            with open(names, "w") as f:
                f.writelines(proof + "\n" for proof in some(proofs))
            out = run(chosen.program, VIGIL_EXPECT_FAULT="1", VIGIL_MODEL_PROOFS=names,
                      VIGIL_MODEL_STATES=chosen.states,
                      VIGIL_MODEL_WEAKEN=",".join(sorted(offsets))).stdout
            found = by = ""
            for line in out.splitlines():
                if line.startswith("model  ") and line.endswith("FAULT"):
                    by = line[7:51].strip()
                if line.startswith("found "):
                    found = line[10:]
            return site, ", ".join(sorted(kinds)), len(proofs), by, found

        noticed = 0
        with concurrent.futures.ThreadPoolExecutor(chosen.jobs) as pool:
            for site, kinds, proofs, by, found in pool.map(look, sorted(sites)):
                noticed += found != ""
                print(f"{site}\t{kinds}\t{proofs}\t{by or '-'}\t{found or 'NOT NOTICED'}",
                      flush=True)
        print(f"{noticed} of {len(sites)} lines are noticed by a proof")


if __name__ == "__main__":
    sys.exit(main())
