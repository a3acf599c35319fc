// As many slow clients as a live page has places, and one more. The page gives them all
// the time they want: none of them leaves because its time is over.
#include "inspect_page/page_client.hpp"
#include "inspect_page/page_server.hpp"
#include "support/temporary_folder.hpp"

#include <vigil/vigil.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace std::chrono_literals;
using namespace vigil::testing_support;
using vigil::detail::listening_socket;

namespace {

constexpr std::size_t places = 16;

vigil::inspect::live_page patient_page(listening_socket&& socket) {
  return vigil::inspect::live_page(
      std::make_unique<vigil::detail::page_server>(std::move(socket),
                                                   vigil::inspect::page_options{.announce = false},
                                                   vigil::detail::page_settings{.patience = 1h}));
}

}  // namespace

TEST_SUITE("live page's slow clients") {
  TEST_CASE("clients that ask for nothing, or never to the end, keep nobody out") {
    const auto page =
        patient_page(listening_socket::taken_over(listen_at("127.0.0.1").release(), false));
    std::vector<descriptor> slow;
    for (std::size_t i = 0; i < places; ++i) {
      slow.push_back(connect_to(page));
      if (i % 2 == 1) send_text(slow.back(), "GET / HTTP/1.1\r\n");
    }
    for (std::size_t i = 0; i < places / 2; ++i) {
      CHECK(get(page, "/").status == 200);
      // The one that came first has left, without an answer, or leaves.
      CHECK(answer_from(slow[i]).status == 0);
      slow.push_back(connect_to(page));
    }
    // The others are still served.
    send_text(slow.back(), request("GET", "/", "localhost"));
    CHECK(answer_from(slow.back()).status == 200);
    send_text(slow[places - 1], "Host: localhost\r\n\r\n");
    CHECK(answer_from(slow[places - 1]).status == 200);
  }

  TEST_CASE("clients that do not take their answers keep nobody out") {
    const temporary_folder folder;
    const std::string path = folder.file("page.sock");
    const auto page = patient_page(listening_socket::at_path(path.c_str()));
    vigil::run({.workers = 2}, [&] {
      // More than a socket has room for.
      auto open = vigil::make_channel<int>();
      for (int i = 0; i < 2'000; ++i)
        vigil::go({.name = "one of many"}, [open] { static_cast<void>(open.recv()); });
      vigil::blocking([&] {
        std::vector<descriptor> slow;
        while (slow.size() < places) {
          slow.push_back(connect_to(page));
          send_text(slow.back(), request("POST", "/dump.json", "localhost", with_token(page)));
          while (!is_readable(slow.back(), -1)) {  // a dump's signal ends a poll
          }
        }
        CHECK(get(page, "/").status == 200);
        const http_answer cut = answer_from(slow.front());
        CHECK(std::stoul(cut.field("Content-Length")) > cut.body.size());
        const http_answer whole = answer_from(slow.back());
        CHECK(std::stoul(whole.field("Content-Length")) == whole.body.size());
      });
      open.close();
    });
  }
}
