#!/usr/bin/env python3
"""Checks comments and pages for faults: usage: check_comments.py SOURCE_ROOT [--show]

In src/, include/, tests/, examples/ and bench/ (comments), README.md, ARCHITECTURE.md,
CONTRIBUTING.md, SECURITY.md, UPGRADING.md and docs/ (text):

  width   a line of comment reaches past column 90 (code, also in a comment,
          may go to 100)
  heads   the comment that opens a file has more than 25 lines
  words   turns of phrase that are not English, each with the words to write instead:
          WORDS below
  names   a name of an invariant that several files of src/ and include/, or
          ARCHITECTURE.md, define

tools/allowed/*.txt says for each file how many faults are still tolerated. The numbers
may only shrink, and a file that is not listed may have none. --update writes the
numbers down when they have shrunk, or when comments have moved to another file.
--show prints every place.

The target of a reference must exist, and there is no tolerance:

  files        a file that a comment, a page or a script names, the target of a link
  invariants   T1, E1-E6: they stand in a comment, as `T1  text`, or in a table of
  ARCHITECTURE.md
"""
import re
import sys
from collections import defaultdict
from pathlib import Path

sys.dont_write_bytecode = True
import allowance  # noqa: E402

WIDTH, HEAD = 90, 25
CODE = ("src", "include", "tests", "examples", "bench")
PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "UPGRADING.md")

# Pattern -> what to write. Matched in the text of a comment or a paragraph, whose lines
# are joined by one space.
SUBJECT = r"(?:^|[.:;!?(–] ?|\b(?:for|of|by|than|with|to|and|or|but|from|on|in|if|when|while|as|"
SUBJECT += r"that|because|since|so|then|till|until|before|after|whether|is|are|tells?|says?|knows?) )"
WORDS = [
    (SUBJECT + r"[Ww]ho(?:ever|m)?\b(?! (?:is|are|was)\?)", "name the subject: the fiber that, a caller that"),
    (r"(?:^|[.;!?] )What(?:ever)? (?!is\b[^.]*\?)\w+", "name the subject: the value that, the part that"),
    (r"\b[Aa]lso (?:if|when|while|though|after|for one)\b", "even if, even when"),
    (r"\b(?:[Hh]e|[Hh]im|[Hh]is|[Hh]imself)\b", "it: a fiber or a thread"),
    (r"(?:^|[.;!?] )Of (?!course)\w+", "a noun or a verb first"),
    (r"\bone's own\b", "its own, a dedicated one"),
    (r"\bsuch (?:that|as) (?:is|are|was|were|have|has)\b", "ones that"),
    (r"\b(?:is|are|was|were) no (?:fiber|thread|worker|matter|Vigil|other's|business)\b", "is not a"),
]
# T1, T1-T3, T1 to T3.
NAME = re.compile(r"(?<![\w/.:<#–-])([A-Z]{1,2})([1-9]\d?)(?:(?:[–-]| to )(?:\1)?([1-9]\d?))?(?![\w/%])")
DEFINITIONS = (
    re.compile(r"^\s*// {1,3}([A-Z]{1,2}[1-9]\d?)  ?(?!of |to )\S", re.M),
    re.compile(r"(?<=   )([A-Z]{1,2}[1-9]\d?)  ?(?!of |to )[a-z]", re.M),  # a second column
)
ROW = re.compile(r"^\| ([A-Z][1-9]\d?) \|", re.M)
NO_NAMES = ("docs/decisions/",)  # each numbers its own lists
FILE = re.compile(
    r"(?<![\w/.*<{$-])((?:[\w-]+/)*[\w-]+\.(?:hpp|cpp|md|py|sh|json))\b(?![.\w*])(?!\))")
LINK = re.compile(r"\]\(([^)\s]+)\)")
# Other projects' files, and names that stand for any file.
ELSEWHERE = re.compile(r"^(?:boost|asio)/|^(?:a|first)\.cpp$|\brun\.json$|^compile_commands|NAME")


def comments_of(text):
    """Yields (line number, column, text) of each // comment of a C++ file."""
    for number, line in enumerate(text.splitlines(), 1):
        bare = re.sub(r'"(?:[^"\\]|\\.)*"', lambda m: "_" * len(m[0]), line)
        if (at := bare.find("//")) >= 0:
            yield number, at, line[at:]


def blocks(text):
    """Returns the paragraphs of comments: (number of the first line, text with single spaces)."""
    found, last, column = [], -9, -1
    for number, at, comment in comments_of(text):
        said = comment.lstrip("/")
        is_code = re.match(r"\s{3,}\S", said) or not said.strip()
        if found and number == last + 1 and at == column and not is_code and found[-1] is not None:
            found[-1][1] += " " + said.strip()
        elif is_code:
            found.append(None)
        else:
            found.append([number, said.strip()])
        last, column = number, at
    return [tuple(b) for b in found if b]


def paragraphs(text):
    """The same for a page, without code."""
    found, open_, fenced = [], False, False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced, open_ = not fenced, False
            continue
        said = line.strip()
        if fenced or not said:
            open_ = False
        elif open_ and not said.startswith(("|", "#", "- ", "* ", "<!--")):
            found[-1][1] += " " + said
        elif not said.startswith("#"):
            said = re.sub(r"^(?:\||[-*]) *", "", said)
            for cell in said.split(" | "):
                found.append([number, cell])
            open_ = not line.startswith("|")
        else:
            open_ = False
    return [(n, re.sub(r"`[^`]*`|“[^”]*”|\"[^\"]*\"", "`", t)) for n, t in found]


def head_length(text):
    length = 0
    for line in text.splitlines():
        if line.startswith("//"):
            length += 1
        elif not (line.startswith("#pragma once") and length == 0):
            break
    return length


def anchors(text):
    """The anchors that GitHub makes for the headings of a page."""
    heads = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in heads}


def missing_files(root, name, lines, files, texts):
    """`lines`: (number, text)."""
    for number, line in lines:
        for m in FILE.finditer(line):
            if not ELSEWHERE.search(m[1]) and not any(f == m[1] or f.endswith("/" + m[1]) for f in files):
                yield f"{name}:{number}: there is no {m[1]}"
        if not name.endswith(".md"):
            continue
        for m in LINK.finditer(line):
            path, _, anchor = m[1].partition("#")
            if "://" in path:
                continue
            target = (root / name).parent / path if path else root / name
            if not target.exists():
                yield f"{name}:{number}: the link leads nowhere: {m[1]}"
            elif anchor and anchor not in anchors(target.read_text()):
                yield f"{name}:{number}: no heading for the link {m[1]}"


def named(text):
    for m in NAME.finditer(text):
        first, last = int(m[2]), int(m[3] or m[2])
        for number in range(first, last + 1) if first <= last < first + 20 else (first,):
            yield f"{m[1]}{number}"


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    root = Path(sys.argv[1])
    code = sorted(p for folder in CODE for p in (root / folder).rglob("*") if p.suffix in (".cpp", ".hpp"))
    pages = [root / p for p in PAGES] + sorted((root / "docs").rglob("*.md"))
    scripts = sorted(p for f in (*CODE, "tools") for p in (root / f).rglob("*")
                     if p.name == "meson.build" or p.suffix in (".py", ".sh"))
    files = {p.name for p in root.iterdir() if p.is_file()}
    for folder in root.iterdir():
        if folder.is_dir() and not folder.name.startswith((".git", "build", "subprojects")):
            files |= {p.relative_to(root).as_posix() for p in folder.rglob("*") if p.is_file()}
    found = {kind: defaultdict(list) for kind in ("width", "heads", "words", "names")}
    defined = defaultdict(set)
    texts = {}
    for path in code + pages:
        name = path.relative_to(root).as_posix()
        text = texts[name] = path.read_text()
        is_page = path.suffix == ".md"
        if not is_page:
            for number, at, comment in comments_of(text):
                is_alone = not text.splitlines()[number - 1][:at].strip()
                is_code = re.match(r"//\s{3,}\S", comment) is not None
                if is_alone and not is_code and at + len(comment) > WIDTH and "://" not in comment:
                    found["width"][name].append(f"{name}:{number}")
            if head_length(text) > HEAD:
                found["heads"][name] = [f"{name}:1"] * head_length(text)
            for pattern in DEFINITIONS:
                for m in pattern.finditer(text):
                    defined[m[1]].add(name)
        else:
            for m in ROW.finditer(text):
                defined[m[1]].add(name)
        for number, said in paragraphs(text) if is_page else blocks(text):
            for pattern, advice in WORDS:
                for m in re.finditer(pattern, said):
                    near = said[max(0, m.start() - 10) : m.end() + 30]
                    found["words"][name].append(f"{name}:{number}: “{near}”: {advice}")
    for key, places in defined.items():
        homes = sorted(p for p in places if p.startswith(("src/", "include/", "ARCHITECTURE")))
        if len(homes) > 1:
            found["names"][key] = homes

    faults = []
    for kind, places in found.items():
        counts = {name: len(p) for name, p in places.items()}
        faults += allowance.judge(
            kind, counts, None if kind == "heads" else places, kind in ("heads", "words"))
        if "--show" in sys.argv:
            print("\n".join(p for all_ in places.values() for p in (all_[:1] if kind == "heads" else all_)))
    for name, text in texts.items():
        is_code = not name.endswith(".md")
        lines = list(enumerate(text.splitlines(), 1))
        if is_code:
            lines = [(number, comment) for number, _, comment in comments_of(text)]
        faults += missing_files(root, name, lines, files, texts)
        if name.startswith(NO_NAMES):
            continue
        for number, line in lines:
            faults += [f"{name}:{number}: {n} is defined nowhere"
                       for n in named(line) if n not in defined]
    for path in scripts:
        lines = [(n, line) for n, line in enumerate(path.read_text().splitlines(), 1) if "#" in line]
        name = path.relative_to(root).as_posix()
        faults += missing_files(root, name, [(n, line[line.index("#") :]) for n, line in lines], files, texts)
    print("\n".join(faults) or "comments and pages are as they should be")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
