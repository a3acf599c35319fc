// Ledgers: what is opened must be closed, each exactly once.
//
//   struct : ledger {
//     using ledger::ledger;
//     opened armed{*this, "armed"};
//     closed fired{*this, "fired"};
//     closed stopped{*this, "stopped"};
//   } timers{book, "timers"};
//
// A ledger is balanced if its opened entries add up to its closed ones. The book asks for
// that whenever all actors rest, and prints the entries at the end.
//
// Thread safety: any fiber or thread may count and fail at any time. Ledgers are made
// before the first count.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace vigil::soak {

class ledger;

// The sides of a ledger. A note is only shown.
enum class side : std::uint8_t { opened, closed, note };

class entry {
 public:
  entry(ledger& of, side s, const char* name);
  entry(const entry&) = delete;
  entry& operator=(const entry&) = delete;

  void operator++() noexcept { n_.fetch_add(1, std::memory_order_relaxed); }

  void operator+=(std::uint64_t n) noexcept { n_.fetch_add(n, std::memory_order_relaxed); }

  // ordering: the book looks when nothing counts.
  std::uint64_t count() const noexcept { return n_.load(std::memory_order_relaxed); }

  side which() const noexcept { return side_; }

  const char* name() const noexcept { return name_; }

 private:
  const char* name_;
  side side_;
  std::atomic<std::uint64_t> n_{0};
};

struct opened : entry {
  opened(ledger& of, const char* name) : entry(of, side::opened, name) {}
};

struct closed : entry {
  closed(ledger& of, const char* name) : entry(of, side::closed, name) {}
};

struct note : entry {
  note(ledger& of, const char* name) : entry(of, side::note, name) {}
};

// book: all ledgers, and what went wrong.
class book {
 public:
  // Writes the text and the real time since the start, and makes has_failed() true.
  void fail(std::string_view where, const std::string& text);

  bool has_failed() const noexcept { return failed_.load(); }

  // The sums of the ledgers that are not balanced; "" if all are.
  std::string open_entries() const;
  // A table of all ledgers.
  std::string table() const;

 private:
  friend class ledger;

  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::vector<const ledger*> all_;
  std::mutex lock_;
  int shown_ = 0;
  std::atomic<bool> failed_{false};
};

class ledger {
 public:
  ledger(book& in, const char* promise) : book_(in), promise_(promise) { in.all_.push_back(this); }

  ledger(const ledger&) = delete;
  ledger& operator=(const ledger&) = delete;

  // Does nothing if it holds.
  void must(bool holds, const char* text) const {
    if (!holds) [[unlikely]]
      book_.fail(promise_, text);
  }

  void fail(const std::string& text) const { book_.fail(promise_, text); }

 private:
  friend class book;
  friend class entry;

  std::uint64_t sum(side s) const noexcept;

  book& book_;
  const char* promise_;
  std::vector<const entry*> entries_;
};

}  // namespace vigil::soak
