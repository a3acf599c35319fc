#!/usr/bin/env python3
"""Checks the lists that name all of something: usage: check_lists.py SOURCE_ROOT

pages       README.md and docs/guide/first-steps.md link every page of the guide, every
            coming-from page and docs/performance.md; ARCHITECTURE.md, or a page that it
            links, every page of docs/internals and docs/decisions
headers     a public header is included by vigil/vigil.hpp or vigil/io.hpp, or stands in
            the table of first-steps.md; what that table names exists
libraries   pkg-config's names in src/meson.build are those of src/'s folders, of meson's
            subprojects, of vigil.wrap, of CMake's two lists of targets, of the packaging
<<<<<<< HEAD
            test, of ARCHITECTURE.md's tree, and of installing.md's table, with their components
=======
            test, of ARCHITECTURE.md's tree, and of README.md's table, with their components
types       packaging/abi/types.cpp has each class that vigil/fwd.hpp declares
>>>>>>> 9f356a55 (abi: what abidw says of 0.2.0, compared by abidiff)
tree        ARCHITECTURE.md's tree has the folders of the first two levels
names       a library, a component or a target that a page names is one of these
tasks       the links of each row of docs/internals/ten-tasks.md lead from README.md to the
            section that has the code, by three at most
"""
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
import repository  # noqa: E402

ROOT = Path(sys.argv[1]).resolve()
COMPONENTS = re.compile(r"COMPONENTS ([a-z_ ]+)[)\]]|\bcomponents? ((?:`[\w-]+`(?:, | and )?)+)")
# Named like a library: tools, and packages of Debian.
OTHERS = {"vigil-symbols", "vigil-asio-check", "vigil-doc", "vigil-tools"}
faults = []


def text_of(path):
    return (ROOT / path).read_text()


def expect_same(wanted, found, where, what):
    faults.extend(f"{where}: lacks {what} {x}" for x in sorted(wanted - found))
    faults.extend(f"{where}: names {what} {x}, which does not exist" for x in sorted(found - wanted))


def links_of(page):
    """The pages that a page links, relative to the root."""
    folder = (ROOT / page).parent
    return {(folder / link).resolve().relative_to(ROOT).as_posix()
            for link in re.findall(r"\]\(([\w./-]+\.md)", text_of(page))}


def pages_in(*patterns):
    return {p.relative_to(ROOT).as_posix() for pattern in patterns for p in ROOT.glob(pattern)}


def check_pages():
    for_users = pages_in("docs/guide/*.md", "docs/*.md")
    first = "docs/guide/first-steps.md"
    for page in ("README.md", first):
        lacks = for_users - links_of(page) - {page}
        faults.extend(f"{page}: does not link {x}" for x in sorted(lacks))
    linked = links_of("ARCHITECTURE.md") | links_of("README.md")
    for page in sorted(pages_in("docs/internals/*.md", "docs/decisions/*.md") - linked):
        faults.append(f"ARCHITECTURE.md and README.md: neither links {page}")


def included_by(header, seen):
    if header not in seen:
        seen.add(header)
        for name in re.findall(r"^#include <(vigil/[\w/]+\.hpp)>", text_of(f"include/{header}"), re.M):
            included_by(name, seen)
    return seen


def check_headers():
    public = {p.relative_to(ROOT / "include").as_posix() for folder in ("vigil", "vigil/io")
              for p in (ROOT / "include" / folder).glob("*.hpp")}
    at_once = included_by("vigil/vigil.hpp", set()) | included_by("vigil/io.hpp", set())
    page = "docs/guide/first-steps.md"
    table = re.search(r"<!-- headers -->\n(.*?)\n\n", text_of(page), re.S)
    named = set(re.findall(r"`(vigil/[\w/]+\.hpp)`", table[1] if table else ""))
    alone = public - at_once | {"vigil/io.hpp"}
    expect_same(alone, named, page, "the header")


def check_types():
    forward = re.sub(r"^namespace detail \{.*?^\}$", "", text_of("include/vigil/fwd.hpp"), flags=re.M | re.S)
    guarded = text_of("packaging/abi/types.cpp")
    for name in re.findall(r"^(?:class|struct) (\w+);", forward, re.M):
        if not re.search(rf"\bvigil::{name}\b", guarded):
            faults.append(f"packaging/abi/types.cpp: lacks vigil::{name}")


def library_of(folder):
    return "vigil" if folder == "core" else "vigil-" + folder.replace("_", "-")


def tree_of(page):
    found = re.search(r"<!-- tree -->\n```\n(.*?)```", text_of(page), re.S)
    return found[1] if found else ""


def check_tree():
    """A folder stands there if git knows a file in it."""
    known = repository.git(ROOT, "ls-files")
    if known is None:
        print(f"skipped: the tree of ARCHITECTURE.md: {repository.NONE}")
        return
    wanted = {"/".join(parts[:n]) for parts in (line.split("/") for line in known.splitlines())
              for n in (1, 2) if len(parts) > n}
    named, above = set(), ""
    for indent, folder in re.findall(r"^( *)([.\w]+)/", tree_of("ARCHITECTURE.md"), re.M):
        above = above if indent else folder
        named.add(f"{above}/{folder}" if indent else folder)
    expect_same(wanted, named, "ARCHITECTURE.md, the tree", "the folder")


def check_libraries():
    """Returns the names of the libraries, and their components."""
    meson = text_of("src/meson.build")
    libraries = set(re.findall(r"pkgconfig\.generate\(\s*name: '([\w-]+)'", meson))
    components = {library.removeprefix("vigil-").replace("-", "_") for library in libraries}
    config = text_of("cmake/vigil-config.cmake.in")
    page = "docs/guide/installing.md"
    table = re.findall(r"^\| `(vigil[\w-]*)` \| `vigil::(\w+)` \|", text_of(page), re.M)
    lists = {
        "src/meson.build, override_dependency":
            re.findall(r"override_dependency\('([\w-]+)'", meson),
        "src/": [library_of(p.name) for p in (ROOT / "src").iterdir() if p.is_dir()],
        "meson.build, libraries":
            [library_of(x) for x in re.findall(r"^  '(\w+)': (?:true|build_\w+),$", text_of("meson.build"), re.M)],
        "ARCHITECTURE.md, the tree":
            re.findall(r"^  \w+/ +(vigil[\w-]*):", tree_of("ARCHITECTURE.md"), re.M),
        "vigil.wrap": re.search(r"^dependency_names = (.*)$", text_of("vigil.wrap"), re.M)[1].split(", "),
        "CMakeLists.txt": re.findall(r"^ *vigil_library\(([\w-]+) ", text_of("CMakeLists.txt"), re.M),
        "cmake/vigil-config.cmake.in": re.findall(r"^ *_vigil_library\(\w+ ([\w-]+)", config, re.M),
        "tests/packaging/ways_test.py":
            re.findall(r"\"(vigil[\w-]*)\": \"\w*program\.cpp\"", text_of("tests/packaging/ways_test.py")),
        f"{page}, the table of libraries": [library for library, _ in table],
    }
    for where, names in lists.items():
        expect_same(libraries, set(names), where, "the library")
    expect_same(components, {component for _, component in table}, page, "the component")
    wanted = re.search(r"set\(_vigil_wanted (vigil .*)\)$", config, re.M)[1].split()
    expect_same(components, set(wanted), "cmake/vigil-config.cmake.in, the default", "the component")
    return libraries, components


def check_names(libraries, components):
    for page in sorted(pages_in("*.md", "docs/**/*.md", "cmake/*.in", "CMakeLists.txt")):
        text = text_of(page)
        named = [word for found in COMPONENTS.findall(text) for word in re.findall(r"[\w-]+", " ".join(found))
                 if word not in ("and", "context")]  # Boost's
        faults.extend(f"{page}: there is no component {x}" for x in sorted(set(named) - components))
        if not page.endswith(".md") or page == "CHANGELOG.md":
            continue
        named = re.findall(r"dependency\('([\w-]+)'\)|`(vigil-[a-z-]+)`", text)
        unknown = {a or b for a, b in named} - libraries - OTHERS
        faults.extend(f"{page}: there is no library {x}" for x in sorted(unknown))


def anchor_of(heading):
    """GitHub's."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def section_of(page, anchor):
    """The text below a heading, up to the next one of its level or above, or the page."""
    text = re.sub(r"```.*?```", lambda m: m[0].replace("\n#", "\n "), text_of(page), flags=re.S)
    if not anchor:
        return text
    for found in re.finditer(r"^(#+) (.*)$", text, re.M):
        if anchor_of(found[2]) == anchor:
            rest = text[found.end():]
            end = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.M)
            return rest[:end.start()] if end else rest
    return None


def check_tasks():
    page = "docs/internals/ten-tasks.md"
    rows = [line.split(" | ") for line in text_of(page).splitlines() if re.match(r"\| [a-z].*\]\(", line)]
    if len(rows) != 10:
        faults.append(f"{page}: has {len(rows)} tasks")
    for task, way, there, word in rows:
        task, at = task.strip("| "), "README.md"
        links = re.findall(r"\[([^\]]*)\]\(\.\./([\w./-]+\.md)(?:#([\w-]+))?\)", way)
        if not 1 <= len(links) <= 3:
            faults.append(f"{page}: {task}: {len(links)} links")
        section, title = None, ""
        for title, target, anchor in links:
            target = f"docs/{target}"
            if target not in (at, *links_of(at)):
                faults.append(f"{page}: {task}: {at} does not link {target}")
            at, section = target, section_of(target, anchor)
            if section is None:
                faults.append(f"{page}: {task}: {target} has no heading #{anchor}")
        if section is not None and there.strip("`") not in section:
            faults.append(f"{page}: {task}: {there} is not in the section {title}")
        headings = re.findall(r"^#+ (.*)$", text_of(at), re.M)
        if not any(word.strip("| ").lower() in heading.lower() for heading in headings):
            faults.append(f"{page}: {task}: no heading of {at} has {word}")


def main():
    check_tasks()
    check_pages()
    check_headers()
    check_types()
    check_tree()
    check_names(*check_libraries())
    print("\n".join(faults) or "each list is whole")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
