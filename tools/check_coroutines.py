#!/usr/bin/env python3
"""Finds the coroutines that g++ 12 miscompiles: usage: check_coroutines.py SOURCE_ROOT [FILE…]

Under SOURCE_ROOT it reads each source and header, or the FILEs alone. In an expression
with co_await, or the initialiser of a variable that has one, it refuses

    T{a, b}, f({a, b})      an aggregate: destroyed twice
    [x] { … }, [=] { … }    captures by value: destroyed twice
    c ? a : b               of class types: destroys what was never made
    if (co_await f())       in a coroutine without variables: the frame is too small; also
                            while, for, do and switch

It knows no types, so a T{a} with a constructor, a capture of an int and a condition in a
coroutine with variables are refused as well. What holds everywhere: an object named in
the statement before, T(a, b) with a constructor, std::in_place, captures by reference,
`if (const auto v = co_await f())`.

An expression that is in such a shape on purpose has `check_coroutines: why` in a comment on
one of its lines, or on the line above; where nothing is to be allowed that is a fault, so
tests/core/task/task_shapes_test.cpp tests this check as well.
"""
import re
import sys
from pathlib import Path

FOLDERS = ("bench", "examples", "include", "src", "tests")
ALLOWED = re.compile(r"check_coroutines: \S")

TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/|^[ \t]*\#(?:[^\n\\]|\\.)*)
      | (?P<text>(?:u8|[uUL])?R"(?P<d>[^()\s\\]*)\(.*?\)(?P=d)"
                |(?:u8|[uUL])?"(?:[^"\\\n]|\\.)*"|(?:u8|[uUL])?'(?:[^'\\\n]|\\.)*')
      | (?P<word>[A-Za-z_]\w*)
      | (?P<number>\.?\d(?:[\w.]|'\w|[eEpP][+-])*)
      | (?P<sign>::|->|==|!=|<=|>=|&&|\|\||\+=|-=|\*=|/=|%=|&=|\|=|\^=|\.\.\.|.)""",
    re.VERBOSE | re.DOTALL | re.MULTILINE)

OPENS = {"(": ")", "[": "]", "{": "}"}
CONDITIONS = {"if", "while", "for", "switch"}
# A brace that follows one of these begins a value; after any other word, a block.
VALUE_BEFORE = {"(", ",", "=", "return", "co_return", "co_await", "?", ":", "[", ">"}
NO_NAMES = {"else", "do", "try", "noexcept", "mutable", "const", "override", "final", "constexpr"}


class Source:
    """The tokens of a file, with the partner of each bracket and what each brace begins."""

    def __init__(self, text):
        self.words = []
        self.at = []
        for m in TOKEN.finditer(text):
            if m["skip"] is None:
                self.words.append(m[0])
                self.at.append(m.start())
        self.text = text
        self.partner = {}
        self.kind = {}  # of each `{`: block, body (of a lambda) or value
        self.captures = {}  # of each `[` that begins a lambda
        self.pair_brackets()
        self.find_lambdas()
        for i, word in enumerate(self.words):
            if word == "{" and i not in self.kind:
                self.kind[i] = "value" if self.begins_value(i) else "block"

    def word(self, i):
        return self.words[i] if 0 <= i < len(self.words) else ""

    def line(self, i):
        return self.text.count("\n", 0, self.at[i]) + 1

    def pair_brackets(self):
        open_ones = []
        for i, word in enumerate(self.words):
            if word in OPENS:
                open_ones.append(i)
            elif open_ones and word == OPENS[self.words[open_ones[-1]]]:
                first = open_ones.pop()
                self.partner[first], self.partner[i] = i, first

    def find_lambdas(self):
        for i, word in enumerate(self.words):
            before = self.word(i - 1)
            if word != "[" or i not in self.partner or before == "[" or self.word(i + 1) == "[":
                continue
            if before in (")", "]") or (before[:1].isidentifier() and before not in
                                        {"return", "co_return", "co_await", "co_yield"}):
                continue  # an index
            k = self.partner[i] + 1
            while self.word(k) and self.words[k] not in "{;,)":
                k = self.partner.get(k, k) + 1
            if self.word(k) == "{" and k in self.partner:
                self.captures[i] = self.words[i + 1 : self.partner[i]]
                self.kind[k] = "body"

    def begins_value(self, i):
        before = self.word(i - 1)
        if before in VALUE_BEFORE:
            return not (before == ":" and self.is_label(i - 1)) and not self.is_result_type(i)
        if not before[:1].isidentifier() or before in NO_NAMES:
            return False
        return self.words[self.start_of_statement(i)] not in {
            "namespace", "struct", "class", "union", "enum", "extern", "inline", "template"
        } and not self.is_result_type(i)

    def is_label(self, i):
        return self.word(i - 1) in {"default", "public", "private", "protected"} or \
            self.words[self.start_of_statement(i)] == "case"

    # `auto f() -> task<> {`
    def is_result_type(self, i):
        k = i - 1
        while k >= 0 and (self.words[k][:1].isidentifier() or self.words[k] in "::<>,*&"):
            k -= 1
        return self.word(k) == "->" and self.word(k - 1) == ")" and \
            self.word(self.partner.get(k - 1, 0) - 1)[:1].isidentifier()

    # The first token after the last `;`, `{` or `}`.
    def start_of_statement(self, i):
        k = i - 1
        while k >= 0 and self.words[k] not in ";{}":
            k = self.partner.get(k, k) - 1 if self.words[k] in ")]" else k - 1
        return k + 1

    # [first, end) of the full expression, and the control statement whose condition it is.
    def full_expression(self, i):
        first, control = i, ""
        while first > 0:
            word = self.words[first - 1]
            if word == ";":
                break
            if word in "{[(" and first - 1 in self.partner:
                if word == "{" and self.kind[first - 1] != "value":
                    break
                if word == "(" and self.control_of(first - 1):
                    control = self.control_of(first - 1)
                    break
            if word in ")]" and first - 1 in self.partner:
                opened = self.partner[first - 1]
                if word == ")" and self.control_of(opened):
                    break
                first = opened
                continue
            if word == "}" and first - 1 in self.partner:
                opened = self.partner[first - 1]
                if self.kind[opened] == "block":
                    break
                first = opened
                continue
            first -= 1
        end = i
        depth = 0
        while end < len(self.words):
            word = self.words[end]
            if word in OPENS and end in self.partner:
                if word == "{" and self.kind[end] == "block":
                    break
                end = self.partner[end]
            elif word == ";" or (word == "}" and self.kind.get(self.partner.get(end)) != "value"):
                break
            elif word == ")" and control and self.partner.get(end) == first - 1:
                break
            end += 1
        if control == "for" or control in CONDITIONS and self.word(end) == ";":
            # Of a for it is the condition only between the two semicolons.
            is_second = self.words[first - 1] == ";"
            control = control if is_second and self.word(end) == ";" else ""
        return first, end, control

    def control_of(self, opened):
        before = self.word(opened - 1)
        if before == "constexpr":
            before = self.word(opened - 2)
        return before if before in CONDITIONS else ""


# The control statement in whose head the `;` before `first` stands, if it does.
def enclosing_head(s, first):
    k = first - 1
    while k >= 0:
        word = s.words[k]
        if word in ")]}" and k in s.partner:
            if word == "}" and s.kind[s.partner[k]] == "block":
                return ""
            k = s.partner[k]
        elif word in "([{" and k in s.partner:
            return s.control_of(k) if word == "(" else ""
        k -= 1
    return ""


def is_condition(s, first, end, control):
    if not control and s.word(first - 1) == ";" and s.word(end) in (")", ";"):
        control = enclosing_head(s, first)  # for (…; here; …), if (…; here)
        if control == "for" and s.word(end) == ")":
            control = ""
    return bool(control)


# `const auto v = …`, `T v{…}`: there is a variable.
def declares(words):
    depth = 0
    for k, word in enumerate(words):
        if word in OPENS:
            depth += 1
        elif word in OPENS.values():
            depth -= 1
        elif word == "=" and depth == 0:
            return k >= 2
    return False


def faults_of(s):
    seen = set()
    for i, word in enumerate(s.words):
        if word not in ("co_await", "co_yield"):
            continue
        first, end, control = s.full_expression(i)
        if first in seen:
            continue
        seen.add(first)
        lines = range(s.line(first) - 1, s.line(end - 1) + 1)
        if is_condition(s, first, end, control) and not declares(s.words[first:end]):
            yield i, lines, "co_await in a condition without a variable"
        k = first
        while k < end:
            here = s.words[k]
            if k in s.captures:
                if any_by_value(s.captures[k]):
                    yield k, lines, "a lambda that captures by value"
                k = s.partner[k]
            elif here == "{" and s.kind[k] == "body":
                k = s.partner[k]
            elif here == "{" and s.kind[k] == "value" and s.word(k + 1) != "}":
                yield k, lines, "braces with values"
            elif here == "?":
                yield k, lines, "a conditional expression"
            k += 1


def any_by_value(captures):
    start = True
    depth = 0
    for word in captures:
        if start and word not in ("&", "this", "..."):
            return True
        start = False
        depth += (word in OPENS) - (word in OPENS.values())
        start = word == "," and depth == 0
    return False


def main():
    root = Path(sys.argv[1])
    given = [Path(p) for p in sys.argv[2:]]
    paths = given or [p for f in FOLDERS for p in sorted((root / f).rglob("*.[ch]pp"))]
    faults = []
    coroutines = 0
    for path in paths:
        text = path.read_text()
        if "co_await" not in text:
            continue
        coroutines += 1
        name = path.relative_to(root) if path.is_relative_to(root) else path
        source = Source(text)
        allowed = {n for n, line in enumerate(text.splitlines(), 1) if ALLOWED.search(line)}
        used = set()
        for at, span, what in faults_of(source):
            used |= allowed.intersection(span)
            if allowed.isdisjoint(span):
                faults.append(f"{name}:{source.line(at)}: {what}, in one expression with co_await: "
                              "g++ 12 miscompiles it; name it in a statement before")
        faults += [f"{name}:{n}: allows a shape that is not there" for n in allowed - used]
    print("\n".join(faults) or f"{coroutines} files with co_await, none in a shape of these")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
