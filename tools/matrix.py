#!/usr/bin/env python3
"""Runs the unit suites on each platform that vigil claims, a row for each.

usage: matrix.py [--suite=core|io] [--quick] [--list] [ROW...]

Without ROW, all of them. Each row has a folder below build/matrix, a compiler and
options; its tests are built, run, and counted in a line `ROW: N passed, N failed, N
skipped (REASONS)`. A row for which something cannot be had says what, and counts as not
run. Packages are installed as ./dev does it, or unpacked below build/.

--quick optimizes less. The table of docs/platforms.md is written anew from what the rows
said last; a row that was never run in this folder keeps its line. README.md's is made from
it. With --suite or --quick the tables are left as they were. Exit status: 1 if a case
failed, or a row could not be built.
"""
import datetime
import json
import os
import re
import sys
from pathlib import Path

import arm64
import debian_root
import unit_suites

FOLDER = unit_suites.ROOT / "build" / "matrix"
PAGE = unit_suites.ROOT / "docs" / "platforms.md"
README = unit_suites.ROOT / "README.md"
BOOST = "1.83"


class Row:
    """`own` adds options and an environment, once the packages are there.

    `kind` is the row's line in README.md, and `short` what it is called there. `built_as` is
    the row whose programs are run, if only the environment differs.
    """

    def __init__(self, kind, what, short=None, compiler="g++", packages=(), std="20", args=(),
                 link=(), options=(), environment=None, own=None, built_as=None):
        self.kind = kind
        self.what = what
        self.short = short or what
        self.compiler = compiler
        self.packages = packages
        self.std = std
        self.args = list(args)
        self.link = list(link)
        self.options = list(options)
        self.environment = environment or {}
        self.own = own
        self.built_as = built_as


def clang(version):
    return {"compiler": f"clang++-{version}", "packages": (f"clang-{version}",)}


def newer_boost(row):
    """Boost of backports beside the system's: its headers and Boost.Context alone."""
    names = [f"libboost{BOOST}-dev", f"libboost-context{BOOST}-dev", f"libboost-context{BOOST}.0"]
    root = debian_root.make_root(FOLDER / f"boost{BOOST}", names, suite="bookworm-backports",
                                 alone=True)
    library = next(root.glob("usr/lib/*/libboost_context.a")).parent
    native = FOLDER / "boost.ini"
    native.write_text(f"[properties]\nboost_includedir = '{root}/usr/include'\n"
                      f"boost_librarydir = '{library}'\n")
    row.options.append(f"--native-file={native}")
    row.args += ["-isystem", f"{root}/usr/include"]
    row.link += [f"-L{library}", f"-Wl,-rpath,{library}"]


def unpacked_libcxx(row):
    """libc++ beside the system: its libunwind-19-dev cannot be installed beside libunwind-dev."""
    names = ["libc++-19-dev", "libc++1-19", "libc++abi-19-dev", "libc++abi1-19",
             "libunwind-19-dev", "libunwind-19"]
    library = debian_root.make_root(FOLDER / "libc++19", names, alone=True) / "usr/lib/llvm-19"
    experimental = "-fexperimental-library"  # for std::stop_token
    row.args += ["-stdlib=libc++", experimental, "-nostdinc++", "-isystem",
                 f"{library}/include/c++/v1"]
    row.link += ["-stdlib=libc++", experimental, f"-L{library}/lib", f"-Wl,-rpath,{library}/lib"]


ARM64 = "arm64"
ROWS = {
    "gcc-12": Row("compiler", "g++ 12"),
    "clang-14": Row("compiler", "clang 14", **clang(14)),
    "clang-16": Row("compiler", "clang 16", **clang(16)),
    "clang-19": Row("compiler", "clang 19", **clang(19)),
    "libc++": Row("compiler", "clang 19 with libc++", own=unpacked_libcxx, **clang(19)),
    "boost-1.83": Row("Boost", "Boost 1.83 (backports)", "1.83", own=newer_boost),
    "c++23": Row("standard", "C++23, g++ 12", std="23"),
    "c++23-clang": Row("standard", "C++23, clang 19", std="23", **clang(19)),
    "c++26": Row("standard", "C++26, clang 19", std="26", **clang(19)),
    "hardened": Row("build", "hardened: `_FORTIFY_SOURCE=3`, CET, `_GLIBCXX_ASSERTIONS`", "hardened",
                    args=["-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=3", "-fcf-protection",
                          "-fstack-protector-strong", "-D_GLIBCXX_ASSERTIONS"],
                    link=["-Wl,-z,relro,-z,now"]),
    "lto": Row("build", "link-time optimization", options=["-Db_lto=true"]),
    "mprotect": Row("build", "guards by `mprotect`", built_as="gcc-12",
                    environment={"VIGIL_STACK_GUARD": "mprotect"}),
    "portable": Row("build", "the portable watch", options=["-Dwatch=portable"]),
    ARM64: Row("processor", "64-bit ARM, under qemu"),  # arm64.py builds and runs it
}
# README's lines; what stands before the rows is that of every row.
KINDS = {"processor": "x86-64", "compiler": None, "standard": "C++20", "Boost": "1.81",
         "build": None}


def run_row(name, suites, quick):
    """Returns {name of a test: Counts}. Raises Fault or NotThere."""
    if name == ARM64:
        counts = arm64.count(suites)
        for fault in arm64.faults_of(counts):
            print(f"{name}: {fault}")
            counts[fault] = unit_suites.Counts(0, 1, 0, [])
        return counts
    row = ROWS[name]
    base = ["g++", "meson", "ninja-build", "pkg-config", "libboost1.81-dev",
            "libboost-context1.81-dev", "libssl-dev", "doctest-dev"]
    for packages in (base, row.packages):
        if packages and not unit_suites.need(*packages):
            raise debian_root.NotThere(f"apt has not all of {' '.join(packages)}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    if row.own:
        row.own(row)
    # The option cpp_std knows the standards of meson's time, not the compiler's.
    args = [f"-std=c++{row.std}", *row.args]
    options = ["-Dcpp_std=none", f"-Doptimization={1 if quick else 2}", f"-Dcpp_args={json.dumps(args)}",
               f"-Dcpp_link_args={json.dumps(row.link)}", *row.options]
    return unit_suites.build_and_run(FOLDER / (row.built_as or name), suites, options,
                                     {"CXX": row.compiler, **row.environment})


def published(page):
    """What the page says: {row: counts as cells}, {row: reasons}."""
    counts = dict(re.findall(r"(?m)^\| `([^`]+)` \| [^|]* \| ([^|]*\|[^|]*\|[^|]*\|)$", page))
    reasons = {}
    for why, names in re.findall(r"(?m)^- (.*): (`[^`]+`(?:, `[^`]+`)*)$", page):
        for name in re.findall(r"`([^`]+)`", names):
            reasons.setdefault(name, []).append(why)
    return counts, reasons


MARKED = r"(<!-- matrix -->\n)(.*?)(<!-- end of matrix -->)"


def write_between_marks(path, table):
    path.write_text(re.sub(MARKED, lambda m: m[1] + table + "\n" + m[3], path.read_text(),
                           flags=re.S))


def write_page():
    """The tables between two marks, from what each row said last, here or elsewhere."""
    page = PAGE.read_text()
    counts, skipped = published(re.search(MARKED, page, re.S)[2])
    lines = ["| Row | Platform | Passed | Failed | Skipped |", "|---|---|---|---|---|"]
    reasons = {}
    for name, row in ROWS.items():
        what = row.what
        said = FOLDER / f"{name}.json"
        if not said.is_file():
            lines.append(f"| `{name}` | {what} | {counts.get(name, 'not run yet | | |')}")
            for why in skipped.get(name, []):
                reasons.setdefault(why, []).append(name)
            continue
        last = json.loads(said.read_text())
        if "missing" in last:
            lines.append(f"| `{name}` | {what} | {last['missing']} | | |")
            continue
        lines.append(f"| `{name}` | {what} | {last['passed']} | {last['failed']} | "
                     f"{last['skipped']} |")
        for why in last["reasons"]:
            reasons.setdefault(why, []).append(name)
    if reasons:
        lines += ["", "Skipped:", ""]
        lines += [f"- {why}: {', '.join(f'`{n}`' for n in names)}"
                  for why, names in sorted(reasons.items())]
    write_between_marks(PAGE, "\n".join(lines))
    write_between_marks(README, in_short("\n".join(lines)))


def in_short(table):
    """README's table: a line for each kind, from the whole table."""
    counts, _ = published(table)
    lines = ["| Part | Tested | Not tested, or not passed |", "|---|---|---|"]
    for kind, always in KINDS.items():
        tested, other = [always] if always else [], []
        for name, row in ROWS.items():
            if row.kind == kind:
                passed = re.match(r"[1-9]\d* \| 0 \|", counts.get(name, ""))
                (tested if passed else other).append(row.short)
        lines.append(f"| {kind} | {'; '.join(tested)} | {'; '.join(other)} |")
    return "\n".join(lines)


def main():
    suites, rows, quick = ("core", "io"), [], False
    for argument in sys.argv[1:]:
        if argument in ("--suite=core", "--suite=io"):
            suites = (argument.split("=")[1],)
        elif argument == "--quick":
            quick = True
        elif argument == "--list":
            print(*(f"{name}: {row.what}" for name, row in ROWS.items()), sep="\n")
            return 0
        elif argument in ROWS:
            rows.append(argument)
        else:
            sys.exit(__doc__)
    status = 0
    for name in rows or ROWS:
        try:
            counts = unit_suites.total(run_row(name, suites, quick))
            said = {"passed": counts.passed, "failed": counts.failed, "skipped": counts.skipped,
                    "reasons": counts.reasons, "date": str(datetime.date.today())}
            print(f"{name}: {unit_suites.in_words(counts)}", flush=True)
            status |= counts.failed != 0
        except debian_root.NotThere as e:
            said = {"missing": "not run"}
            print(f"{name}: not run: {e}", flush=True)
        except unit_suites.Fault as e:
            said = {"missing": "does not build"}
            print(f"{name}: 0 passed, 1 failed: does not build:\n{e}", flush=True)
            status = 1
        if len(suites) == 2 and not quick:
            FOLDER.mkdir(parents=True, exist_ok=True)
            (FOLDER / f"{name}.json").write_text(json.dumps(said))
            write_page()
    return status


if __name__ == "__main__":
    sys.exit(main())
