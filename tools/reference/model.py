"""All that a page says of a name, and which of its parts are missing."""
import re
from pathlib import Path

import comments
import examples
import headers

ELSEWHERE = ["Go", "Node", "Asio", "Tokio"]
# The parts of a class or a function; of other names only the contract is asked for.
PARTS = ["contract", "throws", "thread safety", "lifetime", "shutdown", "cost", "example", "elsewhere"]
MARKED = {"throws": "Throws", "thread safety": "Thread safety", "lifetime": "Lifetime",
          "shutdown": "Shutdown", "cost": "Cost"}


def takes_values(text):
    """Whether a function takes no reference but to a context, which it keeps, and gives none."""
    text = re.sub(r"const (context|Time|D)&", "", text)
    return not re.search(r"[&*]|string_view|\bF\b|\bauto\b|<class", text)


class Model:
    def __init__(self, root):
        self.root = Path(root).resolve()
        self.reader = headers.Reader(self.root)
        self.names = self.reader.read()
        self.by_path = {"::".join(n.path): n for n in self.names}
        self.examples, self.faults = examples.find(self.root, self.names)
        self.elsewhere = self.read_elsewhere()

    is_part = False

    def keep_only(self, paths):
        """For a site of few pages."""
        self.is_part = True
        self.names = [n for n in self.names if "::".join(n.path) in paths]
        self.by_path = {"::".join(n.path): n for n in self.names}
        self.elsewhere = {key: row for key, row in self.elsewhere.items() if key in self.by_path}
        self.reader.public = [h for h in self.reader.public if any(n.header == h for n in self.names)]

    def read_elsewhere(self):
        path = self.root / "docs/reference/names.txt"
        rows = {}
        for number, line in enumerate(path.read_text().splitlines() if path.exists() else [], 1):
            if not line.strip() or line.startswith("#"):
                continue
            cells = [cell.strip() for cell in re.split(r" \| |\|(?=\s|$)", line)]
            key = cells[0].strip("`").removeprefix("vigil::")
            if key == "name":
                continue
            if key not in self.by_path:
                # A member has a row of its own, which its class's page shows.
                owner, _, member = key.rpartition("::")
                if owner not in self.by_path or not any(m.name == member for m in self.by_path[owner].members):
                    self.faults.append(f"docs/reference/names.txt:{number}: there is no name {key}")
                    continue
            if len(cells) != 1 + len(ELSEWHERE):
                self.faults.append(f"docs/reference/names.txt:{number}: {len(cells)} cells, not 5")
                continue
            rows[key] = {place: "" if cell in ("-", "–", "—", "") else cell
                         for place, cell in zip(ELSEWHERE, cells[1:])}
        return rows

    # --- what is there

    def all_parts(self, name):
        """{label: [text]} of the name, its overloads and what the head says of it."""
        found = {}
        for said in [name.said, *(f.said for f in name.forms), name.head]:
            for label, texts in (said.parts if said else {}).items():
                for text in texts:
                    if text not in found.setdefault(label, []):
                        found[label].append(text)
        return found

    def has(self, name):
        """The parts that it has, as a set of PARTS."""
        own = self.all_parts(name)
        of_members = {label for m in name.members for f in m.forms for label in f.said.parts}
        said = [name.said, *(f.said for f in name.forms)]
        has = {"contract"} if any(s and s.contract for s in said) else set()
        for part, label in MARKED.items():
            if label in own or label in of_members:
                has.add(part)
        functions = [f for m in name.members if m.kind == "function" for f in m.forms]
        functions += name.forms if name.kind == "function" else []
        if functions and all(f.is_noexcept for f in functions):
            has.add("throws")
        if name.full in self.examples:
            has.add("example")
        if "::".join(name.path) in self.elsewhere:
            has.add("elsewhere")
        return has

    def wanted(self, name):
        """Those of PARTS that a reader would look for. What throws nothing never waits, and a
        shutdown changes nothing for it. What takes and gives only values has no lifetime."""
        functions = [f for m in name.members if m.kind == "function" for f in m.forms]
        functions += name.forms if name.kind == "function" else []
        is_tag = all(m.name == name.name for m in name.members)
        is_described = name.kind == "function" or (
            name.kind == "class" and not name.is_data and not name.is_exception and not is_tag)
        if not is_described:
            return ["contract"]
        never_throws = all(f.is_noexcept for f in functions)
        has = self.has(name)
        unasked = set()
        if never_throws:
            unasked.add("shutdown")
        if never_throws if name.kind == "class" else all(takes_values(f.text) for f in functions):
            unasked.add("lifetime")
        return [p for p in PARTS if p not in unasked or p in has]

    def missing(self):
        """{full name: [part]}"""
        return {n.full: lacks for n in self.names
                if (lacks := [p for p in self.wanted(n) if p not in self.has(n)])}
