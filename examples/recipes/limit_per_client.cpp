// Lets each client ask five times a second, in bursts of ten, and refuses the rest.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <map>
#include <mutex>
#include <string>

using namespace std::chrono_literals;

class limits {
 public:
  bool allows(const std::string& client) {
    const std::lock_guard lock(mutex_);
    const auto [place, is_new] = clients_.try_emplace(client, vigil::rate::per(5, 1s), 10);
    return place->second.allow();
  }

  void forget_idle() {  // call it now and then: a full bucket is the same as a new one
    const std::lock_guard lock(mutex_);
    std::erase_if(clients_, [](const auto& each) { return each.second.tokens() == 10; });
  }

 private:
  vigil::mutex mutex_;
  std::map<std::string, vigil::rate_limiter> clients_;
};

int main() {
  return vigil::testing::run_virtual([] {
    limits of;
    for (int second = 0; second < 3; ++second, vigil::sleep_for(1s)) {
      int served = 0;
      for (int i = 0; i < 100; ++i)
        served += of.allows("ada") ? 1 : 0;
      const bool other = of.allows("bob");
      std::printf("100 requests, %d served; %s\n", served, other ? "bob as well" : "not bob");
    }
    of.forget_idle();
  });
}

//! [recipe]
