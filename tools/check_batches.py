#!/usr/bin/env python3
"""Checks that any files of a library compile as one: usage: check_batches.py SOURCE_ROOT COMPILER...

The build compiles eight at a time. Which ones meet changes with each new file, and users
choose other numbers (unity_size, CMAKE_UNITY_BUILD_BATCH_SIZE). So all sources of a
library are compiled as one here: two that define one name, or a local that hides what
another file defines, are faults.
"""
import subprocess
import sys
from pathlib import Path

from check_sources import meson_lists

# Asio's headers declare what asio.cpp defines: it is compiled alone.
APART = {"asio_sources"}
LIBRARIES = {"vigil-io": {"io_sources"}, "vigil-tls": {"tls_sources"}}  # vigil: the others


def faults_of(root, compiler, sources):
    text = "".join(f'#include "{root / "src" / source}"\n' for source in sources)
    done = subprocess.run(
        [*compiler, "-std=c++20", "-fsyntax-only", "-Wshadow", "-Werror=shadow", "-x", "c++",
         "-DBOOST_ASIO_SEPARATE_COMPILATION", "-I", root / "include", "-I", root / "src", "-"],
        input=text, capture_output=True, text=True, check=False)
    return [] if done.returncode == 0 else done.stderr.splitlines()


def main():
    root, compiler = Path(sys.argv[1]), sys.argv[2:]
    lists = meson_lists(root / "src" / "meson.build")
    libraries = {**LIBRARIES, "vigil": lists.keys() - APART - set().union(*LIBRARIES.values())}
    failed = False
    for name, parts in sorted(libraries.items()):
        # The layers from the bottom up, as in meson's lists and so in each batch.
        sources = [source for part in lists if part in parts for source in sorted(lists[part])]
        for line in faults_of(root, compiler, sources):
            failed = True
            print(line)
        print(f"{name}: {len(sources)} files as one")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
