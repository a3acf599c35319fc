#!/usr/bin/env python3
"""Each way in, from a user's side: usage: ways_test.py WAY ROOT BUILD COMPILER...

WAY is one of:

  pkg-config    installs BUILD, builds programs with vigil.pc, vigil-io.pc, vigil-tls.pc;
                one that uses all three with the other compiler than has built it, and
                one that mold links, if these are installed; one that uses
                asio::ssl and lacks vigil-tls
  plugin        installs BUILD, builds a shared object that exports nothing of vigil
  cmake         installs BUILD, find_package(vigil COMPONENTS io tls inspect lock_check
                inspect_page)
  lib64         the libraries of BUILD, installed by meson into lib64, which is where it
                installs on Debian without dpkg-dev; by pkg-config and find_package
  subproject    ROOT as a subproject of a meson project, by vigil.wrap, with shared
                libraries: their names, what they export, and a second Asio in the
                process; with the defaults it is compiled in few steps
  cmake-source  ROOT by FetchContent, as README.md has it, but from the tree instead of an
                address; installs it with CMake, find_package again. All sources of a library are compiled as one here:
                which ones meet otherwise changes with each new file, and users choose
                other numbers. So two that define one name, or a local that hides what
                another file defines, are faults; so is what other projects warn of.
  options       ROOT as a subproject with options that no other build sets: frame pointers,
                no recorder, no libdw; vigil and vigil-inspect alone

The first four take the libraries of BUILD as they are; the others build vigil, once
each, without optimization except the last. Each program is run. Exit status 77: a tool is not there.
"""
import ctypes
import json
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
from snapshot import run  # noqa: E402

WAY, ROOT, BUILD, COMPILER = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:]
HERE = ROOT / "tests" / "packaging"
JOBS = os.environ.get("VIGIL_JOBS", str(os.cpu_count()))
IS_CLANG = any("clang" in word for word in COMPILER)
# g++ collects no garbage below 4 GiB: a tenth of its time.
FAST = ["-O0"] + ([] if IS_CLANG else ["--param=ggc-min-heapsize=4000000"])
# What other projects compile all their parts with.
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]
BATCH = 1000  # files that are compiled as one: all
PROGRAMS = {"vigil": "program.cpp", "vigil-io": "io_program.cpp", "vigil-tls": "tls_program.cpp",
            "vigil-inspect": "inspect_program.cpp", "vigil-lock-check": "lock_check_program.cpp",
            "vigil-inspect-page": "inspect_page_program.cpp"}
ALL_IN_ONE = {"vigil-tls": "tls_program.cpp"}


def need(tool):
    if shutil.which(tool) is None:
        print(f"skipped: {tool} is not installed")
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


def check_debuggers(tree):
    """The scripts for debuggers, where docs/guide/debuggers.md says that they are."""
    for path in ("share/gdb/auto-load/vigil-gdb.py", "share/vigil/vigil_lldb.py"):
        source = ROOT / "tools" / "gdb" / Path(path).name
        found = [p for p in tree.rglob(source.name) if str(p).endswith("/" + path)]
        expect(len(found) == 1 and found[0].read_bytes() == source.read_bytes(),
               f"installed as {path}: {found}")


def check_found_by_gdb(tree):
    """For a library gdb looks in share/gdb/auto-load for the library's whole path."""
    library = next(p for p in tree.rglob("libvigil.so.*")
                   if not p.is_symlink() and p.suffix != ".py")
    script = next(tree.rglob("auto-load")) / f"{library.relative_to(tree)}-gdb.py"
    expect(script.is_file(), f"there is no {script}")


def environment_of_pkg_config(tree, libdir):
    return {**os.environ, "PKG_CONFIG_PATH": str(libdir / "pkgconfig"),
            "PKG_CONFIG_SYSROOT_DIR": str(tree)}


def flags(name, environment):
    return run("pkg-config", "--cflags", "--libs", name, env=environment).split()


def other_compilers():
    """g++ where clang++ has built vigil, and the other way round, if it is there."""
    for name in ["g++"] if IS_CLANG else ["clang++-14", "clang++"]:
        if shutil.which(name):
            return [[name]]
    print("skipped: no other compiler is installed")
    return []


def pkg_config(tree):
    need("pkg-config")
    libdir = install(tree)
    environment = environment_of_pkg_config(tree, libdir)
    check_debuggers(tree)
    by_others = [(compiler, "vigil-tls") for compiler in other_compilers()]
    for compiler, name in [*((COMPILER, name) for name in PROGRAMS), *by_others]:
        program = tree / name
        run(*compiler, "-std=c++20", "-O0", HERE / PROGRAMS[name], "-o", program,
            *flags(name, environment))
        expect_program(program, name)
    check_missing_tls(tree, libdir, environment)
    if shutil.which("mold"):
        # Version 1.10 takes all memory over an option that it cannot read.
        run(*COMPILER, "-std=c++20", "-O0", "-fuse-ld=mold", HERE / PROGRAMS["vigil"],
            "-o", tree / "by_mold", *flags("vigil", environment), preexec_fn=at_most_8_gib)
        expect_program(tree / "by_mold", "vigil")
    else:
        print("skipped: mold is not installed")


def check_missing_tls(tree, libdir, environment):
    """A program that uses asio::ssl without vigil-tls is told so in words; no other one is."""
    objects = {source: tree / f"{source}.o" for source in ("ssl_program.cpp", "io_program.cpp")}
    for source, to in objects.items():
        run(*COMPILER, "-std=c++20", "-O0", "-c", HERE / source, "-o", to,
            *run("pkg-config", "--cflags", "vigil-io", env=environment).split())

    def link(source, *how):
        made = tree / "by_words"
        done = subprocess.run(
            [*COMPILER, objects[source], "-o", made, *how],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        return done.returncode, done.stdout, made

    of_asio = re.compile("_ZNK?5boost4asio")
    wanted = {name for name in symbols(libdir / "libvigil-tls.a", kinds="T") if of_asio.match(name)}
    lacking = wanted - symbols(libdir / "libvigil-io.a", kinds="WV")
    expect(wanted and not lacking, "src/io/asio_ssl_names.hpp lacks:\n" + "\n".join(sorted(lacking)))
    io, tls = flags("vigil-io", environment), flags("vigil-tls", environment)
    openssl = ["-lssl", "-lcrypto"]
    failed, said, _ = link("ssl_program.cpp", *io, *openssl)
    wrong = [line for line in said.splitlines() if "undefined" in line]
    expect(failed and len(wrong) == 1 and "vigil::tls" in wrong[0],
           f"without vigil-tls a program with asio::ssl is told:\n{said}")
    # Whichever comes first.
    for how in (tls, [*io, *tls, *io]):
        failed, said, made = link("ssl_program.cpp", *how)
        expect(not failed, f"with vigil-tls it is not linked:\n{said}")
        expect_program(made, "vigil-tls")
    whole = ["-Wl,--whole-archive", libdir / "libvigil-io.a", "-Wl,--no-whole-archive"]
    failed, said, made = link("io_program.cpp", *whole, *io)
    expect(not failed, f"with all members of vigil-io it is not linked:\n{said}")
    expect_program(made, "vigil-io")


def at_most_8_gib():
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))


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
    fallback = "--force-fallback-for=" + ",".join(PROGRAMS)
    environment = {**os.environ, "CXX": " ".join(COMPILER)}
    check_defaults(tree, fallback, environment)
    run("meson", "setup", tree / "build", tree, "--buildtype=plain",
        f"-Dcpp_args={' '.join(FAST + WARNINGS)}",
        "--wrap-mode=nodownload", "-Dvigil:default_library=shared", "-Dvigil:inspect=enabled",
        "-Dunity=subprojects", f"-Dunity_size={BATCH}",  # the host decides
        fallback, env=environment)
    run("ninja", "-C", tree / "build", "-j", JOBS)
    for name in PROGRAMS:
        expect_program(tree / "build" / f"{name}-user", name)
    libraries = tree / "build" / "subprojects" / "vigil" / "src"
    expect(not list(libraries.rglob("*.a")), "there are static libraries")
    check_shared(libraries)
    check_two_asios(tree, libraries)
    run("meson", "install", "-C", tree / "build", "--no-rebuild", "--quiet",
        "--destdir", tree / "installed")
    check_debuggers(tree / "installed")
    check_found_by_gdb(tree / "installed")


def check_defaults(tree, fallback, environment):
    """Many files are compiled as one, and nothing that the host warns of counts."""
    program = tree / "defaults_user"
    program.mkdir()
    (program / "subprojects").symlink_to(tree / "subprojects")
    shutil.copy(HERE / PROGRAMS["vigil"], program)
    (program / "meson.build").write_text(
        "project('user', 'cpp', default_options: ['cpp_std=c++20'])\n"
        f"executable('user', '{PROGRAMS['vigil']}', dependencies: dependency('vigil'))\n")
    run("meson", "setup", tree / "defaults", program, fallback, env=environment)
    steps = [step["command"] for step in
             json.loads((tree / "defaults" / "compile_commands.json").read_text())
             if step["output"].startswith("subprojects/vigil/")]
    expect(5 < len(steps) < 20, f"a subproject is compiled in {len(steps)} steps")
    expect(not any("inspect" in step for step in steps), "vigil-inspect is compiled unasked")
    expect(all(" -w " in step for step in steps), "a subproject is compiled with warnings")


def check_linked_alone(build, linked):
    """What nothing links is not compiled."""
    steps = run("ninja", "-C", build, "-n", "all")
    wrong = [name for name in PROGRAMS if (f"lib{name}.a" in steps) != (name in linked)]
    expect(not wrong, f"wrongly compiled, or not compiled: {wrong}")


def options(tree):
    need("pkg-config")
    (tree / "subprojects").mkdir()
    (tree / "subprojects" / "vigil").symlink_to(ROOT)
    shutil.copy(ROOT / "vigil.wrap", tree / "subprojects")
    program = shutil.copy(HERE / "options_program.cpp", tree)
    (tree / "meson.build").write_text(
        "project('user', 'cpp', default_options: ['cpp_std=c++20'])\n"
        "executable('options-user', 'options_program.cpp', dependencies: "
        "dependency('vigil-inspect'), link_args: '-rdynamic')\n")
    run("meson", "setup", tree / "build", tree, "--buildtype=plain", "-Dcpp_args=-O1",
        "--wrap-mode=nodownload", "-Dvigil:default_library=static",
        "-Dvigil:frame_pointers=true", "-Dvigil:recorder=false", "-Dvigil:symbols=disabled",
        "-Dvigil:io=disabled", "-Dvigil:tls=disabled", "-Dvigil:inspect=enabled",
        "-Dunity=subprojects", f"-Dunity_size={BATCH}",
        "--force-fallback-for=vigil,vigil-inspect",
        env={**os.environ, "CXX": " ".join(COMPILER)})
    run("ninja", "-C", tree / "build", "-j", JOBS, "options-user")
    made = tree / "build" / "options-user"
    said = run(made)
    expect("vigil-inspect says hello" in said, f"{made} says:\n{said}")
    check_frames(said)
    library = tree / "build" / "subprojects" / "vigil" / "src" / "libvigil.a"
    if platform.machine() == "x86_64":
        expect(share_with_frame_pointers(library) > 0.99, "the library lacks frame pointers")
        expect(share_with_frame_pointers(BUILD / "src" / "libvigil.a") < 0.5,
               "the build without frame pointers counts as one with them")
    # The regions are gone from what users compile, whether they take the dependency or the .pc.
    (objects,) = (tree / "build").glob("options-user.p/*.o")
    expect(not region_calls(objects), "with the dependency a region is left")
    libdir = tree / "build" / "meson-private"
    given = flags("vigil-inspect", {**os.environ, "PKG_CONFIG_PATH": str(libdir)})
    compiled = [flag for flag in given if flag.startswith(("-D", "-f", "-pthread"))]
    expect("-ldw" not in given, "vigil-inspect.pc asks for libdw")
    for kept in (compiled, [flag for flag in compiled if "RECORDER" not in flag]):
        run(*COMPILER, "-std=c++20", "-O1", f"-I{ROOT / 'include'}", *kept, "-c", program,
            "-o", tree / "by_pc.o")
        expect(region_calls(tree / "by_pc.o") == (kept is not compiled),
               f"with {kept} the regions are not as they should be")


def region_calls(path):
    return "region_begins" in run("nm", path)


def check_frames(said):
    """In a dump: three calls of waits(), one above the other, on the stack of `waiter`."""
    stack = re.search(r"^fiber \d+ \(waiter\) \[parked: channel receive.*\n((?:    at .*\n)+)",
                      said, re.M)
    expect(stack, f"no frames of the fiber that waits:\n{said}")
    expect(re.search(r"(?:    at waits\(.*\)\n){3}", stack[1]),
           f"its functions are not as they should be:\n{stack[1]}")


def share_with_frame_pointers(library):
    """Of the functions in an archive that call others, on x86-64."""
    parts = re.split(r"^[0-9a-f]+ <(.*)>:$", run("objdump", "-d", library), flags=re.M)[1:]
    calling = [code for name, code in zip(parts[::2], parts[1::2])
               if "call " in code and not name.endswith(".cold")]
    return sum("mov    %rsp,%rbp" in code for code in calling) / len(calling)


def marked():
    """The names of the classes, functions and variables that the headers mark as exported."""
    classes = re.compile(r"\b(?:class|struct)\s+VIGIL_(?:API|FOR_IO)\s+(\w+)")
    others = re.compile(r"(?<!class )(?<!struct )\bVIGIL_(?:API|FOR_IO)\s+([^;{}]*?)\s*[;{=]")
    names = set()
    for path in [p for folder in ("include", "src") for p in (ROOT / folder).rglob("*.hpp")]:
        text = re.sub(r"//.*|^\s*#.*", "", path.read_text(), flags=re.M)
        names |= set(classes.findall(text))
        for declaration in others.findall(text):
            declaration = re.sub(r"\boperator\s*\S+?(?=\()", "operator", declaration)
            name = re.match(r"[^(]*?(\w+)\s*\(", declaration) or re.search(r"(\w+)$", declaration)
            names.add(name.group(1))
    return names


def own_name(symbol):
    """Of a demangled one: without what it returns and takes, and without template arguments."""
    symbol = re.sub(r"operator\s*(\(\)|\[\]|->\*?|<=>|<<=?|>>=?|[<>]=?)", "operator", symbol)
    symbol = re.sub(r"^(?:(?:non-virtual |virtual )?thunk to|[a-z ]+ for) ", "", symbol)
    depth, kept = 0, ""
    for c in symbol:
        if c in "<({[":
            depth += 1
        elif c in ">)}]":
            depth -= 1
        elif depth == 0:
            kept += c
    words = re.sub(r"\b(const|volatile)\b|&", " ", kept).split()
    return next((w for w in reversed(words) if "::" in w), words[-1] if words else "")


def exported_wrongly(names, *call):
    """Of vigil's own symbols those that are no part of what is marked; of the others, the
    standard library's and Boost's templates with vigil's types, those that are not weak:
    nobody else instantiates these."""
    lines = [line.split() for line in run("nm", "--defined-only", "-P", *call).splitlines()]
    kinds = {line[0]: line[1] for line in lines if len(line) > 2 and (line[1].isupper() or line[1] == "u")}
    wrong = []
    for kind, symbol in zip(kinds.values(), run("c++filt", input="\n".join(kinds)).splitlines()):
        if not re.search(r"\bvigil::", symbol):
            continue  # Asio's own
        parts = own_name(symbol).split("::")
        if not (names & set(parts) if parts[0] == "vigil" else kind in "WVu"):
            wrong.append(symbol)
    return wrong


def sonames():
    """As docs/decisions/0029 has them: the ABI's number, and Boost's version beside Asio."""
    abi = re.search(r"^#define VIGIL_ABI v(\d+)$", (ROOT / "include/vigil/detail/config.hpp").read_text(), re.M)[1]
    macros = run(*COMPILER, "-E", "-dM", "-x", "c++", "-", input="#include <boost/version.hpp>\n")
    boost = re.search(r'BOOST_LIB_VERSION "(\d+)_(\d+)', macros)
    beside = {name: f"-boost{boost[1]}.{boost[2]}" for name in ("vigil-io", "vigil-tls", "vigil-inspect-page")}
    return {name: f"lib{name}.so.{abi}{beside.get(name, '')}" for name in PROGRAMS}


def check_shared(libraries):
    """Their names, and what they export."""
    names = marked()
    for name, wanted in sonames().items():
        library = next(libraries.glob(f"lib{name}.so"))
        soname = re.search(r"SONAME.*\[(.*)\]", run("readelf", "-d", library))
        expect(soname and soname[1] == wanted, f"{library}: its soname is {soname and soname[1]}, not {wanted}")
        wrong = exported_wrongly(names, "-D", library)
        expect(not wrong, f"{library} exports what neither VIGIL_API nor VIGIL_FOR_IO marks:\n" +
               "\n".join(wrong[:20]))
    # Static ones hide nothing yet: there the same question must find something.
    static = BUILD / "src" / "libvigil.a"
    expect(len(exported_wrongly(names, static)) > 100, f"all of {static} counts as marked")


def check_two_asios(tree, libraries):
    """A shared object with an Asio of other settings, which counts as another Boost's: hidden
    it works, wherever it is looked for; one that exports its Asio has part in vigil-io's."""
    program = tree / "two_asios.o"
    run(*COMPILER, "-std=c++20", "-O0", "-DVIGIL_SHARED", "-DBOOST_ASIO_SEPARATE_COMPILATION",
        f"-I{ROOT / 'include'}", "-c", HERE / "two_asios.cpp", "-o", program)
    of_vigil = [f"-L{libraries}", "-lvigil-io", "-lvigil"]
    hide = ["-fvisibility=hidden", "-DBOOST_ASIO_DISABLE_VISIBILITY"]
    for name, how, asios, status in (("hidden", hide, "two Asios", 0), ("seen", [], "one Asio", 1)):
        second = tree / f"lib{name}.so"
        run(*COMPILER, "-std=c++20", "-O0", "-DBOOST_ASIO_DISABLE_EPOLL", *how, "-shared", "-fPIC",
            HERE / "second_asio.cpp", "-o", second)
        for place, order in (("first", [second, *of_vigil]), ("last", [*of_vigil, second])):
            made = tree / f"two_asios_{name}_{place}"
            run(*COMPILER, program, "-Wl,--no-as-needed", *order, "-pthread",
                f"-Wl,-rpath,{libraries}:{tree}", "-o", made)
            said = run(made, "address")
            expect(asios in said, f"{made} says {said}")
            if name == "hidden":  # the other one may do anything
                said = run(made)
                expect("1 byte read, 2 handlers of the second" in said, f"{made} says {said}")
        done = subprocess.run([sys.executable, ROOT / "tools" / "vigil-asio-check",
                               libraries / "libvigil-io.so", second],
                              text=True, capture_output=True, check=False)
        expect(done.returncode == status, f"of {name} vigil-asio-check says:\n{done.stdout}")


def cmake_arguments():
    launcher = [f"-DCMAKE_CXX_COMPILER_LAUNCHER={c}" for c in COMPILER[:-1] if "ccache" in c]
    compiler = [c for c in COMPILER if "ccache" not in c][0]
    return ["-G", "Ninja", f"-DCMAKE_CXX_COMPILER={compiler}", *launcher,
            "-DCMAKE_BUILD_TYPE=None", f"-DCMAKE_UNITY_BUILD_BATCH_SIZE={BATCH}",
            f"-DCMAKE_CXX_FLAGS={' '.join(FAST + WARNINGS)}"]


def cmake_project(folder, get_vigil, programs=PROGRAMS):
    folder.mkdir()
    # One is a program that links three.
    targets = {"vigil": "vigil::vigil", "vigil-io": "vigil::io", "vigil-inspect": "vigil::inspect",
               "vigil-lock-check": "vigil::lock_check",
               "vigil-inspect-page": "vigil::inspect_page",
               "vigil-tls": "vigil::tls vigil::io vigil::vigil"}
    (folder / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(user CXX)\n" + get_vigil + "".join(
            f"add_executable({name}-user {HERE / source})\n"
            f"target_link_libraries({name}-user {targets[name]})\n"
            for name, source in programs.items()))


def cmake_build(folder, *more, programs=PROGRAMS):
    run("cmake", "-S", folder, "-B", folder / "build", *cmake_arguments(), *more)
    run("cmake", "--build", folder / "build", "-j", JOBS)
    for name in programs:
        expect_program(folder / "build" / f"{name}-user", name)


def cmake_find(tree, prefix, programs=PROGRAMS):
    cmake_project(tree / "finds", "find_package(vigil 0.2 REQUIRED "
                  "COMPONENTS io tls inspect lock_check inspect_page)\n", programs)
    cmake_build(tree / "finds", f"-DCMAKE_PREFIX_PATH={prefix}", programs=programs)


def cmake(tree):
    need("cmake")
    libdir = install(tree / "installed")
    # The prefix is above the library folder, which may have two parts.
    include = next((tree / "installed").rglob("vigil/vigil.hpp")).parent.parent
    expect(libdir.is_relative_to(include.parent), "headers and libraries have two prefixes")
    cmake_find(tree, include.parent)
    check_existing_program(tree / "existing", include.parent)


def check_existing_program(folder, prefix):
    """The project of docs/guide/existing-asio.md, as the page builds it."""
    examples = ROOT / "examples" / "io"
    shutil.copytree(examples / "existing_asio", folder)
    shutil.copy(examples / "guide_existing.cpp", folder / "server.cpp")
    run("cmake", "-S", folder, "-B", folder / "build", *cmake_arguments(),
        f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", folder / "build", "-j", JOBS)
    said = run(folder / "build" / "server")
    expect(said == (examples / "guide_existing.expected").read_text(), f"the server says:\n{said}")
    # As the page has it: nothing of the program brings a second Asio along.
    libvigil_io = next(prefix.rglob("libvigil-io.a"))
    run(sys.executable, next(prefix.rglob("bin/vigil-asio-check")), libvigil_io,
        folder / "build" / "server", *folder.rglob("*.o"), *folder.rglob("*.a"))


def lib64(tree):
    """Debian's CMake and pkg-config search neither lib64 nor what else a user may choose."""
    need("pkg-config")
    need("cmake")
    run("meson", "setup", tree / "build", ROOT, "--prefix=/usr/local", "--libdir=lib64",
        "-Ddebug=false", env={**os.environ, "CXX": " ".join(COMPILER)})
    for library in (BUILD / "src").glob("libvigil*.a"):
        shutil.copy(library, tree / "build" / "src")
    run("meson", "install", "-C", tree / "build", "--no-rebuild", "--quiet",
        "--destdir", tree / "installed")
    prefix = tree / "installed" / "usr" / "local"
    expect((prefix / "lib64" / "libvigil.a").is_file(), "meson has installed somewhere else")
    environment = {**os.environ, "PKG_CONFIG_LIBDIR": ":".join(
        f"{root}/usr{local}/{folder}/pkgconfig" for root, local in ((prefix.parent.parent, "/local"), ("", ""))
        for folder in ("lib", f"lib/{platform.machine()}-linux-gnu", "share")),
        "PKG_CONFIG_SYSROOT_DIR": str(prefix.parent.parent)}
    for name, source in PROGRAMS.items():
        run(*COMPILER, "-std=c++20", "-O0", HERE / source, "-o", tree / name,
            *flags(name, environment))
        expect_program(tree / name, name)
    cmake_find(tree, prefix, ALL_IN_ONE)


def cmake_source(tree):
    need("cmake")
    lines = re.search(r"```cmake\n(include\(FetchContent\)\n.*?)```", (ROOT / "README.md").read_text(), re.S)
    expect(lines and lines[1].count("\n") == 6, "README.md has no six lines with FetchContent")
    cmake_project(tree / "adds", f"add_executable(my_program {HERE / PROGRAMS['vigil']})\n{lines[1]}", ALL_IN_ONE)
    source = f"-DFETCHCONTENT_SOURCE_DIR_VIGIL={ROOT}"
    run("cmake", "-S", tree / "adds", "-B", tree / "adds" / "build", *cmake_arguments(), source)
    rules = (tree / "adds" / "build" / "build.ninja").read_text()
    flags_of_vigil = re.findall(r"^  FLAGS = (.*-fvisibility=hidden.*)$", rules, re.M)
    expect(flags_of_vigil and all(" -w" in line for line in flags_of_vigil),
           "in another project vigil is compiled with its warnings")
    check_linked_alone(tree / "adds" / "build", ["vigil", "vigil-io", "vigil-tls"])
    # With shared libraries, which meson has built (subproject), the sonames are the same.
    run("cmake", "-S", ROOT, "-B", tree / "shared", *cmake_arguments(), "-DBUILD_SHARED_LIBS=ON")
    given = re.findall(r"^  SONAME = (.*)$", (tree / "shared" / "build.ninja").read_text(), re.M)
    expect(set(given) == set(sonames().values()), f"the sonames are {given}")
    # Then with the warnings, and with g++ as C++23.
    cmake_build(tree / "adds", source, "-DVIGIL_INSTALL=ON", "-DVIGIL_WARNINGS=ON",
                *([] if IS_CLANG else ["-DCMAKE_CXX_STANDARD=23"]), programs=ALL_IN_ONE)
    expect_program(tree / "adds" / "build" / "my_program", "vigil")
    run("cmake", "--install", tree / "adds" / "build", "--prefix", tree / "installed")
    check_debuggers(tree / "installed")
    cmake_find(tree, tree / "installed", ALL_IN_ONE)


def main():
    ways = {"pkg-config": pkg_config, "plugin": plugin, "cmake": cmake,
            "lib64": lib64,
            "subproject": subproject, "cmake-source": cmake_source,
            "options": options}
    with tempfile.TemporaryDirectory(prefix="vigil-way-") as folder:
        ways[WAY](Path(folder))
    print(f"{WAY}: a program was built and run")


if __name__ == "__main__":
    main()
