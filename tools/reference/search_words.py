"""How much each section of the guide is about each word, for the order of the search's results.

Sphinx's index knows only which pages have a word. This one has, for the guide and the pages
beside it, the sections that have it, with each section's part of the most that any says of
it, from 0 to 100. A page's first section stands for all of the page, and is compared with
those of other pages. docs/reference/searches.txt gives sections further titles.
"""
import json
import re

from sphinx.search.en import SearchEnglish

LEAST = 5  # of 100

def words_of(text):
    """Those in it, and the parts of names such as `on_timeout`."""
    for word in re.findall(r"\w+", text.lower()):
        yield word
        if "_" in word:
            yield from filter(None, word.split("_"))


class Stems:
    def __init__(self):
        self.language, self.known = SearchEnglish({}), {}

    def count(self, text):
        found = {}
        for word in words_of(text):
            if word not in self.known:
                self.known[word] = self.language.stem(word)
            found[self.known[word]] = found.get(self.known[word], 0) + 1
        return found


def text_of(section):
    return re.sub(r"\]\([^)]*\)", "]", "\n".join(section.prose + section.code))


def densities(counted, spare):
    """{stem: its part of the text}; with `spare`, a short text counts less."""
    size = sum(counted.values()) + spare
    return {stem: count / size for stem, count in counted.items()}


def weights(pages):
    """{word: {(document, number of the section): weight}}; `pages`: {document: [Section]}."""
    stems, found, most = Stems(), {}, ({}, {})
    for page, of_page in pages.items():
        for number, section in enumerate(of_page):
            text = text_of(section) if number else "\n".join(map(text_of, of_page))
            for stem, density in densities(stems.count(text), 80 if number else 300).items():
                of_kind = most[number > 0]
                of_kind[stem] = max(density, of_kind.get(stem, 0))
                found.setdefault(stem, {})[page, number] = density
    return {stem: {(page, number): weight for (page, number), density in of_word.items()
                   if (weight := round(100 * density / most[number > 0][stem])) >= LEAST}
            for stem, of_word in found.items()}


def anchors(html, sections):
    """Those that Sphinx has given the headings, of which the first is the page's own."""
    found = re.findall(r'<section id="([^"]+)"', html.read_text())
    if len(found) != len(sections):
        raise SystemExit(f"{html}: has {len(found)} sections, and its source {len(sections)}")
    return ["", *found[1:]]


def write(html, pages):
    """For the site in `html`, as numbers: the pages with their sections, and for each word the
    numbers of sections, counted through all pages, each followed by its weight."""
    listed = [[page, [[anchor, s.title, *s.asked]
                      for anchor, s in zip(anchors(html / f"{page}.html", of_page), of_page)]]
              for page, of_page in pages.items()]
    places = [(page, i) for page, of_page in pages.items() for i in range(len(of_page))]
    number = {place: i for i, place in enumerate(places)}
    words = {word: [n for place, weight in of_word.items() for n in (number[place], weight)]
             for word, of_word in weights(pages).items()}
    text = json.dumps({"pages": listed, "words": words}, separators=(",", ":"), ensure_ascii=False)
    (html / "_static" / "search_words.js").write_text(f"var vigilWords = {text};\n")
