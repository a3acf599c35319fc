/* The search of the site: `vigil::sleep_for` finds what `sleep_for` finds, and a page stands
   once in the results, unless one of its sections does so too. */
document.addEventListener("DOMContentLoaded", () => {
  if (typeof Search === "undefined") return;
  const query = Search.query;
  Search.query = (words) => query(words.replace(/\bvigil::/g, ""));

  const results = document.getElementById("search-results");
  const seen = new Set();
  new MutationObserver((changes) => {
    for (const item of changes.flatMap((change) => [...change.addedNodes])) {
      const link = item.nodeName === "LI" && item.querySelector("a");
      if (!link) continue;
      const page = link.pathname;
      if (seen.has(page + link.hash) || (seen.has(page) && !link.hash)) item.remove();
      seen.add(page).add(page + link.hash);
    }
  }).observe(results, { childList: true, subtree: true });
});
