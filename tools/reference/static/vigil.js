/* The search of the site: `vigil::sleep_for` finds what `sleep_for` finds, the guide stands
   above the reference, and both above what is for maintainers. */
document.addEventListener("DOMContentLoaded", () => {
  if (typeof Search === "undefined") return;

  const kinds = [
    [/^docs\/guide\/recipes$/, 0.7],
    [/^docs\/guide\//, 1],
    [/^reference\/headers\//, 0.7],
    [/^reference\/(index|alphabetical|elsewhere)$/, 0.6],
    [/^reference\//, 0.9],
    [/^docs\/coming-from/, 0.75],
    [/^(docs\/(decisions|internals)\/|CHANGELOG|CONTRIBUTING)/, 0.35],
  ];
  const weightOf = (page) => (kinds.find(([pattern]) => pattern.test(page)) || [null, 0.55])[1];

  const scores = new Map();  // of what was found as a member or in the text
  const led = new Set();  // places in a page to which a word in its text leads
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
    scored(item, item[1].toLowerCase().split("::").pop() === term ? 50 : 25));

  // What a page of the guide says of a word, or undefined.
  const saidOf = (page, word) => {
    if (typeof vigilWords === "undefined" || !Object.hasOwn(vigilWords.words, word)) return undefined;
    const found = vigilWords.words[word].find(([number]) => vigilWords.pages[number][0] === page);
    if (!found) return undefined;
    const [anchor, heading] = vigilWords.pages[found[0]][1][found[2]];
    return { share: found[1], anchor, heading };
  };
  const texts = Search.performTermsSearch;
  Search.performTermsSearch = (terms, excluded) => texts(terms, excluded).map((item) => {
    const said = [...terms].map((term) => saidOf(item[0], term)).filter((found) => found);
    const share = said.reduce((sum, found) => sum + found.share, 0) / Math.max(1, terms.size);
    const score = 20 + (item[4] >= Scorer.title ? 10 : 0) + 0.4 * share;
    if (said.length === 1 && terms.size === 1 && said[0].anchor) {
      item[1] += ` > ${said[0].heading.replace(/[&<]/g, (c) => (c === "&" ? "&amp;" : "&lt;")).replace(/`/g, "")}`;
      item[2] = `#${said[0].anchor}`;
      led.add(item[0] + item[2]);
    }
    return scored(item, score);
  });

  const query = Search.query;
  const words = document.createElement("script");
  const loaded = new Promise((done) => { words.onload = words.onerror = done; });
  words.src = new URL("_static/search_words.js", window.location).href;
  document.body.appendChild(words);
  Search.query = (asked) => loaded.then(() => {
    query(asked.replace(/\bvigil::/g, ""));
    // Nothing is marked on the page that a result leads to.
    localStorage.removeItem("sphinx_highlight_terms");
  });

  // A page stands once in the results, unless other sections have the words in their titles.
  const seen = new Set();
  new MutationObserver((changes) => {
    for (const item of changes.flatMap((change) => [...change.addedNodes])) {
      const link = item.nodeName === "LI" && item.querySelector("a");
      if (!link) continue;
      const page = link.pathname;
      const place = link.getAttribute("href").replace(/\.html(?=#|$)/, "");
      const keys = [page + link.hash, page + "\n" + link.textContent];
      if (keys.some((key) => seen.has(key)) || (seen.has(page) && (!link.hash || led.has(place)))) item.remove();
      seen.add(page);
      keys.forEach((key) => seen.add(key));
    }
  }).observe(document.getElementById("search-results"), { childList: true, subtree: true });
});
