"""The site's source for Sphinx: the guides with their links mended, the reference, and a page
for each source file that one of them links."""
import os
import re
from pathlib import Path

import guides
import pages
import repository

FENCE = re.compile(r"^\s*(```+|~~~+)")
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\((<[^>]+>|[^()\s]+(?:\([^()]*\))?)\)")
IMAGE = re.compile(r"(<img\b[^>]*?\bsrc=\")([^\"]+)(\")|(<source\b[^>]*?\bsrcset=\")([^\"]+)(\")")
# The space in `5 032`, at which a line does not break; a heading's is in its anchor.
NUMBER = re.compile(r"(?<=\d) (?=\d{3}\b)")
LANGUAGES = {".cpp": "cpp", ".hpp": "cpp", ".h": "cpp", ".py": "python", ".sh": "bash", ".json": "json",
             ".go": "go", ".rs": "rust", ".js": "js"}
BASIC = ("first-steps", "installing", "recipes", "fibers", "time", "channels", "contexts", "sync", "lifetimes",
         "errors", "testing", "coroutines", "clocks", "timeout-lists", "io", "servers", "tls", "io-select",
         "io-contexts", "existing-asio", "embedding")
SEARCHED = re.compile(r"README\.md$|docs/(guide/)?[^/]+$")  # page by page, by search_words


class Site:
    def __init__(self, root, out, is_part=False):
        self.root, self.out = Path(root).resolve(), Path(out).resolve()
        self.is_part = is_part
        self.sources = {}  # {path: document}
        self.faults = []
        self.written = set()

    # --- files

    def write(self, document, text):
        path = self.out / f"{document}.md"
        self.written.add(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)

    def copy(self, path):
        target = self.out / path
        self.written.add(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        data = (self.root / path).read_bytes()
        if not target.exists() or target.read_bytes() != data:
            target.write_bytes(data)

    def remove_others(self):
        for path in self.out.rglob("*"):
            if path.is_file() and path not in self.written:
                path.unlink()

    # --- pages of the tree

    def markdown(self):
        """The tree's pages, as paths."""
        found = [p for p in self.root.glob("*.md")] + sorted((self.root / "docs").rglob("*.md"))
        names = sorted(p.relative_to(self.root).as_posix() for p in found)
        return [n for n in names if SEARCHED.match(n) or n == "ARCHITECTURE.md"] if self.is_part else names

    def document(self, path):
        return "index" if path == "README.md" else path.removesuffix(".md")

    def source_document(self, path):
        """The document that shows a file, or lists a folder, of the tree."""
        if path not in self.sources:
            self.sources[path] = f"sources/{path or 'tree'}"
        return self.sources[path]

    def source_link(self, document, path):
        return pages.relative(document, self.source_document(path)) + ".md"

    def resolve(self, page, target):
        """A link of a page of the tree, as one between the site's documents."""
        target = target.strip("<>")
        if re.match(r"[a-z][a-z+.-]*:", target) or target.startswith("#"):
            return target
        file, _, anchor = target.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(page), file))
        path = "" if path == "." else path
        here = self.document(page)
        if path.startswith("..") or not (self.root / path).exists():
            self.faults.append(f"{page}: the link leads nowhere: {target}")
            return target
        if path.endswith(".md") and path in self.pages:
            return pages.relative(here, self.document(path)) + ".md" + (f"#{anchor}" if anchor else "")
        if (self.root / path).is_file() and Path(path).suffix in (".png", ".svg", ".jpg"):
            self.copy(path)
            return pages.relative(here, path)
        return self.source_link(here, path)

    def mended(self, page):
        """The page's text, with links that lead to documents of the site."""
        def link(m):
            shown = f"{m[1]}[{m[2]}]({self.resolve(page, m[3])})"
            about = re.sub(r"\.\w+$", ".md", m[3])
            # The picture of another page leads to it.
            if m[1] and about in self.pages and page != about:
                return f"[{shown}]({self.resolve(page, about)})"
            return shown

        def image(m):
            before, target, after = (m[1], m[2], m[3]) if m[1] else (m[4], m[5], m[6])
            return before + self.resolve(page, target) + after

        out, fence = [], None
        text = (self.root / page).read_text()
        pieces, plain = [], []
        for line in text.split("\n"):
            m = FENCE.match(line)
            if fence is None and m:
                pieces += [("text", plain), ("code", [])]
                plain, fence = [], m[1]
                pieces[-1][1].append(line.replace("mermaid", "text", 1) if "mermaid" in line else line)
            elif fence is not None:
                pieces[-1][1].append(line)
                if m and m[1].startswith(fence) and line.strip() == m[1]:
                    fence = None
            else:
                plain.append(line)
        pieces.append(("text", plain))
        for kind, lines in pieces:
            if not lines:
                continue
            part = "\n".join(lines)
            if kind == "text":
                part = self.outside_of_code(part, lambda t: IMAGE.sub(image, LINK.sub(link, t)))
                part = "\n".join(line if line.startswith("#") else NUMBER.sub("\u00a0", line)
                                 for line in part.split("\n"))
            out.append(part)
        return "\n".join(out)

    def outside_of_code(self, text, change):
        """Changes what is not in backticks; a link's text may be code."""
        kept = []

        def keep(m):
            kept.append(m[0])
            return f"\0{len(kept) - 1}\0"

        text = re.sub(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)", keep, text, flags=re.S)
        return re.sub(r"\0(\d+)\0", lambda m: kept[int(m[1])], change(text))

    def title(self, page):
        return next((line[2:].strip() for line in (self.root / page).read_text().splitlines()
                     if line.startswith("# ")), page)

    def order(self, names):
        """What all need first, then the order in which README.md links them."""
        links = re.findall(r"\]\(([\w./-]+\.md)", (self.root / "README.md").read_text())
        first = {link: i for i, link in reversed(list(enumerate(links)))}
        basic = [f"docs/guide/{name}.md" for name in BASIC]
        return sorted(names, key=lambda p: (basic.index(p) if p in basic else len(basic),
                                            first.get(p, len(first)), p))

    def groups(self):
        of = self.pages
        guide = self.order([p for p in of if p.startswith("docs/guide/")])
        beside = [p for p in of if re.match(r"docs/[^/]+\.md$", p)]
        coming = [p for p in beside if "coming-from" in p]
        inside = [p for p in of if p.startswith("docs/internals/")]
        decisions = [p for p in of if p.startswith("docs/decisions/")]
        above = [p for p in of if "/" not in p and p not in ("README.md", "ARCHITECTURE.md")]
        return [("Guide", guide), ("Beside others", coming + [p for p in beside if p not in coming]),
                ("Reference", ["reference/index", "reference/alphabetical", "reference/elsewhere"]),
                ("The project", ["ARCHITECTURE.md", "internals", "decisions"] + above),
                ], inside, decisions

    # --- all of it

    def build(self, reference):
        """`reference(source_link, guides)` makes the pages.Pages."""
        self.pages = self.markdown()
        texts = {page: self.mended(page) for page in self.pages}
        about = guides.Guides(self.root, {self.document(p): texts[p] for p in self.pages
                                          if p.startswith(("docs/guide/", "docs/coming"))})
        made = reference(self.source_link, about)
        made.searched = {self.document(p): guides.sections(texts[p]) for p in self.pages if SEARCHED.match(p)}
        self.faults += guides.add_asked(self.root, made.searched)
        groups, inside, decisions = self.groups()
        texts["README.md"] += "\n" + "\n".join(
            self.toctree(caption, members) for caption, members in groups)
        for page, text in texts.items():
            self.write(self.document(page), text)
        self.write("internals", "# Internals\n\nHow the parts work, for maintainers.\n\n" + self.listing(inside))
        self.write("decisions", "# Decisions\n\nReasons, by number.\n\n" + self.listing(decisions))
        for document, text in made.files.items():
            self.write(document, text)
        self.write_sources()
        self.remove_others()
        return made

    def toctree(self, caption, members):
        rows = "\n".join(self.document(m) if m.endswith(".md") else m for m in members)
        return f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{rows}\n```\n"

    def listing(self, members):
        rows = "\n".join(f"- [{self.title(m)}]({m})" for m in members)
        return rows + "\n\n```{toctree}\n:hidden:\n\n" + "\n".join(self.document(m) for m in members) + "\n```\n"

    def write_sources(self):
        done = set()
        while todo := set(self.sources) - done:
            for path in sorted(todo):
                done.add(path)
                self.write(self.sources[path], self.source_page(path))

    def source_page(self, path):
        head = "---\norphan: true\nnosearch: true\n---\n\n"
        file = self.root / path
        if file.is_dir():
            listed = (repository.git(self.root, "ls-files", "--", path or ".") or "").split()
            listed = listed or sorted(p.relative_to(self.root).as_posix() for p in file.rglob("*") if p.is_file())
            rows = "\n".join(f"- `{name}`" for name in listed)
            return f"{head}# `{path or '.'}/`\n\n{rows}\n"
        text = file.read_text(errors="replace")
        longest = max([len(m) for m in re.findall(r"`{3,}", text)] + [3])
        fence = "`" * (longest + 1)
        language = LANGUAGES.get(file.suffix, "bash" if text.startswith("#!") and "sh" in text[:40] else "text")
        return f"{head}# `{path}`\n\n{fence}{language}\n{text.rstrip()}\n{fence}\n"
