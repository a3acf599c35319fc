#!/usr/bin/env python3
"""Checks that the code that a page names exists: usage: check_code_names.py SOURCE_ROOT [--show]

Looks at code in `backquotes` in README.md, ARCHITECTURE.md, docs/internals/ and
docs/decisions/:

  words        a name with an underscore stands somewhere in the code, the build files or
               the tools
  qualified    for `a::b`, the code has a::b, or a file that defines a has b as well

Names of other projects and of the system are not looked for: ELSEWHERE, and for the
pages that compare vigil with a peer, or speak of a rejected design, the words of
tools/allowed/code_names.txt, `PAGE  NAME` a line. --show prints every name that is looked for.
"""
import re
import sys
from collections import defaultdict
from pathlib import Path

sys.dont_write_bytecode = True

CODE = ("src", "include", "tests", "examples", "bench", "tools")
OTHERS = ("CMakeLists.txt", "meson.build", "meson_options.txt", "dev", "cmake/vigil-config.cmake.in")
SUFFIXES = {".cpp", ".hpp", ".py", ".sh", ".build", ".in", ".go", ".rs", ".js", ".txt"}
PAGES = ("README.md", "ARCHITECTURE.md", "docs/internals", "docs/decisions")
ALLOWED = Path(__file__).resolve().parent / "allowed" / "code_names.txt"

ELSEWHERE = re.compile(r"^(?:std|boost|asio|ssl|beast|tokio|folly|uv|runtime|time|sync|libuv)(?:::|\.|_)|"
                       r"^_Z|^__|^pthread_|^clock_|^futex_|^io_uring")
SPAN = re.compile(r"`([^`\n]+)`")
QUALIFIED = re.compile(r"(?<![\w:])~?[A-Za-z_]\w*(?:::~?[A-Za-z_]\w*)+")
WORD = re.compile(r"(?<![\w:./-])[a-z][a-z0-9]*(?:_[a-z0-9]+)*_?(?![\w:/-])(?!\.\w)")
HOME = re.compile(r"\b(?:class|struct|union|enum(?: class)?)"
                  r"(?:\s+VIGIL_\w+(?:\([^)]*\))?|\s*\[\[\w+\]\]|\s+alignas\([^)]*\))*\s+(?:\w+::)*([a-z]\w*)[^;{(]*\{")
ALIAS = re.compile(r"\busing ([a-z]\w*) = (?:\w+::)*([a-z]\w*)")
NAMESPACE = re.compile(r"\bnamespace ([\w: ]+) *(?:\{|=)")
PAIR = re.compile(r"\b([a-z]\w*)(?:<[^<>]*>)?::~?([a-z]\w*)")
TOKEN = re.compile(r"[A-Za-z_]\w*")


def pages_of(root):
    for place in PAGES:
        path = root / place
        yield from [path] if path.is_file() else sorted(path.rglob("*.md"))


def read_code(root):
    """Returns the files of each word, the files that define each scope, and the pairs a::b."""
    files = [root / name for name in OTHERS if (root / name).exists()]
    files += [p for folder in CODE for p in sorted((root / folder).rglob("*"))
              if p.suffix in SUFFIXES and p.is_file() and "allowed" not in p.parts]
    where, homes, pairs, aliases, namespaces = defaultdict(set), defaultdict(set), set(), set(), set()
    for path in files:
        text = path.read_text(errors="replace")
        if path.suffix in (".cpp", ".hpp"):
            text = re.sub(r"//.*", "", text)
        for word in set(TOKEN.findall(text)):
            where[word].add(path)
        for m in HOME.finditer(text):
            homes[m[1]].add(path)
        for m in PAIR.finditer(text):
            pairs.add((m[1], m[2]))
        aliases |= {(m[1], m[2]) for m in ALIAS.finditer(text)}
        for m in NAMESPACE.finditer(text):
            namespaces |= set(TOKEN.findall(m[1]))
    for name, other in aliases:
        homes[name] |= homes[other]
    for name in namespaces:  # too large for "has b as well" to mean anything else
        homes[name] = set().union(*where.values())
    return where, homes, pairs


def names_in(text):
    """Yields (line number, name) of the code that a page names."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        if fenced:
            continue
        for span in SPAN.findall(line):
            rest = span
            for m in QUALIFIED.finditer(span):
                yield number, m[0]
                rest = rest.replace(m[0], " ")
            for m in WORD.finditer(rest):
                if "_" in m[0]:
                    yield number, m[0]


def exists(name, where, homes, pairs):
    parts = [p.lstrip("~") for p in name.split("::")]
    if any(p not in where for p in parts):
        return False
    return all((a, b) in pairs or homes[a] & where[b] for a, b in zip(parts, parts[1:]))


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    root = Path(sys.argv[1])
    where, homes, pairs = read_code(root)
    allowed = set()
    if ALLOWED.exists():
        lines = ALLOWED.read_text().splitlines()
        allowed = {tuple(line.split()) for line in lines if line and not line.startswith("#")}
    faults, used = [], set()
    for path in pages_of(root):
        page = path.relative_to(root).as_posix()
        for number, name in names_in(path.read_text()):
            if ELSEWHERE.search(name):
                continue
            if "--show" in sys.argv:
                print(f"{page}:{number}: {name}")
            if exists(name, where, homes, pairs):
                continue
            if (page, name) in allowed:
                used.add((page, name))
            else:
                faults.append(f"{page}:{number}: the code has no {name}")
    faults += [f"tools/allowed/code_names.txt: not needed: {page} {name}"
               for page, name in sorted(allowed - used)]
    print("\n".join(faults) or "the code that the pages name exists")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
