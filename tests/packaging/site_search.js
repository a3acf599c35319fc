// The order of a search's results, by the site's own scripts without a browser: usage:
//   node site_search.js HTML <QUERIES
// A query is a line; so is its answer, the addresses of the results as JSON. What the scripts
// ask of a page is made here: elements that only keep what is put into them.
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const html = process.argv[2];

class Element {
  constructor(name) { Object.assign(this, { nodeName: name.toUpperCase(), children: [], dataset: {} }); }
  classList = { add() {} };
  appendChild(child) {
    this.children.push(child);
    child.parent = this;
    if (child.nodeName === "LI") world.watch([{ addedNodes: [child] }]);
    if (child.onload) { run(child.src); child.onload(); }
    return child;
  }
  remove() { this.parent.children.splice(this.parent.children.indexOf(this), 1); }
  querySelector(name) { return this.children.find((child) => child.nodeName === name.toUpperCase()); }
  getAttribute() { return this.href; }
  get pathname() { return this.href.split("#")[0]; }
  get hash() { return this.href.includes("#") ? "#" + this.href.split("#")[1] : ""; }
  get textContent() { return this.innerHTML || ""; }
  get firstChild() { return undefined; }
  querySelectorAll() { return []; }
}

const ready = [];
const world = {
  console, URL, URLSearchParams, NodeFilter: {}, DOMParser: class {}, SPHINX_HIGHLIGHT_ENABLED: false,
  localStorage: { setItem() {}, removeItem() {} },
  setTimeout: (f) => f(),
  MutationObserver: class { constructor(f) { world.watch = f; } observe() {} },
  document: {
    readyState: "loading", body: new Element("body"), documentElement: { dataset: { } },
    addEventListener: (event, f) => ready.push(f),
    createElement: (name) => new Element(name), getElementById: () => new Element("div"),
    querySelectorAll: () => [], querySelector: () => null,
  },
};
Object.assign(world, { window: world, location: new URL("search.html", "file://" + path.resolve(html) + "/") });
vm.createContext(world);
function run(url) {
  const file = url.startsWith("file:") ? new URL(url).pathname : path.join(html, url);
  vm.runInContext(fs.readFileSync(file, "utf8"), world, { filename: file });
}
vm.runInContext(`const _ = (text) => text; const _ready = () => {}; const Documentation = { gettext: _ };
  const DOCUMENTATION_OPTIONS = { URL_ROOT: "", BUILDER: "html", FILE_SUFFIX: ".html", LINK_SUFFIX: ".html" };`, world);
for (const file of ["_static/vigil.js", "_static/searchtools.js", "_static/language_data.js"]) run(file);
vm.runInContext("globalThis.Search = Search; globalThis.Scorer = Scorer;", world);
(async () => {
  ready[0]();  // vigil.js's own
  run("searchindex.js");
  for (const query of fs.readFileSync(0, "utf8").split("\n").filter((line) => line)) {
    const results = new Element("ul");
    Object.assign(world.Search, { output: results, title: {}, status: {}, _pulse_status: -1 });
    await world.Search.query(query);
    console.log(JSON.stringify(results.children.map((item) => item.querySelector("a").href)));
  }
})();
