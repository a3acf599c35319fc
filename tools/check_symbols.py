#!/usr/bin/env python3
"""Checks that there is no trace of Asio in code without it: usage: check_symbols.py FILE...

FILE is an archive, an object or a program. Its symbols, defined or not, must not
name Asio, and its debug information must not name one of Asio's headers.
"""
import re
import subprocess
import sys


def main():
    faults = []
    for path in sys.argv[1:]:
        symbols = subprocess.run(
            ["nm", "-C", path], check=True, capture_output=True, text=True
        ).stdout
        faults += [
            f"{path}: {line}"
            for line in symbols.splitlines()
            if re.search(r"\b(boost::)?asio::", line) and "vigil::" not in line
        ]
        # The line table has the names of included files as text.
        with open(path, "rb") as f:
            if re.search(rb"boost/asio[/.]", f.read()):
                faults.append(f"{path}: a header of Asio has been included")
    print("\n".join(faults[:20]) or "no Asio here")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
