#!/usr/bin/env python3
"""Each way in, from a user's side: usage: ways_test.py WAY ROOT BUILD COMPILER...

WAY is one of:

  pkg-config    installs BUILD, builds programs with vigil.pc, vigil-io.pc, vigil-tls.pc
  plugin        installs BUILD, builds a shared object that exports nothing of vigil
  cmake         installs BUILD, find_package(vigil COMPONENTS io tls)
  subproject    ROOT as a subproject of a meson project, by vigil.wrap, with shared
                libraries: their names, and what they export
  cmake-source  ROOT by add_subdirectory; installs it with CMake, find_package again

The first three take the libraries of BUILD as they are; the other two build vigil, once
each, without optimization. Each program is run. Exit status 77: a tool is not there.
"""
import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

WAY, ROOT, BUILD, COMPILER = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:]
HERE = ROOT / "tests" / "packaging"
JOBS = os.environ.get("VIGIL_JOBS", str(os.cpu_count()))
PROGRAMS = {"vigil": "program.cpp", "vigil-io": "io_program.cpp", "vigil-tls": "tls_program.cpp"}


def run(*command, **more):
    """Standard output; ends the test with all that was said if the command fails."""
    done = subprocess.run([str(c) for c in command], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nfailed with {done.returncode}:\n{done.stdout}")
    return done.stdout


def need(tool):
    if shutil.which(tool) is None:
        print(f"{tool} is not installed")
        sys.exit(77)


def expect(condition, text):
    if not condition:
        sys.exit(text)


def expect_program(path, name, **more):
    expect(f"{name} says" in run(path, **more), f"{path} does not say what it should")


def install(to):
    """BUILD as it is; returns the folder with the libraries."""
    run("meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", to)
    return next(to.rglob("libvigil.a")).parent


def environment_of_pkg_config(tree, libdir):
    return {**os.environ, "PKG_CONFIG_PATH": str(libdir / "pkgconfig"),
            "PKG_CONFIG_SYSROOT_DIR": str(tree)}


def flags(name, environment):
    return run("pkg-config", "--cflags", "--libs", name, env=environment).split()


def pkg_config(tree):
    need("pkg-config")
    environment = environment_of_pkg_config(tree, install(tree))
    for name, source in PROGRAMS.items():
        program = tree / name
        run(*COMPILER, "-std=c++20", "-O0", HERE / source, "-o", program,
            *flags(name, environment))
        expect_program(program, name)


def symbols(*call, kinds=""):
    """Mangled names of what is defined there: all, or of these kinds (nm's letters)."""
    lines = [line.split() for line in run("nm", "--defined-only", "-P", *call).splitlines()]
    return {line[0] for line in lines if len(line) > 2 and (not kinds or line[1] in kinds)}


def demangled(names):
    return run("c++filt", input="\n".join(sorted(names))).splitlines()


def plugin(tree):
    need("pkg-config")
    libdir = install(tree)
    environment = environment_of_pkg_config(tree, libdir)
    archives = symbols(libdir / "libvigil.a", libdir / "libvigil-io.a", kinds="TDBRG")
    for visibility in ("default", "hidden"):
        made = tree / f"plugin_{visibility}.so"
        run(*COMPILER, "-std=c++20", "-O0", "-shared", "-fPIC", f"-fvisibility={visibility}",
            HERE / "plugin.cpp", "-o", made, *flags("vigil-io", environment))
        exported = symbols("-D", made)
        # Inline functions and templates of the headers are the plugin's own code, which it
        # exports unless it is compiled with -fvisibility=hidden.
        wrong = exported & archives
        if visibility == "hidden":
            wrong |= {name for name in exported if re.match(r"_Z[A-Z]*5vigil", name)}
        expect(not wrong, f"with -fvisibility={visibility} it exports:\n" +
               "\n".join(demangled(wrong)[:20]))
        expect("answer" in exported, "the plugin does not export its own function")
        expect(ctypes.CDLL(str(made)).answer() == 42, "the plugin gives another answer")


def subproject(tree):
    (tree / "subprojects").mkdir()
    (tree / "subprojects" / "vigil").symlink_to(ROOT)
    shutil.copy(ROOT / "vigil.wrap", tree / "subprojects")
    for source in PROGRAMS.values():
        shutil.copy(HERE / source, tree)
    (tree / "meson.build").write_text(
        "project('user', 'cpp', default_options: ['cpp_std=c++20'])\n" + "".join(
            f"executable('{name}-user', '{source}', dependencies: dependency('{name}'))\n"
            for name, source in PROGRAMS.items()))
    run("meson", "setup", tree / "build", tree, "--buildtype=plain", "-Doptimization=0",
        "--wrap-mode=nodownload", "-Dvigil:default_library=shared",
        "--force-fallback-for=vigil,vigil-io,vigil-tls",
        env={**os.environ, "CXX": " ".join(COMPILER)})
    run("ninja", "-C", tree / "build", "-j", JOBS)
    for name in PROGRAMS:
        expect_program(tree / "build" / f"{name}-user", name)
    libraries = tree / "build" / "subprojects" / "vigil" / "src"
    expect(not list(libraries.rglob("*.a")), "there are static libraries")
    check_shared(libraries)


def check_shared(libraries):
    """Their names; and of vigil's symbols only those that the headers declare as exported,
    or the sources for vigil-io."""
    declared = re.compile(r"VIGIL_(?:API|FOR_IO)\s[^;{]*?\b(\w+)\s*(?:\(|[;{:]|final)")
    exports = {match for folder in ("include", "src") for path in (ROOT / folder).rglob("*.hpp")
               for match in declared.findall(path.read_text())}
    for name in PROGRAMS:
        library = next(libraries.glob(f"lib{name}.so"))
        head = run("readelf", "-d", library)
        expect(re.search(rf"SONAME.*\[lib{name}\.so\.\d+\.\d+\]", head), f"{library}: no soname")
        for symbol in demangled(symbols("-D", library)):
            if not re.search(r"(^|[ *&])vigil::", symbol.split("(")[0]):
                continue  # Asio's own, and the standard library's
            words = set(re.findall(r"\w+", symbol))
            expect(words & exports or "<" in symbol,
                   f"{library} exports what neither VIGIL_API nor VIGIL_FOR_IO marks: {symbol}")


def cmake_arguments():
    launcher = [f"-DCMAKE_CXX_COMPILER_LAUNCHER={c}" for c in COMPILER[:-1] if "ccache" in c]
    compiler = [c for c in COMPILER if "ccache" not in c][0]
    return ["-G", "Ninja", f"-DCMAKE_CXX_COMPILER={compiler}", *launcher,
            "-DCMAKE_BUILD_TYPE=None", "-DCMAKE_CXX_FLAGS=-O0"]


def cmake_project(folder, get_vigil):
    folder.mkdir()
    targets = {"vigil": "vigil::vigil", "vigil-io": "vigil::io", "vigil-tls": "vigil::tls"}
    (folder / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(user CXX)\n" + get_vigil + "".join(
            f"add_executable({name}-user {HERE / source})\n"
            f"target_link_libraries({name}-user {targets[name]})\n"
            for name, source in PROGRAMS.items()))


def cmake_build(folder, *more):
    run("cmake", "-S", folder, "-B", folder / "build", *cmake_arguments(), *more)
    run("cmake", "--build", folder / "build", "-j", JOBS)
    for name in PROGRAMS:
        expect_program(folder / "build" / f"{name}-user", name)


def cmake_find(tree, prefix):
    cmake_project(tree / "finds", "find_package(vigil 0.1 REQUIRED COMPONENTS io tls)\n")
    cmake_build(tree / "finds", f"-DCMAKE_PREFIX_PATH={prefix}")


def cmake(tree):
    need("cmake")
    libdir = install(tree / "installed")
    # The prefix is above the library folder, which may have two parts.
    include = next((tree / "installed").rglob("vigil/vigil.hpp")).parent.parent
    expect(libdir.is_relative_to(include.parent), "headers and libraries have two prefixes")
    cmake_find(tree, include.parent)


def cmake_source(tree):
    need("cmake")
    cmake_project(tree / "adds", f"add_subdirectory({ROOT} vigil)\n")
    cmake_build(tree / "adds", "-DVIGIL_INSTALL=ON")
    run("cmake", "--install", tree / "adds" / "build", "--prefix", tree / "installed")
    cmake_find(tree, tree / "installed")


def main():
    ways = {"pkg-config": pkg_config, "plugin": plugin, "cmake": cmake,
            "subproject": subproject, "cmake-source": cmake_source}
    with tempfile.TemporaryDirectory(prefix="vigil-way-") as folder:
        ways[WAY](Path(folder))
    print(f"{WAY}: a program was built and run")


if __name__ == "__main__":
    main()
