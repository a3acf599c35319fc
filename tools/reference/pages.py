"""The pages of the reference, as Markdown for Sphinx."""
import re

import comments
import model as models
import words
from headers import library_of
from words import header_label, label

FOLDER = "reference"
LIBRARIES = {
    "vigil": "vigil: fibers, channels, timers, contexts",
    "vigil-io": "vigil-io: Asio on fibers",
    "vigil-tls": "vigil-tls: TLS",
    "vigil-inspect": "vigil-inspect: looking inside",
    "vigil-inspect-page": "vigil-inspect-page: the live page",
    "vigil-lock-check": "vigil-lock-check: locks held across waits",
}
KINDS = {"class": "Class", "function": "Function", "alias": "Alias", "value": "Constant",
         "concept": "Concept", "enumeration": "Enumeration"}
OF_FIBERS = {  # what a fiber calls where a coroutine awaits
    "co::recv": ["channel::recv"],
    "co::recv_for": ["channel::recv_for"],
    "co::send": ["channel::send"],
    "co::send_for": ["channel::send_for"],
    "co::join": ["fiber::join"],
    "co::join_for": ["fiber::join_for"],
    "co::lock": ["mutex::lock"],
    "co::lock_shared": ["shared_mutex::lock_shared"],
    "co::acquire": ["semaphore::acquire"],
    "co::wait": ["wait_group::wait"],
    "co::next": ["group_of::next"],
    "co::done": ["on_done"],
    "io::co::read_some": ["io::use_fiber"],
    "io::co::write_some": ["io::use_fiber"],
    "io::co::write": ["io::use_fiber"],
}

HOW_TO_READ = """
## How to read a page

A page has the declarations as you would call them, not letter for letter. `Duration` stands
for any duration of `std::chrono`, of integers or of floating point; a number without a unit
is refused. `Time` is a time point of `vigil::clock`, `std::chrono::steady_clock` or
`std::chrono::system_clock`. What constrains a template for the compiler's sake is left out,
and so is a last parameter that notes the line of the call for dumps. Attributes such as
`[[nodiscard]]` are not shown. What receives from a channel returns `std::optional<T>`, and a
`bool` where `T` is `void`.

*Throws* names what the call itself throws; that memory may run out is said only where it
matters. What a class says of threads, lifetimes and the shutdown holds for its members too.
"""


class Pages:
    def __init__(self, model, source_link, guides):
        """`source_link(from_document, path)` is the link to a source file's page; `guides`:
        the guides.Guides."""
        self.model = model
        self.words = words.Writer(model)
        self.source_link = source_link
        self.guides = guides
        self.files = {}  # {document: text}
        self.objects = []  # for the search: (name, kind, document, label)

    def build(self):
        for name in self.model.names:
            self.files[document(name)] = self.page(name)
        by_header = {header: [] for header in self.model.reader.public if header != "vigil/fwd.hpp"}
        for name in self.model.names:
            by_header[name.header].append(name)
        for header, names in by_header.items():
            self.files[header_document(header)] = self.header_page(header, names)
        self.files[f"{FOLDER}/index"] = self.index(by_header)
        self.files[f"{FOLDER}/alphabetical"] = self.alphabetical()
        self.files[f"{FOLDER}/elsewhere"] = self.elsewhere()
        return self.files

    # --- one name

    def page(self, name):
        doc = document(name)
        shown = "::".join(name.path)
        # Not in the tree of the sidebar, which each page of the site contains.
        out = ["---\norphan: true\n---", f"({label(name)})=", f"# {plain(shown)}", self.meta(name, doc)]
        seen = set()
        if name.kind == "function":
            out += self.forms(name, name.forms, seen)
        else:
            out += [code("\n\n".join(f.text for f in name.forms))]
            out += self.said(name.said, name, seen)
        head = name.head
        own = bool(name.said and name.said.contract or any(f.said.contract for f in name.forms))
        if not own and head.contract:
            out.append(self.words.said(head, name))
        out += self.parts(head.parts, name, seen)
        if name.bases:
            out.append("Derived from " + ", ".join(self.words.code(b, name) for b in name.bases) + ".")
        if name.facts:
            out.append(f"Objects\n: {name.facts}")
        out += self.elsewhere_of(name)
        out += self.contents(name)
        out += self.example(name, doc)
        if name.kind == "enumeration":
            out += self.enumerators(name)
        else:
            out += self.members(name)
        out += self.see_also(name, doc)
        return "\n\n".join(x for x in out if x) + "\n"

    def meta(self, name, doc):
        where = relative(doc, header_document(name.header))
        return (f"{KINDS[name.kind]} in [`<{name.header}>`]({where}.md) · "
                f"[declaration]({self.source_link(doc, 'include/' + self.place(name))}) · "
                f"library `{name.library}`")

    def place(self, name):
        return name.header

    def forms(self, name, forms, seen):
        """Overloads, each run of them below a comment."""
        out, runs = [], []
        for form in forms:
            if form.is_plain and runs and runs[-1][0].header == form.header:
                runs[-1].append(form)
            else:
                runs.append([form])
        for run in runs:
            text = "\n".join(f.text for f in run)
            if len(run) > 1 and any("\n" in f.text for f in run):
                text = "\n\n".join(f.text for f in run)
            if run[0].header != name.header and name.kind == "function" and "/detail/" not in run[0].header:
                text = f"// <{run[0].header}>\n{text}"
            out.append(code(text))
            out += self.said(run[0].said, name, seen)
        return out

    def said(self, said, name, seen):
        return [self.words.said(said, name)] + self.parts(said.parts, name, seen)

    def parts(self, parts, name, seen):
        rows = []
        for key, shown in comments.LABELS.items():
            said = self.model.elsewhere.get("::".join(name.path), {}).get(key, "")
            texts = [t for t in parts.get(key, []) if (key, t) not in seen and t.rstrip(".") != said]
            seen.update((key, t) for t in texts)
            if texts:
                is_name = key in models.ELSEWHERE
                text = " ".join(self.foreign(t.rstrip(".")) if is_name and len(t.split()) < 4 else
                                self.words.rich(self.words.begun(t, name), name, throws=key == "Throws") for t in texts)
                rows.append(f"{shown}\n: {text}")
        return ["\n\n".join(rows)] if rows else []

    def contents(self, name):
        """Links to the members of a class."""
        shown = dict.fromkeys(m.name for m in name.members if m.kind != "enumerator")
        if len(shown) < 4:
            return []
        links = [f"[`{'constructor' if m == name.name else m}`]({label(name, m)})" for m in shown]
        return [("Fields" if name.is_data else "Members") + "\n: " + " · ".join(links)]

    def example(self, name, doc):
        piece = self.model.examples.get(name.full)
        if not piece:
            return []
        link = self.source_link(doc, piece.file)
        return [f"**Example**, from [{piece.file}]({link}), which is run as a test:", code(piece.text)]

    def elsewhere_of(self, name):
        key = "::".join(name.path)
        rows = [(k, row) for k, row in self.model.elsewhere.items()
                if k == key or k.rpartition("::")[0] == key and k not in self.model.by_path]
        rows = [(k, row) for k, row in rows if any(row.values())]
        if not rows:
            return []
        out = []
        for k, row in rows:
            calls = [f"{place} {self.foreign(text)}" for place, text in row.items() if text]
            what = "Elsewhere" if k == key else f"`{k.rpartition('::')[2]}` elsewhere"
            out.append(f"{what}\n: " + "; ".join(calls))
        return ["\n\n".join(out)]

    def foreign(self, text):
        """Names of other libraries are code, what is said of them is not."""
        if "`" in text:
            return self.words.rich(text)
        parts = [text] if re.search(r"<-|:=", text) else re.split(r"(, | or | and |; )", text)
        return "".join(p if i % 2 else f"`{p}`" if is_code(p) else self.words.rich(p)
                       for i, p in enumerate(parts))

    def enumerators(self, name):
        rows = ["| Value | |", "|---|---|"]
        for m in name.members:
            form = m.forms[0]
            text = " ".join(self.words.said(form.said, name).split())
            for key, texts in form.said.parts.items():
                text += f" {key}: " + " ".join(self.words.rich(t, name) for t in texts)
            rows.append(f"| `{m.name}` | {text} |")
            self.objects.append((f"{name.full}::{m.name}", "enumerator", document(name), label(name)))
        return ["\n".join(rows)]

    def members(self, name):
        groups, others = [], []
        for m in name.members:
            form = m.forms[0]
            is_plain = all(f.is_plain for f in m.forms)
            last = groups[-1] if groups else None
            near = last and last[0].forms[0].header == form.header and (
                form.line == last[-1].forms[-1].line + len(last[-1].forms[-1].text.splitlines())
                and last[0].kind in ("field", "value", "type")
                or comments.names_it(last[0].forms[0].said.text(), m.name, False))
            if not is_plain:
                groups.append([m])
            elif near and not others_since(others, last):
                last.append(m)
            else:
                others.append(m)
        out = []
        if groups:
            out.append("## " + ("Fields" if name.is_data else "Members"))
        for group in groups:
            out += self.member_section(name, group)
        if others:
            out.append("## Other members" if groups else "## Members")
            if len(groups):
                pass
            for m in others:
                out.append(f"({label(name, m.name)})=")
                self.objects.append((f"{name.full}::{m.name}", m.kind, document(name), label(name, m.name)))
                out.append(code("\n".join(f.text for f in m.forms)))
        return out

    def member_section(self, name, group):
        out = []
        for m in group:
            out.append(f"({label(name, m.name)})=")
            self.objects.append((f"{name.full}::{m.name}", m.kind, document(name), label(name, m.name)))
        titles = [title(m, name) for m in group]
        out.append("### " + ", ".join(dict.fromkeys(titles)))
        seen = set()
        first = group[0]
        if len(group) > 1:
            text = "\n".join(f.text for m in group for f in m.forms)
            out.append(code(text))
            for m in group:
                for f in m.forms:
                    out += self.said(f.said, name, seen)
        else:
            out += self.forms(name_like(name, first), first.forms, seen)
        return out

    def see_also(self, name, doc):
        links = []
        for page, section in self.guides.places(name):
            title = self.guides.pages[page][0].title
            shown = f"{title}: {section.title}" if section.anchor else title
            links.append(f"[{shown}]({relative(doc, section.link(page))})")
        return ["**In the guide**: " + " · ".join(links)] if links else []

    # --- lists

    def line(self, name):
        """What the name is, in a sentence."""
        for said in [name.said, *(f.said for f in name.forms)]:
            if said and said.contract:
                text = said.first_sentence()
                text = self.words.rich(self.words.begun(text, name), name).replace("\n", " ").rstrip(":")
                return text if text.endswith((".", "?", "!")) else text + "."
        return ""

    def table(self, names, doc):
        rows = ["| | |", "|---|---|"]
        for name in names:
            rows.append(f"| [`{'::'.join(name.path)}`]({label(name)}) | {self.line(name)} |")
        return "\n".join(rows)

    def header_page(self, header, names):
        doc = header_document(header)
        head = self.model.reader.head(header)
        out = [f"({header_label(header)})=", f"# {plain(header)}",
               f"Library `{library_of(header)}` · [the header]({self.source_link(doc, 'include/' + header)})"]
        out += [self.words.said(head)] + self.parts_of_head(head)
        if names:
            out += ["## Names", self.table(names, doc)]
        out += self.macros(header)
        return "\n\n".join(out) + "\n"

    def macros(self, header):
        """Those that have a comment."""
        out, lines = [], self.model.reader.lines(header)
        for number, line in enumerate(lines, 1):
            if (m := re.match(r"#define (VIGIL_\w+)(\(.*?\))?", line)) and (said := comments.above(lines, number)):
                out += [f"### `{m[1]}{m[2] or ''}`", self.words.said(comments.parse(said))]
        return ["## Macros"] + out if out else []

    def parts_of_head(self, head):
        rows = []
        for key, shown in comments.LABELS.items():
            if texts := head.parts.get(key):
                rows.append(f"{shown}\n: " + " ".join(self.words.rich(t, throws=key == "Throws") for t in texts))
        return ["\n\n".join(rows)] if rows else []

    def index(self, by_header):
        doc = f"{FOLDER}/index"
        out = ["# Names by header",
               f"The reference has {len(self.model.names)} names. They stand here by header, in another "
               "list [from A to Z](alphabetical.md), and once more [by what you know](elsewhere.md) from Go, "
               "Node, Asio or Tokio."]
        for library, heading in LIBRARIES.items():
            headers = [h for h in by_header if library_of(h) == library]
            if not headers:
                continue
            out.append(f"## {heading}")
            rows = ["| Header | Names |", "|---|---|"]
            for header in headers:
                names = ", ".join(f"[`{'::'.join(n.path)}`]({label(n)})" for n in by_header[header])
                names = names or "all of its headers" * (header in ("vigil/vigil.hpp", "vigil/io.hpp"))
                rows.append(f"| [`{header.removeprefix('vigil/')}`]({header_label(header)}) | {names} |")
            out.append("\n".join(rows))
        out.append(HOW_TO_READ)
        out.append(toctree([relative(doc, header_document(h)) for h in by_header]))
        return "\n\n".join(out) + "\n"

    def alphabetical(self):
        out = ["# Names from A to Z"]
        by_letter = {}
        for name in sorted(self.model.names, key=lambda n: (n.name.lower(), n.path)):
            by_letter.setdefault(name.name[0].upper(), []).append(name)
        for letter, names in by_letter.items():
            out += [f"## {letter}", self.table(names, f"{FOLDER}/alphabetical")]
        return "\n\n".join(out) + "\n"

    def with_calls(self, keys):
        """The call of a fiber stands before that of a coroutine, which may have the only row."""
        found = []
        for key in keys:
            if "co::" in key:
                found += [call for call in OF_FIBERS.get(key, ()) if self.words.target(call)]
        return list(dict.fromkeys(found + [k for k in keys if "co::" not in k] + [k for k in keys if "co::" in k]))

    def elsewhere(self):
        out = ["# Names by what you know",
               "What vigil calls the things that you know by another name. The coming-from pages say "
               "where they behave differently: [Go](../docs/coming-from-go.md), "
               "[Node](../docs/coming-from-node.md), [Asio](../docs/coming-from-asio.md)."]
        for place in models.ELSEWHERE:
            by_text = {}
            for key, row in self.model.elsewhere.items():
                if row[place]:
                    by_text.setdefault(row[place], []).append(key)
            if not by_text:
                continue
            rows = [f"| {place} | vigil |", "|---|---|"]
            for text in sorted(by_text, key=lambda t: t.lower().strip("`")):
                names = ", ".join(self.words.code(key) for key in self.with_calls(by_text[text]))
                rows.append(f"| {self.foreign(text)} | {names} |")
            out += [f"## {place}", "\n".join(rows)]
        return "\n\n".join(out) + "\n"


def others_since(others, last):
    """Whether something without a comment came between."""
    return bool(others) and others[-1].forms[0].line > last[0].forms[0].line and \
        others[-1].forms[0].header == last[0].forms[0].header


def name_like(name, member):
    return name


def title(m, name):
    if m.kind == "function":
        if m.name == name.name:
            return "Constructors" if len(m.forms) > 1 else "Constructor"
        if m.name.startswith("~"):
            return "Destructor"
        return f"`{m.name}`" if m.name.startswith("operator") else f"`{m.name}()`"
    return f"`{m.name}`"


def is_code(text):
    """Whether a user of another library writes it so."""
    return re.search(r"<-|:=|^\S+$|^\S+\(.*\)$", text) is not None or \
        (text.count(" ") == 1 and re.search(r"[(<]|^chan ", text) is not None)


def plain(text):
    """As a title: in code type the search would show it twice."""
    return words.ESCAPED.sub(r"\\\1", text)


def code(text):
    return f"```cpp\n{text}\n```"


def toctree(documents):
    return "```{toctree}\n:hidden:\n\n" + "\n".join(documents) + "\n```"


def document(name):
    return f"{FOLDER}/{'/'.join(name.path)}"


def header_document(header):
    return f"{FOLDER}/headers/{header.removeprefix('vigil/').removesuffix('.hpp')}"


def relative(doc, other):
    here, there = doc.split("/")[:-1], other.split("/")
    same = 0
    while same < min(len(here), len(there) - 1) and here[same] == there[same]:
        same += 1
    return "/".join([".."] * (len(here) - same) + there[same:])
