// Stops asking a server that keeps failing, and tries it again after half a minute.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <mutex>
#include <stdexcept>

using namespace std::chrono_literals;

class breaker {
 public:
  template <class F>
  auto call(F f) {
    {
      const std::lock_guard lock(mutex_);
      if (failures_ >= 3) {
        if (vigil::clock::now() < next_try_) throw std::runtime_error("not asked");
        next_try_ = vigil::deadline_in(30s);  // this caller tries, the others go on as before
      }
    }
    try {
      auto result = f();
      const std::lock_guard lock(mutex_);
      failures_ = 0;
      return result;
    } catch (const vigil::cancelled&) {
      throw;  // which says nothing about the server
    } catch (const std::exception&) {
      const std::lock_guard lock(mutex_);
      if (++failures_ >= 3) next_try_ = vigil::deadline_in(30s);
      throw;
    }
  }

 private:
  vigil::mutex mutex_;
  int failures_ = 0;  // in a row
  vigil::clock::time_point next_try_;
};

int main() {
  return vigil::testing::run_virtual([] {
    breaker server;
    for (int second = 0; second < 60; second += 10, vigil::sleep_for(10s)) {
      try {
        const int n =
            server.call([&] { return second < 50 ? throw std::runtime_error("down") : 42; });
        std::printf("%d s: %d\n", second, n);
      } catch (const std::runtime_error& e) {
        std::printf("%d s: %s\n", second, e.what());
      }
    }
  });
}

//! [recipe]
