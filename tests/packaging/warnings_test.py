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
from check_sources import lines_of  # noqa: E402

OTHERS = ["g++"] if any("clang" in word for word in COMPILER) else ["clang++-14", "clang++"]
FLAGS = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow",
         f"-I{ROOT}", f"-I{ROOT / 'src'}", f"-I{ROOT / 'include'}", "-DNDEBUG", "-DVIGIL_HAS_LIBDW=0",
         "-DBOOST_ASIO_SEPARATE_COMPILATION", "-DBOOST_ASIO_DISABLE_VISIBILITY"]
# Others' sources, which are compiled without warnings everywhere.
FOREIGN = {"asio.cpp", "asio_ssl.cpp", "boost_json.cpp"}


def main():
    other = next(filter(shutil.which, OTHERS), None)
    if other is None:
        print(f"skipped: {' or '.join(OTHERS)} is not installed")
        return 77
    faults = []
    for sources in sorted((ROOT / "src").glob("*/sources.txt")):
        name = sources.parent.name
        files = lines_of(sources)
        alone = {p.relative_to(sources.parent).as_posix() for p in sources.parent.rglob("*.cpp")} - {*files}
        text = "".join(f'#include "src/{name}/{file}"\n' for file in [*files, *sorted(alone)]
                       if file not in FOREIGN)
        done = subprocess.run([other, *FLAGS, "-x", "c++", "-"], input=text, capture_output=True,
                              text=True, check=False)
        if done.returncode != 0 or "warning:" in done.stderr:
            faults.append(f"{other}: {name}:\n{done.stderr}")
    print("\n".join(faults) or f"{other} warns of nothing")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
