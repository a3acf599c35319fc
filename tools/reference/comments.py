"""Comments of the headers, taken apart: the contract of a name, and its marked parts.

A part begins with a sentence such as `Thread safety: ...` and ends at the next mark or with
its paragraph; all else is the contract. An indented line is code, and `- ` begins an item.
"""
import dataclasses
import re
import textwrap

LABELS = {  # in the order of a page
    "Throws": "Throws",
    "Thread safety": "Thread safety",
    "Lifetime": "Lifetime",
    "Shutdown": "At the shutdown",
    "Cost": "Cost",
    "Behaviour": "Behaviour",
    "Go": "Go",
    "Node": "Node",
    "Asio": "Asio",
    "Tokio": "Tokio",
}
MARK = re.compile(
    r"(?:^|(?<=[.:;!?)] ))"
    r"(?:(?P<throws>Throws) |Waits(?: on a (?P<place>fiber|thread))?(?: \([^)]*\))?: throws "
    r"|(?P<label>Throws|Thread safety|Lifetime|Shutdown|Cost|Behaviour|Go|Node|Asio|Tokio): )"
)
SENTENCE = re.compile(r"(?<=[.!?]) (?=[A-Z`(])")
HIDDEN = re.compile(r"For (the library|[^.]*) only\.|Only for the library\b")


@dataclasses.dataclass
class Block:
    kind: str  # text, code, item
    text: str


@dataclasses.dataclass
class Said:
    """What a comment says."""
    contract: list = dataclasses.field(default_factory=list)  # of Block
    parts: dict = dataclasses.field(default_factory=dict)  # {label: [text]}

    def add(self, label, text):
        if text not in self.parts.setdefault(label, []):
            self.parts[label].append(text)

    def text(self):
        return " ".join(block.text for block in self.contract if block.kind != "code")

    def first_sentence(self):
        text = next((b.text for b in self.contract if b.kind == "text"), "")
        return SENTENCE.split(text)[0]

    def is_empty(self):
        return not self.contract and not self.parts


def above(lines, number):
    """The comment that ends right above line `number` (from 1), without its slashes."""
    at = number - 2
    found = []
    while at >= 0 and (line := lines[at].strip()).startswith("//"):
        found.insert(0, line[2:].removeprefix(" ") if line != "//" else "")
        at -= 1
    return [line for line in found if not line.startswith("NOLINT")]


def at_head(lines):
    """The comment that opens a file."""
    count = next((i for i, line in enumerate(lines) if not line.startswith("//")), len(lines))
    return above(lines, count + 1)


def blocks_of(lines):
    """The comment's paragraphs, items and pieces of code."""
    blocks, open_block = [], None
    for line in lines:
        if not line.strip():
            if open_block and open_block.kind == "code":
                open_block.text += "\n"
            else:
                open_block = None
            continue
        indented = line.startswith("  ")
        if re.match(r"(- |\* |\d\. )", line):
            open_block = Block("item", re.sub(r"^(- |\* |\d\. )", "", line))
            blocks.append(open_block)
        elif indented and not (open_block and open_block.kind == "item"):
            if not (open_block and open_block.kind == "code"):
                open_block = Block("code", "")
                blocks.append(open_block)
            open_block.text += line + "\n"
        elif open_block and open_block.kind == "item" and indented or open_block and open_block.kind == "text":
            open_block.text += " " + line.strip()
        else:
            open_block = Block("text", line.strip())
            blocks.append(open_block)
    for block in blocks:
        if block.kind == "code":
            block.text = textwrap.dedent(block.text).strip("\n")
    return blocks


def parse(lines, names=()):
    """What a comment says. `names`: those which it introduces by `name: ...`."""
    said, begun = Said(), False
    for block in blocks_of(lines):
        if block.kind == "text":
            if not begun:
                block.text = without_introduction(block.text, names)
                begun = True
            marks = list(MARK.finditer(block.text))
            first = block.text[: marks[0].start()] if marks else block.text
            if first.strip():
                said.contract.append(Block("text", first.strip()))
            for mark, after in zip(marks, marks[1:] + [None]):
                text = block.text[mark.end() : after.start() if after else None].strip()
                if label := mark["label"]:
                    said.add(label, text)
                else:
                    place = f" Called on a {mark['place']} only." if mark["place"] else ""
                    said.add("Throws", text + place)
        else:
            said.contract.append(block)
    return said


def without_introduction(text, names):
    """Without a banner (`--- channels.`) and the name, which is the title of its page."""
    text = re.sub(r"^--- (?:[\w ]+(?:\. ?|$)|[^.:]*$)", "", text).removeprefix("--- ")
    for name in names:
        text = re.sub(rf"^{re.escape(name)}(<[^>]*>)?: ", "", text)
    return text


def names_it(text, name, is_function):
    """Whether a text speaks of that name: of a function as a call, or in backticks."""
    if is_function and "_" not in name:
        return re.search(rf"\b{name}\(|`(?:\w+::)*{name}[`(]", text) is not None
    return re.search(rf"(?<![\w:.]){name}\b(?!\.\w)", text) is not None


def of_head(said, name, is_function, is_alone):
    """What the head of a header says of that name: the parts that name it, and sentences."""
    mine = Said()
    for label, texts in said.parts.items():
        for text in texts:
            if is_alone or names_it(text, name, is_function):
                mine.add(label, text)
    for block in said.contract:
        if block.kind == "text":
            sentences = [s for s in SENTENCE.split(block.text) if names_it(s, name, is_function)]
            if sentences:
                mine.contract.append(Block("text", " ".join(sentences)))
    return mine
