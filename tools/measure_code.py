#!/usr/bin/env python3
"""Measures how much code there is, and how large its largest parts are.

usage: measure_code.py SOURCE_ROOT [--top N]    prints the figures
       measure_code.py SOURCE_ROOT --goal       fails where a limit is passed
       measure_code.py SOURCE_ROOT --check      fails where a limit is passed by more
                                                than tools/allowed/size.txt tolerates

       In src/ and include/ it counts:
  lines      of code: no blanks, no comments
  files      with more than 450 lines of any kind
       classes    the functions and the data members of each class, struct or union, as its
       body declares them, overloads one by one. Friends, types, constants
       (static constexpr), `= delete` and `= default` do not count; static
             functions count, static data does not.
  exported   functions and classes with VIGIL_API

       It reads the source as text, without a compiler: it drops macros, and reads templates
       once.
"""
import argparse
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

sys.dont_write_bytecode = True
import allowance  # noqa: E402

FUNCTIONS, MEMBERS, FILE_LINES, ALL_LINES = 45, 30, 450, 18_500


@dataclass
class Type:
    name: str
    place: str
    functions: list = field(default_factory=list)
    members: list = field(default_factory=list)


def without_comments(text):
    """Returns the text with comments and the contents of literals blanked out; lines stay."""
    pattern = r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:[^"\\\n]|\\.)*"|(?<![\w])\'(?:[^\'\\\n]|\\.)+\''

    def blank(m):
        if m[0].startswith("/"):
            return re.sub(r"[^\n]", " ", m[0])
        return m[0][0] + re.sub(r"[^\n]", "_", m[0][1:-1]) + m[0][-1]

    return re.sub(pattern, blank, text, flags=re.S)


CLOSING = {"(": ")", "{": "}", "[": "]"}


def behind(text, at):
    """Returns the index after the bracket that closes the one at `at`."""
    stack = []
    for i in range(at, len(text)):
        c = text[i]
        if c in CLOSING:
            stack.append(CLOSING[c])
        elif stack and c == stack[-1]:
            stack.pop()
            if not stack:
                return i + 1
    return len(text)


def behind_angle(text, at):
    depth = 0
    i = at
    while i < len(text):
        c = text[i]
        if c in "([{":
            i = behind(text, i)
            continue
        if c == "<":
            depth += 1
        elif c == ">" and text[i - 1] != "-":
            depth -= 1
            if depth == 0:
                return i + 1
        i += 1
    return len(text)


def statement_end(text, at, end):
    """Returns the index of the ';' of the statement at `at`, or of the '{' of its body."""
    while at < end and text[at] not in ";{}":
        at = behind(text, at) if text[at] in "([" else at + 1
    return at


MACRO = re.compile(r"\bVIGIL_\w+\b")
SPECIFIER = re.compile(
    r"\s*(\[\[|alignas\s*\(|template\s*<|requires\s*\(|VIGIL_\w+\s*\(?|"
    r"(?:inline|static|constexpr|constinit|mutable|virtual|explicit|const|volatile|extern)\b)")


def plain(head):
    """Returns the declaration without its specifiers, and whether it was static."""
    is_static = False
    while m := SPECIFIER.match(head):
        word = m[1]
        is_static = is_static or word == "static"
        if word == "[[":
            head = head[behind(head, m.start(1)) :]
        elif word.endswith("("):
            head = head[behind(head, m.end() - 1) :]
        elif word.endswith("<"):
            head = head[behind_angle(head, m.end() - 1) :]
        else:
            head = head[m.end() :]
    return head.strip(), is_static


def bracket_of_function(head):
    """Returns the index of the '(' that opens a parameter list, or None."""
    if "operator" in head:
        at = head.index("operator") + len("operator")
        m = re.compile(r"\s*\(\s*\)").match(head, at)
        at = m.end() if m else at
        return head.find("(", at) if "(" in head[at:] else None
    i = 0
    while i < len(head):
        c = head[i]
        if c == "=":
            return None
        if c == "<":
            i = behind_angle(head, i)
            continue
        if c == "(":
            word = re.search(r"(\w+)\s*$", head[:i])
            if word and word[1] in ("requires", "decltype", "noexcept", "alignas", "explicit"):
                i = behind(head, i)
                continue
            # A pointer to a function, or to an array.
            return None if re.match(r"\(\s*(\w+::)?[*&]", head[i:]) else i
        i += 1
    return None


def declarators(text):
    depth, count = 0, 1
    for i, c in enumerate(text):
        depth += (c in "([{<") - (c in ")]}" or (c == ">" and text[i - 1] != "-"))
        count += c == "," and depth == 0
    return count


TYPE = re.compile(r"(class|struct|union)\b\s*([\w:]*)\s*(<[^{;]*>)?\s*(final\b)?\s*(:[^:{].*)?$", re.S)


def types_of(text, path):
    found = []

    def read(at, end, scope, current):
        while at < end:
            if m := re.compile(r"[\s;}]+|(public|private|protected)\s*:(?!:)").match(text, at, end):
                at = m.end()
                continue
            i = statement_end(text, at, end)
            if i >= end:
                return
            if text[i] == "}":
                at = i + 1
                continue
            head, is_static = plain(text[at:i])
            head = MACRO.sub("", re.sub(r"\bVIGIL_\w+\s*\([^()]*\)", "", head)).strip()
            after = behind(text, i) if text[i] == "{" else i + 1
            if re.match(r"(inline\s+)?namespace\b|extern\b", head):
                if text[i] == "{":
                    read(i + 1, after - 1, scope, current)
            elif text[i] == "{" and (m := TYPE.match(re.sub(r"\[\[.*?\]\]|alignas\s*\([^)]*\)", "", head))):
                behind_type = statement_end(text, after, end)
                named = text[after:behind_type].strip()
                if not m[2] and not named and current is not None:
                    read(i + 1, after - 1, scope, current)  # its members are ours
                else:
                    inner = scope + (m[2] or named.split("[")[0],)
                    line = text.count("\n", 0, at) + 1
                    made = Type("::".join(inner), f"{path}:{line}")
                    found.append(made)
                    read(i + 1, after - 1, inner, made)
                if named and current is not None:
                    current.members.append(named)
                after = behind_type + 1
            elif re.match(r"(__extension__ using|using|typedef|static_assert|friend|enum|concept|class|struct|union)\b", head):
                if text[i] == "{":
                    after = statement_end(text, after, end) + 1
            elif bracket_of_function(head) is not None:
                at_name = bracket_of_function(head)
                # Members' initialisers with braces are not a body.
                if text[i] == "{" and re.search(r"\)[^()]*:[^:].*[\w>]\s*$", text[at:i], re.S):
                    while text[i] == "{" and re.search(r"[\w>]\s*$", text[at:i]) and re.match(
                            r"\s*[,{]", text[behind(text, i) :]):
                        i = behind(text, i)
                        i += len(text[i:]) - len(text[i:].lstrip())
                        if text[i] == ",":
                            i = statement_end(text, i, end)
                    after = behind(text, i) if text[i] == "{" else i + 1
                if current is not None and not re.search(r"=\s*(delete|default)\s*$", head):
                    name = re.search(r"(~?\w+|operator.*?)\s*$", head[:at_name], re.S)
                    current.functions.append(name[1] if name else head)
            else:
                if text[i] == "{":
                    after = statement_end(text, after, end) + 1
                if current is not None and not is_static and head:
                    current.members += [head] * declarators(head)
            at = after

    read(0, len(text), (), None)
    return found


def sources(root):
    for folder in ("src", "include"):
        yield from sorted(p for p in (root / folder).rglob("*") if p.suffix in (".hpp", ".cpp"))


def main():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("root", type=Path)
    parser.add_argument("--top", type=int, default=12)
    for option in ("--goal", "--check", "--update", "--help", "--list"):
        parser.add_argument(option, action="store_true")
    try:
        options = parser.parse_args()
    except SystemExit:
        sys.exit(__doc__)
    if options.help:
        sys.exit(__doc__)
    lines = {"src": 0, "include": 0}
    types, long_files, exported = [], {}, {"functions": 0, "classes": 0, "objects": 0}
    for path in sources(options.root):
        name = path.relative_to(options.root).as_posix()
        text = path.read_text()
        count = len(text.splitlines())
        if count > FILE_LINES:
            long_files[name] = count
        code = without_comments(text)
        lines[name.split("/")[0]] += sum(1 for line in code.splitlines() if line.strip())
        code = re.sub(r"^[ \t]*#(?:.*\\\n)*.*", lambda m: "\n" * m[0].count("\n"), code, flags=re.M)
        types += types_of(code, name)
        for m in re.finditer(r"\bVIGIL_(API|FOR_IO)\b", code):
            before = re.search(r"(\w+)\s*$", code[: m.start()])
            if before and before[1] in ("class", "struct", "union"):
                exported["classes"] += 1
            else:
                end = statement_end(code, m.end(), len(code))
                kind = "functions" if "(" in code[m.end() : end] else "objects"
                exported[kind] += 1

    if options.list:
        for t in types:
            print(f"{t.place} {t.name}: {t.functions} | {t.members}")
        return 0
    over = {f"file {name}": n for name, n in long_files.items()}
    for t in types:
        if len(t.functions) > FUNCTIONS:
            over[f"functions of {t.name}"] = len(t.functions)
        if len(t.members) > MEMBERS:
            over[f"members of {t.name}"] = len(t.members)
    total = sum(lines.values())
    if options.check or options.update:
        faults = allowance.judge("size", over)
        print("\n".join(faults) or f"{len(types)} classes and the files are no larger than they were")
        return 1 if faults else 0

    print(f"lines of code     {total}  (src {lines['src']}, include {lines['include']})")
    print(f"exported          {exported['functions']} functions, {exported['classes']} classes, "
          f"{exported['objects']} objects")
    print(f"files over {FILE_LINES}    {len(long_files)}")
    for name, count in sorted(long_files.items(), key=lambda f: -f[1]):
        print(f"  {count:5}  {name}")
    print(f"classes           {len(types)}, the largest: functions, data members")
    for t in sorted(types, key=lambda t: -max(len(t.functions), len(t.members)))[: options.top]:
        print(f"  {len(t.functions):5} {len(t.members):5}  {t.name}  {t.place}")
    if options.goal:
        faults = [f"{key}: {number}" for key, number in sorted(over.items())]
        if total > ALL_LINES:
            faults.append(f"lines of code: {total}, the limit is {ALL_LINES}")
        print("\n".join(["", "over the limits:"] + faults) if faults else "\nwithin all limits")
        return 1 if faults else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
