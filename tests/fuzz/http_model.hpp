// A model of what the HTTP server of examples/io/http_server must make of some bytes: the
// requests that its handler sees, the status of each answer, and how the conversation
// ends. It is written from RFC 9110 and 9112 and the server's own limits, shares no code
// with the server or its parser, and reads the bytes at once.
//
// Where an answer depends on how much of a broken request has come, it says so.
#pragma once

#include "fuzz/http_grammar.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fuzz::http {

struct limits {
  std::size_t header = 0;
  std::size_t body = 0;
  bool answers_early = false;  // a request with a body that the site does not want
};

// The answer to one request, or the end.
struct verdict {
  enum kind : std::uint8_t {
    handled,  // by the handler, which sees `seen`
    early,    // without the body
    refused,  // with one of `statuses`
    waits,    // the rest is missing: 408, or nothing if the client has ended
    broken,   // any refusal, or as `waits`: it depends on how much has come
    unknown,  // too long, or not: it depends on the cuts
  };

  kind what = waits;
  std::string seen;
  std::vector<unsigned> statuses;   // without one: any refusal
  std::optional<std::string> body;  // of the answer, if that is known
  bool is_last = false;
  bool is_slow = false;  // so it sees that a client has ended, and goes
  bool is_old = false;   // HTTP/1.0

  std::size_t begin = 0;        // of the request, among all bytes
  std::size_t header = 0;       // its size; 0 if the server does not come to a body
  bool wants_continue = false;  // before its body
};

// --- a request

class request_reader {
 public:
  request_reader(std::string_view bytes, const limits& l) : left_(bytes), limits_(l) {}

  verdict read();

  std::string_view left() const { return left_; }

 private:
  struct field {
    std::string name;  // in small letters
    std::string value;
  };

  static verdict ends(verdict::kind how, std::vector<unsigned> statuses = {}) {
    verdict v;
    v.what = how;
    v.statuses = std::move(statuses);
    v.is_last = true;
    return v;
  }

  static verdict refused(unsigned status) { return ends(verdict::refused, {status}); }

  static verdict refused_somehow() { return ends(verdict::refused); }

  // These return 0, or the status of a refusal.
  unsigned read_line(std::string_view line);
  unsigned read_fields(std::string_view lines, bool is_trailer);
  unsigned read_field(const field& f);
  unsigned read_length(std::string_view value);
  unsigned read_coding(std::string_view value);
  unsigned read_header(std::string_view header);
  unsigned status_of_fields() const;

  bool split_target();
  verdict too_long(std::string_view header) const;
  bool may_be_broken(std::string_view part) const;

  // These return an end, if it comes now.
  std::optional<verdict> read_body();
  std::optional<verdict> read_chunk(std::size_t& at, bool& is_last);
  std::optional<verdict> read_trailer(std::string_view text, std::size_t from, std::size_t& at);

  verdict handled() const;

  std::vector<std::string> values(std::string_view name) const {
    std::vector<std::string> all;
    for (const field& f : fields_) {
      if (f.name == name) all.push_back(f.value);
    }
    return all;
  }

  bool is_get() const { return method_ == "GET" || method_ == "HEAD"; }

  bool is_echo() const { return method_ == "POST" && path_ == "/echo"; }

  std::string_view left_;
  const limits limits_;
  std::string method_;
  std::string target_;
  std::string path_;
  std::string query_;
  std::string host_;
  std::string body_;
  std::vector<field> fields_;
  bool is_old_ = false;  // HTTP/1.0
  bool says_close_ = false;
  bool says_keep_ = false;
  std::optional<std::uint64_t> length_;
  bool is_chunked_ = false;
  bool has_odd_coding_ = false;  // not even a token
};

// The first line, with its end.
inline unsigned request_reader::read_line(std::string_view line) {
  const std::size_t first = line.find(' ');
  if (first == line.npos || !is_token(line.substr(0, first))) return 400;
  const std::size_t second = line.find(' ', first + 1);
  if (second == line.npos || !is_target(line.substr(first + 1, second - first - 1))) return 400;
  method_ = line.substr(0, first);
  target_ = line.substr(first + 1, second - first - 1);
  const std::string_view version = line.substr(second + 1);
  if (version != "HTTP/1.1\r\n" && version != "HTTP/1.0\r\n") return 505;
  is_old_ = version[7] == '0';
  return 0;
}

// Lines, each with its end. A folded value has a limit of the parser's.
inline unsigned request_reader::read_fields(std::string_view lines, bool is_trailer) {
  constexpr std::size_t most_folded = 4096;
  while (!lines.empty()) {
    const std::size_t colon = lines.find(':');
    if (colon == lines.npos || !is_token(lines.substr(0, colon))) return 400;
    field f{small(lines.substr(0, colon)), {}};
    lines.remove_prefix(colon + 1);
    bool is_folded = false;
    for (bool goes_on = true; goes_on;) {
      const std::size_t end = lines.find("\r\n");
      if (end == lines.npos || !is_text(lines.substr(0, end))) return 400;
      const std::string_view part = trimmed(lines.substr(0, end));
      if (!part.empty() && !f.value.empty()) f.value += ' ';
      f.value += part;
      lines.remove_prefix(end + 2);
      goes_on = lines.starts_with(' ') || lines.starts_with('\t');
      is_folded = is_folded || (goes_on && !f.value.empty());
      if (is_folded && f.value.size() > most_folded) return 400;
    }
    if (const unsigned status = read_field(f)) return status;
    if (!is_trailer) fields_.push_back(std::move(f));
  }
  return 0;
}

inline unsigned request_reader::read_field(const field& f) {
  if (f.name == "content-length") return read_length(f.value);
  if (f.name == "transfer-encoding") return read_coding(f.value);
  if (f.name != "connection" && f.name != "proxy-connection") return 0;
  for (const std::string& e : elements(f.value)) {
    if (!e.empty() && !is_token(e)) return 400;
    says_close_ = says_close_ || (e == "close" && (!is_old_ || f.name == "connection"));
    says_keep_ = says_keep_ || e == "keep-alive";
  }
  return 0;
}

inline unsigned request_reader::read_length(std::string_view value) {
  if (is_chunked_) return 400;
  for (const std::string& e : elements(value)) {
    const auto n = number_of(e, 10, UINT64_MAX);
    if (!n || (length_ && *length_ != *n)) return 400;
    length_ = n;
  }
  return 0;
}

inline unsigned request_reader::read_coding(std::string_view value) {
  if (is_chunked_ || length_) return 400;
  std::vector<std::string> all = elements(value);
  std::erase(all, "");
  if (!std::all_of(all.begin(), all.end(), is_token)) has_odd_coding_ = true;
  const auto first = std::find(all.begin(), all.end(), "chunked");
  is_chunked_ = first != all.end() && first + 1 == all.end();
  return 0;
}

// Refuses what is wrong whatever its size. `header`: whole, with the empty line.
inline unsigned request_reader::read_header(std::string_view header) {
  const std::size_t line = header.find("\r\n") + 2;
  if (const unsigned status = read_line(header.substr(0, line))) return status;
  header.remove_suffix(2);
  if (const unsigned status = read_fields(header.substr(line), false)) return status;
  if (length_ && *length_ > limits_.body) return 413;
  return split_target() ? 0 : 400;
}

// RFC 9112, 3.2.
inline bool request_reader::split_target() {
  const std::vector<std::string> hosts = values("host");
  host_ = hosts.empty() ? "" : hosts.back();
  const std::string_view all = target_;
  if (method_ == "CONNECT") {
    host_ = target_;
    const std::size_t port = all.rfind(':');
    return port != all.npos && port != 0 && all.find(']', port) == all.npos && is_authority(all);
  }
  if (all == "*") {
    path_ = "*";
    return method_ == "OPTIONS";
  }
  std::string_view rest = all;
  if (!all.starts_with('/')) {
    const std::size_t slashes = std::min(all.find("://"), all.size());
    const std::string scheme = small(all.substr(0, slashes));
    if (slashes == all.size() || (scheme != "http" && scheme != "https")) return false;
    rest.remove_prefix(slashes + 3);
    host_ = rest.substr(0, rest.find_first_of("/?"));
    // RFC 9110, 4.2.1: it must have a name.
    if (host_.empty() || host_.front() == ':' || !is_authority(host_)) return false;
    rest.remove_prefix(host_.size());
  }
  const std::size_t mark = rest.find('?');
  path_ = rest.substr(0, mark);
  if (path_.empty()) path_ = "/";
  if (mark != rest.npos) query_ = rest.substr(mark + 1);
  return true;
}

inline unsigned request_reader::status_of_fields() const {
  const std::vector<std::string> hosts = values("host");
  if (hosts.size() > 1 || (hosts.empty() && !is_old_)) return 400;
  if (hosts.size() == 1 && !is_authority(hosts.front())) return 400;
  const std::vector<std::string> codings = values("transfer-encoding");
  if (!codings.empty() && is_old_) return 400;
  std::size_t chunked = 0;
  for (const std::string& value : codings) {
    for (const std::string& e : elements(value)) {
      if (!e.empty() && e != "chunked") return 501;
      chunked += e.empty() ? 0u : 1u;
    }
  }
  if (!codings.empty() && chunked != 1) return 400;
  const std::vector<std::string> expected = values("expect");
  return expected.empty() || small(expected.front()) == "100-continue" ? 0 : 417;
}

// Refuses a header, or the part of it that is there, by its size.
inline verdict request_reader::too_long(std::string_view header) const {
  constexpr std::size_t longest_method = 32;
  const std::size_t line = std::min(header.find('\n'), header.size() - 1) + 1;
  if (line <= limits_.header) return refused(431);
  return refused(std::min(header.find(' '), header.size()) > longest_method ? 501 : 414);
}

// Whether a header of which the end is missing may be refused for what is there.
inline bool request_reader::may_be_broken(std::string_view part) const {
  request_reader whole({}, limits_);
  const std::size_t line = part.find("\r\n");
  if (line == part.npos) {
    // It would be well with some end.
    for (std::string_view end = "GET / HTTP/1.1\r\n"; !end.empty(); end.remove_prefix(1)) {
      request_reader begun({}, limits_);
      if (begun.read_line(std::string(part) + std::string(end)) == 0) return false;
    }
    return true;
  }
  if (whole.read_line(part.substr(0, line + 2)) != 0) return true;
  std::string lines(part.substr(line + 2));
  const bool has_ended = lines.ends_with('\r');  // the last line, but for its last byte
  if (has_ended) lines.pop_back();
  if (lines.empty()) return false;
  if (lines.ends_with("\r\n")) return whole.read_fields(lines, false) != 0;
  request_reader named({}, limits_);
  return whole.read_fields(lines + "\r\n", false) != 0 &&
         (has_ended || named.read_fields(lines + ":\r\n", false) != 0);
}

// The end of a trailer; `text` begins with the last chunk, whose line ends at `from`.
inline std::optional<verdict> request_reader::read_trailer(std::string_view text,
                                                           std::size_t from,
                                                           std::size_t& at) {
  const std::size_t end = text.find("\r\n\r\n", from - 2);
  if (end == text.npos) {
    return text.size() > limits_.header ? refused(431) : ends(verdict::waits);
  }
  if (end + 4 > limits_.header) return ends(verdict::unknown);
  if (end + 2 > from) {
    const unsigned status = read_fields(text.substr(from, end + 2 - from), true);
    if (status != 0) return refused(status);
  }
  at += end + 4;
  return {};
}

// The chunk at `at`, which it moves behind the chunk's data, or the trailer.
inline std::optional<verdict> request_reader::read_chunk(std::size_t& at, bool& is_last) {
  const std::string_view text = left_.substr(at);
  const bool follows = at != 0;  // then the end of another one's data comes first
  if (follows && text.size() < 4) return ends(verdict::waits);
  if (follows && !text.starts_with("\r\n")) return refused(400);
  const std::size_t from = follows ? 2 : 0;
  const std::size_t end = std::min(text.find('\r', from), text.size());
  if (end + 1 < text.size() && text[end + 1] != '\n') {
    return end < limits_.header ? refused(400) : refused_somehow();
  }
  if (end + 1 >= text.size()) {
    return text.size() > limits_.header ? refused(431) : ends(verdict::waits);
  }
  if (end + 2 > limits_.header) return ends(verdict::unknown);
  const std::string_view line = text.substr(from, end - from);
  const std::size_t digits =
      std::min(line.find_first_not_of("0123456789abcdefABCDEF"), line.size());
  const auto size = number_of(line.substr(0, digits), 16, UINT64_MAX);
  if (!size) return refused(400);
  if (*size > limits_.body - body_.size()) return refused(413);
  const std::string_view extension = line.substr(digits);
  if (!is_extension(extension)) {
    // The parser looks for the end of a quoted string behind the line, and reads the rest
    // of the last chunk only with the trailer.
    const bool is_certain = extension.find('"') == extension.npos && *size != 0;
    return is_certain ? refused(400) : ends(verdict::broken);
  }
  is_last = *size == 0;
  if (is_last) return read_trailer(text, end + 2, at);
  const std::string_view data = text.substr(end + 2, *size);
  body_ += data;
  at += end + 2 + data.size();
  if (data.size() < *size) return ends(verdict::waits);
  return {};
}

inline std::optional<verdict> request_reader::read_body() {
  std::size_t at = 0;
  if (!is_chunked_) {
    body_ = left_.substr(0, length_.value_or(0));
    if (body_.size() < length_.value_or(0)) return ends(verdict::waits);
    at = body_.size();
  }
  for (bool is_last = !is_chunked_; !is_last;) {
    if (auto end = read_chunk(at, is_last)) return end;
  }
  left_.remove_prefix(at);
  return {};
}

// Answers as the target's pages do, and the example's site.
inline verdict request_reader::handled() const {
  struct page {
    std::string_view path;
    std::vector<unsigned> statuses;
    bool throws = false;
    bool is_stream = false;  // to an old client its end is the connection's
    bool is_slow = false;
  };

  static const std::vector<page> pages = {
      {"/none", {204}},
      {"/error", {500}, true},
      {"/field", {500}, true},
      {"/broken", {200}, true},
      {"/again", {500, 200}, true},  // 200 if earlier answers have filled the buffer
      {"/unchanged", {304}, false, true},
      {"/parts", {200}, false, true},
      {"/idle", {200}, false, true},
      {"/large", {200}},
      {"/connection", {200}},
      {"/own", {200}},
      {"/switch", {101}},
      {"/slow", {200}, false, false, true},
      {"/deaf", {200}, false, false, true},
  };
  page p{path_, {404}, false, false, false};
  const auto known =
      std::find_if(pages.begin(), pages.end(), [&](const page& x) { return x.path == path_; });
  if (known != pages.end()) {
    p = *known;
  } else if (!is_get() && !is_echo()) {
    p.statuses = {405};
  } else if (path_ == "/count") {
    p = {path_, {200}, false, true, true};
  } else if (path_ == "/" || path_ == "/hello" || is_echo()) {
    p.statuses = {200};
  }
  std::string list;
  const std::vector<std::string> x = values("x");
  for (const std::string& value : x)
    (list += value) += ',';
  verdict v;
  v.what = verdict::handled;
  v.statuses = p.statuses;
  v.seen = seen({method_, target_, path_, query_, host_, is_old_ ? "10" : "11", body_},
                x.size(),
                x.empty() ? "" : x.front(),
                list);
  if (is_echo()) v.body = body_;
  if (path_ == "/parts" && method_ != "HEAD") v.body = std::string(20, 'x') + std::string(300, 'y');
  v.is_slow = p.is_slow;
  v.is_old = is_old_;
  v.is_last = p.throws || says_close_ || (is_old_ && (p.is_stream || !says_keep_));
  return v;
}

inline verdict request_reader::read() {
  const std::size_t end = left_.find("\r\n\r\n");
  const std::string_view header = left_.substr(0, end == left_.npos ? end : end + 4);
  const bool is_too_long = header.size() > limits_.header;
  if (end == left_.npos) {
    if (!may_be_broken(header)) return is_too_long ? too_long(header) : ends(verdict::waits);
    return is_too_long ? refused_somehow() : ends(verdict::broken);
  }
  const unsigned status = read_header(header);
  if (has_odd_coding_) return refused_somehow();
  if (status != 0) return is_too_long ? refused_somehow() : refused(status);
  if (is_too_long) return too_long(header);
  if (const unsigned wrong = status_of_fields()) return refused(wrong);
  left_.remove_prefix(header.size());
  const bool has_body = is_chunked_ || length_.value_or(0) != 0;
  const bool is_unwanted = path_ == "/early" || (!is_get() && !is_echo());
  if (has_body && is_unwanted && limits_.answers_early) {
    return ends(verdict::early, {path_ == "/early" ? 200u : 405u});
  }
  const auto last = read_body();
  verdict v = last ? *last : handled();
  v.header = header.size();
  v.wants_continue = has_body && !is_old_ && !values("expect").empty();
  return v;
}

// --- a conversation

class reader {
 public:
  reader(std::string_view bytes, const limits& l) : all_(bytes), left_(bytes), limits_(l) {}

  // Nothing: all is answered.
  std::optional<verdict> next() {
    left_.remove_prefix(std::min(left_.find_first_not_of("\r\n"), left_.size()));
    if (left_.empty() || has_ended_) return {};
    request_reader one(left_, limits_);
    verdict v = one.read();
    v.begin = all_.size() - left_.size();
    left_ = one.left();
    has_ended_ = v.is_last;
    return v;
  }

 private:
  const std::string_view all_;
  std::string_view left_;
  const limits limits_;
  bool has_ended_ = false;
};

}  // namespace fuzz::http
