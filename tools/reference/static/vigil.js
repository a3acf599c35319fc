/* The search of the site: `vigil::sleep_for` finds what `sleep_for` finds, the guide stands
   above the reference, and both above what is for maintainers. */
document.addEventListener("DOMContentLoaded", () => {
  if (typeof Search === "undefined") return;

  const kinds = [
    [/^docs\/guide\/recipes$/, 0.85],
    [/^docs\/guide\/lifetimes$/, 0.75],
    [/^docs\/guide\//, 1],
    [/^reference\/headers\//, 0.7],
    [/^reference\/(index|alphabetical|elsewhere)$/, 0.6],
    [/^reference\//, 0.9],
    [/^docs\/(coming-from|platforms)|^index/, 0.75],
    [/^(docs\/(decisions|internals)\/|CHANGELOG|CONTRIBUTING)/, 0.35],
  ];
  const weightOf = (page) => (kinds.find(([pattern]) => pattern.test(page)) || [null, 0.55])[1];

  const scores = new Map();  // of what was found as a member or in the text
  const scored = (item, score) => {
    scores.set(item, score * weightOf(item[0]));
    return item;
  };
  // A title that is all of the query comes first, a page's before a section's. The page of a
  // name is found as its only section: its title is code, and the section's is not.
  Scorer.score = (item) => {
    if (scores.has(item)) return scores.get(item);
    const parts = item[1].replace(/<[^>]*>/g, "").split(" > ");
    const isPage = parts.length === 1 || parts[0] === parts[1].replace(/&/g, "&amp;");
    if (isPage) item[1] = parts[0];
    const whole = isPage ? 135 : 70;
    return weightOf(item[0]) * (item[4] >= 100 ? whole : 0.6 * item[4] + (isPage ? 15 : 0));
  };

  const members = Search.performObjectSearch;
  Search.performObjectSearch = (term, terms) => members(term, terms).map((item) =>
    scored(item, item[1].toLowerCase().split("::").pop() !== term ? 25 : term.includes("_") ? 100 : 60));

  const common = new Set(("a an and any anything are as at be by c can code could do does for from get " +
    "how i if in into is it make me my need of on or our program should so some something that the their " +
    "then there this to use using vigil want was we what when where which why will with without " +
    "would you your").split(" "));
  const stemmer = new Stemmer();
  for (const word of [...common]) common.add(stemmer.stemWord(word));
  const stemsOf = (title) => new Set((title.toLowerCase().match(/[\p{L}\p{N}_]+/gu) || []).flatMap((word) =>
    [word, ...(word.includes("_") ? word.split("_") : [])]).filter((word) => word && !common.has(word))
    .map((word) => stemmer.stemWord(word)));

  // The sections of the guide, by what their text and their titles say of the words; a rare
  // word counts more. A page has two at most.
  const said = (terms) => {
    const sections = vigilWords.pages.flatMap(([page, of]) => of.map(([anchor, title, ...asked], i) =>
      ({ page, anchor, title, above: of[0][1], isPage: i === 0, score: 0, texts: new Map(),
        titles: [title, ...asked].map(stemsOf) })));
    const mostOf = new Map();  // "page word": the most of a section
    const rarity = new Map(terms.map((term) => {
      const found = Object.hasOwn(vigilWords.words, term) ? vigilWords.words[term] : [];
      for (let i = 0; i < found.length; i += 2) {
        const section = sections[found[i]];
        section.texts.set(term, found[i + 1]);
        const key = `${section.page} ${term}`;
        mostOf.set(key, Math.max(mostOf.get(key) || 0, found[i + 1]));
      }
      return [term, Math.log(1 + sections.length / (1 + found.length / 2))];
    }));
    const rare = (stem) => rarity.get(stem) || 3;
    const sum = (stems) => [...stems].reduce((total, stem) => total + rare(stem), 0);
    const all = sum(terms) || 1;
    let above = new Set();
    for (const section of sections) {
      if (section.isPage) above = section.titles[0];
      const own = new Set(section.titles.flatMap((title) => [...title]));
      for (const term of terms) {
        const text = section.texts.has(term) ? section.texts.get(term)
          : 0.3 * (mostOf.get(`${section.page} ${term}`) || 0);
        section.score += rare(term) / all * (0.5 * text + (own.has(term) ? 35 : above.has(term) ? 15 : 0));
      }
      // How much the query and a title have in common.
      section.score += 30 * Math.max(...section.titles.map((title) =>
        2 * sum(terms.filter((term) => title.has(term))) / (all + sum(title) || 1)));
    }
    const ofPage = new Map();
    sections.sort((a, b) => b.score - a.score || a.isPage - b.isPage);
    return sections.filter(({ page, score }) => {
      ofPage.set(page, (ofPage.get(page) || 0) + 1);
      return score >= 10 && ofPage.get(page) <= 2;
    });
  };
  const escaped = (text) => text.replace(/`/g, "").replace(/&/g, "&amp;").replace(/</g, "&lt;");
  const texts = Search.performTermsSearch;
  Search.performTermsSearch = (terms, excluded) => {
    const found = texts(terms, excluded);
    if (typeof vigilWords === "undefined") return found;
    const inGuide = new Set(vigilWords.pages.map(([page]) => page));
    const others = found.filter(([page]) => !inGuide.has(page)).map((item) =>
      scored(item, 20 + (item[4] >= Scorer.title ? 10 : 0)));
    const asked = [...terms].filter((term) => !common.has(term));
    const file = (page) => Search._index.filenames[Search._index.docnames.indexOf(page)];
    const sections = said(asked.length ? asked : [...terms]).map((s) => scored([s.page,
      escaped(s.isPage ? s.title : `${s.above} > ${s.title}`), s.isPage ? "" : `#${s.anchor}`,
      null, 0, file(s.page)], 10 + s.score));
    return others.concat(sections);
  };

  const seen = new Set();
  const query = Search.query;
  const words = document.createElement("script");
  const loaded = new Promise((done) => { words.onload = words.onerror = done; });
  words.src = new URL("_static/search_words.js", window.location).href;
  document.body.appendChild(words);
  Search.query = (asked) => loaded.then(() => {
    seen.clear();
    query(asked.replace(/\bvigil::/g, ""));
    // Nothing is marked on the page that a result leads to.
    localStorage.removeItem("sphinx_highlight_terms");
  });

  // A place, or a title of a page, stands once in the results; so does a whole page.
  new MutationObserver((changes) => {
    for (const item of changes.flatMap((change) => [...change.addedNodes])) {
      const link = item.nodeName === "LI" && item.querySelector("a");
      if (!link) continue;
      const page = link.pathname;
      const keys = [page + link.hash, page + "\n" + link.textContent];
      if (keys.some((key) => seen.has(key)) || (seen.has(page) && !link.hash)) item.remove();
      seen.add(page);
      keys.forEach((key) => seen.add(key));
    }
  }).observe(document.getElementById("search-results"), { childList: true, subtree: true });
});
