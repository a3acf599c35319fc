#!/usr/bin/env python3
"""Runs the unit suites on 64-bit ARM, under qemu's user mode.

usage: arm64.py [--suite=core|io] [TEST...]

Fetches the packages that the tests need into a sysroot (build/arm64/sysroot), builds with
Debian's cross compiler against it, and runs each program under qemu-aarch64, of
backports: Debian 12's own, 7.2, keeps a table of all address space that was ever mapped,
100 MB for each runtime, and runs out of memory. TEST is the
name of a test, such as `chan`. Prints a line for each, `NAME: N passed, N failed, N
skipped (REASONS)`, and the same of all.

What qemu lacks is skipped by the tests themselves, each of which tries it first. Exit
status: 1 if a case failed, if more than 5 % were skipped, or if one was skipped in a test
of STRICT for a reason that is not in EXPECTED.

qemu runs ARM's instructions on the memory of its host, so an ordering that only ARM's
weaker one needs is not tested.
"""
import os
import shutil
import sys

import debian_root
import unit_suites

FOLDER = unit_suites.ROOT / "build" / "arm64"
SYSROOT = FOLDER / "sysroot"
QEMU = FOLDER / "qemu"
TOOLS = ["g++-aarch64-linux-gnu", "meson", "ninja-build", "pkg-config", "python3"]
PACKAGES = ["libc6-dev", "libstdc++-12-dev", "libboost1.81-dev", "libboost-context1.81-dev",
            "libssl-dev", "doctest-dev"]
TRIPLE = "aarch64-linux-gnu"
MOST_SKIPPED = 5  # per cent

STRICT = {"chan", "chan_random", "sync", "timer", "time", "cancel", "machine"}
# Limits of the system, not of the processor; where they are in force a case looks at them.
EXPECTED = {
    "RLIMIT_AS and RLIMIT_DATA are not in force here",  # qemu would limit itself by them
    "mmap does not say here that RLIMIT_MEMLOCK is reached",  # qemu 7.2 says ENOMEM
    "mlockall without a limit is not allowed here",  # wants CAP_IPC_LOCK
}


def cross_file():
    cached = f"'{shutil.which('ccache')}', " if shutil.which("ccache") else ""
    path = FOLDER / "cross.ini"
    path.write_text(f"""\
[binaries]
cpp = [{cached}'{TRIPLE}-g++']
ar = '{TRIPLE}-ar'
strip = '{TRIPLE}-strip'
pkgconfig = 'pkg-config'
exe_wrapper = ['{QEMU}/usr/bin/qemu-aarch64', '-L', '{SYSROOT}']

[host_machine]
system = 'linux'
cpu_family = 'aarch64'
cpu = 'aarch64'
endian = 'little'

[properties]
sys_root = '{SYSROOT}'
pkg_config_libdir = ['{SYSROOT}/usr/lib/{TRIPLE}/pkgconfig', '{SYSROOT}/usr/share/pkgconfig']
boost_includedir = '{SYSROOT}/usr/include'
boost_librarydir = '{SYSROOT}/usr/lib/{TRIPLE}'

[built-in options]
cpp_args = ['--sysroot={SYSROOT}']
cpp_link_args = ['--sysroot={SYSROOT}']
""")
    return path


def faults_of(counts):
    """What is wrong with these counts, beside cases that failed."""
    for name, counted in counts.items():
        unexpected = [why for why in counted.reasons if why not in EXPECTED]
        if name in STRICT and unexpected:
            yield f"{name} may skip nothing: {'; '.join(unexpected)}"
    whole = unit_suites.total(counts)
    cases = whole.passed + whole.failed + whole.skipped
    if whole.skipped * 100 > cases * MOST_SKIPPED:
        yield f"{whole.skipped} of {cases} skipped, more than {MOST_SKIPPED} %"


def count(suites=("core", "io"), wanted=()):
    """Returns {name: Counts}. Raises Fault or NotThere."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    if not unit_suites.need(*TOOLS):
        raise debian_root.NotThere(f"apt has not all of {' '.join(TOOLS)}")
    debian_root.make_root(SYSROOT, PACKAGES, arch="arm64")
    debian_root.make_root(QEMU, ["qemu-user"], suite="bookworm-backports", alone=True)
    # The short forms: qemu takes several times as long.
    return unit_suites.build_and_run(
        FOLDER / "build", suites, [f"--cross-file={cross_file()}", "-Doptimization=1"],
        {"VIGIL_SHORT": os.environ.get("VIGIL_SHORT", "1")}, wanted)


def main():
    options = [a for a in sys.argv[1:] if a.startswith("-")]
    wanted = [a for a in sys.argv[1:] if not a.startswith("-")]
    suites = {"--suite=core": ("core",), "--suite=io": ("io",), "": ("core", "io")}
    if len(options) > 1 or "".join(options) not in suites:
        sys.exit(__doc__)
    try:
        counts = count(suites["".join(options)], wanted)
    except (unit_suites.Fault, debian_root.NotThere) as e:
        sys.exit(f"arm64.py: {e}")
    for name, counted in counts.items():
        print(f"{name}: {unit_suites.in_words(counted)}")
    whole = unit_suites.total(counts)
    faults = list(faults_of(counts))
    print(*(f"arm64.py: {fault}" for fault in faults), sep="\n", end="\n" if faults else "")
    print(f"{whole.passed} passed, {whole.failed} failed, {whole.skipped} skipped")
    sys.exit(1 if whole.failed or faults else 0)


if __name__ == "__main__":
    main()
