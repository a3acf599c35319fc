// Loads pages side by side: two at a time from one host, and four at a time in all.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <map>
#include <string>

using namespace std::chrono_literals;

int main() {
  return vigil::testing::run_virtual([] {
    const auto start = vigil::clock::now();
    std::map<std::string, vigil::semaphore> hosts;
    vigil::semaphore all(4);
    vigil::group loads;
    for (const std::string host : {"a", "a", "a", "a", "a", "b", "c", "c", "c", "d"}) {
      vigil::semaphore& of_host = hosts.try_emplace(host, 2).first->second;
      loads.go([&of_host, &all](const vigil::context& ctx) {
        const vigil::scoped_permit one(of_host, ctx);  // first: it holds up no other
        const vigil::scoped_permit of_all(all, ctx);
        vigil::sleep_for(100ms, ctx);  // loads a page
      });
    }
    loads.wait();
    std::printf("10 pages in %d ms\n", int((vigil::clock::now() - start) / 1ms));
  });
}

//! [recipe]
