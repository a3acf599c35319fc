#!/usr/bin/env python3
"""The recipes of packaging/ against an archive: usage: recipes_test.py ROOT COMPILER...

  wrapdb  by meson itself, which finds the archive in its cache and compares the checksum
  fetch   README.md's lines with the checksum of the archive, by CMake itself
  vcpkg   the port's own steps, by vcpkg_steps.cmake
  conan   the recipe's own steps, by conan_steps.py

They configure the libraries that they should. With VIGIL_LONG=1 they also build and install
them, and a program finds them there: each of their ways takes minutes of processor time.
vcpkg and Conan are not in Debian; a recipe that was not run by its own tool, with its own
packages, says so in its first line, and README.md names none of these two.
"""
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
import conan_steps  # noqa: E402
import snapshot  # noqa: E402
from snapshot import need_repository, run, skip  # noqa: E402

import release_files  # noqa: E402

ROOT, COMPILER = Path(sys.argv[1]).resolve(), sys.argv[2:]
PROGRAM = ROOT / "tests" / "packaging" / "program.cpp"
IO_PROGRAM = ROOT / "tests" / "packaging" / "io_program.cpp"
IS_LONG = bool(os.environ.get("VIGIL_LONG"))
JOBS = os.environ.get("VIGIL_JOBS", str(os.cpu_count()))
CORE, IO, TLS = {"vigil"}, {"vigil", "vigil-io"}, {"vigil", "vigil-io", "vigil-tls"}
ALL = TLS | {"vigil-inspect", "vigil-lock-check", "vigil-inspect-page"}


def cmake_options():
    launcher = [f"-DCMAKE_CXX_COMPILER_LAUNCHER={c}" for c in COMPILER[:-1] if "ccache" in c]
    return ["-G", "Ninja", f"-DCMAKE_CXX_COMPILER={[c for c in COMPILER if 'ccache' not in c][0]}", *launcher,
            "-DCMAKE_CXX_FLAGS_RELEASE=-O0"]


def expect_libraries(build, wanted, where, suffix=".a"):
    rules = (build / "build.ninja").read_text()
    found = {name for name in ALL if re.search(rf"^build [^:\n]*\blib{name}\{suffix}[ .:|]", rules, re.M)}
    if found != wanted:
        sys.exit(f"{where} builds {sorted(found)}, not {sorted(wanted)}")
    if "VIGIL_HAS_LIBDW=1" in rules and where.startswith(("the port", "the recipe")):
        sys.exit(f"{where} takes libdw from the system, which no other machine needs to have")


def expect_hello(*command):
    if not re.match(r"vigil[\w-]* says", said := run(*command)):
        sys.exit(f"{command[0]} says:\n{said}")


def consume(folder, prefix, libraries, *more):
    """A program finds what has been installed below `prefix`."""
    folder.mkdir()
    both = {"main": (PROGRAM, "vigil::vigil")}
    if "vigil-io" in libraries:
        both["main_io"] = (IO_PROGRAM, "vigil::io")
    (folder / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(user CXX)\nfind_package(vigil CONFIG REQUIRED)\n" + "".join(
            f"add_executable({name} {source})\ntarget_link_libraries({name} PRIVATE {target})\n"
            for name, (source, target) in both.items()))
    run("cmake", "-S", folder, "-B", folder / "build", *cmake_options(), f"-DCMAKE_PREFIX_PATH={prefix}", *more)
    run("cmake", "--build", folder / "build")
    for name in both:
        expect_hello(folder / "build" / name)


def wrapdb(made, archive, work):
    subprojects = work / "subprojects"
    (subprojects / "packagecache").mkdir(parents=True)
    shutil.copy(archive, subprojects / "packagecache")
    shutil.copy(made / "wrapdb" / "subprojects" / "vigil.wrap", subprojects)
    (work / "meson.build").write_text(
        "project('user', 'cpp', default_options: ['cpp_std=c++20'])\n"
        f"executable('main', '{PROGRAM.name}', dependencies: dependency('vigil'))\n")
    shutil.copy(PROGRAM, work)
    environment = {**os.environ, "CXX": " ".join(COMPILER)}
    setup = ["meson", "setup", work / "build", work, "--force-fallback-for=vigil", "-Doptimization=0"]
    run(*setup, env=environment)
    expect_libraries(work / "build", TLS, "the wrap")
    releases = json.loads((made / "wrapdb" / "releases.json").read_text())["vigil"]
    wrap = (subprojects / "vigil.wrap").read_text()
    names = re.search(r"^dependency_names = (.*)$", wrap, re.M)[1].split(", ")
    own = re.search(r"^dependency_names = (.*)$", (ROOT / "vigil.wrap").read_text(), re.M)[1].split(", ")
    if not names == own == releases["dependency_names"]:
        sys.exit(f"wrapdb names {names} and {releases['dependency_names']}, vigil.wrap {own}")
    if IS_LONG:
        run("ninja", "-C", work / "build", "-j", JOBS, "main")
        expect_hello(work / "build" / "main")
    # Another archive by this name is refused.
    (subprojects / "packagecache" / archive.name).write_bytes(b"not vigil")
    for folder in subprojects.glob("vigil-*"):
        shutil.rmtree(folder)
    shutil.rmtree(work / "build")
    done = subprocess.run([*setup, "--wrap-mode=nodownload"], capture_output=True, text=True, env=environment,
                          check=False)
    if done.returncode == 0:
        sys.exit("meson takes another archive by this name")


def fetch(made, archive, work):
    lines = (made / "fetch_content.cmake").read_text()
    url = re.search(r"URL (\S+)", lines)[1]
    if not url.endswith(f"/{archive.name}"):
        sys.exit(f"README.md's URL has another archive: {url}")
    work.mkdir()
    (work / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.22)\nproject(user CXX)\nadd_executable(my_program {PROGRAM})\n"
        + lines.replace(url, archive.as_uri()))
    run("cmake", "-S", work, "-B", work / "build", *cmake_options())
    expect_libraries(work / "build", ALL, "FetchContent")
    if IS_LONG:
        run("cmake", "--build", work / "build", "--target", "my_program")
        expect_hello(work / "build" / "my_program")


def vcpkg(made, archive, work):
    port = made / "vcpkg" / "ports" / "vigil"
    manifest = json.loads((port / "vcpkg.json").read_text())
    features = set(manifest["features"])
    in_port = set(re.findall(r"^    (\w+) +VIGIL_", (port / "portfile.cmake").read_text(), re.M))
    if features != in_port:
        sys.exit(f"vcpkg.json has the features {sorted(features)}, portfile.cmake {sorted(in_port)}")
    defaults = set(manifest["default-features"])
    cases = [(set(), "static", CORE), (defaults, "static", IO), (features, "dynamic", ALL)]
    for chosen, linkage, libraries in cases:
        folder = work / f"{linkage}-{'-'.join(sorted(chosen)) or 'core'}"
        folder.mkdir(parents=True)
        builds = IS_LONG and chosen
        run("cmake", f"-DPORT_FOLDER={port}", f"-DSOURCE_ARCHIVE={archive}", f"-DWORK={folder}",
            f"-DFEATURES={','.join(chosen)}", f"-DVCPKG_LIBRARY_LINKAGE={linkage}",
            f"-DSTEPS={'all' if builds else 'configure'}",
            f"-DCOMPILER_OPTIONS={'|'.join(cmake_options()[2:])}", "-P",
            ROOT / "tests" / "packaging" / "vcpkg_steps.cmake")
        expect_libraries(folder / "build", libraries, f"the port with {sorted(chosen)}",
                         ".so" if linkage == "dynamic" else ".a")
        if builds:
            # vcpkg moves the package to where it is installed.
            installed = (folder / "package").rename(folder / "installed")
            check_port(installed, chosen)
            consume(folder / "user", installed, libraries)


def check_port(installed, chosen):
    """What vcpkg looks at after a build."""
    there = {p.name for p in installed.iterdir()}
    tools = {p.name for p in (installed / "tools" / "vigil").iterdir()}
    wanted = ({"vigil-asio-check"} if "io" in chosen else set()) | ({"vigil-symbols"} if "inspect" in chosen else set())
    if there != {"include", "lib", "share", "tools"} or tools != wanted or (installed / "lib" / "cmake").exists():
        sys.exit(f"the port installs {sorted(there)} with the tools {sorted(tools)}")
    for name in ("copyright", "usage", "vigil-config.cmake", "vigil-config-version.cmake"):
        if not (installed / "share" / "vigil" / name).is_file():
            sys.exit(f"the port installs no share/vigil/{name}")


def load(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def conan(made, archive, work):
    conan_steps.install()
    folder = made / "conan"
    data = re.fullmatch(r'sources:\n  "(.+)":\n    url: "(.+)"\n    sha256: "(.+)"\n',
                        (folder / "conandata.yml").read_text())
    if data is None:
        sys.exit("conandata.yml is of another form")
    recipe_class = load(folder / "conanfile.py", "vigil_conanfile").VigilConan
    everything = {"with_io": True, "with_tls": True, "with_inspect": True}
    cases = [({}, IO), ({"with_io": False}, CORE), ({**everything, "shared": True}, ALL)]
    for options, libraries in cases:
        where = work / ("-".join(options) or "default")
        where.mkdir(parents=True)
        recipe = recipe_class().prepare(
            where, archive, data[1], {"sources": {data[1]: {"url": data[2], "sha256": data[3]}}},
            cmake_options()[2:], **options)
        for step in (recipe.configure, recipe.layout, recipe.requirements, recipe.validate, recipe.source,
                     recipe.generate):
            step()
        if {"boost", *({"openssl"} if "vigil-tls" in libraries else ())} != set(recipe.wanted):
            sys.exit(f"with {options} the recipe requires {sorted(recipe.wanted)}")
        builds = IS_LONG and options != {"with_io": False}
        if builds:
            recipe.build()
        else:
            conan_steps.CMake(recipe).configure()
        shared = options.get("shared", False)
        expect_libraries(where / "build", libraries, f"the recipe with {options}", ".so" if shared else ".a")
        recipe.package_info()
        named = {lib for c in recipe.cpp_info.components.values() for lib in c.libs}
        if named != libraries:
            sys.exit(f"with {options} the recipe names {sorted(named)}, not {sorted(libraries)}")
        if builds:
            recipe.package()
            check_package(recipe, folder, shared)
    refused = recipe_class().prepare(work, archive, data[1], {}, [], with_io=False, with_tls=True)
    try:
        refused.validate()
    except conan_steps.Refused:
        return
    sys.exit("TLS without I/O is not refused")


def check_package(recipe, folder, shared):
    package = Path(recipe.package_folder)
    if not (package / "licenses" / "LICENSE").is_file():
        sys.exit("the package has no licence")
    # Conan looks at those of components alone, where there are components.
    prefixes = [str(package / b) for c in recipe.cpp_info.components.values() for b in c.builddirs]
    test = Path(recipe.work) / "test_package"
    run("cmake", "-S", folder / "test_package", "-B", test, *cmake_options(),
        f"-DCMAKE_PREFIX_PATH={';'.join(prefixes)}")
    run("cmake", "--build", test)
    expect_hello(test / "test_package")
    for name, source in (("vigil", PROGRAM), ("vigil-io", IO_PROGRAM)):
        path = ["-Wl,-rpath," + str(package / "lib")] if shared else []
        run(*COMPILER, "-std=c++20", "-O0", source, "-o", test / name, *path,
            *conan_steps.flags_of(recipe, name))
        expect_hello(test / name)


def check_first_lines():
    for path in ("vcpkg/ports/vigil/portfile.cmake", "conan/conanfile.py", "conan/test_package/conanfile.py"):
        first = (ROOT / "packaging" / path).read_text().splitlines()[0]
        if not re.match(r"# Not run (by vcpkg itself|with ConanCenter's Boost) yet", first):
            sys.exit(f"packaging/{path} does not say in its first line how it was not run")
    named = re.findall(r"\b(?:vcpkg|[Cc]onan)\b", (ROOT / "README.md").read_text())
    if named:
        sys.exit(f"README.md names a way in that was not run by its own tool: {set(named)}")


def main():
    need_repository(ROOT)
    for tool in ("cmake", "meson", "ninja"):
        if shutil.which(tool) is None:
            skip(f"{tool} is not installed")
    check_first_lines()
    with tempfile.TemporaryDirectory(prefix="vigil-recipes-") as folder:
        folder = Path(folder).resolve()
        tree, environment = snapshot.tree(ROOT, folder / "scratch")
        os.environ.update(environment, CMAKE_BUILD_PARALLEL_LEVEL=JOBS)
        made = folder / "release"
        for name, data in release_files.files_of(ROOT, tree).items():
            (made / name).parent.mkdir(parents=True, exist_ok=True)
            (made / name).write_bytes(data)
        archive = made / release_files.archive_name(release_files.version_of(ROOT))
        for way in (wrapdb, fetch, vcpkg, conan):
            way(made, archive, folder / way.__name__)
            print(f"{way.__name__}: {'built, installed and used' if IS_LONG else 'configured'}")


if __name__ == "__main__":
    main()
