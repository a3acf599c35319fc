#!/usr/bin/env python3
"""Headers and library of two versions: usage: version_test.py ROOT LIBRARIES COMPILER...

A program is compiled with doctored headers and linked with this library. Another patch
number fits; another minor version, and headers from before there was a mark in `options`,
end the program at the first use with a message that names both versions.
"""
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT, LIBRARIES, COMPILER = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
HEADER = (ROOT / "include/vigil/version.hpp").read_text()
OWN = [int(n) for n in re.findall(r"^#define VIGIL_VERSION_[MP]\w+ (\d+)$", HEADER, re.M)]
WAYS = ["run", "runtime", "guest", "virtual", "attach"]
FLAGS = ["-DBOOST_ASIO_SEPARATE_COMPILATION", "-DBOOST_ASIO_DISABLE_VISIBILITY"]
faults = []


def text(version):
    return ".".join(map(str, version))


def number(version):
    return version[0] * 10000 + version[1] * 100 + version[2]


def doctored(tree, version):
    """The headers, with another version; None: without the mark."""
    include = tree / f"headers_{version and text(version)}"
    shutil.copytree(ROOT / "include", include)
    if version is None:
        change(include / "vigil/options.hpp", r"\n  detail::header_mark made_with = \{\};", "")
    else:
        for part, value in zip(("MAJOR", "MINOR", "PATCH"), version):
            change(include / "vigil/version.hpp", rf"(VIGIL_VERSION_{part}) \d+$", rf"\1 {value}")
    return include


def change(path, pattern, text_of_change):
    changed, times = re.subn(pattern, text_of_change, path.read_text(), flags=re.M)
    if times != 1:
        sys.exit(f"{path}: {pattern} stands there {times} times")
    path.write_text(changed)


def build(tree, version):
    include = doctored(tree, version)
    program = include / "program"
    done = subprocess.run(
        [*COMPILER, "-std=c++20", "-O0", *FLAGS, f"-I{include}",
         ROOT / "tests/packaging/version_program.cpp", "-o", program,
         *(LIBRARIES / f"lib{name}.a" for name in ("vigil-io", "vigil")),
         "-lboost_context", "-pthread"],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        sys.exit(f"with the headers of {version} nothing is built:\n{done.stdout}")
    return program


def expect(program, way, wanted, *words):
    done = subprocess.run([program, way], text=True, capture_output=True, check=False)
    said = done.stdout + done.stderr
    if (done.returncode == 0) != wanted or not all(word in said for word in words):
        faults.append(f"{program.parent.name} {way}: {done.returncode}, not "
                      f"{'0' if wanted else 'a failure'} with {words}, but:\n{said}")


def main():
    major, minor, patch = OWN
    fitting = [(major, minor, patch), (major, minor, patch + 7)]
    others = [(major, minor + 1, 0), (major, minor - 1, 9), None]
    with tempfile.TemporaryDirectory(prefix="vigil-version-") as folder:
        tree = Path(folder)
        with ThreadPoolExecutor(2) as pool:
            programs = dict(zip(fitting + others, pool.map(lambda v: build(tree, v), fitting + others)))
        for version in fitting:
            for way in WAYS:
                expect(programs[version], way, True, "done",
                       f"headers {number(version)}, library {number(OWN)}, {text(OWN)}")
        for version in others:
            # The headers without a mark have no number in their options; all else is the same.
            named = f"headers of vigil {text(version)}" if version else "a version before"
            for way in WAYS:
                expect(programs[version], way, False, named, f"library of vigil {text(OWN)}",
                       "Compile all")
    print("\n".join(faults) or f"{len(programs)} versions of the headers, {len(WAYS)} uses each")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
