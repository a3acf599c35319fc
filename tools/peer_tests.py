#!/usr/bin/env python3
"""Lists tests of Go, Node, libuv and Asio with a counterpart here: peer_tests.py SOURCE_ROOT

Prints a table: a test or a known flaw of a peer, and the cases that check the same. A
case names the peer's test in the comment above its title:

    // Go: TestSleep. Node, libuv: durations that are not whole ms.
    TEST_CASE("a thousand sleepers at random deadlines each end at exactly theirs") {
"""
import re
import sys
from collections import defaultdict
from pathlib import Path

PEERS = ("Go", "Node, libuv", "Asio")
CASE = re.compile(
    r'((?:^[ \t]*// ?\S.*\n)+)[ \t]*TEST_CASE(?:_TEMPLATE(?:_DEFINE)?)?\(\s*((?:"(?:[^"\\]|\\.)*"\s*)+)',
    re.M)
NAMED = re.compile(rf"(?:^|\. )({'|'.join(PEERS)}): (.*?)(?=\.$|\. (?:{'|'.join(PEERS)}): )")


def main():
    root = Path(sys.argv[1])
    found = {peer: defaultdict(list) for peer in PEERS}
    for path in sorted((root / "tests").rglob("*.[ch]pp")):
        name = path.relative_to(root / "tests").with_suffix("").as_posix()
        for comment, literals in CASE.findall(path.read_text()):
            said = " ".join(line.strip().lstrip("/ ") for line in comment.strip().splitlines())
            title = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', literals))
            for peer, rows in NAMED.findall(said):
                for row in rows.split("; "):
                    found[peer][row].append(f"{name}: “{title}”")
    for peer in PEERS:
        print(f"## {peer}\n\n| There | Here |\n|---|---|")
        for row, cases in sorted(found[peer].items()):
            print(f"| {row} | {'<br>'.join(cases)} |")
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
