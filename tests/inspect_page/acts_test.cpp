// The acts of a live page that search: for fibers that are stuck.
#include "core/machine/sanitizer.hpp"
#include "inspect_page/page_client.hpp"
#include "support/dumped.hpp"
#include "support/note.hpp"
#include "support/text_of.hpp"

#include <vigil/inspect.hpp>
#include <vigil/vigil.hpp>

#include <chrono>
#include <cstddef>
#include <string>

#include <doctest/doctest.h>

using namespace std::chrono_literals;
using namespace vigil::testing_support;

namespace {

// Waits until so many fibers of the process wait for this.
void wait_for_parked(const std::string& reason, std::size_t n) {
  while (count_of(dumped(), ("[parked: " + reason).c_str()) != n)
    vigil::this_fiber::yield();
}

}  // namespace

TEST_SUITE("live page's acts") {
  TEST_CASE("fibers that can never go on are looked for on request, again and again") {
    vigil::inspect::install();
    const auto page = local_page();
    vigil::run({.workers = 2}, [&] {
      vigil::go({.name = "lost"}, [] { vigil::channel<int>().recv(); });
      auto open = vigil::make_channel<int>();
      auto waits = vigil::spawn({.name = "waits"}, [&] { static_cast<void>(open.recv()); });
      wait_for_parked("channel receive", 2);
      vigil::blocking([&] {
        for (int i = 0; i < 3; ++i) {
          const http_answer found = act(page, "/stuck.txt");
          NOTE("found.body: ", found.body);
          CHECK(found.status == 200);
          CHECK(found.field("Content-Type") == "text/plain; charset=utf-8");
          CHECK(found.body.find("(lost) [parked: channel receive (nil channel)") !=
                std::string::npos);
          CHECK(found.body.find("    at ") != std::string::npos);
          if (!VIGIL_TSAN) {
            CHECK(found.body.starts_with("vigil: fibers that can never go on: 1\n"));
            CHECK(found.body.find("(waits) [parked") > found.body.find("that may never go on: 1"));
          }
        }
      });
      open.close();
    });
  }
}
