// Looks a name up once for all that ask, and remembers the answer for a minute.
//! [recipe]
#include <vigil/single_flight.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <map>
#include <mutex>
#include <string>

using namespace std::chrono_literals;

class names {
 public:
  int find(const std::string& name) {
    return flights_.call(name, [&] {
      {
        const std::lock_guard lock(mutex_);
        const auto known = known_.find(name);
        if (known != known_.end() && vigil::clock::now() < known->second.until)
          return known->second.address;
      }
      const int address = ask_server(name);  // without the lock; an error is not remembered
      const std::lock_guard lock(mutex_);
      known_[name] = {address, vigil::deadline_in(1min)};
      return address;
    });
  }

 private:
  struct entry {
    int address = 0;
    vigil::clock::time_point until;
  };

  static int ask_server(const std::string& name) {
    std::printf("asking for %s\n", name.c_str());
    vigil::sleep_for(20ms);
    return int(name.size());
  }

  vigil::mutex mutex_;
  std::map<std::string, entry> known_;
  vigil::single_flight<std::string, int> flights_;
};

int main() {
  return vigil::testing::run_virtual([] {
    names n;
    for (int hour = 0; hour < 2; ++hour, vigil::sleep_for(1h)) {
      vigil::group asking;
      for (int i = 0; i < 100; ++i)
        asking.go([&n] { n.find("example.org"); });
      asking.wait();
      std::printf("%d\n", n.find("example.org"));
    }
  });
}

//! [recipe]
