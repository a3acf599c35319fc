#!/usr/bin/env python3
"""vigil-asio-check finds a second Asio: usage: asio_check_test.py ROOT LIBRARIES COMPILER...

Three sources are compiled: one with Asio from the headers, the same with everything
hidden, and a user's program as it should be. Each form that the first can take in a
program is a fault, whatever the optimiser has left of it; none of the others is.
"""
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT, LIBRARIES, COMPILER = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
IO, VIGIL = LIBRARIES / "libvigil-io.a", LIBRARIES / "libvigil.a"
CHECK = ROOT / "tools" / "vigil-asio-check"
FLAGS = ["-DBOOST_ASIO_SEPARATE_COMPILATION", "-DBOOST_ASIO_DISABLE_VISIBILITY"]
HIDDEN = ["-fvisibility=hidden", "-DBOOST_ASIO_DISABLE_VISIBILITY"]
LIBRARY = """
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
[[gnu::visibility("default")]] bool is_end(const boost::system::error_code& e) {
  boost::asio::io_context c;
  boost::asio::post(c, [] {});
  return c.run() == 1 && e == boost::asio::error::eof;
}
"""
# The smallest trace: no function of Asio's is left at -O2, but for what it has inside.
TRACE = """
#include <boost/asio/error.hpp>
bool is_end(const boost::system::error_code& e) { return e == boost::asio::error::eof; }
"""
USER = """
#include <vigil/io.hpp>
#include <vigil/vigil.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/write.hpp>
bool is_end(const boost::system::error_code& e);
int main() {
  return vigil::run([] {
    auto& c = vigil::io::io_context();
    boost::asio::signal_set signals(c, SIGTERM);
    boost::asio::any_io_executor any = c.get_executor();
    boost::asio::ip::tcp::socket socket(any);
    boost::system::error_code error;
    boost::asio::write(socket, boost::asio::buffer("x", 1), error);
    is_end(error);
  });
}
"""
faults = []


def run(*command):
    done = subprocess.run([str(c) for c in command], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nfailed with {done.returncode}:\n{done.stdout}")


def expect(status, words, *files):
    done = subprocess.run([sys.executable, CHECK, IO, *files], text=True, capture_output=True,
                          check=False)
    said = done.stdout + done.stderr
    if done.returncode != status or words not in said:
        faults.append(f"{[Path(f).name for f in files]}: {done.returncode}, not {status} with "
                      f"“{words}”, but:\n{said}")


def main():
    with tempfile.TemporaryDirectory(prefix="vigil-asio-check-") as folder:
        tree = Path(folder)

        def compiled(name, text, *flags):
            (tree / f"{name}.cpp").write_text(text)
            run(*COMPILER, "-std=c++20", "-fPIC", f"-I{ROOT / 'include'}", *flags, "-c",
                tree / f"{name}.cpp", "-o", tree / f"{name}.o")
            return tree / f"{name}.o"

        def linked(name, *parts):
            run(*COMPILER, *parts, "-o", tree / name)
            return tree / name

        libraries = [IO, VIGIL, "-lboost_context", "-pthread"]
        seen = compiled("seen", LIBRARY)
        trace = compiled("trace", TRACE, "-O2")
        hidden = compiled("hidden", LIBRARY, "-O2", *HIDDEN)
        user = compiled("user", USER, *FLAGS)
        archive = tree / "libseen.a"
        run("ar", "rcs", archive, seen)
        shared = linked("libseen.so", "-shared", seen)
        own = linked("libown.so", "-shared", hidden)

        for file in (seen, trace, archive, hidden):
            expect(1, "-DBOOST_ASIO_SEPARATE_COMPILATION", user, file)
        expect(1, "libseen.a[seen.o]", archive)
        expect(1, "exports", shared)
        expect(0, "hides it", own)
        expect(0, "no second Asio in 2 files", user, linked("right", user, own, *libraries))
        for wrong in (seen, trace):
            program = linked(f"with_{wrong.stem}", user, wrong, *libraries)
            expect(1, "from the headers", program)
        expect(0, "no second Asio", IO)
        asio = compiled("asio", "#include <boost/asio/impl/src.hpp>\n", *FLAGS)
        expect(1, "boost/asio/impl/src.hpp", asio)
        run("strip", "-o", tree / "stripped", tree / "right")
        expect(2, "stripped", tree / "stripped")
        expect(2, "No such file", tree / "nothing.o")
    print("\n".join(faults) or "a second Asio is found in each form, and nowhere else")
    return 1 if faults else 0


if __name__ == "__main__":
    if not all(map(shutil.which, ("nm", "readelf", "c++filt", "ar", "strip"))):
        print("binutils are not installed")
        sys.exit(77)
    sys.exit(main())
