// Covers: src/inspect_page/page_http.cpp src/inspect_page/page_request.cpp
// Covers: src/inspect_page/page_server.cpp src/inspect_page/waiting_peers.cpp
//
// Requests to a live page, once whole and once cut. Both get the same answer, which is
// one of HTTP/1.1 that no other origin may read. A request that is served names this
// machine, and one that acts has the token, and no origin but the page's own: a reader of
// headers that is not Beast's says so, and that no other request is forbidden. It also
// says which hosts other rules would allow. A look shows what its address says.
//
// The page is one of a process, with a thread of its own: time is real. So a request
// whose time is over (408) has a millisecond, and may be answered all the same. Beside a
// crowd of silent peers, or of peers that all wait for a look, the page answers as if it
// were alone, and so after a peer that has left in the middle of its answer. A page that
// was told to stop ends.
#include "fuzz/http_answers.hpp"
#include "fuzz/http_grammar.hpp"
#include "fuzz/input.hpp"
#include "fuzz/page_peers.hpp"
#include "fuzz/page_program.hpp"
#include "inspect_page/page_server.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <arpa/inet.h>

namespace {

using namespace vigil::detail;
using namespace fuzz;
using fuzz::http::field;
using fuzz::http::small;
using fuzz::http::trimmed;

// --- the reply

struct reply {
  unsigned status = 0;  // 0: the connection ended without one
  std::string head;     // without what differs from one answer to the next
  std::string_view body;
};

reply parsed(std::string_view text) {
  reply r;
  if (text.empty()) return r;
  const std::size_t end = text.find("\r\n\r\n");
  expect(text.starts_with("HTTP/1.1 ") && end != text.npos, "a reply has a head");
  const std::string_view head = text.substr(0, end + 2);
  r.body = text.substr(end + 4);
  std::from_chars(head.data() + 9, head.data() + 12, r.status);
  const std::array known = {200u, 400u, 403u, 404u, 405u, 408u, 409u, 413u, 429u, 431u, 503u, 507u};
  expect(std::find(known.begin(), known.end(), r.status) != known.end(), "a status of the page");
  std::size_t length = 0;
  const std::string_view told = field(head, "Content-Length");
  std::from_chars(told.data(), told.data() + told.size(), length);
  expect(r.body.empty() || r.body.size() == length, "a body is as long as the head says");
  expect(field(head, "Cache-Control") == "no-store" && field(head, "Connection") == "close" &&
             field(head, "X-Content-Type-Options") == "nosniff" &&
             field(head, "X-Frame-Options") == "DENY" &&
             field(head, "Cross-Origin-Resource-Policy") == "same-origin" &&
             field(head, "Content-Security-Policy").starts_with("default-src 'none';") &&
             head.find("Access-Control") == head.npos,
         "no other origin may read a reply");
  r.head = head;
  if (r.status != 200) return r;
  for (const std::string_view what : {"nonce-", "Content-Length: "}) {
    for (std::size_t at = 0; (at = r.head.find(what, at)) != r.head.npos;) {
      at += what.size();
      r.head.erase(at, r.head.find_first_of("';\r", at) - at);
    }
  }
  return r;
}

// --- what a request says, read in another way

struct seen_request {
  std::string_view method;
  std::string_view path;
  std::vector<std::pair<std::string, std::string>> fields;

  std::vector<std::string> all(std::string_view name) const {
    std::vector<std::string> found;
    for (const auto& [key, value] : fields) {
      if (key == name) found.push_back(value);
    }
    return found;
  }
};

// Reads a request that the page has taken to be right.
seen_request read_again(std::string_view text) {
  seen_request r;
  while (text.starts_with("\r\n"))
    text.remove_prefix(2);
  const auto line_of = [&text] {
    const std::size_t end = text.find("\r\n");
    expect(end != text.npos, "a request that is served has whole lines");
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 2);
    return line;
  };
  const std::string_view first = line_of();
  const std::size_t space = std::min(first.find(' '), first.size());
  r.method = first.substr(0, space);
  const std::string_view target = first.substr(std::min(space + 1, first.size()));
  r.path = target.substr(0, target.find_first_of(" ?"));
  for (std::string_view line; !(line = line_of()).empty();) {
    const bool goes_on = line.front() == ' ' || line.front() == '\t';
    if (goes_on && !r.fields.empty()) {
      std::string& value = r.fields.back().second;
      value = trimmed(value + ' ' + std::string(trimmed(line)));
      continue;
    }
    const std::size_t colon = line.find(':');
    expect(colon != line.npos, "a field has a name");
    r.fields.emplace_back(small(line.substr(0, colon)), trimmed(line.substr(colon + 1)));
  }
  return r;
}

// `is_exposed`: any machine, by its address.
bool names_this_machine(std::string host,
                        std::string_view other_name = host_name,
                        bool is_exposed = false) {
  host = small(host);
  const std::size_t name_end = host.starts_with('[') ? host.find(']') + 1 : host.find(':');
  const std::string name = host.substr(0, name_end);
  const std::string port = host.substr(std::min(name_end, host.size()));
  if (!port.empty() && (port.front() != ':' || port.size() == 1 || port.size() > 6 ||
                        port.find_first_not_of("0123456789", 1) != port.npos)) {
    return false;
  }
  if (name == "localhost" || (!name.empty() && name == other_name)) return true;
  in6_addr v6{};
  if (name.size() > 2 && name.front() == '[') {
    if (::inet_pton(AF_INET6, name.substr(1, name.size() - 2).c_str(), &v6) != 1) return false;
    return is_exposed || IN6_IS_ADDR_LOOPBACK(&v6) ||
           (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
  }
  in_addr v4{};
  return ::inet_pton(AF_INET, name.c_str(), &v4) == 1 && (is_exposed || name.starts_with("127."));
}

// Checks the first host that a request names, for pages with other rules.
void check_rules(std::string_view bytes) {
  constexpr std::string_view name = "Host: ";
  const std::size_t at = bytes.find(name);
  if (at == bytes.npos) return;
  const std::string_view rest = bytes.substr(at + name.size());
  const std::string host(rest.substr(0, rest.find_first_of(std::string_view("\r\0", 2))));
  for (const std::string_view other_name : {std::string_view(), host_name}) {
    for (const bool is_exposed : {false, true}) {
      const page_rules rules{
          .is_exposed = is_exposed, .host_name = std::string(other_name), .token = {}};
      expect(is_allowed_host(host, rules) == names_this_machine(host, other_name, is_exposed),
             "the rules allow the same hosts");
    }
  }
}

bool names_this_machine(const seen_request& request) {
  const auto hosts = request.all("host");
  return hosts.size() == 1 && names_this_machine(hosts[0]);
}

// Whether it has the token, and no origin but the page's own. Caller: it has one host.
bool may_act(const page_in_memory& page, const seen_request& request) {
  const auto tokens = request.all("x-vigil-token");
  const auto origins = request.all("origin");
  return tokens.size() == 1 && tokens[0] == page.token() &&
         (origins.empty() || small(origins[0]) == "http://" + small(request.all("host")[0]));
}

// Checks that a look shows what its address says. Some members are in no other look.
void check_look(std::string_view path, std::string_view body, bool has_program) {
  struct member {
    std::string_view path;
    std::string_view name;
    bool is_of_runtime = true;  // so it is missing if none is shown
  };

  constexpr member members[] = {{"/tasks.json", "\"runnable\":", false},
                                {"/workers.json", "\"asleep\":"},
                                {"/lateness.json", "\"ready_fibers\":"}};
  for (const member& m : members) {
    const bool is_wanted = path == m.path || path == "/state.json";
    expect((body.find(m.name) != body.npos) == (is_wanted && (has_program || !m.is_of_runtime)),
           "a look shows what its address says");
  }
  const bool has_groups = path == "/fibers.json" || path == "/tasks.json" || path == "/state.json";
  expect((body.find("\"groups\":") != body.npos) == has_groups, "fibers and tasks are in groups");
}

// Checks a request that was answered otherwise than by a refusal.
void check_served(const page_in_memory& page,
                  std::string_view bytes,
                  const reply& r,
                  bool has_program) {
  const seen_request request = read_again(bytes);
  expect(names_this_machine(request), "a request names this machine");
  if (request.method == "GET" || request.method == "HEAD") {
    expect(r.status != 409, "a look does not act");
    expect(request.method == "GET" || r.body.empty(), "HEAD has no body");
    if (request.method == "GET" && request.path != "/")
      check_look(request.path, r.body, has_program);
    return;
  }
  expect(request.method == "POST", "other methods are refused");
  expect(may_act(page, request), "what acts has the token, and comes from no other page");
}

// Checks a request that was refused with 403.
void check_forbidden(const page_in_memory& page, std::string_view bytes) {
  const seen_request request = read_again(bytes);
  expect(!names_this_machine(request) || (request.method == "POST" && !may_act(page, request)),
         "what may be done is not forbidden");
}

// The token for 1, and for 2 more than a head may have. The token with another first or
// last digit for 3 and 4. For 5 the `group`.
std::string expanded(const page_in_memory& page, std::string_view bytes, const std::string& group) {
  std::string all;
  for (const char c : bytes) {
    if (c == '\1' || c == '\3' || c == '\4') {
      std::string token = page.token();
      if (c != '\1') (c == '\3' ? token.front() : token.back()) ^= 1;
      all += token;
    } else if (c == '\2') {
      all.append(8000, 'x');
    } else if (c == '\5') {
      all += group;
    } else {
      all += c;
    }
  }
  return all;
}

bool is_refusal(const reply& r) {
  return r.status == 0 || r.status / 100 == 4;
}

bool is_busy(std::string_view text) {
  return text.starts_with("HTTP/1.1 429 ") || text.starts_with("HTTP/1.1 408 ") ||
         text.starts_with("HTTP/1.1 503 ");
}

// Asks again if the act before has not ended altogether, or a busy machine was too slow.
// No request is refused by 503 for what it says.
std::string reply_in_time(const page_in_memory& page,
                          std::string_view bytes,
                          std::string_view pieces) {
  for (int tries = 0;; ++tries) {
    expect(tries < 1000, "the page has time at some time");
    std::string r = reply_to(page, bytes, pieces);
    if (!is_busy(r)) return r;
  }
}

// The cuts decide how much is parsed of a head that is too long, or not whole.
void check_same(const reply& whole, const reply& other, bool is_long) {
  const auto is_none = [](const reply& r) { return r.status == 0 || r.status == 400; };
  if ((is_long && is_refusal(whole) && is_refusal(other)) || (is_none(whole) && is_none(other)))
    return;
  const bool is_same = whole.status == other.status && whole.head == other.head;
  if (!is_same)
    std::fprintf(stderr, "whole:\n%s\nother:\n%s\n", whole.head.c_str(), other.head.c_str());
  expect(is_same, "the reply is the same");
  if (whole.status != 200) expect(whole.body == other.body, "the text of a refusal is the same");
}

// The same request from two peers at a time: of two acts one may have to wait.
void check_twice(const page_in_memory& page,
                 std::string_view bytes,
                 const reply& whole,
                 bool is_long) {
  const std::array peers = {page.connect(), page.connect()};
  for (const int s : peers) {
    send(s, bytes);
    ::shutdown(s, SHUT_WR);
  }
  for (const int s : peers) {
    const std::string text = rest_of(s);
    if (!is_busy(text)) check_same(whole, parsed(text), is_long);
  }
}

void check_beside_looks(const page_in_memory& page,
                        const shown_program& program,
                        std::string_view bytes,
                        const reply& whole,
                        bool is_long) {
  busy_crowd others(page, program);
  const int s = page.connect();
  send(s, bytes);
  ::shutdown(s, SHUT_WR);
  until_read(s);
  const std::vector<std::string> looks = others.replies();
  const std::string text = rest_of(s);
  if (!is_busy(text)) check_same(whole, parsed(text), is_long);
  for (const std::string& look : looks)
    expect(is_busy(look) || parsed(look).status == 200, "all that wait for a look get one");
}

}  // namespace

// LeakSanitizer no longer looks at a thread that is about to end, as those of dumps are.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:__cxa_thread_atexit_impl\n";
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  input in(data, size);
  const std::uint8_t flags = in.byte();
  manner how;
  how.has_small_results = (flags & 0x20) != 0;
  how.is_impatient = (flags & 0x40) != 0;
  how.is_crowded = (flags & 0x80) != 0;
  const std::uint8_t more = in.byte();
  how.has_program = (more & 0x01) != 0;
  how.has_turns = (more & 0x02) != 0;
  how.is_left = (more & 0x04) != 0;
  how.is_asked_twice = (more & 0x08) != 0;
  how.has_looks = (more & 0x10) != 0;
  how.is_stopped = (more & 0x20) != 0;
  std::optional<shown_program> program;
  if (how.has_program) program.emplace(how.has_turns ? 1500 : 1);
  page_in_memory page(how);
  const std::string_view pieces = in.text(flags % 32);
  const std::string_view given = in.rest();
  const std::string bytes = expanded(page, given, program ? program->group() : std::string());
  check_rules(bytes);
  if (how.is_impatient) {
    const int s = page.connect();
    send(s, bytes);
    const std::string text = rest_of(s);
    parsed(text);
    return 0;
  }
  {
    const crowd others(page, how.is_crowded ? 20 : 0);
    if (how.is_left) leave_after(page, bytes);
    const std::string text = reply_in_time(page, bytes, {});
    const std::string cut_text = reply_in_time(page, bytes, pieces);
    const reply whole = parsed(text);
    const bool is_long = given.find('\2') != given.npos;
    check_same(whole, parsed(cut_text), is_long);
    constexpr unsigned not_recording = 409;
    if (!is_refusal(whole) || whole.status == not_recording)
      check_served(page, bytes, whole, how.has_program);
    if (whole.status == 403) check_forbidden(page, bytes);
    if (how.is_asked_twice) check_twice(page, bytes, whole, is_long);
    if (how.has_looks && program && !how.is_crowded)
      check_beside_looks(page, *program, bytes, whole, is_long);
  }
  if (how.is_stopped) page.stop();
  return 0;
}
