#!/usr/bin/env python3
"""Compares shared libraries with packaging/abi: usage: check_abi.py ROOT LIBRARIES [--write]

LIBRARIES is a folder with the six shared libraries, built with debug information.
packaging/abi has a file for each: what abidw (of abigail-tools) says of the functions that
the public headers declare, and of the types that these name. A seventh is for types.cpp
beside them, which is compiled here: the types that no function names. What belongs to
other libraries, or to src/, is left out. abidiff compares: a function or a member that is
gone, elsewhere, or of another type, is a fault; a new function is none.

--write writes the files anew. Exit status 77: abigail-tools are not installed.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from pathlib import Path

LIBRARIES = ["vigil", "vigil-io", "vigil-tls", "vigil-inspect", "vigil-lock-check",
             "vigil-inspect-page"]
ABIDW = ["abidw", "--exported-interfaces-only", "--no-corpus-path", "--no-comp-dir-path",
         "--no-parameter-names", "--no-elf-needed", "--drop-undefined-syms",
         "--type-id-style", "hash"]
# As users are, with shared libraries. It is linked with none of them.
COMPILE = ["-std=c++20", "-g", "-O0", "-fPIC", "-shared", "-fvisibility=hidden", "-DVIGIL_SHARED",
           "-DBOOST_ASIO_SEPARATE_COMPILATION"]
PUBLIC = re.compile(r"(?:^|/)(?:include/vigil|packaging/abi)/")
# What abidiff takes for granted.
USUAL = {"visibility": ("default", "default-visibility"), "binding": ("global", "global-binding"),
         "is-defined": ("yes",)}
LOCATIONS = ("filepath", "line", "column")
# Of what is not vigil's, or not public, a name is kept.
BODIES = ("size-in-bits", "alignment-in-bits")


def names_in_headers(root):
    """What looks like a function or a variable that a public header declares."""
    names = set()
    for header in (root / "include").rglob("*.hpp"):
        text = re.sub(r"//.*", "", header.read_text())
        names |= set(re.findall(r"\b(\w+) *\(", text)) | set(re.findall(r"\b(\w+)(?:\{.*\}| = .*)?;", text))
    return names


def is_public(element):
    return bool(PUBLIC.search(element.get("filepath", "")))


class Corpus:
    """What abidw says of a library, cut down to what its users see."""

    def __init__(self, library, declared):
        done = subprocess.run([*ABIDW, str(library)], capture_output=True, text=True, check=False)
        if done.returncode != 0 or not done.stdout:
            sys.exit(f"{library}: abidw fails:\n{done.stderr}")
        self.root = xml.fromstring(done.stdout)
        if self.root.find("abi-instr") is None:
            sys.exit(f"{library}: has no debug information")
        self.parents = {child: parent for parent in self.root.iter() for child in parent}
        self.types = {e.get("id"): e for e in self.root.iter() if e.get("id")}
        self.kept, self.symbols = set(), set()
        self.functions = 0
        for element in list(self.root.iter("class-decl")) + list(self.root.iter("union-decl")):
            if not is_public(element):
                self.hollow(element)
        for element in list(self.root.iter()):
            if element.get("elf-symbol-id") and self.is_root(element, declared):
                self.symbols.add(element.get("elf-symbol-id"))
                self.functions += 1
                self.keep(element)
        for symbol in self.root.iter("elf-symbol"):  # a constructor has two names
            names = {symbol.get("name"), *filter(None, symbol.get("alias", "").split(","))}
            if names & self.symbols:
                self.symbols |= names
        self.prune(self.root)

    def hollow(self, element):
        """Leaves the name, and the types inside that others may name."""
        for child in list(element):
            if child.tag != "member-type":
                element.remove(child)
        for name in BODIES:
            element.attrib.pop(name, None)
        element.set("is-declaration-only", "yes")

    def is_root(self, element, declared):
        around = self.parents[element]
        while around.tag in ("member-function", "data-member"):
            around = self.parents[around]
        if around.tag in ("class-decl", "union-decl"):
            return is_public(around)
        if element.get("name") == "abi_types":
            return True
        return element.get("name") in declared and self.namespace_of(element) == "vigil"

    def namespace_of(self, element):
        """The outermost one."""
        name = None
        while element in self.parents:
            element = self.parents[element]
            if element.tag == "namespace-decl":
                name = element.get("name")
        return name

    def keep(self, element):
        """With what is around it, and with all types that it names."""
        todo = [element]
        while todo:
            element = todo.pop()
            if element in self.kept:
                continue
            self.kept.add(element)
            if element in self.parents:
                todo.append(self.parents[element])
            for name in ("type-id", "naming-typedef-id", "containing-type-id"):
                if element.get(name) in self.types:
                    todo.append(self.types[element.get(name)])
            # A type is kept whole, without functions that nobody can call by the library.
            if element.get("id"):
                todo += [child for child in element
                         if child.tag not in ("member-type", "member-function", "member-template")
                         or child.tag == "member-function" and child.get("vtable-offset")]
            elif element.tag in ("function-decl", "data-member", "member-function", "base-class",
                                 "array-type-def", "var-decl"):
                todo += list(element)

    def prune(self, element):
        for child in list(element):
            if child.tag == "elf-symbol":
                if child.get("name") not in self.symbols:
                    element.remove(child)
            elif child.tag in ("elf-function-symbols", "elf-variable-symbols"):
                self.prune(child)
            elif child not in self.kept:
                element.remove(child)
            else:
                self.prune(child)
        for name in LOCATIONS:
            element.attrib.pop(name, None)
        for name, values in USUAL.items():
            if element.get(name) in values:
                element.attrib.pop(name)
        if element.tag == "function-decl":
            element.attrib.pop("size-in-bits", None)  # of a pointer to it
            if element.get("elf-symbol-id") == element.get("mangled-name"):
                element.attrib.pop("mangled-name")

    def write(self, path):
        for number, unit in enumerate(self.root.iter("abi-instr"), 1):
            unit.set("path", str(number))  # instead of a file of the build
        xml.indent(self.root, "")
        path.write_bytes(xml.tostring(self.root, short_empty_elements=True) + b"\n")


def library_file(folder, name):
    found = folder / f"lib{name}.so"
    if not found.exists():
        sys.exit(f"{found} does not exist; build shared libraries, with -Ddefault_library=shared")
    return found.resolve()


def corpora(root, libraries, names):
    """The name and the corpus of each library, and of the types."""
    declared = names_in_headers(root)
    with tempfile.TemporaryDirectory(prefix="vigil-abi-") as folder:
        types = Path(folder) / "types.so"
        compiler = os.environ.get("CXX", "g++").split()
        done = subprocess.run([*compiler, *COMPILE, f"-I{root / 'include'}",
                               str(root / "packaging/abi/types.cpp"), "-o", str(types)],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"packaging/abi/types.cpp is not compiled:\n{done.stderr}")
        for name in [*names, "types"]:
            file = types if name == "types" else library_file(libraries, name)
            corpus = Corpus(file, declared)
            if corpus.functions == 0:
                sys.exit(f"{name}: nothing to compare, since no public function was found")
            yield name, corpus


def differences(old, new):
    """What abidiff says, or "" if nothing that matters has changed."""
    done = subprocess.run(["abidiff", "--no-added-syms", str(old), str(new)],
                          capture_output=True, text=True, check=False)
    if done.returncode & 3:
        sys.exit(f"abidiff {old} fails:\n{done.stdout}{done.stderr}")
    return done.stdout if done.returncode else ""


def compare(root, libraries, names):
    """Returns the number of functions that were compared, and what was found of each library."""
    compared, found = 0, {}
    with tempfile.TemporaryDirectory(prefix="vigil-abi-") as folder:
        for name, corpus in corpora(root, libraries, names):
            old, new = root / f"packaging/abi/{name}.abi", Path(folder) / f"{name}.abi"
            if not old.exists():
                sys.exit(f"{old} does not exist, so nothing was compared; --write makes it")
            corpus.write(new)
            compared += corpus.functions
            if said := differences(old, new):
                found[name] = said
    return compared, found


def write(root, libraries):
    for name, corpus in corpora(root, libraries, LIBRARIES):
        path = root / f"packaging/abi/{name}.abi"
        corpus.write(path)
        print(f"{path.name}: {corpus.functions} functions, {path.stat().st_size} bytes")


def main():
    if len(sys.argv) not in (3, 4) or sys.argv[3:] not in ([], ["--write"]):
        sys.exit(__doc__)
    root, libraries = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    if not shutil.which("abidw") or not shutil.which("abidiff"):
        print("skipped: abigail-tools are not installed; nothing was compared")
        return 77
    if sys.argv[3:]:
        write(root, libraries)
        return 0
    compared, found = compare(root, libraries, LIBRARIES)
    for name, said in found.items():
        print(f"{name} differs from packaging/abi/{name}.abi:\n{said}")
    print(f"{compared} functions compared, {len(found)} of {len(LIBRARIES) + 1} files differ")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
