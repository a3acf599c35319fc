#include "soak/ledger.hpp"

#include <cstdio>
#include <string>

namespace vigil::soak {
namespace {

// More are of one cause.
constexpr int most_shown = 20;

}  // namespace

entry::entry(ledger& of, side s, const char* name) : name_(name), side_(s) {
  of.entries_.push_back(this);
}

std::uint64_t ledger::sum(side s) const noexcept {
  std::uint64_t n = 0;
  for (const entry* e : entries_)
    if (e->which() == s) n += e->count();
  return n;
}

void book::fail(std::string_view where, const std::string& text) {
  failed_.store(true);
  const std::lock_guard guard(lock_);
  if (shown_++ >= most_shown) return;
  const std::chrono::duration<double> since = std::chrono::steady_clock::now() - start_;
  std::fprintf(stderr,
               "soak: FAILED: %.*s: %s (after %.1f s)\n",
               static_cast<int>(where.size()),
               where.data(),
               text.c_str(),
               since.count());
}

std::string book::open_entries() const {
  std::string text;
  for (const ledger* l : all_) {
    const std::uint64_t opened = l->sum(side::opened);
    const std::uint64_t closed = l->sum(side::closed);
    if (opened == closed) continue;
    if (!text.empty()) text += "; ";
    text += std::string(l->promise_) + ": " + std::to_string(opened) + " opened, " +
            std::to_string(closed) + " closed";
  }
  return text;
}

std::string book::table() const {
  std::string text;
  const auto add = [&text](const ledger* l, side s) {
    const char* between = "";
    for (const entry* e : l->entries_) {
      if (e->which() != s) continue;
      text += between + std::to_string(e->count()) + " " + e->name();
      between = s == side::closed ? " + " : ", ";
    }
  };
  for (const ledger* l : all_) {
    char head[64];
    std::snprintf(head, sizeof head, "  %-22s ", l->promise_);
    text += head;
    add(l, side::opened);
    text += " = ";
    add(l, side::closed);
    std::string::size_type before = text.size();
    text += "  (";
    const std::string::size_type start = text.size();
    add(l, side::note);
    if (text.size() == start) {
      text.resize(before);
    } else {
      text += ")";
    }
    text += "\n";
  }
  return text;
}

}  // namespace vigil::soak
