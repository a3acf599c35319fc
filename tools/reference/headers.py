"""The public names of the headers, as libclang reads them.

`read(root)` returns the names in the order of their headers. A name is a class, a set of
overloads, an alias, a constant, a concept or an enumeration in the namespace vigil or in
one inside it, but for those of the library itself. Members that a class has from a base
in `detail` are its own here, as they are to its users.
"""
import dataclasses
import re
import sys
from pathlib import Path

import comments
from waiting_calls import split

try:
    from clang import cindex
except ImportError:  # another Python than Debian's, for which the package is
    sys.path.append("/usr/lib/python3/dist-packages")
    try:
        from clang import cindex
    except ImportError:
        cindex = None

MISSING = "python3-clang is not installed"
FLAGS = ["-std=c++20", "-xc++", "-DBOOST_ASIO_SEPARATE_COMPILATION", "-fparse-all-comments"]
LIBRARIES = {  # of a header that is not in `vigil`
    "io/tls.hpp": "vigil-tls",
    "inspect.hpp": "vigil-inspect",
    "leaks.hpp": "vigil-inspect",
    "inspect_page.hpp": "vigil-inspect-page",
    "lock_check.hpp": "vigil-lock-check",
}
# What templates are constrained to, in a word.
ARGUMENTS = {"duration_argument": "Duration", "duration_like": "Duration", "time_point_like": "Time"}


@dataclasses.dataclass
class Form:
    """One declaration: what a user reads of it, and what its comment says."""
    text: str
    said: comments.Said
    header: str
    line: int
    is_noexcept: bool = False
    is_plain: bool = False  # has no comment: that of the one before holds


@dataclasses.dataclass
class Member:
    name: str
    kind: str  # function, type, field, value, enumerator
    forms: list
    said: comments.Said = None


@dataclasses.dataclass
class Name:
    path: tuple  # ("io", "serve") for vigil::io::serve
    kind: str  # class, function, alias, value, concept, enumeration
    header: str
    line: int
    forms: list = dataclasses.field(default_factory=list)
    members: list = dataclasses.field(default_factory=list)
    bases: list = dataclasses.field(default_factory=list)  # public ones, as written
    said: comments.Said = None
    facts: str = ""  # copied, moved or neither
    is_data: bool = False  # has fields and no private ones
    is_exception: bool = False

    @property
    def name(self):
        return self.path[-1]

    @property
    def full(self):
        return "::".join(("vigil",) + self.path)

    @property
    def library(self):
        return library_of(self.header)


def library_of(header):
    header = header.removeprefix("vigil/")
    return LIBRARIES.get(header, "vigil-io" if header.startswith("io") else "vigil")


class Reader:
    def __init__(self, root):
        self.root = Path(root).resolve()
        include = self.root / "include"
        self.public = sorted(p.relative_to(include).as_posix()
                             for folder in ("vigil", "vigil/io") for p in (include / folder).glob("*.hpp"))
        source = "".join(f"#include <{header}>\n" for header in self.public)
        unit = cindex.TranslationUnit
        self.unit = cindex.Index.create().parse(
            "all.cpp", args=FLAGS + [f"-I{include}"], unsaved_files=[("all.cpp", source)],
            options=unit.PARSE_SKIP_FUNCTION_BODIES)
        wrong = [str(d) for d in self.unit.diagnostics if d.severity >= d.Error]
        if wrong:
            raise SystemExit("the headers do not compile:\n" + "\n".join(wrong[:20]))
        self.texts = {}
        self.names = {}

    # --- places in the files

    def lines(self, header):
        return self.text(header).splitlines()

    def text(self, header):
        if header not in self.texts:
            self.texts[header] = (self.root / "include" / header).read_bytes()
        return self.texts[header].decode()

    def header_of(self, cursor):
        file = cursor.location.file
        path = Path(file.name).resolve() if file else None
        include = self.root / "include"
        return path.relative_to(include).as_posix() if path and path.is_relative_to(include) else None

    def source(self, cursor):
        header = self.header_of(cursor)
        self.text(header)
        data = self.texts[header]
        begin = cursor.extent.start.offset
        # The extent leaves out what a macro at the beginning stood for.
        first = data.rfind(b"\n", 0, begin) + 1
        if re.fullmatch(rb"\s*(VIGIL_API|VIGIL_FOR_IO|inline|\[\[\w+\]\]|\s)*", data[first:begin]):
            begin = first
        return data[begin:].decode()

    def comment(self, cursor):
        """Its lines; none if there is no comment right above."""
        lines = self.lines(self.header_of(cursor))
        start = cursor.extent.start.line
        return comments.above(lines, start)

    # --- the walk

    def read(self):
        kinds = cindex.CursorKind
        self.walk(self.unit.cursor, None)
        order = {header: i for i, header in enumerate(self.public)}
        for name in self.names.values():
            count = {f.header: sum(g.header == f.header for g in name.forms) for f in name.forms}
            first = FIRST.get(name.path) or min(count, key=lambda h: (-count[h], order[h]))
            name.forms.sort(key=lambda f: (f.header != first, order[f.header], f.line))
            name.header, name.line = name.forms[0].header, name.forms[0].line
        found = sorted(self.names.values(), key=lambda n: (order.get(n.header, 0), n.line))
        self.add_heads(found)
        return found

    def walk(self, cursor, path):
        kinds = cindex.CursorKind
        for c in cursor.get_children():
            if c.kind == kinds.NAMESPACE:
                if c.spelling == "v0" or re.fullmatch(r"v\d+", c.spelling):
                    self.walk(c, path)
                elif path is None:
                    if c.spelling == "vigil":
                        self.walk(c, ())
                elif not c.spelling.startswith("detail"):
                    self.walk(c, path + (c.spelling,))
            elif path is not None and (header := self.header_of(c)):
                self.take(c, path + (c.spelling,), header)

    def take(self, c, path, header):
        kinds = cindex.CursorKind
        is_class = c.kind in (kinds.CLASS_DECL, kinds.STRUCT_DECL, kinds.CLASS_TEMPLATE)
        if "/detail/" in header:
            public = HOMES.get(header)
            if not public or path in NOT_PUBLIC:
                return
        else:
            public = header
        if is_class:
            head = self.source(c).split("{")[0]
            if not c.is_definition() or re.search(rf"\b{c.spelling}<", head):
                return  # declared, or specialised
            self.take_class(c, path, public)
        elif c.kind in (kinds.FUNCTION_DECL, kinds.FUNCTION_TEMPLATE):
            if form := self.form(c, public):
                if path in self.names and public.startswith("vigil/fwd"):
                    return
                self.names.setdefault(path, Name(path, "function", public, form.line)).forms.append(form)
        elif c.kind in (kinds.TYPE_ALIAS_DECL, kinds.TYPE_ALIAS_TEMPLATE_DECL):
            if public == "vigil/fwd.hpp":
                return
            self.take_alias(c, path, public)
        elif c.kind == kinds.VAR_DECL:
            self.single(c, path, public, "value")
        elif c.kind == kinds.ENUM_DECL:
            self.take_enumeration(c, path, public)
        elif re.match(r"template\b[^;]*\bconcept\b", self.source(c)):
            self.single(c, path, public, "concept")

    def single(self, c, path, header, kind):
        said = comments.parse(self.comment(c), (path[-1],))
        text = tidy(declaration(self.source(c), kind))
        form = Form(text, said, header, c.extent.start.line)
        self.names[path] = Name(path, kind, header, form.line, [form], said=said)
        return self.names[path]

    def take_alias(self, c, path, header):
        name = self.single(c, path, header, "alias")
        target = c.underlying_typedef_type.get_declaration()
        template = cindex.conf.lib.clang_getSpecializedCursorTemplate(target)
        if template and (template.kind != cindex.CursorKind.NO_DECL_FOUND):
            target = template
        if target.semantic_parent and target.semantic_parent.spelling == "detail":
            name.forms[0].text = f"class {path[-1]};"
            name.kind = "class"
            name.members = self.members(target, path[-1])
            of = re.search(r"<([\w:<>]+)>;", self.source(c).split("\n")[0])
            for form in (f for m in name.members for f in m.forms):
                form.text = re.sub(r"\bHandle\b", of[1] if of else "Handle", form.text)

    def take_enumeration(self, c, path, header):
        name = self.single(c, path, header, "enumeration")
        lines = self.lines(self.header_of(c))
        for e in c.get_children():
            if e.kind != cindex.CursorKind.ENUM_CONSTANT_DECL:
                continue
            number = e.extent.start.line
            said = comments.above(lines, number)
            if "{" in lines[number - 1]:
                said = []
            elif behind := re.match(r"[^/]*//\s*(.*)", lines[number - 1]):
                said = [behind[1]]
                for line in lines[number:]:
                    if not (more := re.match(r"\s+//\s*(.*)", line)) or len(line) - len(line.lstrip()) < 8:
                        break
                    said.append(more[1])
            form = Form(e.spelling, comments.parse(said, (e.spelling,)), header, number)
            name.members.append(Member(e.spelling, "enumerator", [form], form.said))

    def take_class(self, c, path, header):
        said = comments.parse(self.comment(c), (path[-1],))
        head = declaration(self.source(c), "class")
        name = Name(path, "class", header, c.extent.start.line, said=said)
        name.forms = [Form(tidy(head), said, header, name.line)]
        name.members = self.members(c, path[-1])
        for base in self.bases(c):
            if "detail" not in base.spelling and base.spelling:
                name.bases.append(base.type.spelling or base.spelling)
        name.is_exception = any("error" in b or "exception" in b for b in name.bases) or \
            header == "vigil/error.hpp"
        access = cindex.AccessSpecifier
        fields = [f for f in c.get_children() if f.kind == cindex.CursorKind.FIELD_DECL]
        name.is_data = all(f.access_specifier == access.PUBLIC for f in fields) and not any(
            m.kind == "function" for m in name.members)
        name.facts = self.facts(c)
        self.names[path] = name

    def bases(self, c):
        kinds = cindex.CursorKind
        return [b for b in c.get_children() if b.kind == kinds.CXX_BASE_SPECIFIER
                and b.access_specifier == cindex.AccessSpecifier.PUBLIC]

    def members(self, c, owner, seen=None):
        """Those that a user may name, its bases in `detail` included."""
        kinds = cindex.CursorKind
        seen = seen if seen is not None else set()
        if c.get_usr() in seen:
            return []
        seen.add(c.get_usr())
        found, last = [], None
        for m in c.get_children():
            if m.kind == kinds.FRIEND_DECL:
                continue
            if m.access_specifier not in (cindex.AccessSpecifier.PUBLIC, cindex.AccessSpecifier.NONE):
                continue
            last = self.member(m, c, owner, found) or last
        for base in self.bases(c):
            for t in base.get_children():
                target = t.referenced
                if t.kind in (kinds.TEMPLATE_REF, kinds.TYPE_REF) and target and self.is_detail(target):
                    if target.kind in (kinds.CLASS_TEMPLATE, kinds.CLASS_DECL, kinds.STRUCT_DECL):
                        have = {m.name for m in found}
                        for more in self.members(target, owner, seen):
                            if more.name not in have and more.name != owner:
                                found.append(more)
        return found

    def is_detail(self, c):
        while c and c.kind != cindex.CursorKind.TRANSLATION_UNIT:
            if c.spelling.startswith("detail"):
                return True
            c = c.semantic_parent
        return False

    def member(self, m, parent, owner, found):
        kinds = cindex.CursorKind
        header = self.header_of(m)
        if not header:
            return None
        functions = (kinds.CXX_METHOD, kinds.CONSTRUCTOR, kinds.CONVERSION_FUNCTION, kinds.FUNCTION_TEMPLATE,
                     kinds.DESTRUCTOR)
        name = re.sub(r"<.*", "", m.spelling) if not m.spelling.startswith("operator") else m.spelling
        if name == re.sub(r"<.*", "", parent.spelling):
            name = owner
        if m.kind in functions:
            name = name.replace("~" + parent.spelling, "~" + owner)
            if m.kind == kinds.CONVERSION_FUNCTION:
                name = m.spelling
            form = self.form(m, header, parent.spelling, owner)
            kind = "function"
        elif m.kind in (kinds.FIELD_DECL, kinds.VAR_DECL):
            said = comments.parse(self.comment(m), (name,))
            behind = re.match(r"[^/\n]*//\s*(.*)", self.source(m))
            if said.is_empty() and behind:
                said = comments.parse([behind[1]], (name,))
            form = Form(tidy(declaration(self.source(m), "value")), said, header, m.extent.start.line)
            kind = "field" if m.kind == kinds.FIELD_DECL else "value"
        elif m.kind in (kinds.TYPE_ALIAS_DECL, kinds.TYPE_ALIAS_TEMPLATE_DECL, kinds.ENUM_DECL) or (
                m.kind in (kinds.CLASS_DECL, kinds.STRUCT_DECL, kinds.CLASS_TEMPLATE) and m.is_definition()):
            is_alias = m.kind in (kinds.TYPE_ALIAS_DECL, kinds.TYPE_ALIAS_TEMPLATE_DECL)
            how = "alias" if is_alias else "class" if m.kind != kinds.ENUM_DECL else "enumeration"
            said = comments.parse(self.comment(m), (name,))
            form = Form(tidy(declaration(self.source(m), how)), said, header, m.extent.start.line)
            kind = "type"
        else:
            return None
        if not form:
            return None
        form.is_plain = form.said.is_empty()
        if form.is_plain and kind == "function" and is_special(form.text, owner):
            return None
        if kind == "type" and name == "promise_type":
            return None
        if any(comments.HIDDEN.match(b.text) for b in form.said.contract[:1]):
            return None
        same = next((x for x in found if x.name == name and x.kind == kind), None)
        if same:
            same.forms.append(form)
            return same
        found.append(Member(name, kind, [form]))
        return found[-1]

    def form(self, c, header, was=None, owner=None):
        """None for what users do not call."""
        if c.availability == cindex.AvailabilityKind.NOT_AVAILABLE:
            return None
        source = self.source(c)
        text = declaration(source, "function")
        if "VIGIL_REFUSED" in text or re.search(r"= delete$", text):
            return None
        if c.semantic_parent != c.lexical_parent or is_internal(text):
            return None
        said = comments.parse(self.comment(c), (c.spelling,))
        text = tidy(text)
        if owner and was and owner != was:
            text = re.sub(rf"\b{was}\b", owner, text)
        if "//" in source.split("\n")[0] and said.is_empty():
            pass
        where = self.header_of(c)
        form = Form(text, said, header if "/detail/" not in header else HOMES.get(where, where),
                    c.extent.start.line, is_noexcept="noexcept" in text or text.startswith("~"))
        form.is_plain = said.is_empty()
        return form

    def facts(self, c):
        """Whether objects can be copied and moved, as far as the class itself says it."""
        says = {}
        for m in c.get_children():
            if m.kind not in (cindex.CursorKind.CONSTRUCTOR, cindex.CursorKind.CXX_METHOD):
                continue
            parameters = list(m.get_arguments())
            if len(parameters) != 1 or (m.kind == cindex.CursorKind.CXX_METHOD and m.spelling != "operator="):
                continue
            kind = parameters[0].type
            if kind.get_pointee().get_declaration() != c and kind.get_declaration() != c:
                continue
            how = "assign" if m.spelling == "operator=" else "make"
            move = kind.kind == cindex.TypeKind.RVALUEREFERENCE
            gone = m.availability == cindex.AvailabilityKind.NOT_AVAILABLE
            says[how, "move" if move else "copy"] = not gone
        if not says:
            return ""
        copies = says.get(("make", "copy"), False)
        moves = says.get(("make", "move"), copies)
        if copies:
            return "Can be copied."
        return "Can be moved, not copied." if moves else "Can be neither copied nor moved."

    # --- heads

    def add_heads(self, found):
        """Gives each name what the head of its header says of it."""
        by_header = {}
        for name in found:
            by_header.setdefault(name.header, []).append(name)
        for header, names in by_header.items():
            head = comments.parse(comments.at_head(self.lines(header)))
            own = header.removesuffix(".hpp").split("/")[-1]
            for name in names:
                said = comments.of_head(head, name.name, name.kind == "function", len(names) == 1)
                name.head = said
                name.own_header = own

    def head(self, header):
        stem = header.removesuffix(".hpp").split("/")[-1]
        return comments.parse(comments.at_head(self.lines(header)), (stem,))


HOMES = {  # the public header for names that a header in detail/ declares
    "vigil/detail/site.hpp": "vigil/fiber.hpp",
    "vigil/detail/channel_core.hpp": "vigil/channel.hpp",
    "vigil/detail/fiber_core.hpp": "vigil/fiber.hpp",
}
NOT_PUBLIC = set()
FIRST = {("after_func",): "vigil/timer.hpp"}  # where several headers have one function each
# What users may give, although it is of the library.
GIVEN = r"shared_call|write_a|constant_text|element_of|nothing|duration_argument"


def is_internal(text):
    """Whether only the library can call this."""
    text = re.sub(r"template\s*<.*?>\s*(?=[\w\[~])", "", text, count=1, flags=re.S) if "(" in text else text
    before, _, parameters = text.partition("(")
    parameters = re.sub(r"\)[^)]*\brequires\b.*", "", parameters, flags=re.S)
    return re.search(rf"detail::(?!{GIVEN})|\bchannel_handle\b", parameters) is not None or \
        re.search(r"detail::\w+\s*\*|\bhandle\(|\bcore\(", before + "(") is not None


def is_special(text, owner):
    """Whether this only copies, moves or destroys, of which the class's page has a line."""
    return re.match(rf"(constexpr )?({owner}\((const )?{owner}(<[^<>]*>)?&|{owner}(<[^<>]*>)?& operator=\(|~{owner}\()",
                    text) is not None


def declaration(source, kind):
    """The text up to the body, the initialisers or the semicolon."""
    depth, angle, i, n = 0, 0, 0, len(source)
    source = re.sub(r"//[^\n]*", lambda m: " " * len(m[0]), source[:6000])
    n = len(source)
    seen_parameters = False
    while i < n:
        c = source[i]
        if c == '"':
            i = source.index('"', i + 1)
        elif c in "([":
            depth += 1
        elif c in ")]":
            depth -= 1
            seen_parameters = seen_parameters or (c == ")" and depth == 0)
        elif depth == 0:
            if c == ";":
                break
            if c == "{":
                if kind in ("value", "concept") or opens_requirements(source[:i]):  # not a body
                    i = braces_end(source, i)
                    continue
                break
            if c == ":" and kind == "function" and source[i : i + 2] != "::" and source[i - 1] != ":" \
                    and seen_parameters:
                break
        i += 1
    text = source[:i].strip()
    if kind == "class":
        text = re.sub(r"\s*(?<!:):(?!:).*", "", text, flags=re.S)
    if kind == "enumeration":
        text = re.sub(r"\s*(?<!:):(?!:).*", "", text, flags=re.S)
    return text


def opens_requirements(before):
    """Whether a brace that follows belongs to a requires-expression."""
    before = before.rstrip()
    if before.endswith(")"):
        depth, i = 0, len(before)
        while i:
            i -= 1
            depth += {")": 1, "(": -1}.get(before[i], 0)
            if depth == 0:
                break
        before = before[:i].rstrip()
    return re.search(r"(\brequires|&&|\|\||=)\s*requires$", before) is not None


def braces_end(text, at):
    depth = 0
    for i in range(at, len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return i + 1
    return len(text)


def closing(text, at, pair="<>"):
    depth = 0
    for i in range(at, len(text)):
        if text[i] == pair[0]:
            depth += 1
        elif text[i] == pair[1] and text[i - 1] != "-":
            depth -= 1
            if depth == 0:
                return i
    return len(text) - 1


def tidy(text):
    """As a user would read it: without what is there for the compiler."""
    text = re.sub(r"\bVIGIL_\w+\b", "", text)
    text = re.sub(r"\[\[[^\]]*\]\]", "", text)
    text = re.sub(r"\b(inline|typename)\b ", "", text)
    text = " ".join(text.split())
    head, words, tail = "", {}, ""
    if m := re.match(r"template\s*<", text):
        end = closing(text, m.end() - 1)
        parameters, text = split(text[m.end() : end]), text[end + 1 :].strip()
        kept = []
        for p in parameters:
            if (m := re.match(r"(?:vigil::)?(?:detail::)?(\w+) (\w+)$", p)) and m[1] in ARGUMENTS:
                words[m[2]] = ARGUMENTS[m[1]]
            else:
                p = re.sub(r" = (?:\w+::)*detail::\S+$", "", p)
                kept.append(re.sub(r"^(?:vigil::)?detail::\w+(<.*?>)?(?=(\.\.\.)? \w+)", "class", p))
        if kept:
            head = "template <" + ", ".join(kept) + ">\n"
        text = without_requires(text)
    text = re.sub(r"(, )?const (?:vigil::)?site& \w+ = (?:vigil::)?site::current\(\)", "", text)
    for was, word in words.items():
        text = re.sub(rf"\bconst {was}&(?= \w)", word, text)
        text = re.sub(rf"\b{was}\b", word, text)
    if m := re.search(r"(?<=\w|\)) ?\brequires ?(?=[\w(])", text):
        text, tail = text[: m.start()], text[m.end() :]
        tail = f"\n    requires {tail.strip('()') if tail.startswith('(') else tail}" \
            if "detail::" not in tail else ""
    text = re.sub(r"\b(?:vigil::)?detail::", "", text)
    text = text.replace("constant_text ", "const char* ")
    text = re.sub(r"\breceived<(\w+)>", r"std::optional<\1>", text)
    text = re.sub(r"shared_call<(.*?\))>(?= )", r"function<\1>", text)
    text = re.sub(r"\bvigil::(?=\w)", "", text)
    text = re.sub(r" = (true|false|0|nullptr|default)$", lambda m: "" if m[1] == "default" else m[0], text)
    text = broken(" ".join(text.split()).replace("( ", "(") + ("" if tail else ";"))
    return head + text + (tail + ";" if tail else "")


def without_requires(text):
    """Without the clause that follows the template's head."""
    if not text.startswith("requires"):
        return text
    at = len("requires")
    while True:
        while text[at] == " ":
            at += 1
        if m := re.compile(r"requires\s*").match(text, at):
            at = m.end()
            if text[at] == "(":
                at = closing(text, at, "()") + 1
            at = braces_end(text, text.index("{", at))
        elif text[at] in "(!":
            at = closing(text, text.index("(", at), "()") + 1
        else:
            m = re.compile(r"[\w:]+").match(text, at)
            at = m.end()
            if at < len(text) and text[at] == "<":
                at = closing(text, at) + 1
            if text[at : at + 2] == "(" or text[at : at + 1] == "(":
                at = closing(text, at, "()") + 1
        if m := re.compile(r"\s*(&&|\|\|)").match(text, at):
            at = m.end()
            continue
        return text[at:].strip()


def broken(text, width=78):
    """One parameter on each line if the line would be too long."""
    if len(text) <= width or "(" not in text:
        return text
    first = text.index("(")
    if text.startswith("operator()") or " operator()" in text:
        first = text.index("(", text.index("operator()") + len("operator()"))
    last = closing(text, first, "()")
    parameters = split(text[first + 1 : last])
    if not parameters:
        return text
    return text[: first + 1] + "\n    " + ",\n    ".join(parameters) + text[last:]


def read(root):
    return Reader(root).read()
