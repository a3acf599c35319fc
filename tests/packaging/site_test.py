#!/usr/bin/env python3
"""The site of docs/ and the reference, as a reader opens it: usage: site_test.py ROOT

Builds it as `./dev docs` does, where a warning is a failure, and follows each link, each
image, script and style sheet of each page from `file://`: the file exists, and so does the
place in it. Then node searches for what site_searches.txt has, and Chromium for a few words;
each of these parts is skipped where its program is missing.
"""
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(sys.argv[1])
NEEDED = {"sphinx": "python3-sphinx", "myst_parser": "python3-myst-parser", "furo": "furo",
          "clang": "python3-clang-14"}
# What a few pages are made of: the whole takes minutes, so it is one of the long forms.
FEW = ["timer", "sleep_for", "after_func", "io::serve"]
SEARCHES = {"sleep_for": "reference/sleep_for.html", "vigil::timer": "reference/timer.html",
            "stop_and_wait": "reference/timer.html", "serve": "reference/io/serve.html",
            "steps+of+the+wall+clock": "docs/guide/clocks.html"}
FIRST = 4  # results, among which a reader finds what is asked


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.places, self.links, self.words = set(), [], []

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        if "id" in found:
            self.places.add(found["id"])
        for name in ("href", "src"):
            if found.get(name):
                self.links.append(found[name])


def broken(html):
    pages = {}
    for path in html.rglob("*.html"):
        pages[path] = Page()
        pages[path].feed(path.read_text())
    faults, count = [], 0
    for path, page in pages.items():
        for link in page.links:
            if link.startswith(("http:", "https:", "data:", "mailto:", "//")):
                continue
            count += 1
            file, _, place = link.partition("#")
            file = file.partition("?")[0]
            target = (path.parent / unquote(file)).resolve() if file else path
            where = f"{path.relative_to(html)}: {link}"
            if not target.is_file():
                faults.append(f"{where}: there is no such file")
            elif place and target in pages and unquote(place) not in pages[target].places:
                faults.append(f"{where}: there is no such place")
    return faults, count, len(pages)


def unreadable(static):
    """What a page of a server may load, and one of a disk may not."""
    for path in sorted(static.rglob("*.css")):
        for target in re.findall(r"url\([\"']?(?!data:|#)([^)\"']+)", path.read_text()):
            if target.startswith("/") or not (path.parent / target).is_file():
                yield f"{path.name}: there is no file {target}"
    for path in sorted(static.rglob("*.js")):
        if re.search(r"^(import|export) ", path.read_text(), re.M) and "patched" not in path.name:
            yield f"{path.name} is a module, which is not loaded from file://"


def shown(page, folder):
    """The document that Chromium makes of a page; None if it cannot."""
    browser = shutil.which("chromium")
    if not browser:
        return None
    try:
        done = subprocess.run([browser, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}",
                               "--virtual-time-budget=20000", "--dump-dom", page],
                              capture_output=True, text=True, check=False, timeout=300)
    except subprocess.TimeoutExpired:
        return None
    return done.stdout if done.returncode == 0 else None


def search(html, folder):
    """The faults of five searches, or None if there is no browser for them."""
    tried = Path(folder) / "tried.html"
    tried.write_text("<p id=p></p><script>document.getElementById('p').append('6*7=' + 6*7)</script>")
    profile = Path(folder) / "profile"
    if "6*7=42" not in (shown(tried.as_uri(), profile) or ""):
        return None
    faults = []
    for words, page in SEARCHES.items():
        found = shown(f"{(html / 'search.html').as_uri()}?q={words}", profile) or ""
        results = re.search(r"<ul class=\"search\".*?</ul>", found, re.S)
        if not results or f'href="{page}' not in results[0]:
            faults.append(f"a search for {words} does not find {page}")
    return faults


def answers(link, wanted):
    page, _, place = link.partition("#")
    name, _, begin = wanted.partition("#")
    return page == f"{name}.html" and place.startswith(begin)


def order(html, whole):
    """The searches whose answer is not among the first results, or None without node. Of a
    part of the site those are tried that a guide in it answers."""
    node = shutil.which("node")
    if not node:
        return None
    here = Path(__file__).parent
    rows = [line.split(" | ") for line in (here / "site_searches.txt").read_text().splitlines()
            if not line.startswith("#")]
    there = {path.relative_to(html).as_posix() for path in html.rglob("*.html")}
    rows = [(query, places.split()) for query, places in rows
            if whole or all(f"{place.partition('#')[0]}.html" in there for place in places.split())]
    done = subprocess.run([node, here / "site_search.js", html], input="".join(f"{query}\n" for query, _ in rows),
                          capture_output=True, text=True, check=False, timeout=300)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode or len(results) != len(rows):
        return [f"site_search.js answers {len(results)} of {len(rows)} searches\n{done.stderr}"]
    print(f"{len(rows)} searches")
    return [f"a search for {query} has none of {' '.join(places)} among its first: {' '.join(links[:FIRST])}"
            for (query, places), links in zip(rows, results)
            if not any(answers(link, place) for link in links[:FIRST] for place in places)]


def main():
    missing = [package for module, package in NEEDED.items() if not importlib.util.find_spec(module)]
    if missing:
        print(f"skipped: not installed: {' '.join(missing)}")
        return 77
    few = [] if os.environ.get("VIGIL_LONG") else ["--only", ",".join(FEW)]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, ROOT / "tools" / "reference", ROOT, "--site", folder, *few],
                              capture_output=True, text=True, check=False)
        if done.returncode:
            print(done.stdout + done.stderr)
            return 1
        html = Path(folder) / "html"
        faults, count, pages = broken(html)
        index = html / "searchindex.js"
        if not index.is_file() or "sleep_for" not in index.read_text():
            faults.append("searchindex.js does not know sleep_for")
        faults += unreadable(html / "_static")
        ordered = order(html, not few)
        if ordered is None:
            print("skipped: the order of a search's results, since there is no node here")
        faults += ordered or []
        searched = search(html, folder)
        if searched is None:
            print("skipped: the search, since there is no Chromium here that shows a page")
        faults += searched or []
        print("\n".join(faults) or f"{count} links of {pages} pages lead somewhere")
        return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
