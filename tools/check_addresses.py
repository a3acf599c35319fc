#!/usr/bin/env python3
"""Checks vigil's own addresses: usage: check_addresses.py SOURCE_ROOT

packaging/addresses.txt has them. A page, recipe or wrap file that names the host of one
names exactly one of them, and none names a placeholder that the file no longer has.
SECURITY.md has the one to report to, and says that it is a
placeholder as long as it is one (below `.example`).
"""
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
import release_files  # noqa: E402

ADDRESS = re.compile(r"https?://[^\s)\"'`>\]]+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
WORDS = "is a placeholder"
PLACEHOLDER = "vigil.example"  # a host that stays ours when addresses.txt has been filled in


def pages_of(root):
    yield from sorted(root.glob("*.md"))
    yield from sorted(root.glob("*.wrap"))
    yield from sorted((root / "docs").rglob("*.md"))
    for folder in ("packaging", "cmake", "include"):
        yield from sorted(p for p in (root / folder).rglob("*")
                          if p.is_file() and p.name != "addresses.txt" and "__pycache__" not in p.parts)


def host_of(address):
    return re.sub(r"^\w+://|^.*@", "", address).split("/")[0]


def main():
    root = Path(sys.argv[1]).resolve()
    addresses = release_files.addresses_of(root)
    # In a page a version stands where the file has @VERSION@.
    known = [re.compile(re.escape(a).replace("@VERSION@", r"(?:\d+\.\d+\.\d+|@VERSION@)"))
             for a in addresses.values()]
    hosts = {PLACEHOLDER, *(host_of(a) for a in addresses.values())}
    faults = []
    for path in pages_of(root):
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            for found in ADDRESS.findall(line):
                found = found.rstrip(".,;:")
                if host_of(found) in hosts and not any(k.fullmatch(found) for k in known):
                    faults.append(f"{path.relative_to(root)}:{number}: {found} is not in packaging/addresses.txt")
    security = " ".join(release_files.text_of(root, "SECURITY.md").split())
    if addresses["security"] not in security:
        faults.append(f"SECURITY.md: lacks {addresses['security']}")
    if (WORDS in security) != addresses["security"].endswith(".example"):
        faults.append(f"SECURITY.md: says that the address {WORDS}, and it is not, or the other way round")
    print("\n".join(faults) or "each address of vigil's own is that of packaging/addresses.txt")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
