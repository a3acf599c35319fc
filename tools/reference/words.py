"""Text of comments as Markdown: names of code in code type, with links to their pages."""
import dataclasses
import re

ESCAPED = re.compile(r"([\\`*_{}\[\]<>#|~^$])")
CODE = re.compile(
    r"`([^`]+)`"
    r"|(\[[&=\w, ]*\] ?(?:\([^()]*\))? ?(?:\{[^{}]*\})(?=[ ,.;:)]|$)|\[[&=\w, ]*\]\([^()]*\))"
    r"|(<vigil/[\w/]+\.hpp>|(?:vigil/)?(?:[\w]+/)*\w+\.(?:hpp|md|py)\b)"
    r"|(\b\w+\.\w+\([^()\n]{0,40}\)|(?:\b\w+::)+~?\w+(?:<[\w:, *]*>)?(?:\([^()\n]{0,40}\))?"
    r"|\b~?\w+(?:<[\w:, *]*>)?\([^()\n]{0,40}\)(?!\w)"
    r"|\b(?=\w*[a-z])\w+_\w+\b|\b[A-Z][A-Z_]*_[A-Z_]+\b|\b\w+<[\w:, *]+>)"
)
PLAIN_CALL = re.compile(r"[a-z]+\((s|es)\)$")  # fiber(s)
REFERS = re.compile(r"\b(That of|[Ww]hat|As|as|[Ll]ike) ((?:\w+::)*\w+)(?=[ .,;])(?![.]\w)")
EXCEPTIONS = ("stopped", "cancelled", "deadlock", "channel_closed", "runtime_gone", "wrong_place",
              "limit_reached")


class Writer:
    def __init__(self, model):
        self.model = model
        self.members = {name.full: {m.name for m in name.members} for name in model.names}

    def rich(self, text, name=None, throws=False):
        """`name`: the one on whose page the text stands."""
        out, last = [], 0
        text = REFERS.sub(lambda m: f"{m[1]} `{m[2]}`" if self.target(m[2], name) else m[0], text)
        if throws:
            text = re.sub(rf"(?<![`\w:])({'|'.join(EXCEPTIONS)})(?![`\w])(?! by| when the fiber)", r"`\1`", text)
        for m in CODE.finditer(text):
            if m[4] and PLAIN_CALL.match(m[4]):
                continue
            out.append(ESCAPED.sub(r"\\\1", text[last : m.start()]))
            out.append(self.code(m[1] or m[2] or m[3] or m[4], name))
            last = m.end()
        return "".join(out) + ESCAPED.sub(r"\\\1", text[last:])

    def begun(self, text, name=None):
        """A sentence begins with a capital, unless a name or a parameter does; a name that
        is a word as well is shown as code."""
        first = re.match(r"(?:a(?= )|[a-z]{2,}\b)(?![(<_]|::|\.\w)", text)
        if not first:
            return text
        if self.target(first[0], name):
            return f"`{first[0]}`{text[first.end():]}"
        return text[0].upper() + text[1:]

    def code(self, text, name=None):
        target = self.target(text, name)
        fence = "``" if "`" in text else "`"
        shown = f"{fence}{text}{fence}"
        return f"[{shown}]({target})" if target else shown

    def target(self, text, name=None):
        """The label of what a piece of code names, or None."""
        if m := re.fullmatch(r"<?(?:vigil/)?([\w/]+\.hpp)>?", text):
            header = f"vigil/{m[1]}"
            return header_label(header) if header in self.model.reader.public and header != "vigil/fwd.hpp" else None
        if name:
            text = re.sub(r"^[a-z]\w*\.(?=\w+\()", "", text)  # a member of some object
        m = re.match(r"(?:vigil::)?((?:\w+::)*~?\w+)(?:<[\w:, *]*>)?(?:\(.*\))?$", text)
        if not m:
            return None
        said = m[1]
        if text.startswith("std::"):
            return None
        tries = []
        if name and text == said and is_parameter(said, name):
            return None
        if name:
            if said in self.members[name.full]:
                return None if name.kind == "enumeration" else label(name, said)
            for depth in range(len(name.path) - 1, -1, -1):
                tries.append("::".join(name.path[:depth] + (said,)))
        tries.append(said)
        for key in tries:
            if found := self.model.by_path.get(key):
                return None if found is name else label(found)
            owner, _, member = key.rpartition("::")
            if (found := self.model.by_path.get(owner)) and member in self.members[found.full]:
                return label(found) if found.kind == "enumeration" else label(found, member)
        return None

    def said(self, said, name=None, skip=()):
        """The blocks of a contract."""
        out = []
        for block in said.contract:
            if block is said.contract[0]:
                block = dataclasses.replace(block, text=self.begun(block.text, name))
            if block.kind == "code":
                out.append(f"```cpp\n{block.text}\n```")
            elif block.kind == "item":
                out.append("- " + self.rich(block.text, name))
            else:
                out.append(self.rich(block.text, name))
        text = "\n\n".join(out)
        return re.sub(r"(?m)(^- .*)\n\n(?=- )", r"\1\n", text)


def is_parameter(said, name):
    return any(re.search(rf"[\w&*>] {said}(?=[,)]| =)", form.text) for form in name.forms)


def slug(text):
    table = {"operator bool": "bool", "operator*": "dereference", "operator->": "arrow", "operator()": "call",
             "operator=": "assign", "operator++": "next", "operator==": "equal"}
    text = table.get(text, text)
    return re.sub(r"[^\w]+", "-", text.replace("~", "end-")).strip("-").lower()


def label(name, member=None):
    text = "ref-" + "-".join(name.path)
    return (text + "--" + slug(member) if member else text).replace("_", "-").lower()


def header_label(header):
    return "header-" + re.sub(r"\W|_", "-", header.removesuffix(".hpp"))
