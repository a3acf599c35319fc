// The wire between two ends of TLS, for the target tls_stream: bytes are cut on their
// way, held up, and in one mode changed: flipped, dropped, inserted, sent again, or cut
// off.
#pragma once

#include <vigil/io/deadline_stream.hpp>
#include <vigil/io/memory_stream.hpp>
#include <vigil/vigil.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/write.hpp>

namespace fuzz::tls {

using boost::system::error_code;
using below = vigil::io::deadline_stream<vigil::io::memory_stream>;

enum class change : std::uint8_t { flip, drop, insert, again, cut_off };

struct changed_place {
  std::size_t at = 0;
  change how = change::flip;
  std::uint8_t value = 0;
};

// The wire stands still for so long before this byte.
struct stall {
  std::size_t at = 0;
  std::chrono::milliseconds time{};
};

struct direction {
  // The sizes of the first pieces; the rest goes as it comes.
  std::string_view pieces;
  std::vector<stall> stalls;           // by `at`
  std::vector<changed_place> changes;  // by `at`
};

// Changes bytes on their way, by their place among all that the sender has sent.
class changer {
 public:
  explicit changer(const direction& d) : left_(d.changes) {}

  std::string next(std::string_view bytes) {
    std::string out;
    for (const char c : bytes) {
      std::size_t drops = 0;
      char sent = c;
      for (; !left_.empty() && left_.front().at <= seen_; left_.erase(left_.begin()))
        apply(left_.front(), sent, out, drops);
      ++seen_;
      dropping_ = std::max(dropping_, drops);
      if (is_cut_off_) break;
      if (dropping_ != 0) {
        --dropping_;
        continue;
      }
      out += sent;
      passed_ += sent;
    }
    return out;
  }

  bool has_changed() const { return has_changed_; }

  bool is_cut_off() const { return is_cut_off_; }

 private:
  void apply(const changed_place& c, char& sent, std::string& out, std::size_t& drops) {
    has_changed_ = true;
    switch (c.how) {
      case change::flip:
        sent = static_cast<char>(sent ^ (c.value == 0 ? 1 : c.value));
        break;
      case change::drop:
        drops = c.value + std::size_t{1};
        break;
      case change::insert:
        out.append(c.value % 8 + std::size_t{1}, static_cast<char>(c.value));
        break;
      case change::again:
        out += passed_.substr(passed_.size() - std::min<std::size_t>(c.value, passed_.size()));
        break;
      case change::cut_off:
        is_cut_off_ = true;
        break;
    }
  }

  std::vector<changed_place> left_;
  std::string passed_;
  std::size_t seen_ = 0;
  std::size_t dropping_ = 0;
  bool has_changed_ = false;
  bool is_cut_off_ = false;
};

// Carries one direction to its end.
class carrier {
 public:
  carrier(below& from, below& to, const direction& d)
      : from_(from), to_(to), pieces_(d.pieces), stalls_(d.stalls), changer_(d) {}

  // Returns whether a byte was changed.
  bool carry() {
    error_code read_error;
    char room[2048];
    while (!read_error) {
      const std::size_t n = from_.read_some(boost::asio::buffer(room), read_error);
      pass_on(changer_.next({room, n}));
      // The rest is read all the same, so that its sender does not wait.
      if (changer_.is_cut_off() && !write_error_) {
        to_.close_write(write_error_);
        write_error_ = boost::asio::error::broken_pipe;
      }
    }
    if (!write_error_) to_.close_write(write_error_);
    return changer_.has_changed();
  }

 private:
  void pass_on(std::string_view rest) {
    while (!rest.empty() && !write_error_) {
      std::size_t size = rest.size();
      if (!stalls_.empty()) {
        const stall& next = stalls_.front();
        if (next.at <= passed_) {
          const std::chrono::milliseconds time = next.time;
          stalls_.erase(stalls_.begin());
          vigil::sleep_for(time);
          continue;
        }
        size = std::min(size, next.at - passed_);
      }
      const bool is_cut = !pieces_.empty();
      if (is_cut) {
        size = std::min(size, static_cast<std::uint8_t>(pieces_.front()) + std::size_t{1});
        pieces_.remove_prefix(1);
      }
      const std::string_view now = rest.substr(0, size);
      rest.remove_prefix(now.size());
      passed_ += now.size();
      boost::asio::write(to_, boost::asio::buffer(now), write_error_);
      if (is_cut) vigil::this_fiber::yield();
    }
  }

  below& from_;
  below& to_;
  std::string_view pieces_;
  std::vector<stall> stalls_;
  changer changer_;
  std::size_t passed_ = 0;
  error_code write_error_;
};

}  // namespace fuzz::tls
