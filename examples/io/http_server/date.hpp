// The Date header of HTTP, as a string that is built at most once a second.
//
// Each answer compares the present second with that of the string. So the string is never
// stale, no timer renews it, and an idle server does not wake for it.
//
// Thread safety: several threads may call append_to and built at a time.
#pragma once

#include <cstdint>
#include <cstdio>
#include <ctime>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include <time.h>

namespace web {

class date_header {
 public:
  // `wall`: seconds since 1970, from 0 to the year 9999; empty: the system's clock.
  explicit date_header(std::function<std::time_t()> wall = {}) : wall_(std::move(wall)) {}

  // Appends "Date: Sat, 01 Jan 2000 00:00:00 GMT" and the end of the line.
  void append_to(std::string& to) {
    const std::time_t now = wall_ ? wall_() : system_seconds();
    const std::lock_guard guard(lock_);
    if (now != second_) build(now);
    to.append(line_.data(), line_.size());
  }

  // Returns how often the string was built.
  std::uint64_t built() const {
    const std::lock_guard guard(lock_);
    return built_;
  }

 private:
  // time() may be up to a tick behind.
  static std::time_t system_seconds() {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec;
  }

  // Not strftime: its names follow the program's locale.
  void build(std::time_t now) {
    static constexpr const char* days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static constexpr const char* months[] = {
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    std::tm t{};
    gmtime_r(&now, &t);
    char text[64];
    const int n = std::snprintf(text,
                                sizeof text,
                                "Date: %s, %02d %s %04d %02d:%02d:%02d GMT\r\n",
                                days[t.tm_wday],
                                t.tm_mday,
                                months[t.tm_mon],
                                t.tm_year + 1900,
                                t.tm_hour,
                                t.tm_min,
                                t.tm_sec);
    line_.assign(text, static_cast<std::size_t>(n));
    second_ = now;
    ++built_;
  }

  const std::function<std::time_t()> wall_;
  mutable std::mutex lock_;  // held for a copy of a line; no fiber parks under it
  std::time_t second_ = -1;
  std::string line_;
  std::uint64_t built_ = 0;
};

}  // namespace web
