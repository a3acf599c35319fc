#include "site.hpp"

#include <vigil/time.hpp>

#include <chrono>
#include <string>
#include <string_view>

namespace web {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view page = R"(<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>vigil</title>
<style>body { font: 1.1rem/1.5 sans-serif; max-width: 40rem; margin: 3rem auto }</style>
<h1>It works</h1>
<p>Each request is served by a fiber that reads, answers and waits in straight lines.
Also here: <a href="/hello">plain text</a>, <a href="/count">a stream</a>.</p>
<pre id="stream"></pre>
<script>
(async () => {
  const reader = (await fetch("/count")).body.getReader();
  const text = new TextDecoder();
  for (let part; !(part = await reader.read()).done;)
    document.getElementById("stream").textContent += text.decode(part.value);
})();
</script>
</html>
)";

//! [count]
void count(response& out, const vigil::context& ctx) {
  for (int i = 1; i <= 5; ++i) {
    if (i > 1) vigil::sleep_for(100ms, ctx);
    out.write("line " + std::to_string(i) + "\n");  // a chunk, sent now
  }
}

//! [count]

bool is_echo(const request& in) {
  return in.path() == "/echo" && in.method() == "POST";
}

}  // namespace

void check_method(const request& in, response& out, const vigil::context&) {
  if (in.method() == "GET" || in.method() == "HEAD" || is_echo(in)) return;
  out.status = 405;
  out.set("Allow", in.path() == "/echo" ? "POST" : "GET, HEAD");
}

void answer_site(const request& in, response& out, const vigil::context& ctx) {
  check_method(in, out, ctx);
  if (out.status != 200) return;
  if (in.path() == "/") {
    out.set("Content-Type", "text/html; charset=utf-8");
    out.send(page);
    return;
  }
  out.set("Content-Type", "text/plain; charset=utf-8");
  if (is_echo(in)) {
    out.send(in.body());
  } else if (in.path() == "/hello") {
    out.send("hello, world\n");
  } else if (in.path() == "/count") {
    count(out, ctx);
  } else {
    out.status = 404;
    out.send("there is no such page\n");
  }
}

}  // namespace web
