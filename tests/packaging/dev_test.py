#!/usr/bin/env python3
"""How ./dev treats its arguments and failures: usage: dev_test.py ROOT BUILD

Runs a copy of it in a folder of its own. meson, ninja, apt-get and so on are scripts that
record their calls, and fail on request: VIGIL_TEST_FAILS is a part of the call that does.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT, BUILD = Path(sys.argv[1]), Path(sys.argv[2])

TOOL = """#!/bin/bash
call="$(basename "$0") $*"
echo "$call" >>"$VIGIL_TEST_CALLS"
case $call in
  'meson configure '*) echo "$call" >"$2/later"; exit ;;  # it is ninja that fails
  'ninja '*) [[ ! -f $2/later ]] || call+=" $(<"$2/later")" ;;
esac
if [[ $VIGIL_TEST_FAILS && $call == *"$VIGIL_TEST_FAILS"* ]]; then exit 3; fi
case $call in
  'dpkg-query '*)
    [[ $VIGIL_TEST_LACKS ]] || for a in "$@"; do echo "$a install ok installed"; done ;;
  'sudo '*) exec "$@" ;;
  'meson setup '*)
    for a in "$@"; do
      if [[ $a == build/* ]]; then
        mkdir -p "$a/bench"
        touch "$a/build.ninja"
        printf '#!/bin/sh\\n' >"$a/bench/vigil_bench"
        chmod +x "$a/bench/vigil_bench"
      fi
    done ;;
esac
"""
TOOLS = ["meson", "ninja", "apt-get", "sudo", "dpkg-query", "git", "clang-format-14", "python3"]


class Tree:
    def __init__(self, folder):
        self.folder = folder / "tree"
        self.calls = folder / "calls"
        self.tools = folder / "tools"
        self.folder.mkdir()
        self.tools.mkdir()
        shutil.copy(ROOT / "dev", self.folder)
        (self.folder / "bench").mkdir()
        shutil.copy(ROOT / "bench" / "bench.py", self.folder / "bench")
        for tool in TOOLS:
            (self.tools / tool).write_text(TOOL)
            (self.tools / tool).chmod(0o755)

    def dev(self, *arguments, fails="", lacks=False):
        """Whether it succeeds, what it says, and the calls that it makes."""
        self.calls.write_text("")
        done = subprocess.run(
            [self.folder / "dev", *arguments], text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, check=False,
            env={**os.environ, "PATH": f"{self.tools}:{os.environ['PATH']}",
                 "VIGIL_TEST_CALLS": str(self.calls), "VIGIL_TEST_FAILS": fails,
                 "VIGIL_TEST_LACKS": "1" if lacks else ""})
        return done.returncode == 0, done.stdout, self.calls.read_text()


def expect(condition, text):
    if not condition:
        sys.exit(f"./dev: {text}")


def parts_of_failures(tree):
    """What could not be configured is not asked for again by another command."""
    expect(tree.dev("bench")[0], "bench fails")
    done, _, calls = tree.dev("test", fails="-Dtests=true")
    expect(not done, "a test that cannot be configured succeeds")
    expect("\nninja " not in calls, "what cannot be configured is built")
    done, _, calls = tree.dev("bench")
    expect(done and "-Dtests=true" not in calls, f"bench asks for tests, which failed:\n{calls}")
    done, _, calls = tree.dev("test")
    expect(done and "-Dtests=true" in calls and "-Dbench=true" in calls, f"test:\n{calls}")
    expect("meson setup" not in tree.dev("bench")[2], "bench configures what it has already")


def failures_of_lint(tree):
    expect(tree.dev("bench")[0], "bench fails")
    for fails in ("-Dtests=true", "apt-get", "ninja", "meson test"):
        done, _, calls = tree.dev("lint", fails=fails, lacks=fails == "apt-get")
        expect(not done, f"lint succeeds when {fails} fails")
        last = calls.splitlines()[-1]
        expect(fails in last, f"lint goes on when {fails} has failed, with: {last}")
    done, _, calls = tree.dev("lint")
    expect(done and "--suite lint" in calls, f"lint:\n{calls}")


def format_in_a_fresh_clone(tree):
    done, said, calls = tree.dev("format", lacks=True)
    expect(done and "apt-get -q install" in calls, f"format in a fresh clone fails:\n{said}")


def compilers(tree):
    for sanitizer in ("thread", "address"):
        for arguments in (["--sanitize=" + sanitizer, "--compiler=g++"],
                          ["--compiler=g++", "--sanitize=" + sanitizer]):
            done, said, calls = tree.dev("test", *arguments)
            expect(not done and "clang" in said, f"test {arguments} says:\n{said}")
            expect("\nninja " not in calls, f"test {arguments} builds something")
        for arguments in ([], ["--compiler=clang"]):
            done, said, calls = tree.dev("test", *arguments, "--sanitize=" + sanitizer)
            expect(done and f"build/{sanitizer}" in calls, f"test {arguments} says:\n{said}")
    expect("build/clang" in tree.dev("test", "--compiler=clang")[2], "--compiler=clang")
    expect("build/release" in tree.dev("test", "--compiler=g++")[2], "--compiler=g++")


def soaks(tree):
    """What a soak cannot do is said before anything is built."""
    for arguments in (["yaer"], ["--sanitize=undefined"], ["faults", "no_such_fault"]):
        done, said, calls = tree.dev("soak", *arguments)
        wrong = arguments[-1].removeprefix("--sanitize=")
        expect(not done and wrong in said, f"soak {arguments} says:\n{said}")
        expect("ninja " not in calls, f"soak {arguments} builds something")
    for arguments, target in ([], "soak"), (["faults"], "soak_faults"):
        expect(f"{target}\n" in tree.dev("soak", *arguments)[2], f"soak {arguments} builds no {target}")
    expect("build/address" in tree.dev("soak", "1", "--sanitize=address")[2], "soak --sanitize")


def peers(tree):
    """Each program of the comparison's list is built before it runs."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(ROOT / "bench" / "peers"))
    from workloads import PEERS
    targets = (ROOT / "bench" / "peers" / "meson.build").read_text()
    wanted = {Path(word).name for peer in PEERS for word in peer.command
              if word.startswith("{programs}/") and f"'{Path(word).name.removeprefix('peer_')}':" in targets}
    expect(len(wanted) > 4, f"of the peers only {wanted} are meson's")
    for arguments in (["bench", "--peers"], ["bench", "--peers", "table"]):
        calls = tree.dev(*arguments)[2]
        built = set(" ".join(c for c in calls.splitlines() if c.startswith("ninja ")).split())
        for program in sorted(wanted):
            expect(f"bench/peers/{program}" in built, f"{' '.join(arguments)} builds no {program}")


def warnings(tree):
    expect("-Dwerror=true" not in tree.dev("test")[2], "warnings are errors")
    expect("-Dwerror=true" in tree.dev("test", "--werror")[2], "--werror does nothing")
    expect("meson setup" not in tree.dev("test", "--werror")[2], "--werror configures twice")
    expect("-Dwerror=false" in tree.dev("test")[2], "--werror stays when it is not given")
    expect("meson setup" not in tree.dev("test")[2], "without --werror it configures twice")


def filter_by_case():
    """`./dev test CASE` gives the name to the suite `unit`: programs that know cases."""
    programs = set()
    for test in json.loads((BUILD / "meson-info" / "intro-tests.json").read_text()):
        if not any(suite.endswith(":unit") for suite in test["suite"]):
            continue
        expect("VIGIL_EXPECT_FAULT" not in test["env"],
               f"{test['name']} looks for a fault, and fails when it gets another case")
        programs.add(test["cmd"][0])
    expect(programs, "no test is in the suite unit")
    for program in sorted(programs):
        said = subprocess.run([program, "--count"], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False).stdout
        expect("unskipped test cases" in said, f"{program} has no cases")


def end_of_a_failed_run():
    """The last lines say which case has failed and why."""
    rule = "=" * 79
    cases = (f"{rule}\na_test.cpp:3:\nTEST CASE:  good\n\na_test.cpp:4: MESSAGE: hello\n\n"
             f"{rule}\na_test.cpp:9:\nTEST CASE:  bad\n\na_test.cpp:10: ERROR: CHECK( a )\n"
             f"{rule}\n[doctest] test cases: 1 | 0 passed | 1 failed | 9 skipped\n[doctest] child\n\n"
             f"{rule}\n[doctest] test cases: 3 | 2 passed | 1 failed | 0 skipped\n")
    log = [{"name": "cases", "result": "FAIL", "stdout": cases},
           {"name": "check", "result": "FAIL", "stdout": "said\n", "stderr": "complained\n"},
           {"name": "fine", "result": "OK", "stdout": "quiet\n"}]
    done, said = counted(log)
    expect(done == 1 and said.endswith("\n3 passed, 2 failed\n"), f"counts:\n{said}")
    for text in ("== failed: cases", "a_test.cpp:10: ERROR", "== failed: check", "complained"):
        expect(text in said, f"a failed run does not end with {text}:\n{said}")
    for text in ("TEST CASE:  good", "quiet"):
        expect(text not in said, f"a failed run ends with {text}, which passed:\n{said}")


def what_is_skipped():
    """A test, a part of one, or a case that cannot run here is counted, with its reason."""
    rule = "=" * 79
    cases = (f"{rule}\na_test.cpp:3:\nTEST CASE:  good\n\n"
             f"{rule}\na_test.cpp:9:\nTEST CASE:  here\n\na_test.cpp:9: MESSAGE: skipped: no IPv6\n"
             f"a_test.cpp:9: MESSAGE: skipped: no IPv6\n\n"
             f"{rule}\n[doctest] test cases: 3 | 3 passed | 0 failed | 7 skipped\n")
    log = [{"name": "cases", "result": "OK", "stdout": cases},
           {"name": "parts", "result": "OK", "stdout": "skipped: no core\n5 passed, 0 failed\n"},
           {"name": "whole", "result": "SKIP", "stdout": "skipped: no gdb\n"},
           {"name": "silent", "result": "SKIP"}]
    done, said = counted(log)
    expect(done == 0 and said.endswith("\n3 passed, 0 failed, 4 skipped\n"), f"counts:\n{said}")
    for text in ("cases: no IPv6", "parts: no core", "whole: no gdb", "silent: no reason given"):
        expect(f"== skipped, {text}\n" in said, f"it does not say {text}:\n{said}")


def counted(log):
    """The exit status of tools/count_tests.py, and what it says of this log of meson's."""
    with tempfile.TemporaryDirectory(prefix="vigil-dev-") as folder:
        path = Path(folder) / "testlog.json"
        path.write_text("".join(json.dumps(entry) + "\n" for entry in log))
        done = subprocess.run([sys.executable, ROOT / "tools" / "count_tests.py", path],
                              text=True, stdout=subprocess.PIPE, check=False)
    return done.returncode, done.stdout


def main():
    filter_by_case()
    end_of_a_failed_run()
    what_is_skipped()
    for case in (parts_of_failures, failures_of_lint, format_in_a_fresh_clone, compilers,
                 soaks, peers, warnings):
        with tempfile.TemporaryDirectory(prefix="vigil-dev-") as folder:
            case(Tree(Path(folder)))
    print("dev does what it is told, and says when it cannot")


if __name__ == "__main__":
    main()
