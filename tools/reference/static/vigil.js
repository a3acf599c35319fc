/* The search of the site: `vigil::sleep_for` finds what `sleep_for` finds, the guide stands
   above the reference, and both above what is for maintainers. */
document.addEventListener("DOMContentLoaded", () => {
  if (typeof Search === "undefined") return;

  const kinds = [
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
  // A title that is all of the query comes first, a page's before a section's.
  Scorer.score = (item) => {
    if (scores.has(item)) return scores.get(item);
    const isPage = !item[1].includes(" > ");
    return weightOf(item[0]) * (isPage ? 15 : 0) + weightOf(item[0]) *
      (item[4] >= 100 ? (isPage ? 120 : 70) : 0.6 * item[4]);
  };

  const members = Search.performObjectSearch;
  Search.performObjectSearch = (...given) =>
    members(...given).map((item) => scored(item, item[4] >= 16 ? 60 : 25));

  const texts = Search.performTermsSearch;
  Search.performTermsSearch = (terms, excluded) => texts(terms, excluded).map((item) => {
    const said = [...terms].map((term) => (vigilWords[term] || {})[item[0]]).filter((found) => found);
    const share = said.reduce((sum, found) => sum + found[0], 0) / Math.max(1, terms.size);
    const score = 20 + (item[4] >= Scorer.title ? 10 : 0) + 0.4 * share;
    if (said.length === 1 && terms.size === 1 && said[0][1]) {
      item[1] += ` > ${said[0][2].replace(/[&<]/g, (c) => (c === "&" ? "&amp;" : "&lt;")).replace(/`/g, "")}`;
      item[2] = `#${said[0][1]}`;
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
    if (typeof vigilWords === "undefined") window.vigilWords = {};
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
