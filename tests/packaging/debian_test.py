#!/usr/bin/env python3
"""packaging/debian against the tree: usage: debian_test.py ROOT BUILD COMPILER...

Each file that is installed goes into exactly one package, by the patterns of *.install, and
each pattern has a file; each library has a package, named after its soname, which
libvigil-dev depends on; the version is the tree's; each tool has a manual page with its
options; what the packages name in the tree exists. tools/debian builds the packages.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT, BUILD, COMPILER = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
DEBIAN = ROOT / "packaging/debian"
LIBDIR = "usr/lib/x86_64-linux-gnu"
# Installed twice; introspection has one place for each source.
TWICE = "usr/share/gdb/auto-load/vigil-gdb.py"
SITE = "build/docs/html"  # made by debian/rules
faults = []


def introspect(what, build):
    done = subprocess.run(["meson", "introspect", what, build], text=True, check=True,
                          stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def shared_build(folder):
    """Configured as debian/rules does; nothing is compiled."""
    done = subprocess.run(
        ["meson", "setup", folder, ROOT, "--prefix=/usr", f"--libdir={LIBDIR.removeprefix('usr/')}",
         "-Ddefault_library=shared", "-Dio=enabled", "-Dtls=enabled", "-Dinspect=enabled",
         "-Dsymbols=enabled"],
        env={**os.environ, "CXX": " ".join(COMPILER)}, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        sys.exit(done.stdout)


def paragraphs():
    """The packages of debian/control, each with its fields."""
    packages = {}
    for text in re.split(r"\n\n+", (DEBIAN / "control").read_text().strip()):
        fields = dict(re.findall(r"^(\S+): *((?:.*)(?:\n .*)*)", text, re.M))
        packages[fields.get("Package", "source")] = fields
    return packages


def lines_of(name):
    path = DEBIAN / name
    return path.read_text().split("\n")[:-1] if path.exists() else []


def check_files(installed, packages):
    patterns = {(package, line): 0 for package in packages for line in lines_of(f"{package}.install")
                if " " not in line}  # else it is from the tree: check_names
    for path in installed:
        into = set()
        for package, line in patterns:
            # A folder is taken whole; a star stands for no slash.
            if re.fullmatch(re.escape(line).replace(r"\*", "[^/]*") + "(/.*)?", path):
                patterns[package, line] += 1
                into.add(package)
        if len(into) != 1:
            faults.append(f"{path}: in {' and '.join(sorted(into)) or 'no package'}")
    faults.extend(f"{package}.install: nothing is at {line}"
                  for (package, line), count in patterns.items() if count == 0)
    faults.extend(f"{path.name}: of no package" for kind in ("install", "doc-base")
                  for path in DEBIAN.glob(f"*.{kind}")
                  if path.name.removesuffix(f".{kind}") not in packages)


def package_of(soname):
    """As Debian's policy has it, 8.1: libvigil-io.so.0-boost1.81, libvigil-io0-boost1.81."""
    name, version = soname.split(".so.")
    return name + ("-" if name[-1].isdigit() else "") + version


def check_libraries(targets, packages):
    wanted = set()
    for target in targets:
        if target["type"] == "shared library" and target["installed"]:
            file, soname = (Path(target["install_filename"][i]).name for i in (0, -2))
            wanted.add(package_of(soname))
            if not file.startswith(soname):
                faults.append(f"{file}: packages of several {soname} could not be installed together")
    of_libraries = {name for name in packages if name.startswith("lib") and name != "libvigil-dev"}
    faults.extend(f"control: there is no package {x}" for x in sorted(wanted - of_libraries))
    faults.extend(f"control: no library is for {x}" for x in sorted(of_libraries - wanted))
    needs = re.findall(r"(libvigil\S*) \(= \$\{binary:Version\}\)", packages["libvigil-dev"]["Depends"])
    if set(needs) != of_libraries:
        faults.append(f"control: libvigil-dev does not depend on exactly {sorted(of_libraries)}")


def check_version():
    version = introspect("--projectinfo", BUILD)["version"]
    first = (DEBIAN / "changelog").read_text().split("\n")[0]
    if not first.startswith(f"vigil ({version}-"):
        faults.append(f"changelog: the tree has version {version}, not that of: {first}")


def check_manuals(installed):
    for tool in sorted(Path(path).name for path in installed if path.startswith("usr/bin/")):
        page = ROOT / f"tools/man/{tool}.1"
        if f"usr/share/man/man1/{tool}.1" not in installed or not page.exists():
            faults.append(f"{tool}: has no manual page")
            continue
        text = page.read_text().replace("\\", "")
        help_text = (ROOT / "tools" / tool).read_text().split('"""')[1]
        said = set(re.findall(r"(?:^|[\s\[])(--?[a-z][\w-]*)", help_text))
        if not text.startswith(f".TH {tool.upper()} 1"):
            faults.append(f"{page.name}: its first line is not that of {tool}")
        faults.extend(f"{page.name}: lacks {option}" for option in sorted(said) if option not in text)


def check_names(packages):
    """Files of the tree that the packages take or name."""
    for package in packages:
        for line in lines_of(f"{package}.install"):
            path, _, where = line.partition(" ")
            if where and path != SITE and not (ROOT / path).exists():
                faults.append(f"{package}.install: there is no {path}")
    named = re.findall(r"^Files: (\S+)$", (DEBIAN / "copyright").read_text(), re.M)
    faults.extend(f"copyright: there is no {x}" for x in named if not list(ROOT.glob(x)))
    programs = set(re.findall(r"^vigil\S* (\w+\.cpp) \w+$", (DEBIAN / "tests/programs").read_text(), re.M))
    there = set(re.findall(r"\"vigil[\w-]*\": \"(\w*program\.cpp)\"",
                           (ROOT / "tests/packaging/ways_test.py").read_text()))
    if programs != there:
        faults.append(f"tests/programs: has {sorted(programs)}, ways_test.py {sorted(there)}")
    for path in DEBIAN.glob("tests/*"):
        if path.name != "control" and not os.access(path, os.X_OK):
            faults.append(f"tests/{path.name}: cannot be run")


def main():
    packages = paragraphs()
    with tempfile.TemporaryDirectory() as folder:
        shared_build(folder)
        targets = introspect("--targets", folder)
        installed = {path.lstrip("/") for path in introspect("--installed", folder).values()}
    static = {f"{LIBDIR}/{Path(path).name}" for path in introspect("--installed", BUILD).values()
              if path.endswith(".a")}
    installed |= static | {TWICE}
    del packages["source"]
    check_files(sorted(installed), packages)
    check_libraries(targets, packages)
    check_version()
    check_manuals(installed)
    check_names(packages)
    print("\n".join(faults) or f"{len(installed)} files in {len(packages)} packages")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
