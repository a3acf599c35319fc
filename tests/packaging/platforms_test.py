#!/usr/bin/env python3
"""The tools that run the tests elsewhere: usage: platforms_test.py ROOT

Nothing is built: which counts of a run on 64-bit ARM are a failure, what the tables of
docs/platforms.md and README.md say of a row, which archives of apt's sources are
Debian's, and that a wrong call or an old log is not taken for a good one.
"""
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(sys.argv[1])
sys.path.insert(0, str(ROOT / "tools"))
import arm64  # noqa: E402
import debian_root  # noqa: E402
import matrix  # noqa: E402
import unit_suites  # noqa: E402
from unit_suites import Counts  # noqa: E402


def expect(holds, what):
    if not holds:
        sys.exit(f"platforms_test: {what}")


def what_counts_as_a_failure():
    allowed = next(iter(arm64.EXPECTED))
    for counts, faults in (
        ({"chan": Counts(100, 0, 0, []), "io": Counts(19, 0, 1, ["no ptrace"])}, 0),
        ({"chan": Counts(100, 0, 1, ["no ptrace"])}, 1),
        ({"machine": Counts(100, 0, 1, [allowed])}, 0),
        ({"machine": Counts(100, 0, 2, [allowed, "no ptrace"])}, 1),
        ({"io": Counts(95, 0, 5, ["no ptrace"])}, 0),
        ({"io": Counts(94, 0, 6, ["no ptrace"])}, 1),
        ({"io": Counts(80, 10, 10, ["no ptrace"]), "sync": Counts(0, 0, 1, ["none"])}, 2),
    ):
        said = list(arm64.faults_of(counts))
        expect(len(said) == faults, f"{counts}: {faults} faults expected, said {said}")
    tests = re.findall(r"(?m)^  '(\w+)': files\(", (ROOT / "tests/meson.build").read_text())
    expect(arm64.STRICT <= set(tests), f"no such test: {arm64.STRICT - set(tests)} in arm64.STRICT")


def what_the_table_says():
    shown = matrix.PAGE.read_text()
    for name in matrix.ROWS:
        expect(f"| `{name}` |" in shown, f"docs/platforms.md lacks the row {name}: tools/matrix.py")
    table = re.search(matrix.MARKED, shown, re.S)[2]
    expect(matrix.in_short(table) in matrix.README.read_text(),
           f"README.md's table is not that of docs/platforms.md:\n{matrix.in_short(table)}")
    with tempfile.TemporaryDirectory(prefix="vigil-platforms-") as folder:
        matrix.FOLDER = Path(folder)
        matrix.PAGE = Path(folder) / "page.md"
        matrix.PAGE.write_text(
            "above\n<!-- matrix -->\nold\n"
            "| `clang-14` | clang 14 | 5 | 0 | 3 |\n| `lto` | earlier | 1 | 1 | 1 |\n\nSkipped:\n\n"
            "- no clock: `clang-14`\n- no: colon: `clang-14`, `lto`\n"
            "<!-- end of matrix -->\nbelow\n")
        (matrix.FOLDER / "lto.json").write_text(json.dumps(
            {"passed": 7, "failed": 0, "skipped": 1, "reasons": ["no clock"]}))
        (matrix.FOLDER / "libc++.json").write_text(json.dumps({"missing": "does not build"}))
        matrix.README = Path(folder) / "readme.md"
        matrix.README.write_text("a\n<!-- matrix -->\nold\n<!-- end of matrix -->\nb\n")
        matrix.write_page()
        short = matrix.README.read_text()
        for text in ("| compiler | clang 14 | g++ 12; clang 16; clang 19; clang 19 with libc++ |",
                     "| build | link-time optimization | hardened; ", "| Boost | 1.81 | 1.83 |",
                     "| processor | x86-64 | 64-bit ARM, under qemu |"):
            expect(text in short, f"README's table lacks {text!r}:\n{short}")
        expect(short.startswith("a\n") and short.endswith("b\n") and "old" not in short,
               f"README.md lost its text:\n{short}")
        page = matrix.PAGE.read_text()
        for text in ("| `lto` | link-time optimization | 7 | 0 | 1 |", "- no clock: `clang-14`, `lto`",
                     "| `clang-14` | clang 14 | 5 | 0 | 3 |", "- no: colon: `clang-14`\n",
                     "| `libc++` | clang 19 with libc++ | does not build | | |",
                     "| `gcc-12` | g++ 12 | not run yet | | |"):
            expect(text in page, f"the table lacks {text!r}:\n{page}")
        expect("old" not in page and "earlier" not in page, "the table keeps what it said before")
        expect(page.startswith("above\n") and page.endswith("below\n"), "the page lost its text")


def which_archives():
    with tempfile.TemporaryDirectory(prefix="vigil-platforms-") as folder:
        (Path(folder) / "sources.list.d").mkdir()
        (Path(folder) / "sources.list").write_text(
            "# deb http://old.example/debian bookworm main\n"
            "deb [arch=amd64 signed-by=/a.gpg] http://one.example/debian bookworm main contrib\n"
            "deb http://other.example/tools stable main\n")
        (Path(folder) / "sources.list.d/two.sources").write_text(
            "Types: deb\n# a comment\nURIs: http://two.example/debian\nSuites: bookworm\n"
            "Components: main\nSigned-By: /b.gpg\n\n"
            "Types: deb\nURIs: http://two.example/debian-security\nComponents: main\n")
        found = debian_root.archives(Path(folder))
        wanted = [("http://one.example/debian", "/a.gpg"), ("http://two.example/debian", "/b.gpg")]
        expect(found == wanted, f"apt's archives: {found}")


def wrong_calls():
    for arguments in ([], ["--alone"], ["--alone=0", "folder", "g++"], ["--what=1", "folder", "g++"]):
        done = subprocess.run([sys.executable, ROOT / "tools/debian_root.py", *arguments],
                              capture_output=True, text=True, check=False)
        expect(done.returncode == 1 and "usage: debian_root.py" in done.stderr,
               f"debian_root.py {arguments}: {done.stderr}")


def a_log_of_an_earlier_run():
    with tempfile.TemporaryDirectory(prefix="vigil-platforms-") as folder:
        log = Path(folder).resolve() / "meson-logs/testlog.json"
        log.parent.mkdir()
        log.write_text("{}\n")
        unit_suites.configure = unit_suites.run = lambda *_, **__: None
        unit_suites.programs = lambda *_: {"chan": "tests/chan"}
        try:
            unit_suites.build_and_run(folder)  # there is no build for meson
        except unit_suites.Fault:
            return
        expect(False, "what an earlier run said is counted")


what_counts_as_a_failure()
what_the_table_says()
which_archives()
wrong_calls()
a_log_of_an_earlier_run()
print("the platforms are counted as they should be")
