#!/usr/bin/env python3
"""Writes the table of every call that waits, from the public headers.

usage: waiting_calls.py ROOT [--check]

A function that makes a wait says so in the last line of its comment:

    // Waits: throws stopped, wrong_place.
    // Waits on a fiber (the read deadline): throws stopped, wrong_place.

`on a fiber`, `on a thread`: it may be called only there; without either, on both. The
brackets name the limit of the wait, if that is not a parameter. Every exported function
that takes a wait_limit must have such a line. A public function waits if it says so
itself, or if it calls one that does. It then throws the exceptions of that function,
those of its own body, and those that a function that it calls throws in its body or
says that it throws:

    // Throws: channel_closed.

The parameters tell the limit, and whether the function takes a context: a duration, a
time point, a `const context&`. A form with a context throws `cancelled` as well, a form
with a time std::bad_alloc (for the timer). A noexcept function and a destructor throw
nothing.

Without --check it writes docs/internals/waiting-calls.md; with --check it compares the
file, which is the test `waiting calls` of the suite `lint`.
"""

import dataclasses
import pathlib
import re
import sys

PAGE = "docs/internals/waiting-calls.md"

# Classes of `detail` that are a part of a public class, under the names that users see.
BASES = {
    "sending": "channel, sender",
    "receiving": "channel, receiver",
    "recv_iterator": "range-for over a channel or receiver",
    "fiber_token": "use_fiber",
    "scoped_handle": "scoped_timer, scoped_done_callback, wall::scoped_timer, boot::scoped_timer",
}
# Classes in a header of detail/ -> the header of the public class.
HEADERS = {"recv_iterator": "vigil/channel.hpp", "scoped_handle": "vigil/context.hpp"}
# Objects on which a function of another class is called.
OBJECTS = {
    "of": "semaphore",
    "group_": "group",
    "rt": "runtime",
    "cases": "case_list",
    "below_": "deadline_stream",
}
# What its functions return is awaited by a task: the calls themselves wait for nothing.
AWAITED = "vigil/co.hpp"
# Namespaces whose names users write before the call.
NAMESPACES = ("wall", "boot")
HEAD = """# Every call that waits

`tools/waiting_calls.py` makes this page from the headers; `./dev lint` says when it is
not current.

- **Limit**: a `timeout` is a duration from now, a `deadline` a time point of any clock.
  When it has come the call returns, and its result says so. A call without a limit can
  only be bounded by a context, if it takes one.
- **Context**: the call throws `cancelled` once that context is done, and
  `std::invalid_argument` if it is nil.
- **From**: where the call may wait. *fiber* includes the callbacks that vigil runs
  (`after_func`, `every`, `post`, `on_expire`, `done_callback`), since each runs on a
  fiber; but under `this_fiber::no_park` a wait ends the program. *thread* is a thread
  that runs no fibers, including those on which `blocking` runs its functions. In a
  *handler*, which Asio runs on a worker's own stack, nothing may wait: a call that
  would have to throws `wrong_place`; a destructor, or another call that throws
  nothing, blocks the worker or ends the program with a message.
- **Throws**: `stopped` when the fiber is asked to stop, `wrong_place` where the call
  may not wait, `std::bad_alloc` if the timer cannot be armed. *nothing*: a stop does
  not end the wait either.

With `io::use_fiber` as the token, every asynchronous operation of Asio is a call that
waits on a fiber; `.within`, `.until` and `.under` limit it, together if need be.
`this_fiber::yield` waits for nothing, but throws `stopped`. Each call below may switch to
other fibers even if it need not wait, since such calls have [a
budget](../guide/fibers.md#waits-that-need-not-wait); so may a `select` with `otherwise`,
and each `co_await` of a task. Destructors, the calls that throw nothing, and a
`once::call` whose function has run do not. An object that contains one of those below (as
a member or an element) waits where that does.
"""

@dataclasses.dataclass
class Function:
    scope: tuple  # the classes around it
    name: str
    parameters: list  # of (type, name)
    body: str
    comment: str
    is_public: bool
    is_detail: bool
    is_exported: bool
    where: str
    sees: set  # the headers that its own includes
    space: str  # one of NAMESPACES
    throws: set = dataclasses.field(default_factory=set)
    limit: str = ""
    place: str = ""  # the only place where it may wait: fiber, thread
    waits: bool = False
    is_noexcept: bool = False


def matching(text, at):
    """Returns the index after the bracket that closes the one at `at`."""
    pairs = {"(": ")", "{": "}", "[": "]"}
    stack = []
    for i in range(at, len(text)):
        c = text[i]
        if c in pairs:
            stack.append(pairs[c])
        elif stack and c == stack[-1]:
            stack.pop()
            if not stack:
                return i + 1
    raise ValueError("no closing bracket: " + text[at : at + 60])


def without_template(head):
    """Returns `head` without `template <...>` and a requires-clause in brackets."""
    while m := re.match(r"\s*template\s*<", head):
        depth, i = 1, m.end()
        while depth:
            depth += {"<": 1, ">": -1}.get(head[i], 0)
            i += 1
        head = head[i:]
    if m := re.match(r"\s*requires\s*\(", head):
        head = head[matching(head, m.end() - 1) :]
    return head.strip()


def split(parameters):
    """Splits at commas outside brackets."""
    parts, depth, last = [], 0, 0
    for i, c in enumerate(parameters):
        depth += {"(": 1, "<": 1, "{": 1, "[": 1, ")": -1, ">": -1, "}": -1, "]": -1}.get(c, 0)
        if c == ">" and parameters[i - 1] == "-":
            depth += 1
        if c == "," and depth == 0:
            parts.append(parameters[last:i])
            last = i + 1
    parts.append(parameters[last:])
    return [p.strip() for p in parts if p.strip()]


def parameter(text):
    """Returns (type, name) of a parameter; the name includes the default value."""
    text, _, default = (p.strip() for p in text.partition("="))
    m = re.match(r"(.*[\s&*.])(\w+)$", text, re.S)
    kind, name = (m[1].strip(), m[2]) if m else (text, "")
    return kind, f"{name} = {default}" if default else name


CLASS = re.compile(
    r"(class|struct|union)\b[^(=]*?(\w+)\s*(?:<[^;{]*>\s*)?(final\s*)?(:[^:].*)?$", re.S
)
NAME = re.compile(r"(operator\s*\(\)|operator\s*[^\s(\w]+|~?\w+)\s*\(")
NO_FUNCTION = ("using", "static_assert", "friend", "enum")
INITIALISERS = re.compile(r"\)\s*(noexcept)?\s*:[^:].*\w\s*$", re.S)


def functions_of(path, root):
    """Returns the functions that a header declares or defines."""
    text = path.read_text()
    text = re.sub(r"^[ \t]*#(.*\\\n)*.*", "", text, flags=re.M)
    comments = {}

    def keep_length(m):
        comments[m.start()] = m[0]
        return " " * len(m[0])

    text = re.sub(r"//[^\n]*", keep_length, text)
    text = re.sub(r'"(?:[^"\\\n]|\\.)*"', lambda m: '"' + "_" * (len(m[0]) - 2) + '"', text)
    text = re.sub(r"'(?:[^'\\\n]|\\.)'", "'_'", text)
    found = []

    def comment_before(at):
        said, last = [], text.rfind("\n", 0, at)
        while last > 0:
            first = text.rfind("\n", 0, last) + 1
            here = [c for p, c in comments.items() if first <= p < last]
            if not here or text[first:last].strip():
                break
            said.insert(0, here[0].lstrip("/ "))
            last = first - 1
        return "\n".join(said)

    def read(begin, end, scope, is_public, is_detail, space=""):
        at = begin
        while at < end:
            if m := re.compile(r"[\s;}]+").match(text, at, end):
                at = m.end()
                continue
            if m := re.compile(r"(public|private|protected)\s*:(?!:)").match(text, at, end):
                is_public = m[1] == "public"
                at = m.end()
                continue
            first, depth, i = at, 0, at
            while i < end and (depth or text[i] not in ";{"):
                depth += {"(": 1, ")": -1}.get(text[i], 0)
                i += 1
            head = text[first:i]
            if i >= end:
                return
            behind = matching(text, i) if text[i] == "{" else i + 1
            plain = without_template(head)
            if re.match(r"(inline\s+)?namespace\b", plain):
                inner = is_detail or re.search(r"\bdetail|_DETAIL\b", plain) is not None
                name = plain.split()[-1]
                read(i + 1, behind - 1, scope, True, inner, name if name in NAMESPACES else space)
            elif m := CLASS.match(re.sub(r"\[\[.*?\]\]|\bVIGIL_API\b", "", plain)):
                if text[i] == "{":
                    shows = m[1] != "class" and (is_public or not scope)
                    read(i + 1, behind - 1, scope + (m[2],), shows, is_detail, space)
            elif "(" in plain and not plain.startswith(NO_FUNCTION):
                # Members' initialisers in braces are not a body.
                while text[i] == "{" and INITIALISERS.search(text[first:i]):
                    i = behind
                    while text[i] not in ";{":
                        i += 1
                    behind = matching(text, i) if text[i] == "{" else i + 1
                add(first, plain, text[i:behind], scope, is_public, is_detail, space)
            elif text[i] == "{" and not plain.startswith("enum"):
                behind = text.index(";", behind) + 1  # a variable
            at = behind

    def add(first, plain, body, scope, is_public, is_detail, space):
        plain = re.sub(r"\[\[.*?\]\]", "", plain)
        m = NAME.search(plain)
        while m and m[1] in ("requires", "decltype", "explicit", "noexcept", "alignas"):
            m = NAME.search(plain, matching(plain, m.end() - 1))
        if not m:
            return
        behind = matching(plain, m.end() - 1)
        parameters = [parameter(p) for p in split(plain[m.end() : behind - 1])]
        rest = plain[behind:]
        found.append(
            Function(
                scope=scope,
                name=m[1],
                parameters=parameters,
                body=rest + body,
                comment=comment_before(first),
                is_public=is_public,
                is_detail=is_detail,
                is_exported="VIGIL_API" in plain,
                where=str(path.relative_to(root / "include")),
                sees=set(),
                space=space,
                is_noexcept=m[1][0] == "~" or bool(re.match(r"\s*(const\s*)?noexcept", rest)),
            )
        )

    read(0, len(text), (), True, False)
    return found


# Exported functions that take a limit and do not wait.
WITHOUT_WAIT = ("goes_to_side_pool",)
SAYS = re.compile(r"^Waits(?: on a (fiber|thread))?(?: \((.*?)\))?: throws (.*?)\.$", re.S | re.M)
THROWS = re.compile(r"^Throws: (.*?)\.$", re.S | re.M)
THROW = re.compile(r"\bthrow\s+([\w:]+)\s*[({]")


def listed(text):
    return {" ".join(t.split()) for t in text.split(",")} - {"nothing"}


def find_waits(all_of):
    """Marks the functions that wait: by their comments, then by their calls."""
    says_all = set()
    for f in all_of:
        if m := SAYS.search(f.comment):
            f.waits = True
            f.place, f.limit = m[1] or "", " ".join((m[2] or "").split())
            f.throws = listed(m[3])
            says_all.add(id(f))
        elif m := THROWS.search(f.comment):
            f.throws = listed(m[1])
            says_all.add(id(f))
        else:
            f.throws = set(THROW.findall(f.body))
        if f.is_exported and any("wait_limit" in kind for kind, _ in f.parameters):
            if not f.waits and f.name not in WITHOUT_WAIT:
                sys.exit(
                    f"{f.where}: {f.name} takes a wait_limit and does not say what it throws: "
                    "add a line `// Waits: throws ...` to its comment"
                )
    named = {}
    for f in all_of:
        named.setdefault(f.name, []).append(f)
    calls = {id(f): callees(f, named) for f in all_of if id(f) not in says_all}
    changed = True
    while changed:
        changed = False
        for f in all_of:
            if f.is_noexcept:
                f.throws = set()
            for g in calls.get(id(f), ()):
                place, limit = f.place or g.place, f.limit or g.limit
                before = (f.waits, f.place, f.limit, len(f.throws))
                if g.waits:
                    f.waits, f.place, f.limit = True, place, limit
                if not f.is_noexcept:
                    f.throws |= g.throws
                changed = changed or before != (f.waits, f.place, f.limit, len(f.throws))


CALL = re.compile(
    r"(?:(\w+)\s*(\.|->)\s*)?((?:\w+\s*::\s*)*)(\w+)\s*(?:<[\w:, ]*>)?\s*\("
)


def callees(f, named):
    """Returns the functions that f's body may call; overloads by their number of arguments."""
    result = []
    for m in CALL.finditer(f.body):
        thing, member, qualifier, name = m[1], m[2], m[3].replace(" ", ""), m[4]
        if name not in named:
            continue
        arguments = len(split(f.body[m.end() : matching(f.body, m.end() - 1) - 1]))
        siblings = any(h.scope[-1:] == f.scope[-1:] for h in named[name] if f.scope)
        for g in named[name]:
            if g is f or g.where not in f.sees or not takes(g, arguments):
                continue
            if member:
                right = g.scope[-1:] == (OBJECTS.get(thing),)
            elif qualifier:
                right = qualifier.startswith(("detail", "vigil::detail")) and g.is_detail and not g.scope
            elif siblings:
                right = g.scope[-1:] == f.scope[-1:]
            else:
                right = not g.scope and g.is_detail == f.is_detail
            # Among overloads, the one that takes a context if f does: f passes it on.
            if right and g.name == f.name and g.scope and g.scope == f.scope:
                right = has_context(f) == has_context(g)
            if right:
                result.append(g)
    return result


def takes(f, arguments):
    if any("..." in kind for kind, _ in f.parameters):
        return True
    least = sum("=" not in name for _, name in f.parameters)
    return least <= arguments <= len(f.parameters)


def has_context(f):
    return any(re.search(r"\bcontext&?$", kind) for kind, _ in f.parameters)


def row(f):
    limits, context = [], "–"
    for kind, name in f.parameters:
        if re.match(r"const D&", kind):
            limits.append("timeout")
        elif re.match(r"const Time&", kind):
            limits.append("deadline")
        elif re.search(r"\bcontext&?$", kind) and name == "ctx":
            context = "`ctx`"
    shown = [n + "..." * ("..." in t) for t, n in f.parameters if "site" not in t and n]
    throws = set(f.throws)
    if context != "–":
        throws.add("cancelled")
    if (limits or re.search(r"deadline", f.limit)) and not f.is_noexcept:
        throws.add("std::bad_alloc")
    untimed = " (without a time)"
    throws = {t.removesuffix(untimed) for t in throws if not (limits and t.endswith(untimed))}
    order = ["stopped", "cancelled", "channel_closed", "wrong_place"]
    rank = {t: i for i, t in enumerate(order)}
    plain = sorted(throws, key=lambda t: (rank.get(t, len(order)), " " in t, t))
    words = [t if " " in t else f"`{t}`" for t in plain]
    owner = BASES.get(f.scope[-1], f.scope[-1]) if f.scope else f.space
    if f.where == "vigil/testing.hpp":
        owner = "testing"
    if "io/" in f.where:
        owner = "io::" + owner if owner else "io"
    if f.name == "operator++":
        call = owner
    elif f.scope and f.name == f.scope[-1]:
        call = f"`{f.name}({', '.join(shown)})`"
    elif f.name[0] == "~" and f.scope[-1] in BASES:
        call = f"the end of `{owner}`"
    elif f.name == "operator=":
        call = f"`{owner} = std::move({shown[0]})`"
    elif f.name[0] == "~":
        call = f"`{f.name}()`"
    else:
        sign = "." if owner == "io::use_fiber" else "::" if owner else ""
        call = f"`{owner}{sign}{f.name}({', '.join(shown)})`"
    limit = ", ".join(limits) or f.limit or "–"
    place = f.place or "fiber, thread"
    return f"| {call} | {limit} | {context} | {place} | {', '.join(words) or 'nothing'} |"


def is_shown(f):
    if not f.waits or not f.is_public:
        return False
    if f.is_detail and not (f.scope and f.scope[-1] in BASES):
        return False
    if any("wait_limit" in kind for kind, _ in f.parameters):
        return False
    return not (f.name == "operator++" and f.parameters)


def page(root):
    all_of = []
    includes = {}
    for path in sorted((root / "include/vigil").rglob("*.hpp")):
        all_of += functions_of(path, root)
        header = str(path.relative_to(root / "include"))
        includes[header] = set(re.findall(r"#include <(vigil/.*?)>", path.read_text()))
    for f in all_of:
        more = {f.where}
        while more:
            f.sees |= more
            more = set().union(*(includes.get(h, set()) for h in more)) - f.sees
    find_waits(all_of)
    text = HEAD
    headers = {}
    for f in all_of:
        if is_shown(f) and f.where != AWAITED:
            where = HEADERS.get(f.scope[-1], f.where) if f.scope else f.where
            rows = headers.setdefault(where, [])
            if (line := row(f)) not in rows:
                rows.append(line)
    for header in sorted(headers, key=lambda h: ("/io/" in h, h)):
        text += f"\n## `<{header}>`\n\n| Call | Limit | Context | From | Throws |\n|---|---|---|---|---|\n"
        text += "\n".join(headers[header]) + "\n"
    return text


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    root = pathlib.Path(sys.argv[1])
    text = page(root)
    file = root / PAGE
    if "--check" not in sys.argv:
        file.write_text(text)
    elif not file.exists() or file.read_text() != text:
        sys.exit(f"{PAGE} is not what the headers say: run tools/waiting_calls.py .")
    calls = sum(line.startswith("| ") for line in text.splitlines()) - text.count("| Call |")
    print(f"{calls} calls that wait")


if __name__ == "__main__":
    main()
