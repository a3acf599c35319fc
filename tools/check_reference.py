#!/usr/bin/env python3
"""Checks that each public name has the parts of its page: usage: check_reference.py SOURCE_ROOT

A class or a function has a contract, what it throws, thread safety, lifetime, behaviour at
the shutdown, cost, an example that is run, and a row of docs/reference/names.txt; a class
inherits none of them, its members do. Of any other name the contract is enough. What
docs/reference/ says of a name that does not exist is a fault, too.
"""
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent / "reference"))

import headers  # noqa: E402


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    if headers.cindex is None:
        print(f"skipped: {headers.MISSING}")
        return 77
    import guides
    import model

    read = model.Model(sys.argv[1])
    faults = read.faults + guides.faults(read)
    faults += [f"{name}: lacks {', '.join(parts)}" for name, parts in read.missing().items()]
    print("\n".join(faults) or f"{len(read.names)} names, which have all parts")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
