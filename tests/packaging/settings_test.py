#!/usr/bin/env python3
"""Settings that contradict each other: usage: settings_test.py ROOT COMPILER...

TLS without I/O is an error that says what to do if TLS was asked for; otherwise TLS is not
built. Nothing is compiled here except what CMake and meson try by themselves.
"""
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT, COMPILER = Path(sys.argv[1]), sys.argv[2:]


def configure(*command):
    """Whether it succeeds, and all that was said, on one line."""
    done = subprocess.run([str(c) for c in command], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False,
                          env={**os.environ, "CXX": " ".join(COMPILER)})
    return done.returncode == 0, " ".join(done.stdout.split())


def check(call, build, succeeds, says="", has=(), lacks=()):
    done, text = configure(*call)
    if done != succeeds or says not in text:
        sys.exit(f"{' '.join(map(str, call))}: {'succeeds' if done else 'fails'} with:\n{text}")
    rules = (build / "build.ninja").read_text() if succeeds else ""
    for target in has:
        if target not in rules:
            sys.exit(f"{' '.join(map(str, call))}: builds no {target}")
    for target in lacks:
        if target in rules:
            sys.exit(f"{' '.join(map(str, call))}: builds {target}")


def cmake(tree):
    if shutil.which("cmake") is None:
        print("skipped: cmake is not installed")
        return
    compiler = [c for c in COMPILER if "ccache" not in c][0]
    build = tree / "cmake"
    call = ["cmake", "-S", ROOT, "-B", build, "-G", "Ninja", f"-DCMAKE_CXX_COMPILER={compiler}"]
    check(call, build, True, has=["libvigil-io.a", "libvigil-tls.a", "libvigil-inspect.a",
                                   "libvigil-inspect-page.a"])
    # In the folder in which it was found before.
    check([*call, "-DVIGIL_IO=OFF"], build, True, has=["libvigil.a"],
          lacks=["libvigil-io.a", "libvigil-tls.a", "libvigil-inspect-page.a"])
    check([*call, "-DVIGIL_IO=OFF", "-DVIGIL_TLS=ON"], build, False, "VIGIL_TLS=ON needs vigil::io")
    check([*call, "-DVIGIL_IO=ON", "-DVIGIL_TLS=OFF"], build, True, has=["libvigil-io.a"],
          lacks=["libvigil-tls.a"])
    check([*call, "-DVIGIL_INSPECT=OFF"], build, True, has=["libvigil.a"],
          lacks=["libvigil-inspect.a", "libvigil-inspect-page.a"])
    check([*call, "-DVIGIL_TLS=ON"], build, True, has=["libvigil-tls.a"])


def meson(tree):
    build = tree / "meson"
    call = ["meson", "setup", build, ROOT]
    check([*call, "-Dio=disabled", "-Dtls=enabled"], build, False, "tls=enabled needs vigil-io")
    check([*call, "-Dio=disabled", "-Dinspect=disabled"], build, True, has=["libvigil.a"],
          lacks=["libvigil-io.a", "libvigil-tls.a", "libvigil-inspect.a",
                 "libvigil-inspect-page.a"])


def main():
    with tempfile.TemporaryDirectory(prefix="vigil-settings-") as folder:
        cmake(Path(folder))
        meson(Path(folder))
    print("TLS is built with I/O, or not at all")


if __name__ == "__main__":
    main()
