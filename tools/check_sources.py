#!/usr/bin/env python3
"""Checks that CMake builds the same as meson: usage: check_sources.py SOURCE_ROOT

CMakeLists.txt must have the lists of sources and headers of src/meson.build and
include/meson.build, and both builds must give vigil the same version.
"""
import re
import sys
from pathlib import Path

# A list of CMakeLists.txt -> meson's file, its folder, and meson's lists that it holds.
SOURCES = "src/meson.build", "src/"
HEADERS = "include/meson.build", "include/"
LISTS = {
    "vigil_sources": (*SOURCES, None),  # None: all except those below
    "vigil_io_sources": (*SOURCES, {"asio_sources", "io_sources"}),
    "vigil_inspect_sources": (*SOURCES, {"inspect_json_sources", "inspect_sources"}),
    "vigil_lock_check_sources": (*SOURCES, {"lock_check_sources"}),
    "vigil_inspect_page_sources": (*SOURCES, {"inspect_page_sources"}),
    "vigil_tls_sources": (*SOURCES, {"tls_sources"}),
    "vigil_headers": (*HEADERS, {"public_headers", "detail_headers"}),
    "vigil_io_headers": (*HEADERS, {"io_headers", "io_detail_headers"}),
    "vigil_inspect_headers": (*HEADERS, {"inspect_headers"}),
    "vigil_inspect_page_headers": (*HEADERS, {"inspect_page_headers"}),
    "vigil_tls_headers": (*HEADERS, {"tls_headers", "tls_detail_headers"}),
}
OF_MESON = re.compile(r"^(\w+_(?:sources|headers)) = (?:files\(|\[)\n(.*?)^[)\]]", re.S | re.M)


def meson_lists(path):
    return {name: set(re.findall(r"'([^']+)'", body))
            for name, body in OF_MESON.findall(path.read_text())}


def cmake_lists(text):
    found = re.findall(r"^set\((vigil_\w+)\n(.*?)^\)", text, re.S | re.M)
    return {name: set(body.split()) for name, body in found}


def main():
    root = Path(sys.argv[1])
    cmake = (root / "CMakeLists.txt").read_text()
    there = cmake_lists(cmake)
    faults = []
    for name, (file, folder, lists) in LISTS.items():
        of_meson = meson_lists(root / file)
        if lists is None:
            lists = of_meson.keys() - set().union(*(l for _, _, l in LISTS.values() if l))
        wanted = {folder + entry for some in lists for entry in of_meson[some]}
        faults += [f"CMakeLists.txt: {name} lacks {x}" for x in sorted(wanted - there[name])]
        faults += [f"CMakeLists.txt: {name} has {x}, {file} has not"
                   for x in sorted(there[name] - wanted)]
    meson_version = re.search(r"version: '([^']+)'", (root / "meson.build").read_text())[1]
    cmake_version = re.search(r"project\(vigil VERSION (\S+)", cmake)[1]
    if meson_version != cmake_version:
        faults.append(f"version {cmake_version} in CMakeLists.txt, {meson_version} in meson.build")
    print("\n".join(faults) or "CMake builds what meson builds")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
