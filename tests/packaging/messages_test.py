#!/usr/bin/env python3
"""The compiler's messages for common mistakes with vigil: usage: messages_test.py ROOT COMPILER...

 1. Any public header without C++20: one error, "vigil needs -std=c++20".
 2. A header of vigil/io without -DBOOST_ASIO_SEPARATE_COMPILATION: one error, which
    names that flag, and what gives it: CMake's target, meson's, and pkg-config.
 3. A guard or a lock's result that is dropped at once: a warning each.
 4. A call with wrong arguments: the first error says what to write.
"""
import re
import subprocess
import sys
from pathlib import Path

ROOT, COMPILER = Path(sys.argv[1]), sys.argv[2:]
ASIO_FLAG = "-DBOOST_ASIO_SEPARATE_COMPILATION"

DROPPED = [
    "vigil::this_fiber::pin();",
    "vigil::this_fiber::pin{};",
    "vigil::this_fiber::shield{};",
    "vigil::this_fiber::no_park{};",
    "vigil::scoped_timer{vigil::timer()};",
    "vigil::runtime::current().make_work_guard();",
    "m.try_lock();",
    "m.try_lock_for(std::chrono::seconds(1));",
    "m.try_lock_until(vigil::clock::now());",
    "s.try_lock();",
    "s.try_lock_shared();",
    "s.try_lock_shared_for(std::chrono::seconds(1));",
    "p.try_acquire();",
    "p.try_acquire_for(std::chrono::seconds(1));",
]

# The call, and what its first error says (a regular expression).
WRONG = [
    ("vigil::co::send(words, std::in_place, 1, 2)", r"what would stand in T\(...\)"),
    ("vigil::co::send_for(mixed, vigil::clock::duration(1), std::in_place, 1.5, 2)",
     r"what would stand in T\(...\)"),
    ("vigil::on_send(mixed, std::in_place, number, 2)", "each number must be of its member's type"),
    ("vigil::go([](int) {})", "an argument for each parameter of f"),
    ("vigil::spawn([](int) {})", "an argument for each parameter of f"),
    ("vigil::go([](int, int) {}, 1)", "an argument for each parameter of f"),
    ("vigil::spawn([](int&) {}, number)", r"std::ref\(x\) for a T&"),
    ("vigil::go(vigil::fiber_options{}, [](int) {})", "an argument for each parameter of f"),
    ("vigil::sleep_for(5)", "write 5ms"),
    ("vigil::sleep_for(0.5, vigil::background())", "write 5ms"),
    ("vigil::co::sleep_for(5)", "write 5ms"),
    ("vigil::on_timeout(5)", "write 5ms"),
    ("words.send(word)", r"write (= .*send_of_std_move|send\(std::move\(v\))"),
    ("words.send(word, vigil::background())",
     r"write (= .*send_of_std_move|send\(std::move\(v\))"),
    ("words.try_send(word)", r"write (= .*try_send_of_std_move|try_send\(std::move\(v\))"),
    ("words.send_for(word, vigil::clock::duration(1))",
     r"write (= .*send_for_of_std_move|send_for\(std::move\(v\))"),
    ("vigil::co::send(words, word)", r"write std::move\(v\)"),
    ("vigil::select(mixed)", r"write on_recv\(ch, f\)"),
    ("vigil::co::select(mixed)", r"write on_recv\(ch, f\)"),
]
NAMES = """#include <vigil/co.hpp>
#include <vigil/vigil.hpp>
#include <memory>
struct pair { unsigned first; int second; };
void f(vigil::channel<std::unique_ptr<int>> words, vigil::channel<pair> mixed, int number,
       const std::unique_ptr<int> word) {
  static_cast<void>(number);
"""


def say(text, *flags):
    """The compiler's errors and warnings for this source."""
    # clang++ warns of two that ask for less than a compilation.
    only = [] if "-E" in flags else ["-fsyntax-only"]
    done = subprocess.run(
        [*COMPILER, *flags, *only, "-o", "/dev/null", "-x", "c++", f"-I{ROOT / 'include'}", "-"],
        input=text, capture_output=True, text=True, check=False)
    return [line for line in done.stderr.splitlines() if "error:" in line or "warning:" in line]


def headers_of(folder):
    return sorted(p.relative_to(ROOT / "include").as_posix() for p in folder.glob("*.hpp"))


def main():
    faults = []
    public = ROOT / "include" / "vigil"
    for header in headers_of(public) + headers_of(public / "io"):
        said = say(f"#include <{header}>\n", "-std=gnu++17", ASIO_FLAG)
        if len(said) != 1 or "vigil needs -std=c++20" not in said[0]:
            faults.append(f"{header} as C++17: not one line about the standard, but {said[:5]}")

    for header in ["vigil/io.hpp", *headers_of(public / "io")]:
        said = say(f"#include <{header}>\n", "-std=c++20", "-E")
        sources = ("vigil::io", "meson", "pkg-config --cflags vigil-io")
        if len(said) != 1 or not all(w in said[0] for w in (ASIO_FLAG, *sources)):
            faults.append(f"{header} without {ASIO_FLAG}: not one line that names it, "
                          f"and where it comes from: {said[:5]}")

    lines = ["#include <vigil/vigil.hpp>",
             "void f(vigil::mutex& m, vigil::shared_mutex& s, vigil::semaphore& p) {", *DROPPED, "}"]
    said = say("\n".join(lines), "-std=c++20")
    for number, line in enumerate(lines[2:-1], 3):
        if not any(f":{number}:" in s and "nodiscard" in s for s in said):
            faults.append(f"no warning for `{line}`")

    for call, expected in WRONG:
        said = say(f"{NAMES}  static_cast<void>({call});\n}}\n", "-std=c++20")
        if not said or not re.search(expected, said[0]):
            faults.append(f"{call}: the first error does not say '{expected}': {said[:3]}")

    print("\n".join(faults) or "each mistake has its message")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
