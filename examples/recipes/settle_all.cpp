// Waits for all, and then looks at each: its result, or why there is none. A caller that
// is itself stopped drops the handles, and late errors go to options::on_unhandled.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

using namespace std::chrono_literals;

int size_of(const std::string& page) {
  vigil::sleep_for(10ms * page.size());
  if (page == "missing") throw std::runtime_error("no such page");
  return int(page.size());
}

int main() {
  return vigil::testing::run_virtual([] {
    const std::vector<std::string> pages = {"index", "missing", "about", "a very long page"};
    std::vector<vigil::fiber<int>> sizes;
    for (const std::string& page : pages)
      sizes.push_back(vigil::spawn(size_of, page));
    if (!vigil::wait_all_for(100ms, sizes)) {
      std::puts("not all have ended");
      for (vigil::fiber<int>& size : sizes)
        size.request_stop();  // does nothing to those that have ended
    }
    for (std::size_t i = 0; i < pages.size(); ++i) {
      try {
        std::printf("%s: %d bytes\n", pages[i].c_str(), sizes[i].join());
      } catch (const vigil::cancelled&) {
        std::printf("%s: too late\n", pages[i].c_str());
      } catch (const std::exception& e) {
        std::printf("%s: %s\n", pages[i].c_str(), e.what());
      }
    }
  });
}

//! [recipe]
