#!/usr/bin/env python3
"""Checks the lists of files: usage: check_sources.py SOURCE_ROOT

A library is a folder of src/. Its sources.txt names each of its sources, relative to it, and
its headers.txt each header that it installs, relative to include/; meson and CMake read
both. What is compiled alone is named in src/meson.build and in CMakeLists.txt instead. No
file is missing, and none is named twice. The version stands in include/vigil/version.hpp
alone, which both builds read: what a page or an example asks for is this minor version.
"""
import re
import sys
from collections import Counter
from pathlib import Path


def lines_of(path):
    return [line for line in path.read_text().split("\n") if line and not line.startswith("#")]


def expect_once(named, wanted, where, faults):
    faults += [f"{where}: lacks {name}" for name in sorted(wanted - named.keys())]
    faults += [f"{where}: names {name}, which does not exist" for name in sorted(named.keys() - wanted)]
    faults += [f"{where}: names {name} {n} times" for name, n in sorted(named.items()) if n > 1]


def check_version(root, faults):
    header = (root / "include/vigil/version.hpp").read_text()
    major, minor = re.findall(r"^#define VIGIL_VERSION_M(?:AJOR|INOR) (\d+)$", header, re.M)
    pages = [p for folder in ("docs", "examples") for p in (root / folder).rglob("*")
             if p.suffix in (".md", ".txt")]
    for page in [root / "README.md", *pages]:
        for asked in re.findall(r"find_package\(vigil (\d[\d.]*)", page.read_text()):
            if not f"{asked}.".startswith(f"{major}.{minor}."):
                faults.append(f"{page.relative_to(root)}: asks for vigil {asked}; this is {major}.{minor}")


def main():
    root = Path(sys.argv[1])
    meson, cmake = (root / "src/meson.build").read_text(), (root / "CMakeLists.txt").read_text()
    faults = [f"src/{p.name}: a source belongs to a library" for p in (root / "src").glob("*.?pp")]
    headers = Counter()
    for folder in sorted(p for p in (root / "src").iterdir() if p.is_dir()):
        library = folder.name
        alone = Counter(re.findall(rf"^  '{library}/(\w+\.cpp)',$", meson, re.M))
        of_cmake = Counter(set(re.findall(rf"\bsrc/{library}/(\w+\.cpp)\b", cmake)))
        expect_once(of_cmake, set(alone), "CMakeLists.txt, compiled alone", faults)
        sources = Counter(lines_of(folder / "sources.txt")) + alone
        there = {p.relative_to(folder).as_posix() for p in folder.rglob("*.cpp")}
        expect_once(sources, there, f"src/{library}/sources.txt", faults)
        headers += Counter(lines_of(folder / "headers.txt"))
    there = {p.relative_to(root / "include").as_posix() for p in (root / "include").rglob("*.hpp")}
    expect_once(headers, there, "src/*/headers.txt", faults)
    check_version(root, faults)
    print("\n".join(faults) or "each file is in one list")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
