#!/usr/bin/env python3
"""Planted breaks of the ABI, each found by check_abi.py: usage: abi_faults.py ROOT

Each patch of abi_faults/ says after `Says:` what abidiff has to say of it (a regular
expression), or that it says nothing. All of the first kind are planted in one copy of the
tree, all others in a second; libvigil is built of each, without optimization, and compared
with packaging/abi. Exit status 77: abigail-tools are not installed.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(sys.argv[1]).resolve()
FAULTS = Path(__file__).resolve().parent / "abi_faults"
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools"))
import check_abi  # noqa: E402
import plant  # noqa: E402


def run(*command):
    done = subprocess.run([str(c) for c in command], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nfailed with {done.returncode}:\n{done.stdout}")


def plant_in(tree, patch):
    for part in re.split(r"^--- a/", patch.read_text(), flags=re.M)[1:]:
        path = tree / part.split("\n", 1)[0]
        lines = plant.plant(path.read_text().splitlines(), part, patch.name)
        path.write_text("\n".join(lines) + "\n")


def reports(tree, patches):
    """What abidiff says of a copy with these patches: one text."""
    for name in ("include", "src", "tools", "cmake", "packaging"):
        shutil.copytree(ROOT / name, tree / name)
    for name in ("meson.build", "meson_options.txt"):
        shutil.copy(ROOT / name, tree)
    for patch in patches:
        plant_in(tree, patch)
    run("meson", "setup", tree / "build", tree, "-Ddefault_library=shared", "-Doptimization=0",
        "-Dio=disabled", "-Dtls=disabled", "-Dinspect=disabled", "-Dunity_size=1000")
    run("ninja", "-C", tree / "build", "-j", os.environ.get("VIGIL_JOBS", str(os.cpu_count())))
    compared, found = check_abi.compare(tree, tree / "build" / "src", ["vigil"])
    return compared, "\n".join(found.values())


def main():
    if not shutil.which("abidw"):
        print("skipped: abigail-tools are not installed; nothing was compared")
        return 77
    wanted = {p: re.search(r"^Says: (.*)$", p.read_text(), re.M) for p in sorted(FAULTS.glob("*.patch"))}
    loud = [p for p, says in wanted.items() if says]
    quiet = [p for p in wanted if p not in loud]
    faults = []
    with tempfile.TemporaryDirectory(prefix="vigil-abi-faults-") as folder:
        compared, said = reports(Path(folder) / "loud", loud)
        for patch in loud:
            found = re.search(wanted[patch][1], said)
            print(f"{patch.stem}: {found[0] if found else 'NOT FOUND'}", flush=True)
            if not found:
                faults.append(f"{patch.stem} is not found in:\n{said}")
        again, said = reports(Path(folder) / "quiet", quiet)
        print(f"{', '.join(p.stem for p in quiet)}: not seen by abidiff", flush=True)
        if said:
            faults.append(f"of {[p.stem for p in quiet]} abidiff says:\n{said}")
    print("\n".join(faults) or f"{len(loud)} breaks found; {compared} and {again} functions compared")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
