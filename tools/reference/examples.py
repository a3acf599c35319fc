"""The example of each name: the shortest piece of a program that is run and uses it.

A piece is a marked region (`//! [name]` twice), a whole short program, or the function of a
longer one in which the name stands. docs/reference/examples.txt may choose another:
`name | examples/file.cpp | region`.
"""
import dataclasses
import re
import textwrap
from pathlib import Path

MARK = re.compile(r"\s*//! \[([\w-]+)\]$")
LEAST, MOST = 4, 45  # lines; a shorter piece shows nothing, a longer one hides it


@dataclasses.dataclass
class Piece:
    file: str
    region: str
    text: str
    line: int

    @property
    def lines(self):
        return len(self.text.splitlines())


def is_run(path):
    """A test compares what it prints."""
    beside = [path.with_suffix(".expected"), path.parent.with_suffix(".expected"), path.parent / "main.expected"]
    return any(p.exists() for p in beside) or any(path.parent.glob("*.expected"))


def without_marks(lines):
    return [line for line in lines if not MARK.match(line)]


def pieces_of(root):
    found = []
    for path in sorted((root / "examples").rglob("*.cpp")):
        if not is_run(path):
            continue
        file = path.relative_to(root).as_posix()
        lines = path.read_text().splitlines()
        open_marks = {}
        for i, line in enumerate(lines):
            if not (m := MARK.match(line)):
                continue
            if m[1] in open_marks:
                first = open_marks.pop(m[1])
                found.append(piece(file, m[1], lines, first + 1, i))
            else:
                open_marks[m[1]] = i
        code = next((i for i, line in enumerate(lines) if line and not line.startswith("//")), 0)
        if len(lines) - code <= MOST:
            found.append(piece(file, "", lines, code, len(lines)))
        start = None
        for i, line in enumerate(lines):
            if start is None and re.match(r"(?!namespace|#|//|\}|using)\S.*[({]$", line):
                start = i
                while start and re.match(r"(//(?!!)|template)", lines[start - 1]):
                    start -= 1
            elif start is not None and line.startswith("}"):
                found.append(piece(file, "", lines, start, i + 1))
                start = None
    return found


def piece(file, region, lines, first, end):
    text = textwrap.dedent("\n".join(without_marks(lines[first:end]))).strip("\n")
    return Piece(file, region, text, first + 1)


def uses(name, text):
    """Whether a program names it, with its namespace."""
    inner = "::".join(name.path)
    short = inner if len(name.path) > 1 else None
    return re.search(rf"\bvigil::{inner}\b", text) is not None or (
        short is not None and re.search(rf"(?<![\w:]){short}\b", text) is not None)


def rank(piece, name):
    """The less the better. A coroutine is an example of what is for coroutines only."""
    is_task = "co" in name.path or "task" in name.header
    return (piece.lines < LEAST, "co_await" in piece.text and not is_task, not piece.region, piece.lines, piece.file)


def chosen(root):
    path = root / "docs/reference/examples.txt"
    rows = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        if line.strip() and not line.startswith("#"):
            cells = [cell.strip() for cell in line.split("|")]
            rows[cells[0].removeprefix("vigil::")] = (cells[1], cells[2] if len(cells) > 2 else "")
    return rows


def find(root, names):
    """{full name: Piece}; and the faults of the table."""
    root = Path(root)
    pieces = pieces_of(root)
    table, faults, found = chosen(root), [], {}
    by_key = {(p.file, p.region): p for p in pieces if p.region}
    known = {"::".join(n.path) for n in names}
    for key, (file, region) in table.items():
        if key not in known:
            faults.append(f"docs/reference/examples.txt: there is no name {key}")
        elif region and (file, region) not in by_key:
            faults.append(f"docs/reference/examples.txt: {file} has no region {region}, or is not run")
    for name in names:
        key = "::".join(name.path)
        if (want := table.get(key)) and want in by_key:
            found[name.full] = by_key[want]
            continue
        fits = [p for p in pieces if p.lines <= MOST and uses(name, p.text)
                and (not want or p.file == want[0])]
        if fits:
            found[name.full] = min(fits, key=lambda p: rank(p, name))
    return found, faults
