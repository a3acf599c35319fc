"""How much each page of the guide is about each word, for the order of the search's results.

Sphinx's index knows only which pages have a word. This one has, for the guide, the page's
part of the most that any page says of it, from 0 to 100, and the heading that says most.
"""
import json
import re

from sphinx.search.en import SearchEnglish

HEADING, TITLE = 12, 24  # a word in one counts as so many in the text
LEAST = 5  # of 100


def words_of(text):
    """Those in it, and the parts of names such as `on_timeout`."""
    for word in re.findall(r"\w+", text.lower()):
        yield word
        if "_" in word:
            yield from filter(None, word.split("_"))


def counts(section, stem):
    found = {}
    text = "\n".join(section.prose + section.code)
    for word in words_of(text):
        found[stem(word)] = found.get(stem(word), 0) + 1
    size = sum(found.values())
    for word in words_of(section.title):
        found[stem(word)] = found.get(stem(word), 0) + (HEADING if section.anchor else TITLE)
    return found, size


def weights(pages):
    """{word: {document: (weight, Section)}}; `pages`: {document: [Section]}."""
    language, stems = SearchEnglish({}), {}

    def stem(word):
        if word not in stems:
            stems[word] = language.stem(word)
        return stems[word]

    found = {}
    for page, of_page in pages.items():
        total, whole, best = {}, 0, {}
        for section in of_page:
            had, size = counts(section, stem)
            whole += size
            for word, count in had.items():
                total[word] = total.get(word, 0) + count
                dense = count / (80 + size)
                if dense > best.get(word, (0, None))[0]:
                    best[word] = dense, section
        for word, count in total.items():
            dense, section = best[word]
            found.setdefault(word, {})[page] = (dense + count / (300 + whole), section)
    return {word: of_word for word, by_page in found.items() if (of_word := shares(by_page))}


def shares(by_page):
    most = max(weight for weight, _ in by_page.values())
    rounded = {page: (round(100 * weight / most), section) for page, (weight, section) in by_page.items()}
    return {page: (weight, section) for page, (weight, section) in rounded.items() if weight >= LEAST}


def write(path, pages):
    """As numbers: a list of the pages with their sections, and where these stand in it."""
    listed = [[page, [[s.anchor, s.title if s.anchor else ""] for s in of_page]] for page, of_page in pages.items()]
    number = {page: i for i, page in enumerate(pages)}
    words = {word: [[number[page], weight, pages[page].index(section)] for page, (weight, section) in of_word.items()]
             for word, of_word in weights(pages).items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"pages": listed, "words": words}, separators=(",", ":"), ensure_ascii=False)
    path.write_text(f"var vigilWords = {text};\n")
