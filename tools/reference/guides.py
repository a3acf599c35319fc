"""Which page and heading of the guide speaks of a name, and which words each page is about.

docs/reference/guides.txt says where the names of a header are explained. Further places
are those that use a name most, with a page's prose over its programs, and the guide over
the pages for those who come from elsewhere.
"""
import dataclasses
import re
from pathlib import Path

FENCE = re.compile(r"^\s*(```+|~~~+)")
INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
TABLE = "docs/reference/guides.txt"
ASKED = "docs/reference/searches.txt"


@dataclasses.dataclass
class Section:
    title: str
    anchor: str  # empty for the page's own
    prose: list = dataclasses.field(default_factory=list)
    code: list = dataclasses.field(default_factory=list)
    asked: list = dataclasses.field(default_factory=list)  # further titles, for the search

    def link(self, page):
        return f"{page}.md" + (f"#{self.anchor}" if self.anchor else "")


def anchor_of(title, taken):
    """As GitHub and MyST make it."""
    plain = re.sub(r"[`*]", "", title).strip().lower().replace(" ", "-")
    slug = unique = re.sub(r"[^\w\- ]", "", plain)
    count = 1
    while unique in taken:
        unique, count = f"{slug}-{count}", count + 1
    taken.add(unique)
    return unique


def sections(text):
    found, taken, fence = [Section("", "")], set(), None
    for line in text.split("\n"):
        m = FENCE.match(line)
        if fence is None and m:
            fence = m[1]
        elif fence is not None:
            if m and line.strip() == fence:
                fence = None
            else:
                found[-1].code.append(line)
        elif m := re.match(r"(#{1,4}) (.*)", line):
            anchor = anchor_of(m[2], taken)
            found.append(Section(m[2].strip(), anchor if len(m[1]) > 1 else ""))
        elif not line.startswith("<!--"):
            found[-1].prose.append(line)
    return [s for s in found if s.title]


def score(section, name):
    """How much of a section is about the name."""
    inner = re.escape("::".join(name.path))
    said = re.compile(rf"(?:\bvigil::|(?<![\w.:>-])){inner}(?![\w.])")
    used = re.compile(rf"\bvigil::{inner}\b" if len(name.path) == 1 else rf"(?<![\w:])(?:vigil::)?{inner}\b")
    spans = INLINE.findall("\n".join(section.prose))
    points = 2 * sum(len(said.findall(span)) for span in spans)
    points += len(used.findall("\n".join(section.code)))
    if points and name.name in re.split(r"\W+", section.title):
        points += 20
    return points


def rows(root):
    """{header or name: (page, heading)}"""
    found = {}
    path = Path(root) / TABLE
    for line in path.read_text().splitlines() if path.exists() else []:
        if line.strip() and not line.startswith("#"):
            cells = [cell.strip() for cell in line.split("|")]
            found[cells[0]] = (f"docs/guide/{cells[1]}", cells[2] if len(cells) > 2 else "")
    return found


def add_asked(root, pages):
    """Gives the sections of `pages` what the table has for them; returns the table's faults."""
    found = []
    for line in (Path(root) / ASKED).read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        page, heading, asked = (cell.strip() for cell in line.split("|"))
        section = next((s for s in pages.get(page, []) if s.title == heading), None)
        if section:
            section.asked += asked.split(", ")
        else:
            found.append(f"{ASKED}: {page} has no heading {heading}")
    return found


def faults(model):
    """Those of the table."""
    found, paths = [], {"::".join(n.path) for n in model.names}
    table = rows(model.root)
    for key, (page, heading) in table.items():
        file = model.root / f"{page}.md"
        if key not in paths and f"vigil/{key}" not in model.reader.public:
            found.append(f"{TABLE}: there is no {key}")
        elif not file.is_file():
            found.append(f"{TABLE}: {key}: there is no {page}.md")
        elif heading and heading not in [s.title for s in sections(file.read_text())]:
            found.append(f"{TABLE}: {key}: {page}.md has no heading {heading}")
    unnamed = {n.header.removeprefix("vigil/") for n in model.names} - set(table)
    return found + [f"{TABLE}: has no row {header}" for header in sorted(unnamed)]


class Guides:
    def __init__(self, root, texts):
        """`texts`: {document: text} of the pages that there are."""
        self.pages = {page: sections(text) for page, text in texts.items()}
        self.table = rows(root)

    def home(self, name):
        """The place that the table names, or None."""
        key = "::".join(name.path)
        named = key in self.table
        page, heading = self.table.get(key) or self.table.get(name.header.removeprefix("vigil/"), ("", ""))
        if page not in self.pages:
            return None
        of_page = self.pages[page]
        for section in of_page:
            if heading and section.title == heading:
                return page, section
        best = of_page[0] if named else max(of_page, key=lambda s: score(s, name))
        return page, best if score(best, name) else of_page[0]

    def places(self, name, most=3):
        """[(page, Section)], the one that explains the name first."""
        home = self.home(name)
        found = []
        for page, of_page in self.pages.items():
            best = max(of_page, key=lambda s: score(s, name))
            points = score(best, name)
            if points and not (home and page == home[0]):
                found.append(("coming-from" in page, "recipes" in page, -points, page, best))
        found.sort(key=lambda f: f[:4])
        others = [(page, section) for coming, _, _, page, section in found if not (coming and home)]
        return ([home] if home else []) + others[:most - 1 if home else most]
