// Reads what this process writes to its standard error, and passes it on.
//
// For a test that has to go on until a report has been written, however long the machine
// takes for that.
#pragma once

#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>

#include <unistd.h>

namespace vigil::testing_support {

class error_output {
 public:
  error_output() : kept_(::dup(2)) {
    if (kept_ < 0 || ::pipe(ends_) != 0 || ::dup2(ends_[1], 2) < 0) std::abort();
    ::close(ends_[1]);
    reader_ = std::thread([this] { pass_on(); });
  }

  ~error_output() {
    ::dup2(kept_, 2);  // closes the last end that writes
    reader_.join();
    ::close(ends_[0]);
    ::close(kept_);
  }

  error_output(const error_output&) = delete;
  error_output& operator=(const error_output&) = delete;

  // Whether the text has been written.
  bool has(const std::string& text) {
    const std::lock_guard guard(lock_);
    return seen_.find(text) != std::string::npos;
  }

 private:
  void pass_on() {
    char some[256];
    for (;;) {
      const ssize_t n = ::read(ends_[0], some, sizeof some);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return;
      if (::write(kept_, some, static_cast<std::size_t>(n)) != n) std::abort();
      const std::lock_guard guard(lock_);
      seen_.append(some, static_cast<std::size_t>(n));
    }
  }

  const int kept_;
  int ends_[2];
  std::mutex lock_;
  std::string seen_;
  std::thread reader_;
};

}  // namespace vigil::testing_support
