#!/usr/bin/env python3
"""Checks figures quoted from docs/performance.md: usage: check_figures.py SOURCE_ROOT [--update]

A row of a table in README.md or docs/ quotes a row there if its first cell begins with a link to a
section of that page, whose text is the row's name (more may follow the link):

    |  | vigil | Asio |
    |---|---:|---:|
    | [late by, p99, µs](performance.md#how-late-a-sleep-of-1-ms-ends-idle-machine) | 108 | 115 |

Each other cell must be what the column of that name has in that row, without the spread
and the ratio below a median, and without bold. A column that the section lacks is a fault.
--update writes the figures of docs/performance.md into the tables, after it was measured anew.
"""
import re
import sys
from pathlib import Path

SOURCE = "docs/performance.md"
QUOTE = re.compile(r"^\| \[([^\]]+)\]\(([\w./-]*performance\.md)#([\w-]+)\)[^|]* \|")


def cells_of(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def figure_of(cell):
    """The median, or the text, of a cell."""
    return cell.split("<br>")[0].replace("**", "").strip()


def anchor_of(heading):
    """GitHub's."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def tables_of(text):
    """{anchor of the section: {name of a row: {name of a column: figure}}}"""
    tables, section, head, fenced = {}, "", None, False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        if fenced:
            continue
        if heading := re.match(r"#+ (.*)", line):
            section, head = anchor_of(heading[1]), None
        elif not line.startswith("|"):
            head = None
        elif head is None:
            head = cells_of(line)
        else:
            row = cells_of(line)
            tables.setdefault(section, {})[row[0]] = dict(zip(head[1:], map(figure_of, row[1:])))
    return tables


def checked(lines, tables, place_of, faults):
    """The lines with the figures of the tables."""
    head = None
    for index, line in enumerate(lines):
        if not line.startswith("|"):
            head = None
        elif head is None:
            head = cells_of(line)
        elif quote := QUOTE.match(line):
            name, _, section = quote.groups()
            place = place_of(index)
            if section not in tables or name not in tables[section]:
                faults.append(f"{place}: {SOURCE} has no row '{name}' in a section #{section}")
                yield line
                continue
            row, wanted = cells_of(line), tables[section][name]
            for column in range(1, len(row)):
                title = head[column] if column < len(head) else ""
                if title not in wanted:
                    faults.append(f"{place}: the row '{name}' there has no column '{title}'")
                elif row[column] != wanted[title]:
                    faults.append(f"{place}: '{name}', {title}: {row[column]} here, {wanted[title]} there")
                    row[column] = wanted[title]
            yield "| " + " | ".join(row) + " |"
            continue
        yield line


def main():
    root, update = Path(sys.argv[1]), "--update" in sys.argv[2:]
    tables, faults, quoted = tables_of((root / SOURCE).read_text()), [], 0
    for page in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        lines = page.read_text().splitlines()
        name = page.relative_to(root)
        new = list(checked(lines, tables, lambda i, name=name: f"{name}:{i + 1}", faults))
        quoted += sum(QUOTE.match(line) is not None for line in lines)
        if update and new != lines:
            page.write_text("\n".join(new) + "\n")
    if not quoted:
        faults.append("no page quotes a figure: README.md should")
    print("\n".join(faults) or f"{quoted} rows agree with {SOURCE}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
