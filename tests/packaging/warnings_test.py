#!/usr/bin/env python3
"""What the other compiler warns of in vigil's sources, with the warnings of other projects:
usage: warnings_test.py ROOT COMPILER...

clang++ where COMPILER is g++, and the other way round. It only reads them, the sources of
a library as one, for users choose how many are compiled together. (The test `way in by
cmake-source` does the same with COMPILER.) Exit status 77: it is not installed.
"""
import shutil
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
ROOT, COMPILER = Path(sys.argv[1]), sys.argv[2:]
sys.path.insert(0, str(ROOT / "tools"))
from check_sources import cmake_lists  # noqa: E402

OTHERS = ["g++"] if any("clang" in word for word in COMPILER) else ["clang++-14", "clang++"]
FLAGS = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow",
         f"-I{ROOT}", f"-I{ROOT / 'src'}", f"-I{ROOT / 'include'}", "-DNDEBUG", "-DVIGIL_HAS_LIBDW=0",
         "-DBOOST_ASIO_SEPARATE_COMPILATION", "-DBOOST_ASIO_DISABLE_VISIBILITY"]
# Others' sources, which are compiled without warnings everywhere.
FOREIGN = {"src/io/asio.cpp", "src/tls/asio_ssl.cpp", "src/inspect/boost_json.cpp"}


def main():
    other = next(filter(shutil.which, OTHERS), None)
    if other is None:
        print(f"skipped: {' or '.join(OTHERS)} is not installed")
        return 77
    faults, lists = [], (ROOT / "CMakeLists.txt").read_text()
    for name, files in cmake_lists(lists).items():
        if not name.endswith("_sources"):
            continue
        text = "".join(f'#include "{file}"\n' for file in sorted(files - FOREIGN, key=lists.index))
        done = subprocess.run([other, *FLAGS, "-x", "c++", "-"], input=text, capture_output=True,
                              text=True, check=False)
        if done.returncode != 0 or "warning:" in done.stderr:
            faults.append(f"{other}: {name}:\n{done.stderr}")
    print("\n".join(faults) or f"{other} warns of nothing")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
