#!/usr/bin/env python3
"""The compiler's messages for common mistakes with vigil: usage: messages_test.py ROOT COMPILER...

 1. Any public header without C++20: one error, "vigil needs -std=c++20".
 2. A header of vigil/io without -DBOOST_ASIO_SEPARATE_COMPILATION: one error, which
    names that flag, and what gives it: CMake's target, meson's, and pkg-config.
 3. A guard or a lock's result that is dropped at once: a warning each.
 4. A call with wrong arguments: the first error says what to write. Of an error in what
    several calls instantiate, one of them is looked at. The user's own functions of these
    names are not disturbed.
"""
import re
import subprocess
import sys
import tempfile
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

ON_SEND = r"write (= .*on_send_of_std_move|on_send\(ch, std::move\(v\), f\))"

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
    ('vigil::go({.name = "x"}, [](int) {})', "an argument for each parameter of f"),
    ("vigil::spawn({.stack_size = 1}, [](int, int) {}, 1)", "an argument for each parameter of f"),
    ("words.send(word)", r"write (= .*send_of_std_move|send\(std::move\(v\))"),
    ("words.send(word, vigil::background())",
     r"write (= .*send_of_std_move|send\(std::move\(v\))"),
    ("words.try_send(word)", r"write (= .*try_send_of_std_move|try_send\(std::move\(v\))"),
    ("words.send_for(word, vigil::clock::duration(1))",
     r"write (= .*send_for_of_std_move|send_for\(std::move\(v\))"),
    ("vigil::co::send(words, word)", r"write std::move\(v\)"),
    ("vigil::on_send(words, word)", ON_SEND),
    ("vigil::on_send(vigil::sender(words), word, [] {})", ON_SEND),
    ("vigil::options{4}", "header_mark"),
    ("vigil::select(mixed)", r"write on_recv\(ch, f\)"),
    ("vigil::co::select(mixed)", r"write on_recv\(ch, f\)"),
]
# A number where a duration is wanted.
WRONG += [(call, "write.a.duration,?.such.as.5ms") for call in (
    "vigil::sleep_for(5)",
    "vigil::sleep_for(0.5, vigil::background())",
    "vigil::after(5L)",
    "vigil::tick(5)",
    "vigil::deadline_in(5)",
    "vigil::after_func(5, [] {})",
    "vigil::after_func(5, [] {}, vigil::site::current())",
    "vigil::every(5, [word = std::string()] {})",
    "vigil::every(5, [] {}, vigil::from_end)",
    "vigil::timer(5)",
    "vigil::timer().reset(5L)",
    "vigil::ticker(5)",
    "vigil::ticker(5, 5)",
    "vigil::on_timeout(5)",
    "vigil::on_timeout(5, [] {})",
    "vigil::with_timeout(vigil::background(), 5)",
    "vigil::blocking_for(5, [] {})",
    "vigil::wait_all_for(5, fiber)",
    "vigil::boot::sleep_for(5)",
    "vigil::co::sleep_for(5)",
    "vigil::co::recv_for(mixed, 5)",
    "mixed.recv_for(5)",
    "mixed.recv_for(std::int64_t(5))",
    "mixed.send_for(pair(), 5)",
    "fiber.join_for(5)",
    "vigil::semaphore(1).try_acquire_for(5)",
    "vigil::wait_group().wait_for(5)",
    "vigil::group().wait_for(5)",
    "vigil::mutex().try_lock_for(5)",
    "vigil::runtime::current().after_func(5, [] {})",
)]
# A function with a parameter that nothing is passed for.
WRONG += [(call, "f.is.called.without.arguments") for call in (
    "vigil::after_func(std::chrono::seconds(5), [](int) {})",
    "vigil::after_func(vigil::background(), [](int) {})",
    "vigil::every(std::chrono::seconds(1), [](int) {})",
    "vigil::every(std::chrono::seconds(1), [](int) {}, vigil::from_end)",
    "vigil::post([](int) {})",
    "vigil::post([](int) {}, vigil::stoppable)",
    "vigil::defer([](int) {})",
    "vigil::blocking([word = std::string()](int) {})",
    "vigil::blocking(vigil::background(), [](int) {})",
    "vigil::blocking_for(std::chrono::seconds(1), [](int) {})",
    "vigil::group().go([](int) {})",
    "vigil::group().try_go([](int) {})",
    "vigil::group_of<int>().go([](int) { return 1; })",
    "vigil::wait_group().go([](int) {})",
    "vigil::run([](int) {})",
    "vigil::run({.workers = 2}, [](int) {})",
    "vigil::runtime::current().go([](int) {})",
    "vigil::runtime::current().after_func(std::chrono::seconds(1), [](int) {})",
    "vigil::runtime::current().post([](int) {})",
    "vigil::runtime::current().post([](int) {}, vigil::stoppable)",
)]
HEADERS = """#include <vigil/co.hpp>
#include <vigil/vigil.hpp>
#include <functional>
#include <memory>
#include <string>
"""
NAMES = """struct pair { unsigned first; int second; };
vigil::channel<std::unique_ptr<int>> words;
vigil::channel<pair> mixed;
int number;
const std::unique_ptr<int> word;
vigil::fiber<int> fiber;
"""
# Another library's functions, with any conversion but the worst.
OWN = """namespace other {
struct token {};
template <class T> int post(T&&) { return 1; }
int after(double) { return 1; }
int with_timeout(const vigil::context&, unsigned) { return 1; }
template <class F> int every(long, F) { return 1; }
int after_func(std::chrono::seconds, std::function<void(int)>) { return 1; }
int blocking(std::string) { return 1; }
}
using namespace vigil;
using namespace other;
int own = post(token()) + post(1) + after(5) + with_timeout(background(), 5) + every(5, [] {}) +
          after_func(std::chrono::seconds(1), [](int) {}) + blocking("text");
template <class... A> constexpr bool are_taken = requires(A... a) { vigil::after_func(a...); };
static_assert(!are_taken<int, void (*)()>);
static_assert(!are_taken<clock::duration, void (*)(int)>);
static_assert(are_taken<clock::duration, void (*)()>);
static_assert(are_taken<clock::duration, void (*)(vigil::timer&)>);
"""


def say(text, *flags):
    """The compiler's errors and warnings for this source."""
    # clang++ warns of two that ask for less than a compilation.
    only = [] if "-E" in flags else ["-fsyntax-only"]
    done = subprocess.run(
        [*COMPILER, *flags, *only, "-o", "/dev/null", "-x", "c++", f"-I{ROOT / 'include'}", "-"],
        input=text, capture_output=True, text=True, check=False)
    return [line for line in done.stderr.splitlines() if "error:" in line or "warning:" in line]


def first_errors(calls, headers):
    """Returns the first error of each call; all are compiled together."""
    text = NAMES + "".join(
        f'#line {number} "call"\nvoid f{number}() {{ static_cast<void>({call}); }}\n'
        for number, call in enumerate(calls, 1))
    is_clang = any("clang" in word for word in COMPILER)
    done = subprocess.run(
        [*COMPILER, "-std=c++20", "-ferror-limit=0" if is_clang else "-fmax-errors=0",
         "-fsyntax-only", "-include", headers, "-x", "c++", f"-I{ROOT / 'include'}", "-"],
        input=text, capture_output=True, text=True, check=False)
    said, error, number = [""] * len(calls), "", None
    for line in done.stderr.splitlines():
        if "error:" in line:
            error = line
        # For an error in a header g++ names the call above it, clang++ below it.
        place = re.match(r"call:(\d+):", line)
        if place:
            number = int(place[1])
        if error and (place or not is_clang) and number is not None:
            said[number - 1] = said[number - 1] or error
            error = ""
    return said


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

    if said := say(HEADERS + OWN, "-std=c++20"):
        faults.append(f"the user's own functions are not taken: {said[:3]}")

    with tempfile.TemporaryDirectory() as folder:
        headers = Path(folder, "headers.hpp")
        headers.write_text(HEADERS, encoding="utf-8")
        # Read once; g++ and clang++ look for a file of this name.
        subprocess.run([*COMPILER, "-std=c++20", f"-I{ROOT / 'include'}", "-x", "c++-header",
                        headers, "-o", f"{headers}.gch"], check=True)
        together = first_errors([call for call, _ in WRONG], headers)
        for (call, expected), said in zip(WRONG, together):
            if re.search(expected, said):
                continue
            # A compiler reports an error in a shared instantiation once, not for each call.
            alone = f"{NAMES}void f() {{ static_cast<void>({call}); }}\n"
            said = "".join(say(alone, "-std=c++20", "-include", headers)[:1])
            if not re.search(expected, said):
                faults.append(f"{call}: the first error does not say '{expected}': {said}")

    print("\n".join(faults) or "each mistake has its message")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
