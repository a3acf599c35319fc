#include "inspect_page/page_html.hpp"

namespace VIGIL_DETAIL {
namespace {

constexpr std::string_view page_body = R"html(
<header>
  <h1>vigil</h1>
  <span id="summary"></span>
  <span id="state" role="status">loading</span>
  <input id="filter" type="search" placeholder="filter" aria-label="filter the tables">
  <button id="pause" type="button">pause</button>
  <button id="dump" type="button">dump</button>
  <button id="dump-json" type="button">dump as JSON</button>
  <button id="stuck" type="button">stuck fibers</button>
  <button id="record" type="button">record five seconds</button>
</header>
<main>
  <section><h2>Workers</h2><div id="workers"></div></section>
  <section><h2>Fibers</h2>
    <table>
      <thead id="fibers-head"></thead>
      <tbody id="fibers"></tbody>
    </table>
    <p id="more-fibers"></p>
  </section>
  <section id="tasks-part" hidden><h2>Tasks</h2>
    <table>
      <thead id="tasks-head"></thead>
      <tbody id="tasks"></tbody>
    </table>
    <p id="more-tasks"></p>
  </section>
  <section><h2>Next deadlines</h2>
    <table>
      <thead id="deadlines-head"></thead>
      <tbody id="deadlines"></tbody>
    </table>
  </section>
  <section><h2>Delays</h2><div id="lateness"></div></section>
  <section id="result-part" hidden>
    <h2>Result</h2>
    <p><a id="save">save</a> <span id="result-size"></span></p>
    <pre id="result"></pre>
  </section>
</main>
)html";

}  // namespace

std::string page_document(std::string_view nonce) {
  std::string d = "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">";
  d += "<meta name=\"viewport\" content=\"width=device-width\"><title>vigil</title>";
  d += "<link rel=\"icon\" href=\"data:,\">";
  d.append("<style nonce=\"").append(nonce).append("\">").append(page_style).append("</style>");
  d += "</head><body>";
  d += page_body;
  d.append("<script nonce=\"").append(nonce).append("\">").append(page_script);
  d += "</script></body></html>\n";
  return d;
}

std::string page_policy(std::string_view nonce) {
  std::string p = "Content-Security-Policy: default-src 'none'; connect-src 'self'; img-src data:";
  p.append("; script-src 'nonce-").append(nonce).append("'");
  p.append("; style-src 'nonce-").append(nonce).append("'");
  p += "; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
  p += "; require-trusted-types-for 'script'; trusted-types 'none'\r\n";
  return p;
}

}  // namespace VIGIL_DETAIL
